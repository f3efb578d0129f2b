"""Gathered: what rows of a layer leave behind as they go by, none of it a number for every pair of a long text."""

from __future__ import annotations

from typing import Any

import numpy as np

from attncli.analysis.records.whole_numbers import Floats
from attncli.analysis.visible_keys import Bools, Ints

Bits = np.ndarray[Any, np.dtype[np.uint8]]

SAMPLED = 64
"""Rows of each head whose weights are kept to check what is made again."""
STRAIGHT = 1e-3
"""How far two scores' biases at one distance may differ and still be one number: they are differences of float32
scores."""


class GatheredRows:
    """One layer's rows: log-sum-exp, visibility, bias by distance, and the weights of sampled rows.

    heads, queries, keys: how many. whole: whether all weights are kept, [head, query, key].
    `bias` is [head, queries + keys − 1], NaN at distances that no row saw; `straight` is False where it depends on more
    than the distance.
    """

    def __init__(self, heads: int, queries: int, keys: int, *, whole: bool) -> None:
        self.heads, self.queries, self.keys = heads, queries, keys
        self.lse: Floats = np.full((heads, queries), -np.inf, np.float32)
        self.weights: Floats | None = np.zeros((heads, queries, keys), np.float32) if whole else None
        self.sampled: Ints = np.unique(np.linspace(0, queries - 1, min(SAMPLED, queries)).round().astype(np.int64))
        self.sample: Floats = np.zeros((heads, len(self.sampled), keys), np.float32)
        self.bias: Floats | None = None
        self.straight = True
        self._common_bits: Bits | None = None  # what is visible to all heads
        self._bits_by_head: dict[int, Bits] = {}  # and to each that sees otherwise than others

    def add(
        self,
        start: int,
        low: int,
        weights: Floats,
        lse: Floats,
        visibility: Bools | None,
        bias: Floats | None = None,
        *,
        first: int = 0,
    ) -> None:
        """Take rows start, start + 1, … over the keys from `low` on; keys outside are hidden from them.

        weights: [head, row, key] of the heads first, first + 1, …, all of them for the same rows before the next rows.
        lse: [head, row]. visibility: booleans that broadcast to the weights, None where nothing is hidden; without a
        head axis they hold for all heads. bias: what was added to the scores, [head, row, key].
        """
        rows, high = slice(start, start + weights.shape[1]), low + weights.shape[2]
        heads = slice(first, first + len(weights))
        self.lse[heads, rows] = lse
        if self.weights is not None:
            self.weights[heads, rows, low:high] = weights
        inside = np.flatnonzero((self.sampled >= rows.start) & (self.sampled < rows.stop))
        for place, head in enumerate(range(*heads.indices(self.heads))):
            self.sample[head, inside, low:high] = weights[place, self.sampled[inside] - start]
        if visibility is not None or low > 0 or high < self.keys:
            self._hide(heads, rows, low, high, visibility)
        if bias is not None:
            self._note(heads.start, start, low, bias, visibility)

    def _hide(self, heads: slice, rows: slice, low: int, high: int, visibility: Bools | None) -> None:
        row_visibility = np.zeros((rows.stop - rows.start, self.keys), bool)
        if visibility is None or visibility.ndim < 3:
            if heads.start == 0:  # once for all heads
                row_visibility[:, low:high] = True if visibility is None else visibility
                self._common_bits = self._open() if self._common_bits is None else self._common_bits
                self._common_bits[rows] = np.packbits(row_visibility, axis=-1)
            return
        for place, head in enumerate(range(*heads.indices(self.heads))):
            row_visibility[:, low:high] = visibility[place if len(visibility) > 1 else 0]
            if head not in self._bits_by_head:
                self._bits_by_head[head] = self._open()
            self._bits_by_head[head][rows] = np.packbits(row_visibility, axis=-1)

    def _open(self) -> Bits:
        """Bits of nothing hidden."""
        return np.full((self.queries, -(-self.keys // 8)), 255, np.uint8)

    def _note(self, first: int, start: int, low: int, bias: Floats, visibility: Bools | None) -> None:
        is_known = np.isfinite(bias) if visibility is None else np.isfinite(bias) & visibility
        if self.bias is None:
            if not np.any(bias[is_known]):  # no bias yet; one that begins later meets zeros here
                return
            self.bias = np.full((self.heads, self.queries + self.keys - 1), np.nan, np.float32)
        place = low + np.arange(bias.shape[2]) - (start + np.arange(bias.shape[1]))[:, None] + self.queries - 1
        for head, table in enumerate(self.bias[first : first + len(bias)]):
            distance, values = place[is_known[head]], bias[head][is_known[head]]
            fresh = np.isnan(table[distance])
            table[distance[fresh]] = values[fresh]
            self.straight = self.straight and not (np.abs(values - table[distance]) > STRAIGHT).any()

    def visibility_bits(self, head: int) -> Bits | None:
        """A head's visible keys as bits [query, ⌈key/8⌉], the first key the highest bit; None where all are visible."""
        head_bits = self._bits_by_head.get(head)
        return (
            self._common_bits
            if head_bits is None
            else head_bits
            if self._common_bits is None
            else head_bits & self._common_bits
        )
