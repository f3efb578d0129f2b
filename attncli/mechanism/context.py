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
    # where all heads lose the same links, one matrix stands for all
    in_all = all(len(knock_out.heads) == heads for knock_out in knock_outs)
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

    heads, keys: how many there are of either.
    """
    weighed = [change for change in interventions if isinstance(change, Weigh)]
    if not weighed:
        return None
    added = np.zeros((heads, 1, keys))
    for change in weighed:
        # a factor of 0 has no logarithm: a bias so low that the weight becomes 0 stands for it
        bias = UNSEEN
        if change.factor > 0:
            bias = float(np.log(change.factor))
        # where a text is run in parts, later keys are not there yet
        known = [key for key in change.keys if key < keys]
        added[np.ix_(change.heads, [0], known)] += bias
    return backend.array(added)


def held_weights(interventions: Sequence[Intervention]) -> Array | None:
    """The attention weights of the last `HoldWeights` among these interventions, [head, query,
    key]; None where there is none."""
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
    """These interventions, changed so that the attention keeps given weights: a `HoldWeights` first,
    then all but the knock-outs. A knock-out is carried out on the given weights, as it would be on
    their scores: the rest of the row grows.

    weights: those to keep, of another run, [head, query, key].
    positions: absolute position of each query, [query].
    sinks: whether a learned logit takes part in the softmax, so that rows sum to less than 1.
    """
    heads, _, keys = weights.shape
    visible = visible_links(backend, interventions, heads, positions, keys)
    if visible is None:
        kept_weights = weights
    else:
        rest = backend.where(visible, weights, 0.0)
        total = backend.sum(rest, -1)
        if sinks:
            total = total + 1.0 - backend.sum(weights, -1)  # the sink's share stays in the sum
        # a row of which nothing is left has weights 0, not 0 / 0
        kept_weights = backend.where(total > 0, rest / backend.where(total > 0, total, 1.0), 0.0)
    others = (change for change in interventions if not isinstance(change, KnockOut))
    return (HoldWeights(kept_weights), *others)


def put_projections(
    backend: Backend, interventions: Sequence[Intervention], q: Array, k: Array, v: Array
) -> tuple[Array, Array, Array]:
    """Queries [..., head, query, dim], keys and values [..., kv, key, dim] with the PutProjections
    among the interventions applied; keys or values get one entry per query head where one is
    replaced."""
    projections = {"q": q, "k": k, "v": v}
    heads = q.shape[-3]
    for put in (change for change in interventions if isinstance(change, PutProjection)):
        whole = projections[put.side]
        group_size = heads // whole.shape[-3]
        lead = np.broadcast_shapes(tuple(put.values.shape[:-2]), tuple(whole.shape[:-3]))
        # one entry for each query head, [..., 1, token, dim]
        parts = []
        for head in range(heads):
            number = head // group_size
            part = whole[..., number : number + 1, :, :]
            if head == put.head:
                learned_keys = part[..., put.values.shape[-2] :, :]  # behind those of the text
                part = put.values[..., None, :, :]
                if learned_keys.shape[-2]:
                    shape = (*part.shape[:-2], *learned_keys.shape[-2:])
                    part = backend.concat([part, backend.broadcast(learned_keys, shape)], -2)
            parts.append(backend.broadcast(part, (*lead, *part.shape[-3:])))
        projections[put.side] = backend.concat(parts, -3)
    return projections["q"], projections["k"], projections["v"]


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
                pass  # these act before the softmax or in its place
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
    groups = values.shape[-3]
    count = mixed.shape[-2]
    # some rows at a time, as the weights of a long text are too many to be held at once
    for put in (change for change in interventions if isinstance(change, PutWeights)):
        # the values of each of its heads, [..., one of the heads, key, v_dim]
        head_values = values[..., [head * groups // heads for head in put.heads], :, :]
        mixed_parts = []
        weight_parts = []
        for start in range(0, count, PUT_ROWS):
            # the given weights of these queries, [..., one of the heads, rows, key]
            rows = put.rows(start, min(start + PUT_ROWS, count))
            row_values = backend.cast(head_values, backend.dtype_of(rows))
            mixed_parts.append(mix(backend, rows, row_values, rows > 0))
            if "weights" in stages:
                weight_parts.append(rows)
        outputs = backend.cast(backend.concat(mixed_parts, -2), backend.dtype_of(mixed))
        mixed = _replace_heads(backend, put.heads, outputs, mixed)
        if weight_parts:
            stages["weights"] = _replace_heads(
                backend, put.heads, backend.concat(weight_parts, -2), stages["weights"]
            )
    return mixed


def _replace_heads(backend: Backend, heads: Sequence[int], values: Array, mixed: Array) -> Array:
    """The heads' mixed values, [..., head, token, v_dim], with those of some heads replaced.

    heads: the numbers of those heads.
    values: in their place, [..., one of the heads, token, v_dim]; its leading axes broadcast with
        those of `mixed`.
    """
    if tuple(heads) == tuple(range(mixed.shape[-3])):
        return values
    variants = np.broadcast_shapes(tuple(values.shape[:-3]), tuple(mixed.shape[:-3]))
    parts = []
    for head in range(mixed.shape[-3]):
        if head in heads:
            place = list(heads).index(head)
            part = values[..., place : place + 1, :, :]
        else:
            part = mixed[..., head : head + 1, :, :]
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
        """The rows of x, [..., token, width], of the tokens that `asking` selects as queries.

        Where `asking` is None this is x itself, the same object, so that a matrix that several
        roles share is multiplied with it only once.
        """
        if self.asking is None:
            return x
        return x[..., self.asking, :]
