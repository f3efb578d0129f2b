"""The strongest links of heads: which query looks at which key, kept while rows go by, over layers and heads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from attncli.documents.declaration import Numbers
from attncli.documents.parts import LeftOutKind, LinkRow, TopLink
from attncli.features.run.document import StrongestLink
from attncli.inputs.token import Token
from attncli.measure.exclusion import Exclusion, exclusion
from attncli.measure.row_facts import WeightRows, portions
from attncli.measure.visible_keys import Floats, Ints

# The strongest links of each head, kept while blocks of query rows go by.

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


LEFT_OUT: Final[tuple[LeftOutKind, ...]] = ("special", "self", "neighbours", "first")
"""What is no news in a trained model: links from or to special tokens, to the query itself, to the
tokens beside it, and to the first token, where heads rest when they have nothing to say."""


def kinds_left_out(tokens: Iterable[Token], *, is_learned: bool) -> tuple[LeftOutKind, ...]:
    """What the strongest links of a text leave out: `LEFT_OUT` for trained weights, and always words that the model
    does not know, where there are any."""
    unknown_kinds: tuple[LeftOutKind, ...] = ("unknown",) if any(token.unknown for token in tokens) else ()
    return (*(LEFT_OUT if is_learned else ()), *unknown_kinds)


class LinkCollector:
    """The `top` strongest links of every head, layer by layer, and of all of them together.

    tokens: the keys; queries: the query tokens if they are another text's (cross-attention).
    query: the one query whose links are wanted; None where none is chosen. leave_out: as `kinds_left_out` has it.
    Ties go to the lower layer, head, query, key. Rows that see nothing have no links.
    """

    def __init__(
        self,
        tokens: Sequence[Token],
        *,
        top: int,
        query: int | None = None,
        leave_out: Sequence[str] = (),
        queries: Sequence[Token] | None = None,
    ) -> None:
        self.top = top
        self._keys = len(tokens)
        out = exclusion(leave_out, tokens, queries=queries)
        self._out = out if query is None else replace(out, queries=out.queries | (np.arange(out.queries.size) != query))
        self._layers: list[tuple[int, Sequence[int], TopLinks]] = []
        self._last: tuple[tuple[int, int, np.dtype[Any]], Floats] | None = None

    def consumer(self, layer: int, heads: Sequence[int]) -> TopLinks:
        """A consumer for the rows of one layer's heads; what it takes counts from then on."""
        idle = not self._out.names and not self._out.queries.any()
        collector = TopLinks(len(heads), self.top, None if idle else self._out)
        self._layers.append((layer, heads, collector))
        return collector

    def add(self, layer: int, heads: Sequence[int], weights: Sequence[Numbers]) -> None:
        """Take a whole layer's weights [query, key], one array per head; keys past the tokens (learned ones) are
        ignored."""
        collector, count = self.consumer(layer, heads), len(weights[0]) if len(heads) else 0
        for _, row in portions(1, count, self._keys):
            i = np.arange(row.start, row.stop)
            for head, matrix in enumerate(weights):
                rows = matrix[row, : self._keys]
                collector.add_whole(head, rows, i, self._counting(row, rows.dtype))

    def _counting(self, row: slice, dtype: np.dtype[Any]) -> Floats | None:
        """1 for each pair of these queries that counts and 0 for the others; None where all count."""
        if not self._out.names and not self._out.queries.any():
            return None
        request = (row.start, row.stop, dtype)
        if self._last is None or self._last[0] != request:  # every head of every layer asks for the same
            self._last = request, (~self._out.rows(np.arange(row.start, row.stop))).astype(dtype)
        return self._last[1]

    def overview(self) -> list[StrongestLink]:
        """Each head's strongest link, None for a head that has none."""
        return [
            StrongestLink(layer=layer, head=head, link=_link(links[0]) if links else None)
            for layer, heads, collector in self._layers
            for head, links in zip(heads, collector.sorted_links(), strict=True)
        ]

    def strongest(self) -> list[LinkRow]:
        """The links of all layers and heads together, strongest first, as documents hold them."""
        every = [
            (-link[2], layer, head, link)
            for layer, heads, collector in self._layers
            for head, links in zip(heads, collector.sorted_links(), strict=True)
            for link in links
        ]
        return [
            LinkRow(layer=layer, head=head, query=query, key=key, weight=weight)
            for _, layer, head, (query, key, weight) in sorted(every)[: self.top]
        ]


def _link(link: tuple[int, int, float]) -> TopLink:
    query, key, weight = link
    return TopLink(query=query, key=key, weight=weight)
