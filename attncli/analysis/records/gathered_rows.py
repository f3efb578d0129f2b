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


class Gathered:
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
        self._shared: Bits | None = None  # what is visible to all heads
        self._own: dict[int, Bits] = {}  # and to each that sees otherwise than others

    def add(
        self,
        start: int,
        low: int,
        weights: Floats,
        lse: Floats,
        seen: Bools | None,
        bias: Floats | None = None,
        *,
        first: int = 0,
    ) -> None:
        """Take rows start, start + 1, … over the keys from `low` on; keys outside are hidden from them.

        weights: [head, row, key] of the heads first, first + 1, …, all of them for the same rows before the next rows.
        lse: [head, row]. seen: booleans that broadcast to the weights, None where nothing is hidden; without a head
        axis they hold for all heads. bias: what was added to the scores, [head, row, key].
        """
        rows, high = slice(start, start + weights.shape[1]), low + weights.shape[2]
        heads = slice(first, first + len(weights))
        self.lse[heads, rows] = lse
        if self.weights is not None:
            self.weights[heads, rows, low:high] = weights
        inside = np.flatnonzero((self.sampled >= rows.start) & (self.sampled < rows.stop))
        for place, head in enumerate(range(*heads.indices(self.heads))):
            self.sample[head, inside, low:high] = weights[place, self.sampled[inside] - start]
        if seen is not None or low > 0 or high < self.keys:
            self._hide(heads, rows, low, high, seen)
        if bias is not None:
            self._note(heads.start, start, low, bias, seen)

    def _hide(self, heads: slice, rows: slice, low: int, high: int, seen: Bools | None) -> None:
        shown = np.zeros((rows.stop - rows.start, self.keys), bool)
        if seen is None or seen.ndim < 3:
            if heads.start == 0:  # once for all heads
                shown[:, low:high] = True if seen is None else seen
                self._shared = self._open() if self._shared is None else self._shared
                self._shared[rows] = np.packbits(shown, axis=-1)
            return
        for place, head in enumerate(range(*heads.indices(self.heads))):
            shown[:, low:high] = seen[place if len(seen) > 1 else 0]
            if head not in self._own:
                self._own[head] = self._open()
            self._own[head][rows] = np.packbits(shown, axis=-1)

    def _open(self) -> Bits:
        """Bits of nothing hidden."""
        return np.full((self.queries, -(-self.keys // 8)), 255, np.uint8)

    def _note(self, first: int, start: int, low: int, bias: Floats, seen: Bools | None) -> None:
        known = np.isfinite(bias) if seen is None else np.isfinite(bias) & seen
        if self.bias is None:
            if not np.any(bias[known]):  # no bias yet; one that begins later meets zeros here
                return
            self.bias = np.full((self.heads, self.queries + self.keys - 1), np.nan, np.float32)
        place = low + np.arange(bias.shape[2]) - (start + np.arange(bias.shape[1]))[:, None] + self.queries - 1
        for head, table in enumerate(self.bias[first : first + len(bias)]):
            at, found = place[known[head]], bias[head][known[head]]
            fresh = np.isnan(table[at])
            table[at[fresh]] = found[fresh]
            self.straight = self.straight and not (np.abs(found - table[at]) > STRAIGHT).any()

    def seen(self, head: int) -> Bits | None:
        """A head's visible keys as bits [query, ⌈key/8⌉], the first key the highest bit; None where all are visible."""
        own = self._own.get(head)
        return self._shared if own is None else own if self._shared is None else own & self._shared
