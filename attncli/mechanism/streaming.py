"""Streaming: attention over long texts, where nothing is ever n × n.

Blocks of query rows are handed on and forgotten. The numbers are those of dense attention, for every size of block.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from attncli.arrays.backend import Array, Backend
from attncli.arrays.threads import in_order
from attncli.mechanism.attend import Apart, RowBlock, Rule, ScoreBuffer, attend, attend_rows, span
from attncli.mechanism.mask import Mask

BLOCK = 1 << 21
"""Weights in one block, 8 MB of float32: larger ones leave the processor's caches, smaller ones cost more steps."""
GATHERED = 1 << 19
"""Weights in one block where all are kept."""
GATHERED_FROM = 1 << 20
"""Weights from which blocks repay the threads that work on them."""
THREADS = 4
"""How many blocks are worked on at once, at most: what looks at them takes one at a time, about a fifth of the work."""
FEWEST = 16
"""Query rows in a block, at least: fewer would make the products slow."""


class StreamResult(NamedTuple):
    """What is left of attention by blocks. mixed: [..., head, query, v_dim]. empty: booleans [..., head, query]."""

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
) -> StreamResult:
    """Attend block by block, handing each to `on_block`.

    q: [..., head, query, dim], k: [..., kv, key, dim], v: [..., kv, key, v_dim]. rows: query rows of all heads together
    that may be held at once. A block holds the heads of one kv head and as many more rows, or fewer under a narrow
    window, and what is in it is overwritten once `on_block` is done. Several blocks are worked on at the same time, by
    as many threads; `on_block` is called here, rows in order, the heads of the same rows one after the other. Memory is
    linear in the length; masks that hide keys save the work on them.
    """
    heads, queries, keys = q.shape[-3], q.shape[-2], k.shape[-2]
    groups = k.shape[-3]
    group_size = heads // groups
    dtype = rule.score_dtype(backend, q)
    lead = np.broadcast_shapes(q.shape[:-3], k.shape[:-3])
    ranges, area = row_ranges(rule, queries, keys, rows * groups)
    finite = bool(backend.isfinite(v).all())
    # one group of heads at a time: a block of many rows of few heads has the better products
    parts = []
    for group in range(groups):
        head_range, kv = slice(group * group_size, (group + 1) * group_size), slice(group, group + 1)
        parts.append(
            (
                head_range,
                (q[..., head_range, :, :], k[..., kv, :, :], v[..., kv, :, :]),
                _of_heads(rule, head_range, heads),
            )
        )

    def block(
        head_slice: slice, arrays: tuple[Array, Array, Array], rule: Rule, row_range: range, buffer: ScoreBuffer
    ) -> RowBlock:
        row_block = attend_rows(
            backend, *arrays, rule, row_range.start, row_range.stop, keep=keep, finite=finite, buffer=buffer
        )
        return replace(row_block, first_head=head_slice.start)

    works = [partial(block, *part, row_range) for row_range in ranges for part in parts]
    # written in place: thousands of small results kept between large blocks would leave memory in shreds
    mixed = backend.full((*lead, heads, queries, v.shape[-1]), 0, backend.dtype_of(v))
    empty = backend.full((*lead, heads, queries), 0, "bool")

    def take(block: RowBlock) -> None:
        on_block(block)
        head_range = slice(block.first_head, block.first_head + group_size)
        mixed[..., head_range, block.start : block.stop, :] = block.mixed
        empty[..., head_range, block.start : block.stop] = block.empty

    with backend.shared_out(THREADS) as threads:
        size = prod(lead) * group_size * area
        in_order(works, take, [ScoreBuffer(backend, dtype, size) for _ in range(threads + (threads > 1))])
    return StreamResult(mixed, empty)


def ignore_block(block: RowBlock) -> None:
    """The `on_block` of a run whose blocks nobody looks at."""


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
) -> tuple[dict[str, Array], Array, Array]:
    """One attention of a layer: the stages kept, the mixed values and the empty rows.

    rows: None for dense attention, which keeps its stages; else by blocks, which go to `on_block` and leave none.
    """
    if rows is None and _worth_gathering(backend, q, k, keep):
        return gather_blocks(backend, q, k, v, rule, keep=keep)
    if rows is None:
        whole = attend(backend, q, k, v, rule, keep=keep)
        return whole.stages, whole.mixed, whole.empty
    mixed, empty = stream(backend, q, k, v, rule, rows=rows, keep=keep, on_block=on_block)
    return {}, mixed, empty


def _worth_gathering(backend: Backend, q: Array, k: Array, keep: Collection[str]) -> bool:
    """Whether dense weights are made sooner by blocks: NumPy's own operations keep to one thread."""
    return backend.name == "numpy" and set(keep) <= {"weights"} and prod(q.shape[:-1]) * k.shape[-2] >= GATHERED_FROM


def gather_blocks(
    backend: Backend, q: Array, k: Array, v: Array, rule: Rule, *, keep: Collection[str], block: int = GATHERED
) -> tuple[dict[str, Array], Array, Array]:
    """Dense attention by blocks of so many weights, put together if they are to be kept. keep: "weights" or nothing;
    shapes as in `stream`, results as in `compute_attention`."""
    heads, queries, keys = q.shape[-3], q.shape[-2], k.shape[-2]
    dtype = rule.score_dtype(backend, q)
    lead = np.broadcast_shapes(q.shape[:-3], k.shape[:-3])
    stages = {name: backend.full((*lead, heads, queries, keys), 0, dtype) for name in keep}

    def collect(row_block: RowBlock) -> None:
        for name, whole in stages.items():
            part = row_block.stages[name]
            head_range = slice(row_block.first_head, row_block.first_head + part.shape[-3])
            whole[..., head_range, row_block.start : row_block.stop, row_block.low : row_block.high] = part

    rows = rows_within(heads, queries, keys, block)
    mixed, empty = stream(backend, q, k, v, rule, rows=rows, keep=keep, on_block=collect)
    return stages, mixed, empty


def rows_within(heads: int, queries: int, keys: int, block: int = BLOCK) -> int:
    """How many query rows of so many heads fit a block of that many weights; at least 1."""
    return max(min(block // max(heads * keys, 1), queries), 1)


def row_ranges(rule: Rule, queries: int, keys: int, most: int) -> tuple[list[range], int]:
    """The query rows of each block, and how many weights of one head the largest block has.

    A block has as many weights as `most` rows over all keys have, so more rows where they see fewer keys; under a
    narrow window it has about as many rows as that is wide.
    """
    if rule.extra_keys or not isinstance(rule.offset, int):
        return [range(start, min(start + most, queries)) for start in range(0, queries, most)], most * keys
    width = partial(_width, rule.mask, rule.offset, queries, keys)
    ranges, largest, start = list[range](), 1, 0
    while start < queries:
        # rows further on may see more keys: a first guess is too many rows, what they see makes it too few
        guess = most * keys // width(start, start + most)
        rows = max(most * keys // width(start, start + guess), most)
        last = min(start + most, queries)
        stop = min(start + min(rows, max(width(last - 1, last), 4 * FEWEST)), queries)
        largest = max(largest, (stop - start) * width(start, stop))
        ranges.append(range(start, stop))
        start = stop
    return ranges, largest


def _width(mask: Mask, offset: int, queries: int, keys: int, start: int, stop: int) -> int:
    """How many keys the rows start..stop-1 are computed over."""
    low, high = span(mask, start + offset, min(stop, queries) - 1 + offset, keys)
    return max(high - low, 1)


def _of_heads(rule: Rule, head_range: slice, heads: int) -> Rule:
    """The rule for some heads: what differs by head is cut to them."""

    def slice_heads(array: Array | None) -> Array | None:
        by_head = array is not None and array.ndim >= 3 and array.shape[-3] == heads > 1
        return array[..., head_range, :, :] if array is not None and by_head else array

    position, apart = rule.position_bias, rule.apart
    if apart is not None:
        group_size = heads // apart.k.shape[-3]
        kv = slice(head_range.start // group_size, head_range.stop // group_size)
        apart = Apart(apart.rows, apart.q[..., head_range, :, :], apart.k[..., kv, :, :], apart.v[..., kv, :, :])
    return replace(
        rule,
        mask=rule.mask.of_heads(head_range),
        visibility=slice_heads(rule.visibility),
        bias=slice_heads(rule.bias),
        sinks=None if rule.sinks is None else rule.sinks[head_range],
        position_bias=None if position is None else partial(position, heads=head_range),
        apart=apart,
    )
