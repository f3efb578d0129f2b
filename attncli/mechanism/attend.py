"""The attention step, the only softmax of the package, computed by blocks of query rows.

Dense attention is one block, streaming is many, handed on and forgotten, so that nothing is ever n
× n; both run `attend_rows`, and the numbers are the same for every size of block.

Source: Vaswani et al., Attention is all you need, 2017; the order of scale, soft cap, bias and mask
is the one of the trained models (a soft cap after the mask would turn −inf into a finite score).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial, reduce
from math import frexp, prod
from operator import and_
from typing import Any, NamedTuple, Protocol

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from attncli.arrays.backend import LOW_PRECISION, Array, Backend, numpy_backend
from attncli.arrays.numpy_backend import take_in_order
from attncli.mechanism.mask import Everywhere, Mask, shows_all, visible
from attncli.mechanism.trace import SQUARE

Floats = np.ndarray[Any, np.dtype[Any]]

# Memory that blocks of query rows take turns to use: asking the system for it anew would cost as
# much as a product.


class ScoreBuffer:
    """Named flat arrays of one data type, each big enough for `size` numbers."""

    def __init__(self, backend: Backend, dtype: str, size: int) -> None:
        self._backend = backend
        self._dtype = dtype
        self._size = size
        self._arrays: dict[str, Array] = {}

    def take(self, name: str, shape: Sequence[int]) -> Array:
        """The array of that name in this shape. Its numbers are whatever the last user left there."""
        if name not in self._arrays:
            self._arrays[name] = self._backend.full((self._size,), 0, self._dtype)
        return self._arrays[name][: prod(shape)].reshape(tuple(shape))


# The one softmax.

LOWEST_EXPONENT = -800.0
"""Below this, exp is 0 even in float64."""


class SoftmaxResult(NamedTuple):
    """The result of a softmax over keys.

    weights: [..., head, rows, key].
    lse: log-sum-exp.
    empty: rows that see nothing.
    entropy: −Σ w ln w in nats.
    peak: the largest weight, 0 in an empty row.

    All but the weights are [..., head, rows, 1]; entropy is None unless asked for, peak where a
    sink takes part.
    """

    weights: Array
    lse: Array
    empty: Array
    entropy: Array | None
    peak: Array | None


def softmax(
    backend: Backend,
    scores: Array,
    visibility: Array | None,
    sinks: Array | None,
    *,
    may_overwrite: bool,
    entropy: bool = False,
    hidden: Sequence[slice] | None = None,
    buffer: ScoreBuffer | None = None,
) -> SoftmaxResult:
    """Softmax over keys of scores [..., head, rows, key] in which hidden keys are −inf.

    visibility: booleans that broadcast to the scores, True where a key is seen; None if every row
        sees something.
    sinks: a logit for each head, [head], that takes part and is dropped; None for none.
    may_overwrite: whether the result may be written over the scores.
    entropy: whether the entropy of each row is computed.
    hidden: the ranges of keys among which some are hidden, None where that is not known.
    buffer: memory to work in; None for new memory.

    Returns the weights, and for each row, [..., head, rows, 1], its log-sum-exp, whether it sees
    nothing, its entropy, and its largest weight; the last two are None where they were not computed.
    """
    # the highest score is taken from all, so that no exponential overflows
    highest = backend.max(scores, -1)
    shape = (*scores.shape[:-1], 1)
    if visibility is None:
        empty = backend.full(shape, 0, "bool")
    else:
        empty = backend.broadcast(~backend.any(visibility, -1), shape)

    def unless_empty(value: float, values: Array) -> Array:
        """`values`, with `value` in the rows that see no key."""
        if visibility is None:
            return values
        return backend.where(empty, value, values)

    highest = unless_empty(0.0, highest)
    if sinks is not None:
        sink = backend.cast(sinks, backend.dtype_of(scores))[:, None, None]
        highest = backend.where(sink > highest, sink, highest)
    if may_overwrite:
        scores -= highest
    else:
        scores = scores - highest
    # Σ w ln w needs no logarithm of each weight while their exponents are at hand
    if entropy:
        out = None
        if buffer is not None:
            out = buffer.take("weights", scores.shape)
        weights = backend.exp(scores, out=out)
        if hidden is None:
            hidden = (slice(None),)
        for part in hidden:
            backend.at_least(scores[..., part], LOWEST_EXPONENT)  # as 0 · −inf would be NaN, not 0
    else:
        weights = backend.exp_over(scores)
    total = backend.sum(weights, -1)
    if sinks is not None:
        total = total + backend.exp(sink - highest)
    total = unless_empty(1.0, total)
    weights /= total

    log_total = backend.log(total)
    entropies = None
    if entropy:
        # ln w = s − ln Z, so −Σ w ln w = ln Z · Σ w − Σ w s; only a sink makes Σ w less than 1
        if sinks is None:
            mean_log_total = log_total
        else:
            mean_log_total = log_total * backend.sum(weights, -1)
        entropies = mean_log_total - backend.dot_over(scores, weights)
    # the exponential of a row's highest score is 1, so its largest weight is 1 / total
    if sinks is None:
        peak = unless_empty(0.0, 1.0 / total)
    else:
        peak = None
    return SoftmaxResult(
        weights, unless_empty(-float("inf"), highest + log_total), empty, entropies, peak
    )


def weigh_scores(backend: Backend, scores: Array, rule: Rule) -> Array:
    """The attention weights of given scores, [..., head, query, key], −∞ where a key is hidden.

    A row that sees nothing has weights 0.

    rule: its sinks take part; nothing else of it is used.
    """
    visibility = scores > -float("inf")
    return softmax(backend, scores, visibility, rule.sinks, may_overwrite=False).weights


def weights_of_scores(scores: Floats, visible: Floats, sink: float | None) -> Floats:
    """Softmax over the keys of given scores, [..., key]: the attention weights that these would
    give, float64, outside of a run.

    visible: booleans that broadcast to the scores; hidden keys and rows that see nothing have 0.
    sink: the learned logit that takes part; None without one.
    """
    # all rows as those of one head, [1, row, key], as the softmax takes them
    exact = numpy_backend("float64")
    masked = np.where(visible, scores, -np.inf).reshape(1, -1, scores.shape[-1])
    if sink is None:
        sinks = None
    else:
        sinks = exact.array([sink])
    visibility = exact.array(np.broadcast_to(visible, scores.shape).reshape(masked.shape))
    result = softmax(exact, exact.array(masked), visibility, sinks, may_overwrite=False)
    return np.asarray(exact.numpy(result.weights)).reshape(scores.shape)


EVERY_STAGE = frozenset(SQUARE)


class PositionBias(Protocol):
    """A function that gives the bias of the position encoding on scores, [head, rows, columns], for
    the heads in `heads` (all by default)."""

    def __call__(self, i: Array, j: Array, /, *, heads: slice = ...) -> Array: ...


class Rule(Struct, frozen=True, eq=False):
    """What turns queries and keys into attention weights: scale, soft cap, mask, biases and sinks.

    scale: multiplies q·k.
    softcap: bound of the soft cap, None for none.
    mask: what each position sees.
    visibility: the same as booleans that broadcast to [..., head, query, key].
    bias: floats that broadcast likewise, −inf hides.
    position_bias: a function of (i [..., rows, 1], j [1, columns]) and a choice of heads giving
        [head, rows, columns].
    offset: absolute position of query 0, an int or integers [batch..., 1, 1, 1].
    key_lengths: integers [batch..., 1, 1, 1]; keys from there on are hidden.
    extra_keys: how many keys at the end have no position and are seen by every query.
    sinks: a learned logit per head, [head], that takes its share of the softmax.
    softmax_dtype: the type of scores and weights; None for the inputs' own, float32 for low
        precision.
    apart: queries whose scores and values come from elsewhere; None where all meet the same keys.
    """

    scale: float
    softcap: float | None = None
    mask: Mask = field(default_factory=Everywhere)
    visibility: Array | None = None
    bias: Array | None = None
    position_bias: PositionBias | None = None
    offset: int | Array = 0
    key_lengths: Array | None = None
    extra_keys: int = 0
    sinks: Array | None = None
    softmax_dtype: str | None = None
    apart: SeparateQueries | None = None

    def score_dtype(self, backend: Backend, q: Array) -> str:
        """The type that scores and weights are computed in."""
        dtype = backend.dtype_of(q)
        return self.softmax_dtype or ("float32" if dtype in LOW_PRECISION else dtype)


class RowBlock(Struct, frozen=True):
    """The stages of queries start..stop-1 over the keys low..high-1; nothing outside is visible.

    stages: those asked for, each [..., head, rows, high - low].
    mixed: [..., head, rows, v_dim].
    find_visibility: makes booleans that broadcast to [..., head, rows, high - low], or None if all
        is visible.
    empty: booleans [..., head, rows].
    first_head: the number of the first head in it.
    alone: the mask, where it alone decides what a query sees; its reach spares looking at each
        pair.
    lse: log Σ exp over what a row sees, its sink included, [..., head, rows]; −inf for an empty
        row.
    """

    start: int
    stop: int
    low: int
    high: int
    stages: dict[str, Array]
    mixed: Array
    find_visibility: Callable[[], Array | None]
    empty: Array
    lse: Array
    first_head: int = 0
    alone: Mask | None = None

    @property
    def visibility(self) -> Array | None:
        """Which keys of its range the rows see, booleans that broadcast to [..., head, row, key];
        None for all.
        """
        return self.find_visibility()


def attend(
    backend: Backend,
    q: Array,
    k: Array,
    v: Array,
    rule: Rule,
    *,
    keep: Collection[str] = EVERY_STAGE,
) -> RowBlock:
    """Dense attention: one block of all query rows over all keys.

    q: [..., head, query, dim], k: [..., kv, key, dim], v: [..., kv, key, v_dim].
    keep: names of the stages to return, all where left out.
    """
    count = q.shape[-2]
    return attend_rows(backend, q, k, v, rule, start=0, stop=count, keep=keep, whole=True)


# NumPy's warnings are off, as infinities and NaN are results here
@np.errstate(over="ignore", invalid="ignore")
def attend_rows(
    backend: Backend,
    q: Array,
    k: Array,
    v: Array,
    rule: Rule,
    start: int,
    stop: int,
    *,
    keep: Collection[str],
    whole: bool = False,
    finite: bool = False,
    buffer: ScoreBuffer | None = None,
) -> RowBlock:
    """Compute the attention of query rows start..stop−1 as one block: scores by `rule`, weights,
    and mixed values.

    q: [..., head, query, dim].
    k: [..., kv, key, dim].
    v: [..., kv, key, v_dim]; consecutive heads share a kv head.
    keep: names of the stages to return, and of two numbers for each row, [..., head, rows], that
        are cheap to compute here: "entropy" in nats, and "peak", the largest weight (left out where
        there are sinks).
    whole: whether to compute over all keys even where a range of them is known to be hidden.
    finite: whether v is known to hold only finite numbers, so that need not be checked.
    buffer: memory for scores and weights, which the next block in it overwrites; None for new
        memory.

    A row that sees nothing has weights 0 and mixed 0. Hidden keys and values may hold NaN.
    """
    keys = k.shape[-2]
    if whole:
        low = 0
        high = keys
    else:
        low, high = _key_range(rule, start, stop, keys)
    dtype = rule.score_dtype(backend, q)
    stages = _Stages(frozenset(keep))

    # scores: q·k, scaled, capped
    queries = backend.cast(q[..., start:stop, :], dtype)
    scale = rule.scale
    is_power_of_two = frexp(scale)[0] == 0.5
    if "raw" not in keep and is_power_of_two:
        # which scales exactly: few queries instead of many scores
        queries = queries * scale
        scale = 1.0
    keys_across = backend.transpose(backend.cast(k[..., low:high, :], dtype))
    scores = by_group(backend, queries, keys_across, buffer)
    # some models have rows, such as global tokens, with queries, keys and values of their own
    apart = separate_queries_in(backend, rule.apart, dtype, (start, stop, low, high))
    if apart is not None:
        apart_queries = apart.q
        if scale != rule.scale:  # the other queries are scaled already, above
            apart_queries = apart.q * rule.scale
        apart_scores = by_group(backend, apart_queries, backend.transpose(apart.k))
        scores[..., list(apart.rows), :] = apart_scores
    stages.note("raw", scores)
    scores = stages.note("scaled", scores if scale == 1.0 else stages.multiply(scores, scale))
    if rule.softcap is not None:
        scores = stages.multiply(backend.tanh(scores / rule.softcap), rule.softcap)
    stages.note("capped", scores)

    # biases, by the positions i of queries and j of keys
    row = backend.arange(start, stop)[:, None]
    i = row + rule.offset
    j = backend.arange(low, high)[None, :]
    for bias in _biases(backend, rule, i, j, (start, stop, low, high), keys):
        scores = stages.add(scores, backend.cast(bias, dtype))
    stages.note("biased", scores)

    # hidden keys get −inf
    find_visibility = partial(
        _find_visibility, backend, rule, i, j, row, keys, (start, stop, low, high)
    )
    edges = None
    if finite and stages.may_overwrite(scores):
        edges = _partly_hidden_keys(rule, start, stop, low, high, keys)
    if edges is not None:
        hidden = [slice(first - low, last - low) for first, last in edges]
        # every row sees something, and hidden values are finite: only the ranges of keys that some
        # rows see and some do not need to be masked
        visibility = None
        for part in hidden:
            backend.hide(
                scores[..., part],
                visible(rule.mask, i, j[:, part], keys=keys, backend=backend, row=row),
            )
    else:
        visibility = find_visibility()
        hidden = None
        if visibility is not None:
            scores = stages.hide(backend, scores, visibility)
    stages.note("masked", scores)

    # weights, and the values that they mix
    weights, lse, empty, entropy, peak = softmax(
        backend,
        scores,
        visibility,
        rule.sinks,
        may_overwrite=stages.may_overwrite(scores),
        entropy="entropy" in keep,
        hidden=hidden,
        buffer=buffer,
    )
    stages.note("weights", weights)
    if entropy is not None:
        stages.note("entropy", entropy[..., 0])
    if peak is not None:
        stages.note("peak", peak[..., 0])
    mixed = mix(backend, weights, backend.cast(v[..., low:high, :], dtype), visibility)
    if apart is not None:
        rows = list(apart.rows)
        row_visibility = visibility
        if visibility is not None:
            row_visibility = backend.broadcast(visibility, weights.shape)[..., rows, :]
        mixed[..., rows, :] = mix(backend, weights[..., rows, :], apart.v, row_visibility)
    mixed = backend.cast(mixed, backend.dtype_of(v))
    # where only the edges were masked, the visibility of all keys is computed if it is asked for
    sees = find_visibility if edges is not None else lambda: visibility
    alone = _mask_alone(rule)
    return RowBlock(
        start, stop, low, high, stages.kept, mixed, sees, empty[..., 0], lse[..., 0], alone=alone
    )


def _biases(
    backend: Backend,
    rule: Rule,
    i: Array,
    j: Array,
    block: tuple[int, int, int, int],
    keys: int,
) -> Iterator[Array]:
    """Yield the biases that the rule adds to the scores of a block, each so that it broadcasts to
    [..., head, rows, columns]: that of the position encoding, and the given one.

    i, j: positions of its queries, [..., rows, 1], and its keys, [1, columns].
    block: its start and stop row, and low and high key.
    keys: how many keys there are in all.
    """
    if rule.position_bias is not None:
        bias = rule.position_bias(i, j)
        if rule.extra_keys:  # these have no position
            bias = backend.where(j < keys - rule.extra_keys, bias, 0.0)
        yield bias
    if rule.bias is not None:
        yield _block_of(rule.bias, *block)


def _partly_hidden_keys(
    rule: Rule, start: int, stop: int, low: int, high: int, keys: int
) -> list[tuple[int, int]] | None:
    """The ranges of keys that some rows of a block see and some do not; none in the list where all
    rows see all keys. None where these are not known from the mask alone, or the rows have no key
    that all of them see, so that one may see nothing.

    start, stop: the block's rows.
    low, high: its keys.
    keys: how many keys there are in all.
    """
    mask = _mask_alone(rule)
    # that the offset is a number is for the type alone: with an array there is no such mask
    if mask is None or not isinstance(rule.offset, int):
        return None
    first, last = common_span(mask, start + rule.offset, stop - 1 + rule.offset, keys)
    if first < last:  # some key is seen by every row
        return [(begin, end) for begin, end in ((low, first), (last, high)) if begin < end]
    return None


def _mask_alone(rule: Rule) -> Mask | None:
    """The rule's mask if nothing else decides what a query sees; else None."""
    others = (rule.visibility, rule.bias, rule.key_lengths)
    # with an array of offsets, the texts of a batch see different ranges of keys
    is_alone = (
        all(part is None for part in others)
        and not rule.extra_keys
        and isinstance(rule.offset, int)
    )
    return rule.mask if is_alone else None


class _Stages:
    """Collects the stages asked for, and lets scores be overwritten in place unless a kept stage is
    that array.
    """

    def __init__(self, keep: frozenset[str]) -> None:
        self.keep = keep  # the names of those that are asked for
        self.kept: dict[str, Array] = {}  # those that are there so far

    def note(self, name: str, array: Array) -> Array:
        """Keep the array if the stage of this name is asked for; returns the array."""
        if name in self.keep:
            self.kept[name] = array
        return array

    def may_overwrite(self, array: Array) -> bool:
        """Whether the array may be overwritten: no kept stage is this array."""
        return all(array is not stage for stage in self.kept.values())

    def multiply(self, scores: Array, factor: float) -> Array:
        """Scores times a factor; overwrites the scores where that is allowed."""
        if not self.may_overwrite(scores):
            return scores * factor
        scores *= factor
        return scores

    def hide(self, backend: Backend, scores: Array, visibility: Array) -> Array:
        """Scores with −∞ where a key is not seen; overwrites the scores where that is allowed."""
        if self.may_overwrite(scores):
            return backend.hide(scores, visibility)
        return backend.where(visibility, scores, -float("inf"))

    def add(self, scores: Array, bias: Array) -> Array:
        """The sum of scores and a bias; overwrites the scores where that is allowed."""
        if not self.may_overwrite(scores):
            return scores + bias
        scores += bias
        return scores


def _key_range(rule: Rule, start: int, stop: int, keys: int) -> tuple[int, int]:
    """The range [low, high) of keys that the rows start..stop-1 are computed over: at least one
    key.
    """
    if rule.extra_keys:  # the last keys have no position, and every query sees them
        return 0, keys
    offset = rule.offset
    if isinstance(offset, int):
        first = start + offset
        last = stop - 1 + offset
    else:  # one for each text of a batch
        first = start + int(offset.min())
        last = stop - 1 + int(offset.max())
    low, high = span(rule.mask, first, last, keys)
    if rule.key_lengths is not None:
        high = min(high, int(rule.key_lengths.max()))
    if low < high:
        return low, high
    return 0, min(1, keys)  # one key, which is then masked, in place of an empty matrix


def _find_visibility(
    backend: Backend,
    rule: Rule,
    i: Array,
    j: Array,
    row: Array,
    keys: int,
    where: tuple[int, int, int, int],
) -> Array | None:
    """Which keys the rows of a block see, booleans that broadcast to [..., head, rows, columns];
    None for all.

    i, j: positions of its queries, [..., rows, 1], and its keys, [1, columns].
    row: the numbers of its rows, [rows, 1].
    keys: how many keys there are in all.
    where: the block's start and stop row, and its low and high key.
    """
    real = keys - rule.extra_keys
    parts = []
    if not shows_all(rule.mask):
        # extra keys have no position: the mask is asked about key 0 in their place
        if rule.extra_keys:
            inside = backend.where(j < real, j, 0)
        else:
            inside = j
        parts.append(visible(rule.mask, i, inside, keys=real, backend=backend, row=row))
    if rule.key_lengths is not None:
        parts.append(j < rule.key_lengths)
    if rule.visibility is not None:
        parts.append(_block_of(rule.visibility, *where))
    if rule.bias is not None:
        parts.append(_block_of(rule.bias, *where) != -float("inf"))
    if not parts:
        return None
    visibility = reduce(and_, parts)
    if rule.extra_keys:
        return visibility | (j >= real)
    return visibility


def _block_of(array: Array, start: int, stop: int, low: int, high: int) -> Array:
    """Cut an array that broadcasts to [..., query, key] to the queries start..stop-1 and the keys
    low..high-1; an axis of length 1, or one that it does not have, stays as it is."""
    if array.ndim < 2 or array.shape[-2] == 1:
        rows = array
    else:
        rows = array[..., start:stop, :]
    if rows.ndim < 1 or rows.shape[-1] == 1:
        return rows
    return rows[..., low:high]


# Products between heads and the key-value heads that they share.


def by_group(backend: Backend, a: Array, b: Array, buffer: ScoreBuffer | None = None) -> Array:
    """The product of a, [..., head, rows, n], and b, [..., kv, n, m], in which consecutive heads
    share one entry of b: [..., head, rows, m].

    buffer: memory to put it in; None for new memory.
    """
    heads = a.shape[-3]
    groups = b.shape[-3]
    # the rows of the heads that share an entry are multiplied as rows of one matrix
    if heads == groups:
        rows = a
    else:
        rows = a.reshape((*a.shape[:-3], groups, heads // groups * a.shape[-2], a.shape[-1]))
    if buffer is None:
        out = None
    else:
        out = buffer.take("scores", (*rows.shape[:-1], b.shape[-1]))
    product = backend.matmul(rows, b, out=out)
    if heads == groups:
        return product
    return product.reshape((*product.shape[:-3], heads, a.shape[-2], b.shape[-1]))


def mix(backend: Backend, weights: Array, values: Array, visibility: Array | None) -> Array:
    """weights·values, where a hidden value may be NaN or infinite without reaching the result.

    weights: [..., head, rows, key].
    values: [..., kv, key, v_dim].
    visibility: booleans that broadcast to the weights; None if all is visible.
    """
    if visibility is None:
        return by_group(backend, weights, values)
    # a sum is finite only if every summand is, and takes a seventh of the time to check
    if bool(backend.isfinite(backend.sum(values, -1)).all()):
        return by_group(backend, weights, values)
    finite = backend.isfinite(values)
    clean = by_group(backend, weights, backend.where(finite, values, 0.0))
    # what a visible query meets is what IEEE arithmetic would give it: inf, −inf or NaN
    dtype = backend.dtype_of(weights)
    visible = backend.cast(backend.broadcast(visibility, weights.shape), dtype)
    visible_weights = backend.where(visible > 0, weights, 0.0)
    up = by_group(backend, visible_weights, backend.cast(values == float("inf"), dtype)) > 0
    down = by_group(backend, visible_weights, backend.cast(values == -float("inf"), dtype)) > 0
    meets_nan = by_group(backend, visible, backend.cast(values != values, dtype)) > 0
    zero_times_infinite = (
        by_group(backend, visible * backend.cast(weights == 0, dtype), backend.cast(~finite, dtype))
        > 0
    )
    clean = backend.where(up, float("inf"), backend.where(down, -float("inf"), clean))
    return backend.where(meets_nan | zero_times_infinite | (up & down), float("nan"), clean)


def mix_with_weights(backend: Backend, weights: Array, values: Array, rule: Rule) -> Array:
    """What heads mix of `values`, [..., kv, key, v_dim], with given attention weights,
    [head, query, key], in place of a softmax: [..., head, query, v_dim].

    rule: only its separate queries, as of global tokens, and their values take part.
    """
    dtype = backend.dtype_of(weights)
    # a key without weight counts as hidden, so that what is not finite in its value stays out
    visibility = weights > 0
    mixed = mix(backend, weights, backend.cast(values, dtype), visibility)
    where = (0, weights.shape[-2], 0, weights.shape[-1])
    apart = separate_queries_in(backend, rule.apart, dtype, where)
    if apart is not None:
        rows = list(apart.rows)
        row_weights = weights[..., rows, :]
        mixed[..., rows, :] = mix(backend, row_weights, apart.v, row_weights > 0)
    return backend.cast(mixed, backend.dtype_of(values))


# Queries of an attention that meet keys and values of their own. Source: Beltagy et al.,
# Longformer, 2020.


class SeparateQueries(Struct, frozen=True, eq=False):
    """Query rows with projections of their own for query, key and value, such as Longformer's
    global tokens.

    rows: which of the queries, ascending.
    q: theirs, [..., head, one of them, dim].
    k, v: [..., kv, key, dim or v_dim].
    """

    rows: tuple[int, ...]
    q: Array
    k: Array
    v: Array


def separate_queries_in(
    backend: Backend, apart: SeparateQueries | None, dtype: str, where: tuple[int, int, int, int]
) -> SeparateQueries | None:
    """The separate queries that lie in a block, rows counted from its start and keys cut to its
    range; None where none do.

    apart: those of the whole text; None for none.
    dtype: the type that they come in.
    where: start and stop row, low and high key of the block.
    """
    if apart is None:
        return None
    start, stop, low, high = where
    places = [place for place, row in enumerate(apart.rows) if start <= row < stop]
    if not places:
        return None
    return SeparateQueries(
        tuple(apart.rows[place] - start for place in places),
        backend.cast(apart.q[..., places, :], dtype),
        backend.cast(apart.k[..., low:high, :], dtype),
        backend.cast(apart.v[..., low:high, :], dtype),
    )


# How far queries see under a mask: ranges of keys, so that hidden work is not done.


def span(mask: Mask, first: int, last: int, keys: int) -> tuple[int, int]:
    """A range [low, high) of keys outside which no query first..last (inclusive) sees anything.

    It may be wider than needed, never narrower; low = high means that nothing is visible.
    """
    # of the first query and of the last; bounds never fall from query to query
    lows, highs, _ = mask.reach(np.asarray([first, last], np.int64), keys)
    return _cut_to_keys(int(lows[0]), int(highs[1]), keys)


def common_span(mask: Mask, first: int, last: int, keys: int) -> tuple[int, int]:
    """A range [low, high) of keys that every query first..last (inclusive) sees; low = high if none
    is known.

    It may be narrower than it could be, never wider.
    """
    # of the first query and of the last, and whether all keys between a query's bounds are visible
    lows, highs, whole = mask.reach(np.asarray([first, last], np.int64), keys)
    # bounds never fall from query to query: from where the last one's keys begin to where the first
    # one's end
    if whole:
        return _cut_to_keys(int(lows[1]), int(highs[0]), keys)
    return (0, 0)


def _cut_to_keys(low: int, high: int, keys: int) -> tuple[int, int]:
    """The range [low, high) as far as there are keys; (0, 0) where nothing is left of it."""
    low = max(low, 0)
    high = min(high, keys)
    if low < high:
        return (low, high)
    return (0, 0)


BLOCK = 1 << 21
"""Weights in one block, 8 MB of float32: larger ones leave the processor's caches, smaller ones
cost more steps.
"""
GATHERED = 1 << 19
"""Weights in one block where all are kept."""
GATHERED_FROM = 1 << 20
"""Weights from which blocks repay the threads that work on them."""
THREADS = 4
"""How many blocks are worked on at once, at most: what looks at them takes one at a time, about a
fifth of the work.
"""
FEWEST = 16
"""Query rows in a block, at least: fewer would make the products slow."""


class StreamResult(NamedTuple):
    """What is left of attention by blocks.

    mixed: [..., head, query, v_dim].
    empty: booleans [..., head, query].
    """

    mixed: Array
    empty: Array


def stream(
    backend: Backend,
    q: Array,
    k: Array,
    v: Array,
    rule: Rule,
    *,
    rows: int,
    keep: Collection[str],
    on_block: Callable[[RowBlock], None],
    last_queries: Collection[int] | None = None,
) -> StreamResult:
    """Attend block by block, handing each to `on_block`.

    q: [..., head, query, dim], k: [..., kv, key, dim], v: [..., kv, key, v_dim].
    rows: how many query rows may be held at once, each with all heads. A block holds only the heads
        of one kv head, and in return more rows by as many times as there are kv heads (fewer under
        a narrow window); what is in it is overwritten once `on_block` is done. Several blocks are
        worked on at the same time, by as many threads; `on_block` is called here, rows in order,
        the heads of the same rows one after the other. Memory is linear in the length; masks that
        hide keys save the work on them.
    keep: names of the stages, and of "entropy" and "peak", that blocks hold.
    last_queries: blocks without any of these are not computed, and their mixed values are 0; None
        for all.
    """
    heads = q.shape[-3]
    queries = q.shape[-2]
    keys = k.shape[-2]
    groups = k.shape[-3]
    group_size = heads // groups
    dtype = rule.score_dtype(backend, q)
    lead = np.broadcast_shapes(q.shape[:-3], k.shape[:-3])
    ranges, largest_weights = row_ranges(rule, queries, keys, rows * groups)
    if last_queries is not None:
        ranges = [block for block in ranges if any(query in block for query in last_queries)]
    finite = bool(backend.isfinite(v).all())
    # one group of heads at a time: a block of many rows of few heads has the better products
    parts = []
    for group in range(groups):
        head_range = slice(group * group_size, (group + 1) * group_size)
        kv = slice(group, group + 1)
        arrays = (q[..., head_range, :, :], k[..., kv, :, :], v[..., kv, :, :])
        parts.append((head_range, arrays, _of_heads(rule, head_range, heads)))

    def attend_part(
        head_slice: slice,
        arrays: tuple[Array, Array, Array],
        rule: Rule,
        row_range: range,
        buffer: ScoreBuffer,
    ) -> RowBlock:
        """The attention of some query rows of one group of heads.

        head_slice: the numbers of these heads.
        arrays: their queries, keys and values.
        rule: cut to these heads.
        row_range: the query rows.
        buffer: memory for the scores.
        """
        row_block = attend_rows(
            backend,
            *arrays,
            rule,
            row_range.start,
            row_range.stop,
            keep=keep,
            finite=finite,
            buffer=buffer,
        )
        return replace(row_block, first_head=head_slice.start)

    works = [partial(attend_part, *part, row_range) for row_range in ranges for part in parts]
    # results are written in place: thousands of small ones between large blocks would fragment the
    # memory
    mixed = backend.full((*lead, heads, queries, v.shape[-1]), 0, backend.dtype_of(v))
    empty = backend.full((*lead, heads, queries), 0, "bool")

    def write_block(block: RowBlock) -> None:
        """Hand a block on, and write its mixed values and empty rows where they belong."""
        on_block(block)
        head_range = slice(block.first_head, block.first_head + group_size)
        mixed[..., head_range, block.start : block.stop, :] = block.mixed
        empty[..., head_range, block.start : block.stop] = block.empty

    with backend.shared_out(THREADS) as threads:
        size = prod(lead) * group_size * largest_weights  # numbers in the largest block
        # threads compute while one more block waits to be handed on
        buffer_count = 1
        if threads > 1:
            buffer_count = threads + 1
        buffers = [ScoreBuffer(backend, dtype, size) for _ in range(buffer_count)]
        take_in_order(works, write_block, buffers)
    return StreamResult(mixed, empty)


def ignore_block(block: RowBlock) -> None:
    """Do nothing with a block: the `on_block` for callers that only want the mixed values."""


def compute_attention(
    backend: Backend,
    q: Array,
    k: Array,
    v: Array,
    rule: Rule,
    *,
    rows: int | None,
    keep: Collection[str],
    on_block: Callable[[RowBlock], None],
    last_queries: Collection[int] | None = None,
) -> tuple[dict[str, Array], Array, Array]:
    """One attention of a layer, dense or by blocks: its stages by name, the mixed values, [...,
    head, query, v_dim], and which rows see nothing, booleans [..., head, query].

    q: [..., head, query, dim], k: [..., kv, key, dim], v: [..., kv, key, v_dim].
    rows: None for dense attention, which keeps its stages; else how many query rows to hold at once
        as blocks, which go to `on_block` and leave no stages.
    keep: names of the stages to compute and keep.
    on_block: called with each block of rows, in order, where `rows` are given.
    last_queries: blocks without any of these queries are not computed, and their mixed values are
        0; None for all.
    """
    # dense, but put together from blocks, which is faster for many weights
    if rows is None and _worth_gathering(backend, q, k, keep):
        return gather_blocks(backend, q, k, v, rule, keep=keep)
    if rows is None:
        whole = attend(backend, q, k, v, rule, keep=keep)
        return whole.stages, whole.mixed, whole.empty
    mixed, empty = stream(
        backend, q, k, v, rule, rows=rows, keep=keep, on_block=on_block, last_queries=last_queries
    )
    return {}, mixed, empty


def _worth_gathering(backend: Backend, q: Array, k: Array, keep: Collection[str]) -> bool:
    """Whether to compute dense weights block by block, as that is faster: for many weights on
    NumPy, whose own operations use one thread.

    keep: the stages to keep; no other than the weights may be among them.
    """
    score_count = prod(q.shape[:-1]) * k.shape[-2]
    only_weights = set(keep) <= {"weights"}
    return backend.name == "numpy" and only_weights and score_count >= GATHERED_FROM


def gather_blocks(
    backend: Backend,
    q: Array,
    k: Array,
    v: Array,
    rule: Rule,
    *,
    keep: Collection[str],
    block: int = GATHERED,
) -> tuple[dict[str, Array], Array, Array]:
    """Dense attention computed block by block, with the weights of all blocks put together in one
    array where `keep` holds "weights".

    q: [..., head, query, dim], k: [..., kv, key, dim], v: [..., kv, key, v_dim].
    keep: names of the stages to return.
    block: weights in a block, about.

    Returns the stages by name, the mixed values, [..., head, query, v_dim], and which rows see
    nothing, booleans [..., head, query].
    """
    heads = q.shape[-3]
    queries = q.shape[-2]
    keys = k.shape[-2]
    dtype = rule.score_dtype(backend, q)
    lead = np.broadcast_shapes(q.shape[:-3], k.shape[:-3])
    stages = {name: backend.full((*lead, heads, queries, keys), 0, dtype) for name in keep}

    def collect(row_block: RowBlock) -> None:
        """Write a block's stages where they belong in the dense ones."""
        for name, whole in stages.items():
            part = row_block.stages[name]
            head_range = slice(row_block.first_head, row_block.first_head + part.shape[-3])
            whole[
                ..., head_range, row_block.start : row_block.stop, row_block.low : row_block.high
            ] = part

    rows = rows_within(heads, queries, keys, block)
    mixed, empty = stream(backend, q, k, v, rule, rows=rows, keep=keep, on_block=collect)
    return stages, mixed, empty


def rows_within(heads: int, queries: int, keys: int, block: int = BLOCK) -> int:
    """How many query rows of `heads` heads over `keys` keys fit into `block` weights; at least 1."""
    return max(min(block // max(heads * keys, 1), queries), 1)


def row_ranges(rule: Rule, queries: int, keys: int, most: int) -> tuple[list[range], int]:
    """The query rows of each block, and how many weights of one head the largest block has.

    A block has as many weights as `most` rows over all keys have, so more rows where they see fewer
    keys; under a narrow window it has about as many rows as that is wide.

    queries, keys: how many there are of either.
    most: rows of a block whose rows see all keys.
    """
    # every block is computed over all keys
    if rule.extra_keys or not isinstance(rule.offset, int):
        ranges = [range(start, min(start + most, queries)) for start in range(0, queries, most)]
        return ranges, most * keys

    # how many keys the rows start..stop-1 see
    width = partial(_key_span_length, rule.mask, rule.offset, queries, keys)
    ranges = []
    largest = 1
    start = 0
    while start < queries:
        # as many rows as have `most * keys` weights: first a guess by the keys that the next rows
        # see, then, since later rows may see more keys, by what the guessed rows see
        guess = most * keys // width(start, start + most)
        rows = max(most * keys // width(start, start + guess), most)
        # but not many more rows than a window is wide, as their keys would be mostly hidden: at
        # most as many as one row sees keys, or a few, since each block has a cost of its own
        last = min(start + most, queries)
        keys_of_row = width(last - 1, last)
        rows = min(rows, max(keys_of_row, 4 * FEWEST))
        stop = min(start + rows, queries)
        largest = max(largest, (stop - start) * width(start, stop))
        ranges.append(range(start, stop))
        start = stop
    return ranges, largest


def _key_span_length(
    mask: Mask, offset: int, queries: int, keys: int, start: int, stop: int
) -> int:
    """How many keys the mask lets the rows start..stop-1 see, from the first to the last, at least
    1.
    """
    low, high = span(mask, start + offset, min(stop, queries) - 1 + offset, keys)
    return max(high - low, 1)


def _of_heads(rule: Rule, head_range: slice, heads: int) -> Rule:
    """The rule for some heads: what differs by head is cut to them.

    head_range: the numbers of these heads.
    heads: how many heads there are in all.
    """

    def slice_heads(array: Array | None) -> Array | None:
        """An array's part for these heads; the array itself where it is the same for every head, and
        None for None.
        """
        if array is None or array.ndim < 3:  # (without an axis of heads it is the same for all)
            return array
        differs_by_head = array.shape[-3] == heads and heads > 1
        if differs_by_head:
            return array[..., head_range, :, :]
        return array

    position = rule.position_bias
    apart = rule.apart
    if apart is not None:
        group_size = heads // apart.k.shape[-3]
        kv = slice(head_range.start // group_size, head_range.stop // group_size)
        apart = SeparateQueries(
            apart.rows,
            apart.q[..., head_range, :, :],
            apart.k[..., kv, :, :],
            apart.v[..., kv, :, :],
        )
    return replace(
        rule,
        mask=rule.mask.of_heads(head_range),
        visibility=slice_heads(rule.visibility),
        bias=slice_heads(rule.bias),
        sinks=None if rule.sinks is None else rule.sinks[head_range],
        position_bias=None if position is None else partial(position, heads=head_range),
        apart=apart,
    )
