"""Watch: from blocks of query rows, as the attention step yields them, to what consumers add up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from attncli.analysis.exclusion import Exclusion
from attncli.analysis.row_facts import TokenFacts, WeightRows, portions
from attncli.analysis.visible_keys import Bools, Floats, Ints, Sight, find_sight, of_mask
from attncli.arrays.backend import Array, Backend, numpy_backend
from attncli.mechanism.attend import RowBlock

BLOCK_FACTS = ("entropy", "peak")
"""Facts of rows that the attention step knows where it is asked to keep them."""


class Consumer(Protocol):
    """Something that grows row by row and needs no row twice: `Tally`, `TopLinks`, `PooledMaps`."""

    def add(self, rows: WeightRows, *, first_head: int = 0) -> None:
        """Take rows of heads first_head, first_head + 1, …"""


class RowFeeder:
    """Hands blocks of one attention to consumers as `WeightRows`.

    about: what is known of the keys. keys: how many keys are tokens; learned keys beyond them are
    cut off. heads: which, in rising order. offset: position of query 0.
    exclusion: pairs to leave out before anything is counted.
    """

    def __init__(
        self,
        backend: Backend,
        consumers: Sequence[Consumer],
        about: TokenFacts,
        keys: int,
        *,
        heads: Sequence[int],
        offset: int = 0,
        exclusion: Exclusion | None = None,
    ) -> None:
        self._backend, self._consumers, self._about, self._keys = backend, consumers, about, keys
        self._offset, self._heads, self._exclusion = offset, heads, exclusion
        self._i: Ints = np.empty(0, np.int64)
        self._shared_sight: Sight | None = None

    def whole(self, weights: Floats, visible: Bools) -> None:
        """Take all rows at once: weights [head, query, key] in NumPy, and visibility that broadcasts to them."""
        visibility = np.broadcast_to(visible, weights.shape)
        for head, row in portions(*weights.shape):
            i = np.arange(row.start, row.stop) + self._offset
            sight_of_rows = find_sight(visibility[head, row], i.size, 0, weights.shape[-1])
            self._feed(numpy_backend("float64"), weights[head, row], i, 0, sight_of_rows, {}, head.start)

    def on_block(self, block: RowBlock) -> None:
        """Take a block [head, row, key] of the heads first_head, first_head + 1, …"""
        block_heads = range(block.first_head, block.first_head + block.stages["weights"].shape[0])
        first = sum(head < block_heads.start for head in self._heads)
        local_heads = [head - block_heads.start for head in self._heads if head in block_heads]
        if not local_heads:
            return
        i = self._positions(block)
        high = min(block.high, self._keys)
        weights, facts = block.stages["weights"], {}
        if high == block.high:  # what the step has told of rows is about all their keys
            facts = {name: block.stages[name] for name in BLOCK_FACTS if name in block.stages}
        if len(local_heads) < len(block_heads):
            weights, facts = weights[local_heads], {name: fact[local_heads] for name, fact in facts.items()}
        if high < block.high:
            weights = weights[..., : high - block.low]
        self._feed(self._backend, weights, i, block.low, self._sight(block, i, high, local_heads), facts, first)

    def _feed(
        self,
        backend: Backend,
        weights: Array,
        i: Ints,
        low: int,
        row_sight: Sight,
        facts: dict[str, Array],
        first_head: int,
    ) -> None:
        """Hand rows to the consumers, without what is excluded."""
        high = low + weights.shape[-1]
        if self._exclusion is not None:
            weights = self._exclusion.without(backend.numpy(weights).astype(np.float64), i, low)
            row_sight = find_sight(
                ~self._exclusion.rows(i)[:, low:high] & row_sight.visibility_matrix(high), i.size, low, high
            )
            backend, facts = numpy_backend("float64"), {}
        rows = WeightRows(backend, weights, i, low, row_sight, self._about, facts)
        for consumer in self._consumers:
            consumer.add(rows, first_head=first_head)

    def _positions(self, block: RowBlock) -> Ints:
        """The rows' positions: the same array for the same rows of the next heads, which spares repeating work."""
        first, stop = block.start + self._offset, block.stop + self._offset
        if not self._i.size or (int(self._i[0]), int(self._i[-1]) + 1) != (first, stop):
            self._i = np.arange(first, stop)
            mask = None if self._exclusion is not None else block.alone
            self._shared_sight = None if mask is None else of_mask(mask, self._i, self._keys)
        return self._i

    def _sight(self, block: RowBlock, i: Ints, high: int, local_heads: Sequence[int]) -> Sight:
        if self._shared_sight is not None:
            return self._shared_sight
        if block.visibility is None:
            return find_sight(None, i.size, block.low, high)
        visibility = self._backend.numpy(block.visibility)
        if visibility.ndim == 3 and visibility.shape[0] > 1:
            visibility = visibility[local_heads]
        return find_sight(
            visibility if visibility.shape[-1] == 1 else visibility[..., : high - block.low], i.size, block.low, high
        )


def share(block: RowBlock, heads: int, queries: int) -> float:
    """How much of a layer of so many heads and queries is done once this block is, 0 to 1."""
    through = block.start * heads + (block.stop - block.start) * (block.first_head + block.empty.shape[0])
    return through / (heads * queries)
