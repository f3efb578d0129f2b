"""`RowCache`: the rows of a table that have been asked for, read once each and kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Rows = np.ndarray[Any, Any]


class RowCache:
    """Rows of a table of `count` rows. read_rows: gives the rows with these numbers, in order, and raises for one
    outside the table."""

    def __init__(self, read_rows: Callable[[Sequence[int]], Rows], count: int) -> None:
        self._read_rows, self._present = read_rows, np.zeros(count, np.bool_)
        self._rows: Rows | None = None

    def rows(self, numbers: Sequence[int]) -> Rows:
        """The rows with these numbers, in this order."""
        indices = np.asarray(numbers, np.int64)
        if indices.size == 0 or indices.min() < 0 or indices.max() >= self._present.size:
            return self._read_rows(numbers)
        missing = np.unique(indices[~self._present[indices]])
        if missing.size:
            new = self._read_rows(missing.tolist())
            if self._rows is None:  # as large as the table, of which memory is taken where rows are written
                self._rows = np.empty((self._present.size, *new.shape[1:]), new.dtype)
            self._rows[missing] = new
            self._present[missing] = True
        assert self._rows is not None
        result: Rows = self._rows[indices]
        return result
