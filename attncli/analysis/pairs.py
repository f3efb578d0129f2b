"""Which earlier positions carry the same token as a query: sparse, by rows, nothing n × n."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from attncli.analysis.visible_keys import Ints


class TokenPairs:
    """Positions of equal tokens of one text.

    tokens: one name or id per position. Memory is linear in the text; a block of rows costs as many
    entries as it has pairs.
    """

    def __init__(self, tokens: Sequence[Hashable]) -> None:
        numbers: dict[Hashable, int] = {}
        kinds = np.array([numbers.setdefault(token, len(numbers)) for token in tokens], np.int64)
        self._order = np.argsort(kinds, kind="stable")
        places = np.empty_like(self._order)
        places[self._order] = np.arange(kinds.size)
        starts = np.searchsorted(kinds[self._order], kinds)
        self._starts, self._earlier = starts, places - starts
        self._last: dict[int, tuple[Ints, tuple[Ints, Ints]]] = {}

    def of(self, i: Ints, after: int) -> tuple[Ints, Ints]:
        """For query positions i [row]: the pairs (row, key) with key = j + after, j < i of the same token.

        Only 0 < key < i: key 0 and the query itself are left out. after: 0 for the duplicates,
        1 for the tokens that followed them.
        """
        last = self._last.get(after)
        if last is not None and last[0] is i:  # the same block of rows, of another head
            return last[1]
        pairs = self._of(i, after)
        self._last[after] = (i, pairs)
        return pairs

    def _of(self, i: Ints, after: int) -> tuple[Ints, Ints]:
        counts = self._earlier[i]
        rows = np.repeat(np.arange(i.size), counts)
        within = np.arange(rows.size) - np.repeat(np.cumsum(counts) - counts, counts)
        keys = self._order[np.repeat(self._starts[i], counts) + within] + after
        is_earlier = (keys > 0) & (keys < i[rows])
        return rows[is_earlier], keys[is_earlier]
