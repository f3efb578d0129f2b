"""The strongest links of each head, kept while blocks of query rows go by."""

from __future__ import annotations

import numpy as np

from attncli.analysis.exclude import Exclusion
from attncli.analysis.rows import WeightRows


class TopLinks:
    """The `top` largest weights of each head with their query and key.

    leave_out: pairs that do not count. Ties go to the lower query, then the lower key; weights of 0 are
    no links. Only rows whose largest weight beats the last link kept are looked at.
    """

    def __init__(self, heads: int, top: int, leave_out: Exclusion | None = None) -> None:
        self.top, self._leave_out = top, leave_out
        self._found: list[list[tuple[float, int, int]]] = [[] for _ in range(heads)]

    def add(self, rows: WeightRows, *, first_head: int = 0) -> None:
        """Add rows of heads first_head, first_head + 1, …"""
        counted = True if self._leave_out is None else ~self._leave_out.queries[rows.i]
        for place in range(rows.weights.shape[0]):
            kept = self._found[first_head + place]
            least = -kept[-1][0] if len(kept) == self.top else 0.0
            for row in np.flatnonzero((rows.peak[place] > least) & counted):
                least = -kept[-1][0] if len(kept) == self.top else 0.0
                if rows.peak[place, row] > least:
                    self._look(kept, rows, place, int(row), least)

    def _look(self, kept: list[tuple[float, int, int]], rows: WeightRows, place: int, row: int, least: float) -> None:
        weights = rows.numpy(rows.weights[place, row])
        if self._leave_out is not None:
            out = self._leave_out.rows(rows.i[row : row + 1])[0]
            weights = np.where(out[rows.low : rows.low + weights.size], 0.0, weights)
        above = np.flatnonzero(weights > least)
        if above.size > self.top:
            above = above[np.argsort(-weights[above], kind="stable")[: self.top]]
        kept += [(-float(weights[at]), int(rows.i[row]), rows.low + int(at)) for at in above]
        kept.sort()
        del kept[self.top :]

    def found(self) -> list[list[tuple[int, int, float]]]:
        """For each head its links (query, key, weight), strongest first."""
        return [[(query, key, -less) for less, query, key in kept] for kept in self._found]
