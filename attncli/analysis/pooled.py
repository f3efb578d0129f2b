"""Pooled maps: the weights of heads in at most `side` × `side` cells, built block by block."""

from __future__ import annotations

import numpy as np

from attncli.analysis.row_facts import WeightRows
from attncli.analysis.visible_keys import Floats

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
