"""What a mask shows: pairs, share, keys per query, empty rows and a map, counted by rows so that
nothing is n × n.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import numpy_backend
from attncli.arrays.numpy_backend import normal
from attncli.documents.parts import KeysPerQuery, MaskPart, MaskWords, ShareMap
from attncli.errors import LimitError
from attncli.language import message
from attncli.mechanism.attend import span
from attncli.mechanism.mask import Mask, shows_all, visible

MAP = 64
"""Most rows and columns of a map; larger masks are pooled."""
MOST_PAIRS = 5 * 10**8
"""Pairs that are looked at one by one; more would take minutes."""
SAMPLED = 256
"""Rows whose ranges are taken to stand for all."""
CELLS = 2**22
"""Pairs of a block of rows, at most."""
HASHED_WIDTH = 64
"""Width of the seeded random vectors that an `lsh` mask without a text is drawn for."""

Bools = np.ndarray[Any, np.dtype[np.bool_]]


class VisibilityCounts(Struct, frozen=True):
    """Counts of what a mask shows: visible keys of every query, [query], queries that see each key,
    [key], and a map [row, column] of visible pairs per cell of `block` × `block`."""

    per_query: np.ndarray[Any, Any]
    per_key: np.ndarray[Any, Any]
    cells: np.ndarray[Any, Any]
    block: int


def bound(mask: Mask, queries: int, keys: int, seed: int) -> Mask:
    """The mask itself; one that depends on vectors (`lsh`) is bound to random vectors from a seed,
    the same for queries and keys.

    queries, keys: how many there are.
    """
    if mask.depends_on != "vectors":
        return mask
    # [1 head, position, width]
    vectors = normal(seed, "lsh\0vectors", (1, max(queries, keys), HASHED_WIDTH)).astype(np.float64)
    return mask.bind(
        numpy_backend("float64"),
        vectors[:, :queries],
        vectors[:, :keys],
        scale=HASHED_WIDTH**-0.5,
        softcap=None,
    )


def visible_rows(mask: Mask, queries: int, keys: int) -> Iterator[tuple[int, int, int, Bools]]:
    """The visible pairs of a mask in blocks of rows: (first row, low, high, booleans [row,
    low..high-1]); none of a block's rows sees a key outside low..high-1.

    mask: with its vectors bound, where it depends on vectors.
    queries, keys: how many there are.

    A mask that differs by head is that of its first head. Raises InputError for a mask that does
    not fit, LimitError, before any work, for more than `MOST_PAIRS` candidate pairs.
    """
    mask.check_size(queries, keys)
    backend = numpy_backend("float64")
    _refuse_many_pairs(mask, queries, keys)
    start = 0
    while start < queries:
        # a block has at most `CELLS` pairs even where its rows may see all keys
        stop = min(start + max(CELLS // keys, 1), queries)
        low, high = span(mask, start, stop - 1, keys)
        i = np.arange(start, stop)[:, None]
        j = np.arange(low, high)[None, :]
        visibility = visible(mask, i, j, keys=keys, backend=backend)
        if visibility.ndim > 2:  # of the first head
            visibility = visibility[0]
        block_visibility = backend.numpy(visibility)
        # where all rows or all keys are alike, the mask gives one of them
        yield start, low, high, np.broadcast_to(block_visibility, (stop - start, high - low))
        start = stop


def _refuse_many_pairs(mask: Mask, queries: int, keys: int) -> None:
    """Raise LimitError where a mask has more than `MOST_PAIRS` pairs to look at, estimated from the
    ranges of some rows.

    queries, keys: how many there are.
    """
    # the keys low..high-1 among which a row may see some, for every so many rows
    rows = range(0, queries, max(queries // SAMPLED, 1))
    ranges = [span(mask, row, row, keys) for row in rows]
    pairs = queries * sum(high - low for low, high in ranges) / max(len(ranges), 1)
    if pairs > MOST_PAIRS:
        raise LimitError(
            "this mask has about {pairs:.3g} pairs to look at for {queries} queries and {keys}"
            " keys, the limit is {most_pairs:,}",
            expected="a smaller -n",
            hint=message(
                "attn cost -n {queries} counts pairs without looking at each", queries=queries
            ),
            pairs=pairs,
            queries=queries,
            keys=keys,
            most_pairs=MOST_PAIRS,
        )


def pairs_of(mask: Mask, n: int) -> int:
    """How many pairs a mask shows for n queries and n keys, exactly: by the mask's formula, or where
    it has none by counting pair by pair.

    `lsh` is counted for seeded random vectors. Raises LimitError where counting would take too long.
    """
    pair_count = mask.pairs(n)
    if pair_count is not None:
        return pair_count
    blocks = visible_rows(bound(mask, n, n, seed=0), n, n)
    return sum(int(visibility.sum()) for _, _, _, visibility in blocks)


def count(mask: Mask, queries: int, keys: int, *, most: int = MAP) -> VisibilityCounts:
    """How many keys each query sees under a mask, how many queries see each key, and a map of the
    visible pairs.

    mask: bound to vectors, if it depends on them.
    most: the most rows and columns of the map.
    """
    block = max(-(-max(queries, keys) // most), 1)  # queries and keys of a cell, rounded up
    per_query = np.zeros(queries, np.int64)
    per_key = np.zeros(keys, np.int64)
    cells = np.zeros((-(-queries // block), -(-keys // block)), np.int64)
    for start, low, high, visibility in visible_rows(mask, queries, keys):
        if low == high:  # rows that see no key
            continue
        per_query[start : start + len(visibility)] = visibility.sum(axis=1)
        per_key[low:high] += visibility.sum(axis=0)

        # pairs per cell of the map: summed over blocks of keys, then over blocks of queries
        key_starts = _block_starts(low, high, block)
        row_starts = _block_starts(start, start + len(visibility), block)
        by_key_block = np.add.reduceat(visibility, key_starts, axis=1, dtype=np.int64)
        pooled = np.add.reduceat(by_key_block, row_starts, axis=0)
        # the first of these cells in the map
        top = start // block
        left = low // block
        cells[top : top + pooled.shape[0], left : left + pooled.shape[1]] += pooled
    return VisibilityCounts(per_query, per_key, cells, block)


def _block_starts(first: int, last: int, block: int) -> list[int]:
    """Where blocks that begin at multiples of `block` begin within first..last-1, counted from
    `first`; 0 is always among them."""
    return [0, *range(block - first % block, last - first, block)]


def mask_part(mask: Mask, queries: int, keys: int, seed: int) -> MaskPart:
    """What one mask shows, as documents of `attn mask` hold it: visible pairs, their share of
    queries × keys (0 to 1), and a map with the share in each cell.

    seed: of the vectors of a mask that depends on them.
    """
    counts = count(bound(mask, queries, keys, seed), queries, keys)
    pairs = int(counts.per_query.sum())
    # the rows and columns of each cell: the last may have fewer than `block`
    heights = np.diff([*range(0, queries, counts.block), queries])
    widths = np.diff([*range(0, keys, counts.block), keys])
    return MaskPart(
        spec=mask.spec(),
        words=MaskWords(en=mask.describe(), zh=mask.describe().translation("zh")),
        everything=shows_all(mask),
        pairs=pairs,
        share=pairs / (queries * keys),
        keys_per_query=KeysPerQuery(
            least=int(counts.per_query.min()),
            mean=pairs / queries,
            most=int(counts.per_query.max()),
        ),
        empty_rows=[int(index) for index in np.flatnonzero(counts.per_query == 0)],
        unseen_keys=[int(index) for index in np.flatnonzero(counts.per_key == 0)],
        map=ShareMap(block=counts.block, share=counts.cells / np.outer(heights, widths)),
    )
