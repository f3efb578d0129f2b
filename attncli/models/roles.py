"""Which tensors a Spec needs, by role, and their shapes. Linear weights are [out, in]."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from attncli.mechanism.spec import Attention, Block, Experts, Mlp, RelativeBuckets, Spec

TABLES = ("tokens", "positions", "types", "attn.buckets")
"""Roles that are looked up, not multiplied: they never have a bias."""


@dataclass(frozen=True)
class Role:
    """A part that a tensor plays. optional: of an output head, which a file may leave out."""

    name: str
    shape: tuple[int, ...]
    optional: bool = False

    @property
    def module(self) -> str:
        """The name without ".weight" or ".bias", as families list it."""
        return self.name.removesuffix(".weight").removesuffix(".bias")

    @property
    def suffix(self) -> str:
        """ ".weight", ".bias" or nothing."""
        return self.name[len(self.module) :]


def layer_roles(spec: Spec, block: Block) -> list[Role]:
    """The roles of one layer."""
    return list(_with_biases(spec, _of_layer(spec, block)))


def _of_layer(spec: Spec, block: Block) -> Iterator[Role]:
    width = spec.d_model
    yield from _attention("attn", block.attention, width)
    if block.cross is not None:
        yield from _attention("cross", block.cross, width)
    for place in block.norms:
        yield Role(f"{place}.weight", (width,))
    match block.mlp:
        case Mlp(inner, _, gated):
            names = ("mlp.up", "mlp.gate") if gated else ("mlp.up",)
            for name in names:
                yield Role(f"{name}.weight", (inner, width))
            yield Role("mlp.down.weight", (width, inner))
        case Experts(count, _, inner):
            yield Role("mlp.router.weight", (count, width))
            for name, out, fan_in in (("mlp.gate", inner, width), ("mlp.up", inner, width), ("mlp.down", width, inner)):
                yield Role(f"{name}.weight", (count, out, fan_in))
        case None:
            pass


def outer_roles(spec: Spec) -> list[Role]:
    """The roles outside the layers: embedding, final norm and head."""
    found = list(_with_biases(spec, _outside(spec)))
    if spec.head is not None and not spec.head.tied:
        width = spec.d_model if spec.embedding.width is None else spec.embedding.width
        found += [
            Role("head.weight", (spec.vocabulary, width), optional=True),
            Role("head.bias", (spec.vocabulary,), optional=True),
        ]
    return found


def _outside(spec: Spec) -> Iterator[Role]:
    embedding = spec.embedding
    width = spec.d_model if embedding.width is None else embedding.width
    summed = spec.d_model if embedding.projection == "tokens" else width
    yield Role("tokens.weight", (spec.vocabulary, width))
    if embedding.positions == "learned":
        yield Role("positions.weight", ((spec.max_positions or 0) + embedding.position_offset, summed))
    if embedding.types:
        yield Role("types.weight", (embedding.types, summed))
    if embedding.norm is not None:
        yield Role("embed.norm.weight", (summed,))
    if embedding.projection is not None:
        yield Role("embed.project.weight", (spec.d_model, width))
    if spec.final_norm is not None:
        yield Role("final.weight", (spec.d_model,))


def _with_biases(spec: Spec, roles: Iterable[Role]) -> Iterator[Role]:
    """Each weight, with its bias where the Spec says that there is one."""
    for role in roles:
        yield role
        if (
            role.suffix == ".weight"
            and role.module not in TABLES
            and any(fnmatchcase(role.module, pattern) for pattern in spec.biases)
        ):
            yield Role(
                f"{role.module}.bias",
                role.shape[:1] if len(role.shape) == 2 and "norm" not in role.module else role.shape,
            )


def _attention(prefix: str, spec: Attention, width: int) -> Iterator[Role]:
    q, k, v = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim, spec.kv_heads * spec.v_dim
    for name, out in (("q", q), ("k", k), ("v", v)):
        yield Role(f"{prefix}.{name}.weight", (out, width))
    yield Role(f"{prefix}.o.weight", (width, spec.heads * spec.v_dim))
    if spec.qk_norm is not None:
        for name, heads in (("q", spec.heads), ("k", spec.kv_heads)):
            shapes = {"head": (spec.head_dim,), "own": (heads, spec.head_dim), "width": (heads * spec.head_dim,)}
            yield Role(f"{prefix}.{name}_norm.weight", shapes[spec.qk_norm.over])
    if isinstance(spec.position, RelativeBuckets):
        yield Role(f"{prefix}.buckets.weight", (spec.position.buckets, spec.heads))
    if spec.sinks:
        yield Role(f"{prefix}.sinks", (spec.heads,))
