"""What a layer is given besides its input: weights by role, positions, what to keep, change and
watch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, assert_never

import numpy as np
from msgspec import Struct, field

from attncli.arrays.backend import Array, Backend
from attncli.mechanism.attend import EVERY_STAGE, RowBlock, mix

if TYPE_CHECKING:
    from attncli.mechanism.edit import Edits

Kind: TypeAlias = Literal["self", "cross"]
"""Which attention of a layer: over the text itself, or over another one."""


class Zero(Struct, frozen=True):
    """What these heads mix becomes 0. Source: Michel et al., Are sixteen heads really better than
    one?, 2019.
    """

    heads: tuple[int, ...]


class Replace(Struct, frozen=True, eq=False):
    """Intervention: what these heads mix becomes `values`, [..., one of the heads, token, v_dim].

    Leading axes are variants: the run has them from here on. Also called activation patching.
    """

    heads: tuple[int, ...]
    values: Array


class KnockOut(Struct, frozen=True):
    """Intervention: the scores of these queries for these keys become −∞ in these heads, before the
    softmax, so that the row's other weights grow.

    queries, keys: absolute positions; every pair of them is cut. A row left with nothing is an
    empty row. Learned sinks stay. Source: Geva et al., Dissecting recall of factual associations,
    2023.
    """

    heads: tuple[int, ...]
    queries: tuple[int, ...]
    keys: tuple[int, ...]


class Weigh(Struct, frozen=True):
    """Intervention: the logarithm of `factor` is added to the scores of these keys in these heads,
    so that their weights grow by that factor against those of other keys.

    keys: absolute positions.
    factor: 0 hides them from every query that sees another key; one that sees none keeps its
        weights.

    Source: Zhang et al., Tell your model where to attend, 2023.
    """

    heads: tuple[int, ...]
    keys: tuple[int, ...]
    factor: float


class PutProjection(Struct, frozen=True, eq=False):
    """Intervention: the queries, keys or values of one query head become `values`, [variant, token,
    dim] (each variant is one changed run), after norms and rotation.

    side: "q", "k" or "v"; keys and values of a head that shares them become its own. Also called
    path patching.
    """

    head: int
    side: Literal["q", "k", "v"]
    values: Array


class HoldWeights(Struct, frozen=True, eq=False):
    """Intervention: every head mixes with these attention weights, [head, query, key], whatever its
    queries and keys are.

    The queries are those that the layer computes; the keys are all, learned ones included.
    """

    weights: Array


class PutWeights(Struct, frozen=True, eq=False):
    """Intervention: these heads mix with given attention weights in place of their softmax; other
    heads attend as ever.

    rows: makes the weights of queries start..stop−1, [..., one of the heads, query, key]; the keys
    are all, learned ones included. So a long text needs few of them at once.
    """

    heads: tuple[int, ...]
    rows: Callable[[int, int], Array]


Intervention: TypeAlias = (
    Zero | Replace | KnockOut | Weigh | PutProjection | HoldWeights | PutWeights
)
Interventions: TypeAlias = Mapping[tuple[int, Kind], Sequence[Intervention]]
"""What is changed in which layer's attention; in the order in which it is done."""
NO_INTERVENTIONS: Interventions = {}


def visible_links(
    backend: Backend,
    interventions: Sequence[Intervention],
    heads: int,
    positions: np.ndarray[Any, Any],
    keys: int,
) -> Array | None:
    """Which (query, key) pairs the knock-outs among these interventions leave visible, booleans
    [head or 1, query, key]; None where there are no knock-outs.

    positions: absolute position of each query, [query].
    keys: how many keys there are.
    """
    knock_outs = [
        intervention for intervention in interventions if isinstance(intervention, KnockOut)
    ]
    if not knock_outs:
        return None
    in_all = all(
        len(knock_out.heads) == heads for knock_out in knock_outs
    )  # one matrix does, where heads are many
    visible = np.ones((1 if in_all else heads, len(positions), keys), bool)
    for knock_out in knock_outs:
        rows = np.flatnonzero(np.isin(positions, knock_out.queries))
        if in_all:
            places = np.zeros(1, np.int64)
        else:
            places = np.asarray(knock_out.heads)
        visible[np.ix_(places, rows, np.asarray(knock_out.keys))] = False
    return backend.array(visible)


UNSEEN = -1000.0
"""What is added to a score that is to weigh nothing: its exponential is 0 even in float64, and a
query that sees such keys alone keeps its weights, as it would for every factor above 0."""


def weighed_scores(
    backend: Backend, interventions: Sequence[Intervention], heads: int, keys: int
) -> Array | None:
    """The bias that the `Weigh`s among these interventions add to scores, [head, 1, key]; None
    without any.

    keys: how many there are.
    """
    weighed = [change for change in interventions if isinstance(change, Weigh)]
    if not weighed:
        return None
    added = np.zeros((heads, 1, keys))
    for change in weighed:
        bias = UNSEEN
        if change.factor > 0:
            bias = float(np.log(change.factor))
        known = [key for key in change.keys if key < keys]
        added[np.ix_(change.heads, [0], known)] += bias
    return backend.array(added)


def held_weights(interventions: Sequence[Intervention]) -> Array | None:
    """The attention weights that are held, [head, query, key]; None where none are."""
    weights = [change.weights for change in interventions if isinstance(change, HoldWeights)]
    if weights:
        return weights[-1]
    return None


def hold_weights(
    backend: Backend,
    interventions: Sequence[Intervention],
    weights: Array,
    positions: np.ndarray[Any, Any],
    *,
    sinks: bool,
) -> tuple[Intervention, ...]:
    """The interventions of an attention with its weights held. A knock-out among them is carried
    out on these weights, as it would be on their scores: the rest of the row grows.

    weights: of the run that they are held from, [head, query, key].
    positions: of the queries.
    sinks: whether a learned logit takes part in the softmax, so that rows sum to less than 1.
    """
    heads, _, keys = weights.shape
    visible = visible_links(backend, interventions, heads, positions, keys)
    if visible is not None:
        rest = backend.where(visible, weights, 0.0)
        total = backend.sum(rest, -1)
        if sinks:
            total = total + 1.0 - backend.sum(weights, -1)
        weights = backend.where(total > 0, rest / backend.where(total > 0, total, 1.0), 0.0)
    others = (change for change in interventions if not isinstance(change, KnockOut))
    return (HoldWeights(weights), *others)


def put_projections(
    backend: Backend, interventions: Sequence[Intervention], q: Array, k: Array, v: Array
) -> tuple[Array, Array, Array]:
    """Queries [..., head, query, dim], keys and values [..., kv, key, dim] with the PutProjections
    among the interventions applied; keys or values get one entry per query head where one is
    replaced."""
    heads = q.shape[-3]
    for put in (change for change in interventions if isinstance(change, PutProjection)):
        whole = {"q": q, "k": k, "v": v}[put.side]
        group = heads // whole.shape[-3]
        lead = np.broadcast_shapes(tuple(put.values.shape[:-2]), tuple(whole.shape[:-3]))
        parts = []
        for head in range(heads):
            part = whole[..., head // group : head // group + 1, :, :]
            if head == put.head:
                beyond = part[..., put.values.shape[-2] :, :]  # learned keys stay
                own = put.values[..., None, :, :]
                if beyond.shape[-2]:
                    own = backend.concat(
                        [own, backend.broadcast(beyond, (*own.shape[:-2], *beyond.shape[-2:]))], -2
                    )
                part = own
            parts.append(backend.broadcast(part, (*lead, *part.shape[-3:])))
        joined = backend.concat(parts, -3)
        q, k, v = (
            joined if put.side == side else array for side, array in (("q", q), ("k", k), ("v", v))
        )
    return q, k, v


def apply_interventions(
    backend: Backend, interventions: Sequence[Intervention], mixed: Array
) -> Array:
    """Apply the interventions that zero or replace a head's mixed values, [..., head, token,
    v_dim]; returns the changed values.
    """
    for intervention in interventions:
        match intervention:
            case Zero(heads):
                is_zero = np.zeros((mixed.shape[-3], 1, 1), bool)
                is_zero[list(heads)] = True
                mixed = backend.where(backend.array(is_zero), 0.0, mixed)
            case Replace(heads, values):
                mixed = _replace_heads(backend, heads, values, mixed)
            case KnockOut() | Weigh() | PutProjection() | HoldWeights() | PutWeights():
                pass  # it has been at work before the softmax
            case _:
                assert_never(intervention)
    return mixed


PUT_ROWS = 512
"""Query rows of a `PutWeights` that are made at a time."""


def put_weights(
    backend: Backend,
    interventions: Sequence[Intervention],
    stages: dict[str, Array],
    values: Array,
    mixed: Array,
) -> Array:
    """What heads mix, [..., head, query, v_dim], with the `PutWeights` among these interventions in
    place of a softmax; their weights come into the stages, where weights are kept.

    values: [..., kv, key, v_dim]; consecutive heads share an entry.
    """
    heads = mixed.shape[-3]
    count = mixed.shape[-2]
    for put in (change for change in interventions if isinstance(change, PutWeights)):
        own = values[..., [head * values.shape[-3] // heads for head in put.heads], :, :]
        fresh = []
        kept = []
        for start in range(0, count, PUT_ROWS):
            rows = put.rows(start, min(start + PUT_ROWS, count))
            fresh.append(mix(backend, rows, backend.cast(own, backend.dtype_of(rows)), rows > 0))
            kept += [rows] if "weights" in stages else []
        outputs = backend.cast(backend.concat(fresh, -2), backend.dtype_of(mixed))
        mixed = _replace_heads(backend, put.heads, outputs, mixed)
        if kept:
            stages["weights"] = _replace_heads(
                backend, put.heads, backend.concat(kept, -2), stages["weights"]
            )
    return mixed


def _replace_heads(backend: Backend, heads: Sequence[int], values: Array, mixed: Array) -> Array:
    """The heads' mixed values, [..., head, token, v_dim], with those of `heads` replaced by
    `values`.
    """
    if tuple(heads) == tuple(range(mixed.shape[-3])):
        return values
    variants = np.broadcast_shapes(tuple(values.shape[:-3]), tuple(mixed.shape[:-3]))
    parts = []
    for head in range(mixed.shape[-3]):
        source, place = (values, list(heads).index(head)) if head in heads else (mixed, head)
        part = source[..., place : place + 1, :, :]
        parts.append(backend.broadcast(part, (*variants, *part.shape[-3:])))
    return backend.concat(parts, -3)


class Weights(Protocol):
    """The weights of one layer by role, such as "attn.q.weight" ([out, in]); None where the model
    has none.
    """

    def __call__(self, role: str, /) -> Array | None: ...


class ReadWeights(ABC):
    """`Weights` that are read when they are asked for."""

    @abstractmethod
    def __call__(self, role: str, /) -> Array | None: ...

    @abstractmethod
    def product(self, name: str, x: Array, backend: Backend) -> Array | None:
        """x·Wᵀ + b, [row, out], multiplied while W (role `name`.weight) is read; None where W
        cannot be streamed so and must be read whole.

        x: [..., in], its leading axes one row axis in the result.
        """


class TableWeights(ABC):
    """`Weights` outside the layers, whose large tables need not be in memory as a whole."""

    @abstractmethod
    def __call__(self, role: str, /) -> Array | None: ...

    @abstractmethod
    def has(self, role: str) -> bool:
        """Whether there is such a weight."""

    @abstractmethod
    def product(self, role: str, x: Array) -> Array | None:
        """x·Wᵀ, [..., row], multiplied while a table W is read; None for a table that is in memory,
        and one that must be read first.

        x: [..., width].
        """

    @abstractmethod
    def tiles(self, role: str) -> Iterator[Array] | None:
        """Yield the rows of a table in order, a tile at a time, [row, width], each read only when
        asked for. None for a table that is small, in memory already, or missing."""

    @abstractmethod
    def rows(self, role: str, numbers: Sequence[int]) -> Array:
        """These rows of a table that is there, [row, width]."""


Past: TypeAlias = dict[int | tuple[int, str], tuple[Array, ...]]
"""What a run keeps of earlier tokens: keys and values, each [..., token, dim]; a mixer's states."""


class Context(Struct, frozen=True, eq=False):
    """What a layer's run needs besides weights and input vectors: positions, past keys, what to
    keep, interventions, callbacks.

    positions: absolute position of each token, integers [token].
    length: positions in all.
    key_lengths: real keys per batch entry, integers [batch, 1, 1, 1]; None if all are real.
    memory: the encoder's output [..., token, width] for cross-attention; memory_lengths likewise.
    past: keys and values of earlier positions by layer, and what its mixer keeps of them by layer
        and "mixer", extended in place while generating.
    keep: which n × n stages to keep.
    rows: None for dense attention; else how many query rows to compute at a time, each block handed
        to `on_block(layer, kind, block)` with kind "self" or "cross".
    interventions: what is changed on the way.
    edits: functions that change it.
    asking: positions within the text, start to stop, that are computed as queries and leave the
        layer, None where none are singled out; the others only lend their keys and values.
    last_queries: with `rows`, the queries that are looked at in the last layer: blocks without any
        of them are not computed there, and their mixed values are 0. None for all.
    on_activation: handed the layer, a norm's place with what enters it, or "mixer", "mlp" or "conv"
        with what the mixer, the feed-forward part or the convolution gives.
    """

    positions: np.ndarray[Any, Any]
    length: int
    key_lengths: Array | None = None
    memory: Array | None = None
    memory_lengths: Array | None = None
    past: Past | None = None
    keep: frozenset[str] = EVERY_STAGE
    rows: int | None = None
    on_block: Callable[[int, str, RowBlock], None] | None = None
    interventions: Interventions = field(default_factory=dict)
    edits: Edits = field(default_factory=dict)
    asking: slice | None = None
    last_queries: Collection[int] | None = None
    on_activation: Callable[[int, str, Array], None] | None = None

    def queries_of(self, x: Array) -> Array:
        """The rows of x, [..., token, width], of the tokens that `asking` selects as queries; x
        itself where it is None.

        It is x itself where none are singled out: a tensor that several roles share is multiplied
        once with one array.
        """
        if self.asking is None:
            return x
        return x[..., self.asking, :]
