"""Blocks of query rows, as the attention step yields them, streamed to what adds up metrics, links and maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from attncli.arrays.backend import EVERY, Array, Backend, Selection, numbers_of, numpy_backend
from attncli.features.run.document import PooledMap
from attncli.measure.exclusion import Exclusion
from attncli.measure.head_links import LinkCollector
from attncli.measure.row_facts import TokenFacts, WeightRows, portions
from attncli.measure.visible_keys import Bools, Floats, Ints, Sight, find_sight, of_mask
from attncli.mechanism.attend import RowBlock
from attncli.models.model import Model

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


# Pooled maps: the weights of heads in at most `side` × `side` cells, built block by block.

SIDE = 256
"""Cells along each side of a map, at most; a shorter text is kept whole."""


class PooledMaps:
    """The largest weight in each cell of `pool` × `pool` pairs, [head, query cell, key cell].

    With `pool` 1 these are the weights themselves. Memory does not grow with the text.
    offset: position of query 0.
    """

    def __init__(self, heads: int, queries: int, keys: int, *, side: int = SIDE, offset: int = 0) -> None:
        self._offset = offset
        self.pool = max(-(-max(queries, keys) // side), 1)
        self.values: Floats = np.zeros((heads, -(-queries // self.pool), -(-keys // self.pool)))

    def add(self, rows: WeightRows, *, first_head: int = 0) -> None:
        """Add the rows of heads first_head, first_head + 1, …"""
        weights, pool, low, start = rows.weights, self.pool, rows.low, int(rows.i[0]) - self._offset
        heads = slice(first_head, first_head + weights.shape[0])
        if not weights.shape[-1]:
            return
        if pool == 1:
            self.values[heads, start : start + weights.shape[1], low : low + weights.shape[-1]] = rows.numpy(weights)
            return
        high = low + weights.shape[-1]
        # whole cells in one reduction; the ragged ends of the range of keys by themselves
        inner = (-(-low // pool) * pool, high // pool * pool)
        parts = [(low, high)] if inner[0] >= inner[1] else [(low, inner[0]), inner, (inner[1], high)]
        for first, last in parts:
            if first >= last:
                continue
            piece = weights[..., first - low : last - low]
            cells = range(first // pool, (last - 1) // pool + 1)
            if (first, last) == inner:
                maxima = rows.numpy(rows.backend.max(piece.reshape((*piece.shape[:2], -1, pool)), -1)[..., 0])
            else:
                maxima = np.stack(
                    [
                        rows.numpy(
                            rows.backend.max(piece[..., max(cell * pool - first, 0) : (cell + 1) * pool - first], -1)[
                                ..., 0
                            ]
                        )
                        for cell in cells
                    ],
                    -1,
                )
            for row in range(maxima.shape[1]):
                cells_here = self.values[heads, (start + row) // pool, cells.start : cells.stop]
                np.maximum(cells_here, maxima[:, row], out=cells_here)


# A run too long for n × n: its document from blocks of query rows, with maps pooled and single rows kept.

CELLS = 64
"""Cells along a pooled map: more would not fit a terminal."""
STAGES = ("masked", "weights")


class BlockCollector:
    """Takes the blocks of a run and keeps what a document holds of a long text.

    count: tokens. layers, heads: those asked for. query: the query whose rows are
    kept whole, None for none. links: fed with every head's rows. progress: told the share of the
    run that is done, 0 to 1.
    """

    def __init__(
        self,
        model: Model,
        count: int,
        links: LinkCollector,
        *,
        layers: Selection = EVERY,
        heads: Selection = EVERY,
        query: int | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        self._model, self._count, self._links = model, count, links
        self._heads, self._query, self._progress = heads, query, progress
        self._runs = 1 + max(model.spec.attending(layers))
        self._layer = -1
        self._maps: PooledMaps | None = None
        self._feeder: RowFeeder | None = None
        self._row: dict[str, np.ndarray[Any, Any]] = {}

    def select_heads(self, layer: int) -> list[int]:
        """The numbers of the heads that are kept of a layer."""
        return numbers_of(self._heads, self._model.spec.blocks[layer].attention.heads)

    def on_block(self, layer: int, kind: str, block: RowBlock) -> None:
        """Take a block of a layer's own attention; blocks of cross-attention pass by."""
        if kind != "self":
            return
        if layer != self._layer:
            heads = self.select_heads(layer)
            self._maps = PooledMaps(len(heads), self._count, self._count, side=CELLS)
            consumers = (self._links.consumer(layer, heads), self._maps)
            self._feeder = RowFeeder(self._model.backend, consumers, TokenFacts(), self._count, heads=heads)
            self._layer, self._row = layer, {}
        assert self._feeder is not None
        self._feeder.on_block(block)
        if self._query is not None and block.start <= self._query < block.stop:
            self._keep(block, self._query - block.start)
        if self._progress is not None:
            every = self._model.spec.blocks[layer].attention.heads
            self._progress((layer + share(block, every, self._count)) / self._runs)

    def _keep(self, block: RowBlock, row: int) -> None:
        heads = self.select_heads(self._layer)
        for name, hidden in (("masked", -np.inf), ("weights", 0.0)):
            stage_row = self._model.backend.numpy(block.stages[name][:, row, :])
            if name not in self._row:
                # learned keys stand after the tokens, in the last block as in all
                width = max(self._count, block.high)
                self._row[name] = np.full((len(heads), width), hidden, stage_row.dtype)
            for place, head in enumerate(heads):
                if 0 <= head - block.first_head < len(stage_row):
                    self._row[name][place, block.low : block.high] = stage_row[head - block.first_head]

    def maps(self) -> list[PooledMap]:
        """The pooled maps of the layer that was seen last: each cell the largest of `pool` × `pool` weights."""
        if self._maps is None:
            return []
        pooled = self._maps
        return [
            PooledMap(layer=self._layer, head=head, pool=pooled.pool, weights=values)
            for head, values in zip(self.select_heads(self._layer), pooled.values, strict=True)
        ]

    def row(self) -> dict[str, np.ndarray[Any, Any]]:
        """The query's scores ("masked") and weights in the layer that was seen last, [head, 1, key]; empty without a
        query."""
        return {name: row[:, None, :] for name, row in self._row.items()}
