"""`Family`: how one lineage of checkpoints spells a model; the roles of tensors in a Spec, and
which tensor plays each.

All tensors are checked before anything is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, assert_never

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from attncli.arrays.backend import Array
from attncli.errors import InputError, UnsupportedError
from attncli.language import listing, message
from attncli.mechanism.spec import (
    Attention,
    Block,
    DeltaRule,
    Disentangled,
    Experts,
    KimiDelta,
    Latent,
    LinearAttention,
    Mixer,
    Mlp,
    RelativeBuckets,
    RelativeSines,
    SelectiveScan,
    ShortConvolution,
    Spec,
    StateSpace,
)
from attncli.models.config import Config, FixedValue

if TYPE_CHECKING:
    from attncli.inputs.gguf_file import Metadata


class Concat(Struct, frozen=True):
    """Stands for one tensor of a file that holds the rows of several roles, one after the other."""

    name: str


class GroupedTensor(Struct, frozen=True):
    """One tensor that holds, for each group of heads that share a key, their query rows, the key's
    rows and the value's."""

    name: str


class ByHead(Struct, frozen=True):
    """A tensor whose heads have an axis of their own, its last but one: [width, head, dim], or
    [head, dim] of a bias.

    transposed: whether the matrix that they make side by side is [in, out].
    """

    name: str
    transposed: bool = False


class PerExpert(Struct, frozen=True):
    """One tensor with an entry for each expert along its first axis, each with the rows of one or
    more roles.

    alternating: whether the roles' rows take turns; else they stand one after the other.
    transposed: whether an expert's matrix is stored [in, out].
    """

    name: str
    alternating: bool = False
    transposed: bool = False


class StackedTensor(Struct, frozen=True):
    """One tensor per head or expert, `{item}` in the name; the role is all of them along a new
    first axis.
    """

    name: str


class SharedTensor(Struct, frozen=True):
    """A tensor outside the layers that every layer uses."""

    name: str


Source: TypeAlias = str | ByHead | Concat | GroupedTensor | PerExpert | StackedTensor | SharedTensor
"""Where a role's tensor is: a module's name within the layer, to which ".weight" or ".bias" is
added where the role has it."""


class Names(Struct, frozen=True):
    """The tensor names of a family: for each role, which tensor or tensors hold it.

    layer: what stands before the names of layer `{layer}`.
    inside: the roles of a layer; a key may list several roles, which share one tensor (`Concat`,
        `GroupedTensor`).
    outside: the other roles.
    prefixes: what may stand before all names, depending on the class that saved the file.
    ignored: patterns of tensors that play no part (task heads, buffers), with the prefix taken off.
    transposed: whether matrices within layers are stored [in, out].
    together: roles of a layer, as `inside`, that take the place of those there where a file has
        their tensors: some files have one tensor where others have several.
    """

    layer: str
    inside: Mapping[str, Source]
    outside: Mapping[str, Source]
    prefixes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    transposed: bool = False
    together: Mapping[str, Source] = field(default_factory=dict)

    def with_roles(
        self,
        inside: Mapping[str, Source],
        *,
        outside: Mapping[str, Source] | None = None,
        without: tuple[str, ...] = (),
    ) -> Names:
        """A copy of these names for a related family: roles in `inside` and `outside` replaced or
        added, the keys in `without` dropped."""
        sources = {key: source for key, source in self.inside.items() if key not in without}
        return replace(
            self, inside={**sources, **inside}, outside={**self.outside, **(outside or {})}
        )


class TrainedSizes(Struct, frozen=True):
    """The sizes of a small model that is trained here.

    layers, vocabulary: how many of either.
    heads: of each layer.
    width: of the vectors between layers.
    positions: rows of its position table, or the longest text.
    inner: width of the feed-forward part.
    window: keys that a query sees, its own included; None for all before it.
    scaled: whether scores are divided by √d_k.
    """

    layers: int
    heads: int
    width: int
    vocabulary: int
    positions: int
    inner: int
    window: int | None = None
    scaled: bool = True


class Family(Struct, frozen=True):
    """One kind of checkpoint: how its Spec is read from a config, and its tensor names. Defined in
    a module named after its `model_type`.

    decoder: the names of an encoder-decoder's other side.
    fixed: keys implemented for one value only.
    gguf: what keys of its config GGUF files leave out; None for nothing.
    permuted: whether in those files the rows of queries and keys stand as rotation of neighbouring
        entries wants them.
    tiled: whether the heads of a delta rule's values stand there in turn, the first of each key,
        then the second of each.
    config: the config.json of a small model of these sizes, without its `model_type`, and the class
        that transformers opens it with; None for a family that nothing is trained as.
    """

    spec: Callable[[Config], Spec]
    names: Names
    decoder: Names | None = None
    fixed: Mapping[str, FixedValue] = field(default_factory=dict)
    config: Callable[[TrainedSizes], tuple[dict[str, object], str]] | None = None
    gguf: Callable[[Metadata], Mapping[str, object]] | None = None
    permuted: bool = False
    tiled: bool = False


# Which tensors a Spec needs, by role, and their shapes. Linear weights are [out, in].

TABLES = ("tokens", "positions", "types", "attn.buckets", "attn.relative")
"""Roles that are looked up, not multiplied: they never have a bias."""


class Role(Struct, frozen=True):
    """One weight that a Spec needs, by its canonical name such as "attn.q.weight", with its shape;
    tensors of a file are matched to roles.

    optional: a file may lack it, as an output head.
    """

    name: str
    shape: tuple[int, ...]
    optional: bool = False

    @property
    def module(self) -> str:
        """The name without ".weight" or ".bias", as families list it."""
        return self.name.removesuffix(".weight").removesuffix(".bias")

    @property
    def feeds(self) -> bool:
        """Whether it is a weight of the feed-forward part, its norms included; attention can be
        computed without it.
        """
        return self.name.partition(".")[0] in ("mlp", "experts", "shared")

    @property
    def suffix(self) -> str:
        """ ".weight", ".bias" or nothing."""
        return self.name[len(self.module) :]


def layer_roles(spec: Spec, block: Block) -> list[Role]:
    """The roles (weights and biases by canonical name, with shapes) of one layer."""
    return list(_with_biases(spec, _layer_weights(spec, block)))


def _layer_weights(spec: Spec, block: Block) -> Iterator[Role]:
    """The weights of one layer as roles (canonical name and shape), without the biases that the
    Spec lists, about in the order in which a run reads them."""
    width = spec.d_model
    if block.mixer is not None:
        yield from _mixer_roles(block.mixer, width)
    if not block.instead:  # nothing stands in place of the attention
        yield from _attention_roles("attn", block.attention, width)
    if block.cross is not None:
        yield from _attention_roles("cross", block.cross, width)
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
            # a map to the narrow vectors that experts read here, and "out" back from these
            if block.mlp.narrow is not None:
                yield Role("experts.into.weight", (block.mlp.narrow, width))
            # an expert is a feed-forward part; all of one layer are stacked along a first axis
            expert = Mlp(block.mlp.width, block.mlp.activation, block.mlp.gated)
            for role in _feed_forward_roles("experts", expert, block.mlp.narrow or width):
                yield Role(role.name, (count, *role.shape))
            if block.mlp.narrow is not None:
                yield Role("experts.out.weight", (width, block.mlp.narrow))
            if shared_part is not None:
                yield from _feed_forward_roles("shared", shared_part, width)
            if block.mlp.shared_share:  # a gate on what the shared expert puts out
                yield Role("shared.share.weight", (1, width))
        case None:
            pass
        case _:
            assert_never(block.mlp)
    if block.convolution is not None:
        yield Role(
            "conv.weight", (width, width // block.convolution.groups, block.convolution.kernel)
        )
        yield Role("conv.norm.weight", (width,))


def _mixer_roles(mixer: Mixer, width: int) -> Iterator[Role]:
    """The weights of a mixer (what mixes tokens beside attention or in its place, such as Mamba) as
    roles, in the order in which a run reads them. The names q, k and v stand for what plays their
    part. "time", "step" and "decay" make how fast a head's state fades, "strength" how much a token
    writes to it, "straight" how much of the values goes past it.

    width: of the vectors that enter and leave it; `inner` is its own.
    """
    match mixer:
        case ShortConvolution(kernel):
            inner = width
            # for each token: two gates and the values
            yield Role("mixer.input.weight", (3 * width, width))
            yield Role("mixer.conv.weight", (width, 1, kernel))
        case StateSpace(heads, head_dim, state, groups, kernel):
            inner = heads * head_dim
            # the input gives gates (inner), then values, k and q, which the convolution mixes, and a
            # time step for each head
            mixed = heads * head_dim + 2 * groups * state
            yield Role("mixer.input.weight", (inner + mixed + heads, width))
            yield Role("mixer.conv.weight", (mixed, 1, kernel))
            yield from (Role(f"mixer.{name}", (heads,)) for name in ("step", "decay", "straight"))
            if mixer.norm is not None:
                yield Role("mixer.norm.weight", (inner,))
        case SelectiveScan(inner, state, rank, kernel):
            # the input gives values and gates; from the values come a narrow vector of the time steps,
            # [rank], and k and q, [state] each
            yield Role("mixer.input.weight", (2 * inner, width))
            yield Role("mixer.conv.weight", (inner, 1, kernel))
            yield Role("mixer.select.weight", (rank + 2 * state, inner))
            if mixer.norm is not None:
                yield from (Role(f"mixer.{name}_norm.weight", (state,)) for name in ("k", "q"))
                yield Role("mixer.time_norm.weight", (rank,))
            yield Role("mixer.time.weight", (inner, rank))
            yield Role("mixer.decay", (inner, state))
            yield Role("mixer.straight", (inner,))
        case DeltaRule(heads, key_heads, key_dim, v_dim, kernel):
            keys = key_heads * key_dim  # the width of all keys, and of all queries
            inner = heads * v_dim
            yield from (Role(f"mixer.{name}.weight", (keys, width)) for name in ("q", "k"))
            yield from (Role(f"mixer.{name}.weight", (inner, width)) for name in ("v", "gate"))
            yield from (
                Role(f"mixer.{name}.weight", (heads, width)) for name in ("strength", "time")
            )
            yield Role("mixer.conv.weight", (2 * keys + inner, 1, kernel))  # of q, k and v
            yield from (Role(f"mixer.{name}", (heads,)) for name in ("decay", "step"))
            yield Role("mixer.norm.weight", (v_dim,))
        case KimiDelta(heads, dim, kernel):
            inner = heads * dim
            for name in ("q", "k", "v"):
                yield Role(f"mixer.{name}.weight", (inner, width))
                yield Role(f"mixer.{name}_conv.weight", (inner, 1, kernel))
            for name in ("time", "gate"):  # each by way of a narrow vector
                yield Role(f"mixer.{name}_down.weight", (dim, width))
                yield Role(f"mixer.{name}.weight", (inner, dim))
            yield Role("mixer.strength.weight", (heads, width))
            yield Role("mixer.decay", (1, 1, heads, 1))  # as the files have it
            yield Role("mixer.step", (inner,))
            yield Role("mixer.norm.weight", (dim,))
        case LinearAttention(heads, dim):
            inner = heads * dim
            yield from (
                Role(f"mixer.{name}.weight", (inner, width)) for name in ("q", "k", "v", "gate")
            )
            yield Role("mixer.norm.weight", (inner,))
        case _:
            assert_never(mixer)

    # every kind ends with a projection back to the layer's width
    yield Role("mixer.output.weight", (width, inner))


def _feed_forward_roles(prefix: str, part: Mlp, width: int) -> Iterator[Role]:
    """The weights of one feed-forward part as roles (canonical name and shape).

    prefix: of the names, such as "mlp".
    """
    names = ["up"]
    if part.gated:
        names.append("gate")
    for name in names:
        yield Role(f"{prefix}.{name}.weight", (part.width, width))
    yield Role(f"{prefix}.down.weight", (width, part.width))


def outer_roles(spec: Spec) -> list[Role]:
    """The weights outside the layers as roles (canonical name and shape): embedding, final norm and
    output head.
    """
    roles = list(_with_biases(spec, _outer_weights(spec)))
    head = spec.head
    if spec.embedding.width is None:
        width = spec.d_model
    else:
        width = spec.embedding.width
    if head is not None and head.projection:
        roles.append(Role("head.project.weight", (width, spec.d_model), optional=True))
    if head is not None and head.offsets:
        roles.append(Role("head.offsets", (1, spec.vocabulary), optional=True))
    if head is not None:
        roles.append(Role("head.weight", (spec.vocabulary, width), optional=True))
        roles.append(Role("head.bias", (spec.vocabulary,), optional=True))
    return roles


def masked_roles(spec: Spec) -> list[Role]:
    """The weights of the head that predicts masked words, as roles; none for a model without one."""
    head = spec.masked
    if head is None:
        return []
    return [
        Role("masked.dense.weight", (head.width, spec.d_model)),
        Role("masked.dense.bias", (head.width,), optional=True),
        Role("masked.norm.weight", (head.width,)),
        Role("masked.norm.bias", (head.width,), optional=True),
        Role("masked.decoder.weight", (spec.vocabulary, head.width), optional=True),
        Role("masked.decoder.bias", (spec.vocabulary,), optional=True),
    ]


def _outer_weights(spec: Spec) -> Iterator[Role]:
    """The weights of embedding and final norm as roles, without the biases that the Spec lists."""
    embedding = spec.embedding
    if embedding.width is None:
        width = spec.d_model
    else:
        width = embedding.width
    # token vectors alone are projected to d_model, or the sum of token, position and type vectors
    if embedding.projection == "tokens":
        sum_width = spec.d_model
    else:
        sum_width = width
    yield Role("tokens.weight", (spec.vocabulary, width))
    # a table of positions: learned, or of sines ("halves"), which a file need not have
    if embedding.positions in ("learned", "halves"):
        # (a family whose files have such a table always says how long texts may be)
        rows = (spec.max_positions or 0) + embedding.position_offset
        computed = embedding.positions == "halves"
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
    """Yield the roles of these weights, each followed by the role of its bias where the Spec says
    that the module has one."""
    for role in roles:
        yield role
        # tables of vectors are looked up, and have no bias
        multiplies = role.suffix == ".weight" and role.module not in TABLES
        if multiplies and any(fnmatchcase(role.module, pattern) for pattern in spec.biases):
            if "norm" in role.module or len(role.shape) == 1:  # a norm's, entry by entry
                shape = role.shape
            elif role.module.endswith("conv"):  # [channel, 1, kernel]: one number a channel
                shape = role.shape[:1]
            else:  # [out, in], or [expert, out, in]
                shape = role.shape[:-1]
            yield Role(f"{role.module}.bias", shape)


def _attention_roles(prefix: str, spec: Attention, width: int) -> Iterator[Role]:
    """The weights of one attention as roles (canonical name and shape).

    prefix: "attn" or "cross".
    width: of the vectors that enter it.
    """
    q = spec.heads * spec.head_dim
    k = spec.kv_heads * spec.head_dim
    v = spec.kv_heads * spec.v_dim
    if spec.source_width is None:
        source = width
    else:
        source = spec.source_width
    if spec.latent is None:
        for name, out, fan_in in (("q", q, width), ("k", k, source), ("v", v, source)):
            yield Role(f"{prefix}.{name}.weight", (out, fan_in))
    else:
        yield from _latent_roles(prefix, spec, spec.latent, width)
    if spec.gated:
        yield Role(f"{prefix}.gate.weight", (spec.heads * spec.v_dim, width))
    yield Role(f"{prefix}.o.weight", (width, spec.heads * spec.v_dim))
    if spec.qk_norm is not None and spec.qk_norm.norm.affine:
        for name, heads in (("q", spec.heads), ("k", spec.kv_heads)):
            # one weight for all heads, one for each, or one norm over all heads side by side
            shapes = {
                "head": (spec.head_dim,),
                "own": (heads, spec.head_dim),
                "width": (heads * spec.head_dim,),
            }
            yield Role(f"{prefix}.{name}_norm.weight", shapes[spec.qk_norm.over])

    # what positions within attention need: T5's table of biases, DeBERTa's vectors of distances
    # with projections for those that are scored against keys and queries, Transformer-XL's bias
    if isinstance(spec.position, RelativeBuckets):
        yield Role(f"{prefix}.buckets.weight", (spec.position.buckets, spec.heads))
    if isinstance(spec.position, Disentangled):
        yield Role(f"{prefix}.relative.weight", (2 * spec.position.span, width))
        if spec.position.norm is not None:
            yield Role(f"{prefix}.relative_norm.weight", (width,))
        for name, is_present in (
            ("relative_k", spec.position.asks),
            ("relative_q", spec.position.answers),
        ):
            if spec.position.own and is_present:  # else attention's own q and k project them
                yield Role(f"{prefix}.{name}.weight", (q, width))
    if isinstance(spec.position, RelativeSines):
        yield Role(f"{prefix}.relative_k.weight", (q, width))
        yield Role(f"{prefix}.relative_q.bias", (q,))

    if spec.sinks:  # a learned score of nothing, for each head
        yield Role(f"{prefix}.sinks", (spec.heads,))
    if spec.own_global is not None:  # Longformer's projections for global tokens
        for name, out in (("q", q), ("k", k), ("v", v)):
            yield Role(f"{prefix}.global_{name}.weight", (out, width))


def _latent_roles(prefix: str, spec: Attention, latent: Latent, width: int) -> Iterator[Role]:
    """The weights of a latent attention (MLA) as roles: projections to narrow vectors, and from
    these to queries, keys and values."""
    if latent.query is not None:
        yield Role(f"{prefix}.q_down.weight", (latent.query, width))
        yield Role(f"{prefix}.q_down_norm.weight", (latent.query,))
    yield Role(f"{prefix}.q.weight", (spec.heads * spec.head_dim, latent.query or width))
    # beside the narrow vector, the entries of keys that carry the position, the same for all heads
    yield Role(f"{prefix}.kv_down.weight", (latent.keys + latent.straight, width))
    yield Role(f"{prefix}.kv_down_norm.weight", (latent.keys,))
    # for each head: the entries of its key without the position, then its value
    yield Role(
        f"{prefix}.kv.weight",
        (spec.heads * (spec.head_dim - latent.straight + spec.v_dim), latent.keys),
    )


SPELLINGS = {".weight": (".weight", ".gamma", ""), ".bias": (".bias", ".beta", "_bias"), "": ("",)}
"""How a suffix may be spelled: the first BERTs were converted from TensorFlow's gamma and beta,
experts are parameters with no module of their own."""

FLOATS = ("float16", "bfloat16", "float32", "float64")
"""How weights may be stored."""

NEVER_NEEDED = ("*inv_freq", "*position_ids", "*token_type_ids", "*num_batches_tracked")


class StoredTensor(Protocol):
    """The attributes of a tensor in a file that matching tensors to roles uses."""

    @property
    def dtype(self) -> str:
        """The data type of its numbers, such as "float32"."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each of its axes."""
        ...

    @property
    def start(self) -> int:
        """The byte of the file at which it begins."""
        ...

    @property
    def file(self) -> Any:
        """The path of the file that it is in."""
        ...


class TensorBinding(Struct, frozen=True):
    """Tensors and the roles they play.

    form: "whole" is one tensor for one role, "stacked" several tensors for one role, "concat",
        "grouped" and "each" one tensor for several.
    transposed: whether matrices are stored as [in, out].
    groups: how many groups of heads "grouped" has.
    shared: whether every layer uses the same tensor.
    alternating: whether rows take turns in "each".
    by_head: whether the file's tensor has an axis of heads, which is its last but one.
    """

    tensors: tuple[str, ...]
    roles: tuple[Role, ...]
    form: Literal["whole", "stacked", "concat", "grouped", "each"] = "whole"
    transposed: bool = False
    groups: int = 1
    shared: bool = False
    alternating: bool = False
    by_head: bool = False

    @property
    def feeds(self) -> bool:
        """Whether all of its roles are of the feed-forward part."""
        return all(role.feeds for role in self.roles)

    def shape(self) -> tuple[int, ...]:
        """The shape that each of these tensors must have in the file."""
        first = self.roles[0].shape
        shapes = [role.shape for role in self.roles]
        match self.form:
            case "stacked":  # a tensor holds one entry of the role's first axis
                shape = first[1:]
            case "each":  # [expert, rows of all roles, in]
                shape = (first[0], sum(shape[1] for shape in shapes), *first[2:])
            case "whole" | "concat" | "grouped":  # [rows of all roles, in]
                shape = (sum(shape[0] for shape in shapes), *first[1:])
            case _:
                assert_never(self.form)
        if self.transposed:
            return (*shape[:-2], shape[-1], shape[-2])
        return shape

    def parts(self, arrays: Sequence[np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """Split what was read from the file into the array of each role, by name, without copying
        where that is possible."""
        if self.form == "stacked":
            whole = np.stack(arrays)
        else:
            whole = arrays[0]
        if self.by_head:  # the file has an axis more: [width, head, dim] as [width, head · dim]
            whole = whole.reshape(self.shape())
        if self.transposed:
            whole = whole.swapaxes(-1, -2)
        if self.form in ("whole", "stacked"):  # of one role
            return {self.roles[0].name: whole}

        # several roles: gate and up rows of each expert by turns, or one role's rows after another's
        if self.alternating:
            return {
                role.name: whole[:, place :: len(self.roles)]
                for place, role in enumerate(self.roles)
            }
        # [expert or group, rows of all roles, in]; how many of these rows are each role's
        if self.form == "each":
            row_counts = [role.shape[1] for role in self.roles]
            grouped = whole
        else:  # "concat" is one group
            row_counts = [role.shape[0] // self.groups for role in self.roles]
            grouped = whole.reshape((self.groups, sum(row_counts), *whole.shape[1:]))
        ends = np.cumsum(row_counts)
        return {
            role.name: grouped[:, end - count : end].reshape(role.shape)
            for role, count, end in zip(self.roles, row_counts, ends, strict=True)
        }

    def columns(self, product: Array) -> dict[str, Array]:
        """Split x·Wᵀ, [row, out], of a tensor that holds one role or several ("whole", "concat",
        "grouped") into the part of each role, by name."""
        # each group of columns has some of every role, one role after the other: [row, group, out]
        counts = [role.shape[0] // self.groups for role in self.roles]
        grouped = product.reshape((product.shape[0], self.groups, sum(counts)))
        ends = np.cumsum(counts).tolist()
        return {
            role.name: grouped[:, :, end - count : end].reshape((product.shape[0], role.shape[0]))
            for role, count, end in zip(self.roles, counts, ends, strict=True)
        }


class Binding(Struct, frozen=True):
    """The tensors of one side of a model: those outside the layers, and those of each layer in file
    order.
    """

    outer: Mapping[str, TensorBinding]
    layers: tuple[tuple[TensorBinding, ...], ...]


def bind(
    spec: Spec, family: Family, tensors: Mapping[str, StoredTensor], where: str
) -> tuple[Binding, Binding | None]:
    """Match a checkpoint's tensors to the roles of a model; returns the Binding of the model (or
    its encoder) and of its decoder, None without one.

    Raises InputError for a tensor that is missing, has the wrong shape, or plays no part,
    UnsupportedError for one that plays a part and holds no floats.
    """
    binders = [_Binder(spec, family.names, tensors, where)]
    if spec.decoder is not None and family.decoder is not None:
        binders.append(_Binder(spec.decoder, family.decoder, tensors, where))
    bindings = [binder.bind_roles() for binder in binders]

    # a tensor that no role claims and no pattern ignores means that this is another model
    claimed_names = {name for binder in binders for name in binder.claimed_names}
    ignored_patterns = (
        *NEVER_NEEDED,
        *(pattern for binder in binders for pattern in binder.names.ignored),
    )
    prefixes = tuple(binder.prefix for binder in binders if binder.prefix)
    surplus = [
        name
        for name in tensors
        if name not in claimed_names and not _matches(name, prefixes, ignored_patterns)
    ]
    if surplus:
        if len(surplus) > 1:
            more = f" and {len(surplus) - 1} more"
        else:
            more = ""
        what = message(
            "tensor {surplu}{more} would play no part in this model",
            surplu=repr(surplus[0]),
            more=more,
        )
        expected = message(
            "the tensors of a {family} model with {blocks} layers, and no others",
            family=spec.family,
            blocks=len(spec.blocks),
        )
        raise InputError(what, where=where, expected=expected)
    if len(bindings) == 1:
        return bindings[0], None
    binding, decoder_binding = bindings
    return binding, decoder_binding


def _matches(name: str, prefixes: Iterable[str], patterns: Iterable[str]) -> bool:
    """Whether a tensor's name, as it is or without one of the prefixes, matches any of the glob
    patterns.
    """
    names = {name, *(name.removeprefix(prefix) for prefix in prefixes)}
    return any(fnmatchcase(candidate, pattern) for candidate in names for pattern in patterns)


def groups_of(spec: Spec, roles: Sequence[Role]) -> int:
    """How many groups of heads a grouped tensor of these roles holds, one group after the other: in
    attention one for each kv head, or where gates stand with the queries one for each head; in a
    delta rule one for each key head, in other linear attention one for each head.
    """
    # all are roles of the attention, or of the mixer, whose size is taken to be that of all layers
    mixer = next((block.mixer for block in spec.blocks if block.mixer is not None), None)
    if roles[0].name.startswith("mixer.") and isinstance(mixer, DeltaRule | LinearAttention):
        if isinstance(mixer, DeltaRule):
            return mixer.key_heads
        return mixer.heads
    # keys, or queries where there are gates, have head_dim rows for each group; no role has fewer
    return min(role.shape[0] for role in roles) // spec.blocks[0].attention.head_dim


class _Binder:
    """Matches the tensors of a checkpoint to the roles of a model, or of its encoder or decoder, and
    notes in `claimed_names` which tensors are used."""

    def __init__(
        self, spec: Spec, names: Names, tensors: Mapping[str, StoredTensor], where: str
    ) -> None:
        """Choose the prefix with which this file's names begin.

        names: the family's tensor names. tensors: the file's, by name. where: the file, for errors.
        """
        self.spec = spec
        self.names = names
        self.tensors = tensors
        self.where = where
        self.claimed_names: set[str] = set()

        # the prefix with which the token table is there ("a|b" are two names for it), else the first
        # with which any tensor is
        tables = [f"{module}.weight" for module in str(names.outside["tokens"]).split("|")]
        table_prefixes = [
            prefix
            for prefix in ("", *names.prefixes)
            if any(prefix + table in tensors for table in tables)
        ]
        other_prefixes = [
            prefix for prefix in names.prefixes if any(name.startswith(prefix) for name in tensors)
        ]
        self.prefix = [*table_prefixes, *other_prefixes, ""][0]

    def bind_roles(self) -> Binding:
        """A TensorBinding for each tensor of this model, encoder or decoder: of those outside the
        layers by role, of each layer in file order. Raises as `bind`."""
        roles = outer_roles(self.spec)
        if self._has_masked_head():
            roles += masked_roles(self.spec)
        # outside the layers no tensor holds several roles
        outer_bindings = self._bind_sources(roles, self.names.outside, "")
        outer = {bound.roles[0].name: bound for bound in outer_bindings}
        # a head's bias is useless where its matrix is neither in the file nor the token table
        if self.spec.head is not None and not self.spec.head.tied and "head.weight" not in outer:
            outer.pop("head.bias", None)

        layers = []
        for index, block in enumerate(self.spec.blocks):
            layer = self.names.layer.format(layer=index)
            bindings = self._bind_sources(
                layer_roles(self.spec, block), self._layer_sources(layer), layer
            )
            layers.append(tuple(sorted(bindings, key=self._file_place)))
        return Binding(outer, tuple(layers))

    def _has_masked_head(self) -> bool:
        """Whether the file holds the head that predicts masked words; encoders are saved with it or
        without it.
        """
        if self.spec.masked is None:
            return False
        sources = [self.names.outside.get(module) for module in ("masked.dense", "masked.norm")]
        role = Role("masked", (), optional=True)  # optional: a missing tensor is no error here
        return all(
            isinstance(source, str) and self._find_tensor(source, ".weight", role) is not None
            for source in sources
        )

    def _layer_sources(self, layer: str) -> Mapping[str, Source]:
        """Which tensor holds each role of a layer; where the file has a joined tensor for several
        roles, that one.

        layer: the prefix of the layer's names, such as "layers.0.".
        """
        starts = {self.prefix + layer, layer}
        ends = SPELLINGS[".weight"]

        # the joined tensors that this file has, by the roles that each holds ("attn.q attn.k")
        joined = {}
        for roles, source in self.names.together.items():
            module = source if isinstance(source, str) else source.name
            if any(f"{start}{module}{end}" in self.tensors for start in starts for end in ends):
                joined[roles] = source

        # they take the place of the tensors that would hold their roles one by one
        joined_roles = {role for roles in joined for role in roles.split()}
        separate = {
            roles: source
            for roles, source in self.names.inside.items()
            if joined_roles.isdisjoint(roles.split())
        }
        return separate | joined

    def _file_place(self, bound: TensorBinding) -> tuple[str, int]:
        """Where a binding's first tensor lies, to sort bindings by: its file, and the byte at which
        it begins there."""
        tensor = self.tensors[bound.tensors[0]]
        return str(tensor.file), tensor.start

    def _bind_sources(
        self, roles: Sequence[Role], sources: Mapping[str, Source], layer: str
    ) -> list[TensorBinding]:
        """A TensorBinding for each tensor that holds some of these roles.

        sources: for each module, or several that share a tensor, where its weight is stored.
        layer: the prefix of the tensors' names, "" outside the layers.
        """
        unbound = {role.name: role for role in roles}
        bindings = []
        # a key "attn.q attn.k" names two modules that share a tensor, as weights and as biases
        for modules, source in sources.items():
            for suffix in SPELLINGS:  # ".weight", ".bias" and none
                names = [module + suffix for module in modules.split()]
                tensor_roles = tuple(unbound.pop(name) for name in names if name in unbound)
                if tensor_roles:
                    bound = self._bind_roles(tensor_roles, suffix, source, layer)
                    if bound is not None:
                        bindings.append(self._check_tensors(bound))
        # roles for which the family names no tensor
        missing = [role.name for role in unbound.values() if not role.optional]
        if missing:
            what = message(
                "a {family} checkpoint has no tensor for {missing}",
                family=self.spec.family,
                missing=repr(missing[0]),
            )
            raise InputError(what, where=self.where)
        return bindings

    def _bind_roles(
        self, roles: tuple[Role, ...], suffix: str, source: Source, layer: str
    ) -> TensorBinding | None:
        """The binding of the tensor or tensors that hold these roles; None where the role is
        optional and its tensor is missing.

        suffix: ".weight", ".bias" or "". source: where the roles are stored. layer: the prefix of
            the layer's names, "" outside the layers.
        """
        # the roles of a tensor have as many axes; the first says in errors what the tensor is for
        is_matrix = len(roles[0].shape) == 2
        # the family's word holds for matrices within layers; some sources have their own, below
        transposed = self.names.transposed and bool(layer) and is_matrix
        # one tensor for each head or expert, one for all layers, or one of the layer
        if isinstance(source, StackedTensor):
            return self._bind_stack(source, roles, suffix, layer, transposed=transposed)
        if isinstance(source, SharedTensor):
            tensor = self._find_tensor(source.name, suffix, roles[0])
        else:
            if isinstance(source, str):
                name = source
            else:
                name = source.name
            spellings = "|".join(layer + module for module in name.split("|"))
            tensor = self._find_tensor(spellings, suffix, roles[0])

        if tensor is None:
            return None
        names = (tensor,)
        match source:
            case Concat():
                return TensorBinding(names, roles, "concat", transposed)
            case GroupedTensor():
                groups = groups_of(self.spec, roles)
                return TensorBinding(names, roles, "grouped", transposed, groups)
            case ByHead():
                transposed = source.transposed and is_matrix
                return TensorBinding(names, roles, "whole", transposed, by_head=True)
            case PerExpert(alternating=alternating):
                # matrices of all experts, [expert, out, in]; a bias has an axis less
                transposed = source.transposed and len(roles[0].shape) == 3
                return TensorBinding(names, roles, "each", transposed, alternating=alternating)
            case SharedTensor():
                return TensorBinding(names, roles, "whole", transposed, shared=True)
            case str():
                return TensorBinding(names, roles, "whole", transposed)
            case _:
                assert_never(source)

    def _bind_stack(
        self,
        source: StackedTensor,
        roles: tuple[Role, ...],
        suffix: str,
        layer: str,
        *,
        transposed: bool,
    ) -> TensorBinding | None:
        """The binding of a role whose heads or experts have a tensor each; None where one of them
        is missing.

        source: has `{item}` in its name. roles: the role. suffix: ".weight" or ".bias". layer: the
            prefix of the layer's names. transposed: whether matrices are stored [in, out].
        """
        items = range(roles[0].shape[0])
        modules = [layer + source.name.format(item=item) for item in items]
        tensors = [self._find_tensor(module, suffix, roles[0]) for module in modules]
        names = tuple(tensor for tensor in tensors if tensor is not None)
        if len(names) < len(tensors):
            return None
        return TensorBinding(names, roles, "stacked", transposed)

    def _find_tensor(self, name: str, suffix: str, role: Role) -> str | None:
        """The name under which a role's tensor is stored; None for an optional one that is not
        there.

        name: the module, "a|b" where it has several spellings.
        """
        spellings = [
            module + spelling for module in name.split("|") for spelling in SPELLINGS[suffix]
        ]
        # with the file's prefix first; some tensors, as of a head, stand without it
        with_prefix = [self.prefix + spelling for spelling in spellings]
        for tensor in (*with_prefix, *spellings):
            if tensor in self.tensors:
                return tensor
        # a tied model's file may hold the output head in place of the token table
        if role.name == "tokens.weight" and self.spec.head is not None and self.spec.head.tied:
            head = self._find_head()
            if head is not None:
                return head
        if role.optional:
            return None

        # missing: name the tensor that it may be, under a longer prefix, else with a slip
        expected_name = with_prefix[0]
        nearest = [tensor for tensor in self.tensors if tensor.endswith(f".{expected_name}")]
        if not nearest:
            strays = [tensor for tensor in self.tensors if self._is_stray(tensor, expected_name)]
            nearest = get_close_matches(expected_name, strays, n=1, cutoff=0.8)
        hint = ""
        if nearest:
            hint = message("the nearest name there is {close}", close=repr(nearest[0]))
        what = message("tensor {expected_name} is missing", expected_name=repr(expected_name))
        raise InputError(
            what,
            where=self.where,
            expected=message("shape {shape}, for {role}", shape=list(role.shape), role=role.name),
            hint=hint,
        )

    def _find_head(self) -> str | None:
        """The output head of a tied model whose file holds it in place of the token table, which is
        the same matrix; None where it is not there."""
        source = self.names.outside.get("head")
        if not isinstance(source, str):
            return None
        for module in source.split("|"):
            for tensor in (f"{self.prefix}{module}.weight", f"{module}.weight"):
                if tensor in self.tensors:
                    return tensor
        return None

    def _is_stray(self, name: str, expected_name: str) -> bool:
        """Whether a tensor's name is not the family's but has the same numbers in it as the
        expected name: likely the missing tensor, misnamed."""
        sources = (*self.names.inside.values(), *self.names.outside.values())
        spellings = [source if isinstance(source, str) else source.name for source in sources]
        modules = "|".join(spellings).split("|")  # "a|b" are two names for one module
        is_used = any(f"{module}." in name for module in modules)
        return not is_used and re.findall(r"\d+", name) == re.findall(r"\d+", expected_name)

    def _check_tensors(self, bound: TensorBinding) -> TensorBinding:
        """Check the shapes and data types of a binding's tensors, and note them as used; returns
        the binding itself. Raises as `bind`."""
        for tensor in bound.tensors:
            shape = tuple(self.tensors[tensor].shape)
            if bound.by_head and len(shape) > 1:  # [width, head, dim] as [width, head · dim]
                shape = (*shape[:-2], shape[-2] * shape[-1])
            if shape != bound.shape():
                what = message(
                    "tensor {tensor} has shape {shape}", tensor=repr(tensor), shape=list(shape)
                )
                expected = message(
                    "{stated} by config.json, for {roles}",
                    stated=list(bound.shape()),
                    roles=listing(role.name for role in bound.roles),
                )
                raise InputError(what, where=self.where, expected=expected)

            if self.tensors[tensor].dtype not in FLOATS:
                raise UnsupportedError(
                    "tensor {tensor} holds {dtype}, quantised weights whose scale is not here",
                    where=self.where,
                    expected=listing(FLOATS),
                    tensor=repr(tensor),
                    dtype=self.tensors[tensor].dtype,
                )
            self.claimed_names.add(tensor)
        return bound
