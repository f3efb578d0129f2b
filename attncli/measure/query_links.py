"""What a query's list of strongest links leaves out and its answer still has to name: its neighbour
in heads that are not positional, and who looks back at it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from attncli.documents import LinkRow, Numbers
from attncli.inputs.token import Token
from attncli.measure.rest import LEAST_ROWS, rest_keys
from attncli.measure.row_facts import Bools, Floats, Ints, WeightRows

POSITIONAL = 0.4
"""A head whose rows give their neighbour on one side this much on average is positional there: the
threshold of the label (Voita et al. 2019). What such a head does is no news of a single query."""
SIDES = (-1, 1)
"""The neighbours of a query, as offsets: the key before it and the one after it."""


class QueryLinks:
    """Collects, layer by layer, two links of one query that its list of strongest links may lack:
    from it to a neighbour, and from another token back to it.

    tokens: of the text.
    query: the position of the query.
    rest: which tokens heads put weight on whatever the text says, booleans [token].
    """

    def __init__(self, tokens: Sequence[Token], query: int) -> None:
        self.query = query
        self.rest = rest_keys(tokens)
        self.special: Bools = np.array([token.special for token in tokens], bool)
        # of each layer added: its number, its heads and the collector of their links
        self._layers: list[tuple[int, Sequence[int], LayerQueryLinks]] = []

    def consumer(self, layer: int, heads: Sequence[int]) -> LayerQueryLinks:
        """Make the collector that the rows of one layer's heads are fed to, and register it."""
        collector = LayerQueryLinks(self, len(heads))
        self._layers.append((layer, heads, collector))
        return collector

    def add(self, layer: int, heads: Sequence[int], weights: Sequence[Numbers]) -> None:
        """Add a whole layer's weights [query, key], one array per head.

        heads: their numbers.
        """
        collector = self.consumer(layer, heads)
        count = self.rest.size  # tokens; keys after them, which are learned, are cut off
        i = np.arange(count)
        # [head, query]: the weight on the key before and the key after the query, and on the one
        # collected query as a key; 0 where there is no such key
        beside = {offset: np.zeros((len(heads), count)) for offset in SIDES}
        column = np.empty((len(heads), count))
        for head, matrix in enumerate(weights):
            square = np.asarray(matrix)[:, :count]
            # the diagonal below the main one has the key before each query, from the second on
            beside[-1][head, 1:] = square.diagonal(-1)
            beside[1][head, :-1] = square.diagonal(1)
            column[head] = square[:, self.query]
        for array in (*beside.values(), column):
            np.nan_to_num(array, copy=False)
        collector.add_rows(slice(0, len(heads)), i, beside, column)

    def strongest_back(self) -> LinkRow | None:
        """The strongest link from another token to the query: from one that is no neighbour, and
        from a neighbour only where no other token looks at the query; None where none does."""
        for kind in range(2):  # 0: tokens that are no neighbours, 1: neighbours
            links = []
            for layer, heads, collector in self._layers:
                for place, head in enumerate(heads):
                    query = int(collector.back_query[kind, place])
                    weight = float(collector.back[kind, place])
                    links.append((layer, head, query, self.query, weight))
            link = self._largest(links)
            if link is not None:
                return link
        return None

    def strongest_neighbour(self) -> LinkRow | None:
        """The strongest link from the query to a neighbour, in heads that are not positional on
        that side; None without any."""
        links = []
        for layer, heads, collector in self._layers:
            for side, offset in enumerate(SIDES):
                for place, head in enumerate(heads):
                    if not collector.is_positional(side, place):
                        weight = float(collector.own[side, place])
                        links.append((layer, head, self.query, self.query + offset, weight))
        return self._largest(links)

    @staticmethod
    def _largest(links: Iterable[tuple[int, int, int, int, float]]) -> LinkRow | None:
        """The largest of some links (layer, head, query, key, weight); None where all are 0."""
        best = max(links, key=lambda link: link[4], default=None)
        if best is None or best[4] <= 0:
            return None
        layer, head, query, key, weight = best
        return LinkRow(layer=layer, head=head, query=query, key=key, weight=weight)


class LayerQueryLinks:
    """What `QueryLinks` keeps of one layer's heads.

    whole: the collector of all layers, which knows the query.
    heads: how many heads of the layer were chosen.
    own: the query's weight on its neighbour before and after it, [side, head]; 0 on the first token,
        a special token or a separator.
    back, back_query: the largest weight that another token gives the query, and which token does,
        [kind, head]: kind 0 of tokens that are no neighbours, 1 of neighbours.
    """

    def __init__(self, whole: QueryLinks, heads: int) -> None:
        self._whole = whole
        # what rows give their neighbour, in all, and how many rows have one: the mean tells whether
        # a head is positional, [side, head]
        self._sums = np.zeros((len(SIDES), heads))
        self._rows = np.zeros((len(SIDES), heads), np.int64)
        self.own = np.zeros((len(SIDES), heads))
        self.back = np.zeros((2, heads))
        self.back_query = np.zeros((2, heads), np.int64)

    def add(self, rows: WeightRows, *, first_head: int = 0) -> None:
        """Take a block of rows of heads first_head, first_head + 1, …"""
        heads = slice(first_head, first_head + rows.heads)
        beside = {offset: rows.at_offset(offset) for offset in SIDES}
        self.add_rows(heads, rows.i, beside, rows.key(self._whole.query))

    def add_rows(self, heads: slice, i: Ints, beside: dict[int, Floats], column: Floats) -> None:
        """Add rows of some heads.

        Args:
            heads: Their indices among the layer's chosen heads.
            i: The positions of the rows, [row].
            beside: Each row's weight on the neighbour at offset −1 and +1, [head, row].
            column: Each row's weight on the collected query as a key, [head, row].
        """
        whole = self._whole

        # each row's weight on its neighbours, but for those on which heads put weight anyway
        for side, offset in enumerate(SIDES):
            key = i + offset
            row_counts = (key >= 0) & (key < whole.rest.size)  # the neighbour is in the text
            row_counts[row_counts] = ~whole.rest[key[row_counts]]
            self._sums[side, heads] += beside[offset][:, row_counts].sum(-1)
            self._rows[side, heads] += row_counts.sum()
            # the row of the collected query itself, where it is in this block
            for row in np.flatnonzero(row_counts & (i == whole.query)):
                self.own[side, heads] = beside[offset][:, row]

        # of each head the row that looks back at the query most: kind 0 among tokens that are no
        # neighbours, 1 among neighbours
        distance = np.abs(i - whole.query)
        for kind, is_of_kind in enumerate((distance > 1, distance == 1)):
            weights_back = np.where(is_of_kind & ~whole.special[i], column, 0.0)
            best_row = weights_back.argmax(-1)
            weight = np.take_along_axis(weights_back, best_row[:, None], -1)[:, 0]
            # more than in the blocks before
            is_more = weight > self.back[kind, heads]
            back_query = np.where(is_more, i[best_row], self.back_query[kind, heads])
            self.back_query[kind, heads] = back_query
            self.back[kind, heads] = np.where(is_more, weight, self.back[kind, heads])

    def is_positional(self, side: int, head: int) -> bool:
        """Whether a head is a positional one on this side: the mean weight of its rows on their
        neighbour there reaches `POSITIONAL`, over rows enough to tell."""
        rows = int(self._rows[side, head])
        return rows >= LEAST_ROWS and bool(self._sums[side, head] / rows >= POSITIONAL)
