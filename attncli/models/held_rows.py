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
        self._read, self._places = read, np.full(count, -1, np.int64)
        self._held: Rows | None = None
        self._used = 0

    def rows(self, wanted: Sequence[int]) -> Rows:
        """The rows with these numbers, in this order."""
        asked = np.asarray(wanted, np.int64)
        if asked.size == 0 or asked.min() < 0 or asked.max() >= self._places.size:
            return self._read(wanted)
        missing = np.unique(asked[self._places[asked] < 0])
        if missing.size:
            self._take(missing)
        assert self._held is not None
        found: Rows = self._held[self._places[asked]]
        return found

    def _take(self, missing: Rows) -> None:
        new = self._read(missing.tolist())
        end = self._used + missing.size
        if self._held is None or end > len(self._held):  # by half more than needed, so that it grows a few times only
            larger = np.empty((min(end + end // 2, self._places.size), *new.shape[1:]), new.dtype)
            if self._held is not None:
                larger[: self._used] = self._held[: self._used]
            self._held = larger
        self._held[self._used : end] = new
        self._places[missing] = np.arange(self._used, end)
        self._used = end
