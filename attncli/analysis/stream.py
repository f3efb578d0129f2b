"""Streaming: attention over long texts, where nothing is ever n × n.

Blocks of query rows go to consumers (metrics, strongest links, pooled maps) and are forgotten. The
numbers are those of dense attention, for every size of block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from attncli.analysis.row_consumers import Consumer, Watch, mask_alone
from attncli.analysis.row_facts import About
from attncli.arrays.backend import LOW_PRECISION, Array, Backend
from attncli.mechanism.attend import Rule, row_blocks
from attncli.mechanism.key_range import span
from attncli.mechanism.workspace import Room
from attncli.models.row_blocks import BLOCK

STAGES = ("weights", "entropy")
"""What consumers need of each block."""
FEWEST = 16
"""Query rows in a block, at least: fewer would make the products slow."""


def stream(
    backend: Backend,
    q: Array,
    k: Array,
    v: Array,
    rule: Rule,
    consumers: Sequence[Consumer],
    *,
    about: About | None = None,
    rows: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Array:
    """Attend block by block and return the mixed values [head, query, v_dim].

    q: [head, query, dim], k: [kv, key, dim], v: [kv, key, v_dim]. about: what is known of the keys'
    tokens. rows: query rows in a block, None to choose. progress: called with the share of the work done, 0 to 1.
    Memory is linear in the length; masks that hide keys save the work on them.
    """
    heads, queries, keys = q.shape[-3], q.shape[-2], k.shape[-2]
    shared = heads // k.shape[-3]
    offset = rule.offset if isinstance(rule.offset, int) else 0
    size = rows_of_block(rule, queries, keys, shared) if rows is None else rows
    starts = range(0, queries, size)
    work = np.cumsum([_pairs(rule, start + offset, min(start + size, queries) + offset, keys) for start in starts])
    watch = Watch(backend, consumers, about or About(), keys - rule.extra_keys, offset=offset, mask=mask_alone(rule))
    widest = max(_width(rule, start + offset, min(start + size, queries) + offset, keys) for start in starts)
    low = backend.dtype_of(q) in LOW_PRECISION
    room = Room(backend, rule.softmax_dtype or ("float32" if low else backend.dtype_of(q)), shared * size * widest)
    # one group of heads at a time: a block of many rows of few heads has the better products
    groups = [
        (
            group * shared,
            row_blocks(
                backend,
                *_group(q, k, v, group, shared),
                _of_group(rule, group, shared, heads),
                rows=size,
                keep=STAGES,
                room=room,
            ),
        )
        for group in range(k.shape[-3])
    ]
    # written in place: thousands of small results kept between large blocks would leave memory in shreds
    mixed = backend.full((heads, queries, v.shape[-1]), 0, backend.dtype_of(v))
    for place, _ in enumerate(starts):
        for first, blocks in groups:
            block = next(blocks)
            watch.see(block, first_head=first)
            mixed[first : first + shared, block.start : block.stop] = block.mixed
        if progress is not None:
            progress(float(work[place] / max(work[-1], 1)))
    return mixed


def rows_of_block(rule: Rule, queries: int, keys: int, heads: int = 1) -> int:
    """How many query rows to compute at a time: as many as fit `BLOCK`, but under a narrow window about as many as it
    is wide."""
    middle = queries // 2 + (rule.offset if isinstance(rule.offset, int) else 0)
    low, high = span(rule.mask, middle, middle, keys)
    fit = max(BLOCK // max(heads * keys, 1), FEWEST)
    narrow = (high - low) * 4 < keys
    return max(min(max(high - low, 4 * FEWEST) if narrow else fit, queries), 1)


def _pairs(rule: Rule, first: int, stop: int, keys: int) -> int:
    return (stop - first) * _width(rule, first, stop, keys)


def _width(rule: Rule, first: int, stop: int, keys: int) -> int:
    """How many keys a block of rows is computed over, at most."""
    if rule.extra_keys or not isinstance(rule.offset, int):
        return keys
    low, high = span(rule.mask, first, stop - 1, keys)
    return max(high - low, 1)


def _group(q: Array, k: Array, v: Array, group: int, shared: int) -> tuple[Array, Array, Array]:
    return q[group * shared : (group + 1) * shared], k[group : group + 1], v[group : group + 1]


def _of_group(rule: Rule, group: int, shared: int, heads: int) -> Rule:
    """The rule for one group of heads: what differs by head is cut to the group."""
    chosen = slice(group * shared, (group + 1) * shared)

    def cut(array: Array | None) -> Array | None:
        return array[chosen] if array is not None and array.ndim == 3 and array.shape[0] == heads > 1 else array

    position = rule.position_bias
    return replace(
        rule,
        given=cut(rule.given),
        bias=cut(rule.bias),
        sinks=None if rule.sinks is None else rule.sinks[chosen],
        position_bias=None if position is None else lambda i, j: position(i, j)[chosen],
    )
