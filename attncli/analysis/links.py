"""The strongest links: which query looks at which key, over layers and heads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from attncli.analysis.documents.declaration import Numbers
from attncli.analysis.documents.parts import LeftOutKind, LinkRow, TopLink
from attncli.analysis.exclusion import exclusion
from attncli.analysis.row_facts import portions
from attncli.analysis.toplinks import TopLinks
from attncli.analysis.visible_keys import Floats
from attncli.features.run.document import StrongestLink
from attncli.inputs.token import Token

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
