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

from attncli.arrays.backend import LOW_PRECISION, Array, Backend
from attncli.mechanism.apart import Apart
from attncli.mechanism.attend import RowBlock, Rule, attend, row_blocks
from attncli.mechanism.key_range import span
from attncli.mechanism.workspace import Room

BLOCK = 1 << 21
"""Weights in one block, 8 MB of float32: larger ones leave the processor's caches, smaller ones cost more steps."""
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
    window; what is in it is overwritten by the next. Rows come in order, the heads of the same rows one after the
    other. Memory is linear in the length; masks that hide keys save the work on them.
    """
    heads, queries, keys = q.shape[-3], q.shape[-2], k.shape[-2]
    groups = k.shape[-3]
    shared = heads // groups
    size = _rows_of_block(rule, queries, keys, rows * groups)
    dtype = rule.softmax_dtype or ("float32" if backend.dtype_of(q) in LOW_PRECISION else backend.dtype_of(q))
    lead = np.broadcast_shapes(q.shape[:-3], k.shape[:-3])
    room = Room(backend, dtype, prod(lead) * shared * size * _widest(rule, size, queries, keys))
    # one group of heads at a time: a block of many rows of few heads has the better products
    streams = []
    for group in range(groups):
        own = slice(group * shared, (group + 1) * shared)
        parts = (q[..., own, :, :], k[..., group : group + 1, :, :], v[..., group : group + 1, :, :])
        streams.append((own, row_blocks(backend, *parts, _of_heads(rule, own, heads), rows=size, keep=keep, room=room)))
    # written in place: thousands of small results kept between large blocks would leave memory in shreds
    mixed = backend.full((*lead, heads, queries, v.shape[-1]), 0, backend.dtype_of(v))
    empty = backend.full((*lead, heads, queries), 0, "bool")
    for _ in range(0, queries, size):
        for own, blocks in streams:
            block = next(blocks)
            see(replace(block, first_head=own.start))
            mixed[..., own, block.start : block.stop, :] = block.mixed
            empty[..., own, block.start : block.stop] = block.empty
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
    if rows is None:
        whole = attend(backend, q, k, v, rule, keep=keep)
        return whole.stages, whole.mixed, whole.empty
    mixed, empty = stream(backend, q, k, v, rule, rows=rows, keep=keep, see=see)
    return {}, mixed, empty


def rows_within(heads: int, queries: int, keys: int) -> int:
    """How many query rows of so many heads fit `BLOCK`; at least 1."""
    return max(min(BLOCK // max(heads * keys, 1), queries), 1)


def _rows_of_block(rule: Rule, queries: int, keys: int, most: int) -> int:
    """At most so many rows; under a narrow window about as many as it is wide."""
    middle = queries // 2 + (rule.offset if isinstance(rule.offset, int) else 0)
    low, high = span(rule.mask, middle, middle, keys)
    narrow = (high - low) * 4 < keys
    return max(min(most, max(high - low, 4 * FEWEST) if narrow else most, queries), 1)


def _widest(rule: Rule, size: int, queries: int, keys: int) -> int:
    """How many keys a block of rows is computed over, at most."""
    offset = rule.offset
    if rule.extra_keys or not isinstance(offset, int):
        return keys
    starts = range(offset, queries + offset, size)
    ends = (span(rule.mask, start, min(start + size, queries + offset) - 1, keys) for start in starts)
    return max(max(high - low, 1) for low, high in ends)


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
