"""`HeldRows`: the rows of a table that have been asked for, read once each and kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Rows = np.ndarray[Any, Any]


class HeldRows:
    """Rows of a table of `count` rows. read: gives the rows with these numbers, in order, and raises for one outside
    the table."""

    def __init__(self, read: Callable[[Sequence[int]], Rows], count: int) -> None:
        self._read, self._there = read, np.zeros(count, np.bool_)
        self._held: Rows | None = None

    def rows(self, wanted: Sequence[int]) -> Rows:
        """The rows with these numbers, in this order."""
        asked = np.asarray(wanted, np.int64)
        if asked.size == 0 or asked.min() < 0 or asked.max() >= self._there.size:
            return self._read(wanted)
        missing = np.unique(asked[~self._there[asked]])
        if missing.size:
            new = self._read(missing.tolist())
            if self._held is None:  # as large as the table, of which memory is taken where rows are written
                self._held = np.empty((self._there.size, *new.shape[1:]), new.dtype)
            self._held[missing] = new
            self._there[missing] = True
        assert self._held is not None
        found: Rows = self._held[asked]
        return found
