"""A run too long for n × n: its document from blocks of query rows, with maps pooled and single rows kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from attncli.analysis.links import LinkCollector
from attncli.analysis.pooled import PooledMaps
from attncli.analysis.row_consumers import RowFeeder, share
from attncli.analysis.row_facts import TokenFacts
from attncli.arrays.backend import EVERY, Selection, numbers_of
from attncli.features.run.document import PooledMap
from attncli.mechanism.attend import RowBlock
from attncli.models.model import Model

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
