"""Which tensors a Spec needs, by role, and their shapes. Linear weights are [out, in]."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import assert_never

from msgspec import Struct

from attncli.mechanism.spec import (
    Attention,
    Block,
    Disentangled,
    Experts,
    Latent,
    Mlp,
    RelativeBuckets,
    RelativeSines,
    Spec,
)

TABLES = ("tokens", "positions", "types", "attn.buckets", "attn.relative")
"""Roles that are looked up, not multiplied: they never have a bias."""


class Role(Struct, frozen=True):
    """A part that a tensor plays. optional: of an output head, which a file may leave out."""

    name: str
    shape: tuple[int, ...]
    optional: bool = False

    @property
    def module(self) -> str:
        """The name without ".weight" or ".bias", as families list it."""
        return self.name.removesuffix(".weight").removesuffix(".bias")

    @property
    def feeds(self) -> bool:
        """Whether it belongs to the feed-forward part, its norms included, which attention does not need."""
        return self.name.partition(".")[0] in ("mlp", "experts", "shared")

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
    for place, norm in block.norms.items():
        if norm.affine:
            yield Role(f"{place}.weight", (width,))
    match block.mlp:
        case Mlp():
            yield from _feed_forward_roles("mlp", block.mlp, width)
        case Experts(count, shared=shared_part):
            yield Role("experts.router.weight", (count, width))
            if block.mlp.routing.corrected:
                yield Role("experts.correction", (count,))
            for role in _feed_forward_roles("experts", Mlp(block.mlp.width, block.mlp.activation, gated=True), width):
                yield Role(role.name, (count, *role.shape))
            if shared_part is not None:
                yield from _feed_forward_roles("shared", shared_part, width)
            if block.mlp.shared_share:
                yield Role("shared.share.weight", (1, width))
        case None:
            pass
        case _:
            assert_never(block.mlp)
    if block.convolution is not None:
        yield Role("conv.weight", (width, width // block.convolution.groups, block.convolution.kernel))
        yield Role("conv.norm.weight", (width,))


def _feed_forward_roles(prefix: str, part: Mlp, width: int) -> Iterator[Role]:
    """The roles of one feed-forward part."""
    for name in ("up", "gate") if part.gated else ("up",):
        yield Role(f"{prefix}.{name}.weight", (part.width, width))
    yield Role(f"{prefix}.down.weight", (width, part.width))


def outer_roles(spec: Spec) -> list[Role]:
    """The roles outside the layers: embedding, final norm and head."""
    roles = list(_with_biases(spec, _outside(spec)))
    width = spec.d_model if spec.embedding.width is None else spec.embedding.width
    if spec.head is not None and spec.head.projection:
        roles.append(Role("head.project.weight", (width, spec.d_model), optional=True))
    if spec.head is not None and spec.head.offsets:
        roles.append(Role("head.offsets", (1, spec.vocabulary), optional=True))
    if spec.head is not None:
        roles += [
            Role("head.weight", (spec.vocabulary, width), optional=True),
            Role("head.bias", (spec.vocabulary,), optional=True),
        ]
    return roles


def _outside(spec: Spec) -> Iterator[Role]:
    embedding = spec.embedding
    width = spec.d_model if embedding.width is None else embedding.width
    sum_width = spec.d_model if embedding.projection == "tokens" else width
    yield Role("tokens.weight", (spec.vocabulary, width))
    if embedding.positions in ("learned", "halves"):  # sines need not be stored
        rows, computed = (spec.max_positions or 0) + embedding.position_offset, embedding.positions == "halves"
        yield Role("positions.weight", (rows, sum_width), optional=computed)
    if embedding.types:
        yield Role("types.weight", (embedding.types, sum_width))
    if embedding.norm is not None and embedding.norm.affine:
        yield Role("embed.norm.weight", (sum_width,))
    if embedding.projection is not None:
        yield Role("embed.project.weight", (spec.d_model, width))
    if spec.final_norm is not None and spec.final_norm.affine:
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
            whole = "norm" in role.module or len(role.shape) == 1
            shape = role.shape if whole else role.shape[: 1 if role.module == "conv" else -1]
            yield Role(f"{role.module}.bias", shape)


def _attention(prefix: str, spec: Attention, width: int) -> Iterator[Role]:
    q, k, v = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim, spec.kv_heads * spec.v_dim
    source = width if spec.source_width is None else spec.source_width
    if spec.latent is None:
        for name, out, fan_in in (("q", q, width), ("k", k, source), ("v", v, source)):
            yield Role(f"{prefix}.{name}.weight", (out, fan_in))
    else:
        yield from _latent(prefix, spec, spec.latent, width)
    yield Role(f"{prefix}.o.weight", (width, spec.heads * spec.v_dim))
    if spec.qk_norm is not None and spec.qk_norm.norm.affine:
        for name, heads in (("q", spec.heads), ("k", spec.kv_heads)):
            shapes = {"head": (spec.head_dim,), "own": (heads, spec.head_dim), "width": (heads * spec.head_dim,)}
            yield Role(f"{prefix}.{name}_norm.weight", shapes[spec.qk_norm.over])
    if isinstance(spec.position, RelativeBuckets):
        yield Role(f"{prefix}.buckets.weight", (spec.position.buckets, spec.heads))
    if isinstance(spec.position, Disentangled):
        yield Role(f"{prefix}.relative.weight", (2 * spec.position.span, width))
        if spec.position.norm is not None:
            yield Role(f"{prefix}.relative_norm.weight", (width,))
        for name, there in (("relative_k", spec.position.asks), ("relative_q", spec.position.answers)):
            if spec.position.own and there:
                yield Role(f"{prefix}.{name}.weight", (q, width))
    if isinstance(spec.position, RelativeSines):
        yield Role(f"{prefix}.relative_k.weight", (q, width))
        yield Role(f"{prefix}.relative_q.bias", (q,))
    if spec.sinks:
        yield Role(f"{prefix}.sinks", (spec.heads,))
    if spec.own_global is not None:
        for name, out in (("q", q), ("k", k), ("v", v)):
            yield Role(f"{prefix}.global_{name}.weight", (out, width))


def _latent(prefix: str, spec: Attention, latent: Latent, width: int) -> Iterator[Role]:
    """The roles of queries, keys and values that come from narrow vectors."""
    if latent.query is not None:
        yield Role(f"{prefix}.q_down.weight", (latent.query, width))
        yield Role(f"{prefix}.q_down_norm.weight", (latent.query,))
    yield Role(f"{prefix}.q.weight", (spec.heads * spec.head_dim, latent.query or width))
    yield Role(f"{prefix}.kv_down.weight", (latent.keys + latent.straight, width))
    yield Role(f"{prefix}.kv_down_norm.weight", (latent.keys,))
    yield Role(f"{prefix}.kv.weight", (spec.heads * (spec.head_dim - latent.straight + spec.v_dim), latent.keys))
