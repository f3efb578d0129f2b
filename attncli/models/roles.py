"""Which tensors a Spec needs, by role, and their shapes. Linear weights are [out, in]."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from attncli.attention.spec import Attention, Block, Experts, Mlp, RelativeBuckets, Spec


@dataclass(frozen=True)
class Role:
    """A part that a tensor plays. optional: a bias, which is there if the tensor is."""

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
    width = spec.d_model
    found = list(_attention("attn", block.attention, width))
    if block.cross is not None:
        found += _attention("cross", block.cross, width)
    for place in block.norms:
        found += _norm(place, (width,))
    match block.mlp:
        case Mlp(inner, _, gated):
            names = ("mlp.up", "mlp.gate") if gated else ("mlp.up",)
            for name in names:
                found += _linear(name, inner, width)
            found += _linear("mlp.down", width, inner)
        case Experts(count, _, inner):
            found += _linear("mlp.router", count, width)
            for name, out, fan_in in (("mlp.gate", inner, width), ("mlp.up", inner, width), ("mlp.down", width, inner)):
                found += [Role(f"{name}.weight", (count, out, fan_in)), Role(f"{name}.bias", (count, out), optional=True)]
        case None:
            pass
    return found


def outer_roles(spec: Spec) -> list[Role]:
    """The roles outside the layers: embedding, final norm and head."""
    embedding = spec.embedding
    width = spec.d_model if embedding.width is None else embedding.width
    summed = spec.d_model if embedding.projection == "tokens" else width
    found = [Role("tokens.weight", (spec.vocabulary, width))]
    if embedding.positions == "learned":
        found.append(Role("positions.weight", ((spec.max_positions or 0) + embedding.position_offset, summed)))
    if embedding.types:
        found.append(Role("types.weight", (embedding.types, summed)))
    if embedding.norm is not None:
        found += _norm("embed.norm", (summed,))
    if embedding.projection is not None:
        found += _linear("embed.project", spec.d_model, width)
    if spec.final_norm is not None:
        found += _norm("final", (spec.d_model,))
    if spec.head is not None and not spec.head.tied:
        found += [Role("head.weight", (spec.vocabulary, width), optional=True), Role("head.bias", (spec.vocabulary,), optional=True)]
    return found


def _attention(prefix: str, spec: Attention, width: int) -> Iterator[Role]:
    q, k, v = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim, spec.kv_heads * spec.v_dim
    for name, out in (("q", q), ("k", k), ("v", v)):
        yield from _linear(f"{prefix}.{name}", out, width)
    yield from _linear(f"{prefix}.o", width, spec.heads * spec.v_dim)
    if spec.qk_norm is not None:
        for name, heads in (("q", spec.heads), ("k", spec.kv_heads)):
            shapes = {"head": (spec.head_dim,), "own": (heads, spec.head_dim), "width": (heads * spec.head_dim,)}
            yield from _norm(f"{prefix}.{name}_norm", shapes[spec.qk_norm.over])
    if isinstance(spec.position, RelativeBuckets):
        yield Role(f"{prefix}.buckets.weight", (spec.position.buckets, spec.heads))
    if spec.sinks:
        yield Role(f"{prefix}.sinks", (spec.heads,))


def _linear(name: str, out: int, fan_in: int) -> tuple[Role, Role]:
    return Role(f"{name}.weight", (out, fan_in)), Role(f"{name}.bias", (out,), optional=True)


def _norm(name: str, shape: tuple[int, ...]) -> tuple[Role, Role]:
    return Role(f"{name}.weight", shape), Role(f"{name}.bias", shape, optional=True)
