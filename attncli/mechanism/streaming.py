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
from attncli.mechanism.attend import RowBlock, Rule, attend, attend_rows
from attncli.mechanism.key_range import span
from attncli.mechanism.mask import Mask
from attncli.mechanism.separate_queries import Apart
from attncli.mechanism.workspace import Room

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


class Streamed(NamedTuple):
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
    see: Callable[[RowBlock], None],
) -> Streamed:
    """Attend block by block, handing each to `see`.

    q: [..., head, query, dim], k: [..., kv, key, dim], v: [..., kv, key, v_dim]. rows: query rows of all heads together
    that may be held at once. A block holds the heads of one kv head and as many more rows, or fewer under a narrow
    window, and what is in it is overwritten once `see` is done. Several blocks are worked on at the same time, by as
    many threads; `see` is called here, rows in order, the heads of the same rows one after the other. Memory is linear
    in the length; masks that hide keys save the work on them.
    """
    heads, queries, keys = q.shape[-3], q.shape[-2], k.shape[-2]
    groups = k.shape[-3]
    shared = heads // groups
    dtype = rule.score_dtype(backend, q)
    lead = np.broadcast_shapes(q.shape[:-3], k.shape[:-3])
    ranges, area = row_ranges(rule, queries, keys, rows * groups)
    finite = bool(backend.isfinite(v).all())
    # one group of heads at a time: a block of many rows of few heads has the better products
    parts = []
    for group in range(groups):
        own, kv = slice(group * shared, (group + 1) * shared), slice(group, group + 1)
        parts.append((own, (q[..., own, :, :], k[..., kv, :, :], v[..., kv, :, :]), _of_heads(rule, own, heads)))

    def block(of: slice, arrays: tuple[Array, Array, Array], rule: Rule, at: range, room: Room) -> RowBlock:
        found = attend_rows(backend, *arrays, rule, at.start, at.stop, keep=keep, finite=finite, room=room)
        return replace(found, first_head=of.start)

    works = [partial(block, *part, at) for at in ranges for part in parts]
    # written in place: thousands of small results kept between large blocks would leave memory in shreds
    mixed = backend.full((*lead, heads, queries, v.shape[-1]), 0, backend.dtype_of(v))
    empty = backend.full((*lead, heads, queries), 0, "bool")

    def take(block: RowBlock) -> None:
        see(block)
        own = slice(block.first_head, block.first_head + shared)
        mixed[..., own, block.start : block.stop, :] = block.mixed
        empty[..., own, block.start : block.stop] = block.empty

    with backend.shared_out(THREADS) as threads:
        size = prod(lead) * shared * area
        in_order(works, take, [Room(backend, dtype, size) for _ in range(threads + (threads > 1))])
    return Streamed(mixed, empty)


def unseen(block: RowBlock) -> None:
    """The `see` of a run whose blocks nobody looks at."""


def attended(
    backend: Backend,
    q: Array,
    k: Array,
    v: Array,
    rule: Rule,
    *,
    rows: int | None,
    keep: Collection[str],
    see: Callable[[RowBlock], None],
) -> tuple[dict[str, Array], Array, Array]:
    """One attention of a layer: the stages kept, the mixed values and the empty rows.

    rows: None for dense attention, which keeps its stages; else by blocks, which go to `see` and leave none.
    """
    if rows is None and _worth_gathering(backend, q, k, keep):
        return gathered(backend, q, k, v, rule, keep=keep)
    if rows is None:
        whole = attend(backend, q, k, v, rule, keep=keep)
        return whole.stages, whole.mixed, whole.empty
    mixed, empty = stream(backend, q, k, v, rule, rows=rows, keep=keep, see=see)
    return {}, mixed, empty


def _worth_gathering(backend: Backend, q: Array, k: Array, keep: Collection[str]) -> bool:
    """Whether dense weights are made sooner by blocks: NumPy's own operations keep to one thread."""
    return backend.name == "numpy" and set(keep) <= {"weights"} and prod(q.shape[:-1]) * k.shape[-2] >= GATHERED_FROM


def gathered(
    backend: Backend, q: Array, k: Array, v: Array, rule: Rule, *, keep: Collection[str], block: int = GATHERED
) -> tuple[dict[str, Array], Array, Array]:
    """Dense attention by blocks of so many weights, put together if they are to be kept. keep: "weights" or nothing;
    shapes as in `stream`, results as in `attended`."""
    heads, queries, keys = q.shape[-3], q.shape[-2], k.shape[-2]
    dtype = rule.score_dtype(backend, q)
    lead = np.broadcast_shapes(q.shape[:-3], k.shape[:-3])
    kept = {name: backend.full((*lead, heads, queries, keys), 0, dtype) for name in keep}

    def see(found: RowBlock) -> None:
        for name, whole in kept.items():
            part = found.stages[name]
            own = slice(found.first_head, found.first_head + part.shape[-3])
            whole[..., own, found.start : found.stop, found.low : found.high] = part

    rows = rows_within(heads, queries, keys, block)
    mixed, empty = stream(backend, q, k, v, rule, rows=rows, keep=keep, see=see)
    return kept, mixed, empty


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


def _of_heads(rule: Rule, own: slice, heads: int) -> Rule:
    """The rule for some heads: what differs by head is cut to them."""

    def cut(array: Array | None) -> Array | None:
        by_head = array is not None and array.ndim >= 3 and array.shape[-3] == heads > 1
        return array[..., own, :, :] if array is not None and by_head else array

    position, apart = rule.position_bias, rule.apart
    if apart is not None:
        shared = heads // apart.k.shape[-3]
        kv = slice(own.start // shared, own.stop // shared)
        apart = Apart(apart.rows, apart.q[..., own, :, :], apart.k[..., kv, :, :], apart.v[..., kv, :, :])
    return replace(
        rule,
        mask=rule.mask.of_heads(own),
        given=cut(rule.given),
        bias=cut(rule.bias),
        sinks=None if rule.sinks is None else rule.sinks[own],
        position_bias=None if position is None else partial(position, heads=own),
        apart=apart,
    )
