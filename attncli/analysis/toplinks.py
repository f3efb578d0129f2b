"""The strongest links of each head, kept while blocks of query rows go by."""

from __future__ import annotations

import numpy as np

from attncli.analysis.exclusion import Exclusion
from attncli.analysis.row_facts import WeightRows
from attncli.analysis.visible_keys import Floats, Ints

AT_ONCE = 2**16
"""Weights looked at together; of a longer row, one row at a time."""


class TopLinks:
    """The `top` largest weights of each head with their query and key.

    leave_out: pairs that do not count. Ties go to the lower query, then the lower key; weights of 0 are
    no links. Only rows whose largest weight beats the last link kept are looked at.
    """

    def __init__(self, heads: int, top: int, leave_out: Exclusion | None = None) -> None:
        self.top, self._leave_out = top, leave_out
        self._links: list[list[tuple[float, int, int]]] = [[] for _ in range(heads)]

    def add(self, rows: WeightRows, *, first_head: int = 0) -> None:
        """Add rows of heads first_head, first_head + 1, …"""
        heads, count, keys = rows.weights.shape
        counts_row = np.ones(count, bool) if self._leave_out is None else ~self._leave_out.queries[rows.i]
        step = max(AT_ONCE // max(keys, 1), 1)
        for place in range(heads):
            head, peak = first_head + place, np.where(counts_row, rows.peak[place], 0.0)
            beating = np.flatnonzero(peak > self._least(head))
            for begin in dict.fromkeys((beating // step * step).tolist()):
                # what is found makes it harder for the rows after
                beat = np.flatnonzero(peak[begin : begin + step] > self._least(head))
                if beat.size:
                    part = rows.numpy(rows.weights[place, begin : begin + step])
                    self._take_rows(head, rows, part[beat], begin + beat)

    def _least(self, head: int) -> float:
        """What a weight must exceed to be kept."""
        links = self._links[head]
        return -links[-1][0] if len(links) == self.top else 0.0

    def _take_rows(self, head: int, rows: WeightRows, weights: Floats, which: Ints) -> None:
        """Look at these rows, [row, key], without the pairs left out. which: their places in the block, rising."""
        queries = rows.i[which]
        if self._leave_out is not None:
            weights = np.where(self._leave_out.rows(queries)[:, rows.low : rows.low + weights.shape[1]], 0.0, weights)
        self._take(head, queries, weights, weights.max(-1), rows.low)

    def add_whole(self, head: int, weights: Floats, i: Ints, counting: Floats | None) -> None:
        """Add rows of one head over all keys, [row, key], of the queries i, rising. NaN is no link.

        counting: 1 for each pair that counts and 0 for the others, of the weights' type; None where all count.
        """
        counted_weights = weights if counting is None else weights * counting
        peak = counted_weights.max(-1)
        if np.isnan(peak).any():
            counted_weights = np.nan_to_num(counted_weights)
            peak = counted_weights.max(-1)
        self._take(head, i, counted_weights, peak, 0)

    def _take(self, head: int, queries: Ints, weights: Floats, peak: Floats, low: int) -> None:
        """Keep what is strong enough of these rows, [row, low…], each with its largest weight."""
        least, least_kept = self._bound(peak), self._least(head)
        # a row's largest weight is a link: as many rows as there are links to keep give a bound that most weights miss
        which = np.flatnonzero((peak >= least) & (peak > least_kept))
        weights, queries = weights[which], queries[which]
        row, key = np.nonzero((weights >= least) & (weights > least_kept))
        values = weights[row, key]
        if values.size > self.top:
            # only what may be among them is sorted
            maybe = np.flatnonzero(values >= self._bound(values))
            strongest = maybe[np.argsort(-values[maybe], kind="stable")[: self.top]]
            row, key, values = row[strongest], key[strongest], values[strongest]
        links = self._links[head]
        links += zip((-values).tolist(), queries[row].tolist(), (low + key).tolist(), strict=True)
        links.sort()
        del links[self.top :]

    def _bound(self, weights: Floats) -> float:
        """The smallest of the `top` largest of these weights; −∞ where there are fewer."""
        place = weights.size - self.top
        return float(np.partition(weights, place)[place]) if 0 <= place < weights.size else -np.inf

    def sorted_links(self) -> list[list[tuple[int, int, float]]]:
        """For each head its links (query, key, weight), strongest first."""
        return [[(query, key, -less) for less, query, key in links] for links in self._links]
