"""The attention step, the only softmax of the package, computed by blocks of query rows.

Dense attention is one block, streaming is many; both run `attend_rows`. Source: Vaswani et
al., Attention is all you need, 2017; the order of scale, soft cap, bias and mask is the one
of the trained models (a soft cap after the mask would turn −inf into a finite score).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attncli.arrays.backend import LOW_PRECISION, Array, Backend
from attncli.attention.mask import Everywhere, Mask, shows_all, span, visible
from attncli.attention.trace import SQUARE, AttentionTrace
from attncli.errors import InputError

EVERY_STAGE = frozenset(SQUARE)


@dataclass(frozen=True, eq=False)
class Rule:
    """Everything that decides the weights, apart from q and k.

    scale: multiplies q·k. softcap: bound of the soft cap, None for none.
    mask: visibility by position; given: visibility as booleans that broadcast to
    [..., head, query, key]. bias: floats that broadcast likewise, −inf hides.
    position_bias: a function of (i [..., rows, 1], j [1, columns]) giving [head, rows, columns].
    offset: absolute position of query 0, an int or integers [batch..., 1, 1, 1].
    key_lengths: integers [batch..., 1, 1, 1]; keys from there on are hidden.
    extra_keys: how many keys at the end have no position and are seen by every query.
    sinks: a learned logit per head, [head], that takes its share of the softmax.
    softmax_dtype: the type of scores and weights; None for the inputs' own, float32 for low precision.
    """

    scale: float
    softcap: float | None = None
    mask: Mask = field(default_factory=Everywhere)
    given: Array | None = None
    bias: Array | None = None
    position_bias: Callable[[Array, Array], Array] | None = None
    offset: Any = 0
    key_lengths: Array | None = None
    extra_keys: int = 0
    sinks: Array | None = None
    softmax_dtype: str | None = None


@dataclass(frozen=True)
class RowBlock:
    """The stages of queries start..stop-1 over the keys low..high-1; nothing outside is visible.

    stages: those asked for, each [..., head, rows, high - low]. mixed: [..., head, rows, v_dim].
    seen: booleans that broadcast to [..., head, rows, high - low]; None if all is visible.
    empty: booleans [..., head, rows].
    """

    start: int
    stop: int
    low: int
    high: int
    stages: dict[str, Array]
    mixed: Array
    seen: Array | None
    empty: Array


def attend(backend: Backend, q: Array, k: Array, v: Array, rule: Rule, *, keep: Collection[str] = EVERY_STAGE) -> AttentionTrace:
    """Dense attention: one block of all query rows. Shapes as in `attend_rows`."""
    block = attend_rows(backend, q, k, v, rule, 0, q.shape[-2], keep=keep, whole=True)
    return AttentionTrace(**{name: block.stages.get(name) for name in SQUARE}, mixed=block.mixed, empty_rows=block.empty)


def row_blocks(
    backend: Backend, q: Array, k: Array, v: Array, rule: Rule, *, rows: int, keep: Collection[str] = ("weights",)
) -> Iterator[RowBlock]:
    """Attention in blocks of `rows` query rows, each over the range of keys that it can see."""
    finite = bool(backend.isfinite(v).all())
    for start in range(0, q.shape[-2], rows):
        yield attend_rows(backend, q, k, v, rule, start, min(start + rows, q.shape[-2]), keep=keep, finite=finite)


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
) -> RowBlock:
    """Attention of query rows start..stop-1.

    q: [..., head, query, dim]. k: [..., kv, key, dim]. v: [..., kv, key, v_dim]; consecutive
    heads share a kv head. keep: names of the stages to return. whole: whether to compute over
    all keys even where a range of them is known to be hidden. finite: whether v is known to hold
    only finite numbers, which spares looking.
    A row that sees nothing has weights 0 and mixed 0. Hidden keys and values may hold NaN.
    """
    keys = k.shape[-2]
    low, high = (0, keys) if whole else _span(rule, start, stop, keys)
    dtype = rule.softmax_dtype or ("float32" if backend.dtype_of(q) in LOW_PRECISION else backend.dtype_of(q))
    queries = backend.cast(q[..., start:stop, :], dtype)
    scores = _by_group(backend, queries, backend.transpose(backend.cast(k[..., low:high, :], dtype)))
    # where only weights are kept, the steps share one array: long texts are bound by memory traffic
    lean = set(keep) <= {"weights"}
    stages = {"raw": scores}
    if lean:
        scores *= rule.scale
    else:
        scores = scores * rule.scale
    stages["scaled"] = scores
    if rule.softcap is not None:
        scores = backend.tanh(scores / rule.softcap) * rule.softcap
    stages["capped"] = scores
    i = backend.arange(start, stop)[:, None] + rule.offset
    j = backend.arange(low, high)[None, :]
    if rule.position_bias is not None:
        scores = scores + backend.cast(rule.position_bias(i, j), dtype)
    if rule.bias is not None:
        scores = scores + backend.cast(_window(rule.bias, start, stop, low, high), dtype)
    stages["biased"] = scores
    seen = _seen(backend, rule, i, j, keys, (start, stop, low, high))
    if seen is not None:
        scores = backend.where(seen, scores, -float("inf"))
    stages["masked"] = scores
    weights, empty = _softmax(backend, scores, seen, rule.sinks, lean=lean)
    stages["weights"] = weights
    values = v[..., low:high, :]
    mixed = _mix(backend, weights, backend.cast(values, dtype), seen, finite=finite)
    return RowBlock(
        start, stop, low, high, {name: stages[name] for name in keep}, backend.cast(mixed, backend.dtype_of(v)), seen, empty[..., 0]
    )


def _span(rule: Rule, start: int, stop: int, keys: int) -> tuple[int, int]:
    if rule.extra_keys:
        return 0, keys
    offsets = rule.offset if isinstance(rule.offset, int) else None
    first, last = (start, stop - 1) if offsets is None else (start + offsets, stop - 1 + offsets)
    if offsets is None:
        first, last = first + int(rule.offset.min()), last + int(rule.offset.max())
    low, high = span(rule.mask, first, last, keys)
    if rule.key_lengths is not None:
        high = min(high, int(rule.key_lengths.max()))
    return (low, high) if low < high else (0, min(1, keys))  # never an empty matrix: the row is masked instead


def _seen(backend: Backend, rule: Rule, i: Array, j: Array, keys: int, where: tuple[int, int, int, int]) -> Array | None:
    parts = []
    if not shows_all(rule.mask):
        parts.append(visible(rule.mask, i, j, keys=keys - rule.extra_keys, backend=backend))
    if rule.key_lengths is not None:
        parts.append(j < rule.key_lengths)
    if rule.given is not None:
        parts.append(_window(rule.given, *where))
    if rule.bias is not None:
        parts.append(_window(rule.bias, *where) != -float("inf"))
    if not parts:
        return None
    seen = parts[0]
    for part in parts[1:]:
        seen = seen & part
    return seen | (j >= keys - rule.extra_keys) if rule.extra_keys else seen


def _window(array: Array, start: int, stop: int, low: int, high: int) -> Array:
    """The part of an array that broadcasts to [..., query, key] for these rows and columns."""
    rows = array if array.ndim < 2 or array.shape[-2] == 1 else array[..., start:stop, :]
    return rows if rows.ndim < 1 or rows.shape[-1] == 1 else rows[..., low:high]


def _by_group(backend: Backend, a: Array, b: Array) -> Array:
    """a [..., head, rows, n] times b [..., kv, n, m], consecutive heads sharing one entry of b."""
    heads, shared = a.shape[-3], b.shape[-3]
    if heads == shared:
        return backend.matmul(a, b)
    folded = a.reshape((*a.shape[:-3], shared, heads // shared * a.shape[-2], a.shape[-1]))
    product = backend.matmul(folded, b)
    return product.reshape((*product.shape[:-3], heads, a.shape[-2], b.shape[-1]))


def _softmax(backend: Backend, scores: Array, seen: Array | None, sinks: Array | None, *, lean: bool) -> tuple[Array, Array]:
    """Softmax over keys of scores [..., head, rows, key], and which rows [..., head, rows, 1] see nothing.

    lean: the scores are not needed any more and may be overwritten.
    """
    highest = backend.max(scores, -1)
    shape = (*scores.shape[:-1], 1)
    empty = backend.full(shape, 0, "bool") if seen is None else backend.broadcast(~backend.any(seen, -1), shape)
    highest = backend.where(empty, 0.0, highest)
    if sinks is not None:
        sink = backend.cast(sinks, backend.dtype_of(scores))[:, None, None]
        highest = backend.where(sink > highest, sink, highest)
    if lean:
        scores -= highest
        raised = backend.exp(scores)
    else:
        raised = backend.exp(scores - highest)
    total = backend.sum(raised, -1)
    if sinks is not None:
        total = total + backend.exp(sink - highest)
    raised /= backend.where(empty, 1.0, total)
    return raised, empty


def _mix(backend: Backend, weights: Array, values: Array, seen: Array | None, *, finite: bool) -> Array:
    """weights·values, where a hidden value may be NaN or infinite without reaching the result."""
    if seen is None or finite:
        return _by_group(backend, weights, values)
    plain = backend.isfinite(values)
    if bool(plain.all()):
        return _by_group(backend, weights, values)
    clean = _by_group(backend, weights, backend.where(plain, values, 0.0))
    # what a visible query meets is what IEEE arithmetic would give it: inf, −inf or NaN
    dtype = backend.dtype_of(weights)
    shown = backend.cast(backend.broadcast(seen, weights.shape), dtype)
    up = _by_group(backend, weights * shown, backend.cast(values == float("inf"), dtype)) > 0
    down = _by_group(backend, weights * shown, backend.cast(values == -float("inf"), dtype)) > 0
    lost = _by_group(backend, shown, backend.cast(values != values, dtype)) > 0
    nothing = _by_group(backend, shown * backend.cast(weights == 0, dtype), backend.cast(~plain, dtype)) > 0
    clean = backend.where(up, float("inf"), backend.where(down, -float("inf"), clean))
    return backend.where(lost | nothing | (up & down), float("nan"), clean)


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    mask: Array | None = None,
    bias: Array | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    offset: Any = 0,
    key_lengths: Any = None,
    sinks: Array | None = None,
    softmax_dtype: str | None = None,
) -> AttentionTrace:
    """Scaled dot-product attention with every stage kept.

    q: [..., heads, query, dim]. k: [..., kv_heads, key, dim]. v: [..., kv_heads, key, v_dim].
    NumPy arrays or torch tensors, all of one kind; the result is of the same kind. Query head
    h uses kv head h·kv_heads // heads.

    scale: multiplies q·k; None is 1/√dim. softcap: None or a positive bound.
    mask: booleans, True = visible; bias: floats added to the scores, −inf hides. Both
    broadcast right-aligned to [..., heads, query, key].
    causal: hides keys after the query. window: (left, right) keys besides the query's own,
    None unbounded. Both count absolute positions: query 0 sits at `offset`, an int or one per
    batch entry (the leading axes).
    key_lengths: one per batch entry; keys from there on are hidden.
    sinks: [heads], logits that take part in the softmax and are then dropped.
    softmax_dtype: type of scores and weights; None is the inputs' own, or float32 for float16
    and bfloat16. `mixed` has the type of v.

    A query that sees nothing has weights 0 and mixed 0 and is True in `empty_rows`. NaN or Inf
    in a hidden key or value does not reach the result. Raises InputError for shapes that do
    not fit, UsageError for mixed kinds of array. Source: Vaswani et al., 2017.
    """
    from attncli.attention.arguments import checked

    backend, q, k, v, rule = checked(
        q, k, v, scale=scale, softcap=softcap, mask=mask, bias=bias, causal=causal, window=window,
        offset=offset, key_lengths=key_lengths, sinks=sinks, softmax_dtype=softmax_dtype,
    )  # fmt: skip
    return attend(backend, q, k, v, rule)


def check_heads(heads: int, kv_heads: int) -> None:
    """Raise InputError unless the heads can share the kv heads evenly."""
    if kv_heads < 1 or heads % kv_heads:
        raise InputError(
            f"{heads} query heads cannot share {kv_heads} key-value heads evenly",
            expected=f"heads divisible by kv heads ({heads} % {kv_heads} = 0)",
        )


def shape_text(array: Array) -> str:
    """An array's shape as a user writes it, such as [2, 8, 11, 64]."""
    return str(list(np.shape(array) if not hasattr(array, "shape") else array.shape)).replace("(", "[").replace(")", "]")
