"""The strongest links: which query looks at which key, over layers and heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attncli.inputs.token import Token

LEFT_OUT = ("special", "self", "neighbours", "first")
"""What is no news in a trained model: links from or to special tokens, to the query itself, to the
tokens beside it, and to the first token, where heads rest when they have nothing to say."""


class Links:
    """Keeps the `top` largest weights of the layers it is shown.

    tokens: the keys; queries: the query tokens if they are another text's (cross-attention).
    query: only this query's links, None for all. everything: False leaves out `LEFT_OUT`.
    Ties go to the lower layer, head, query, key. Rows that see nothing have no links.
    """

    def __init__(
        self,
        tokens: Sequence[Token],
        *,
        top: int,
        query: int | None = None,
        everything: bool = True,
        queries: Sequence[Token] | None = None,
    ) -> None:
        self.top = top
        self._found: list[tuple[float, int, int, int, int]] = []
        shape = (len(tokens if queries is None else queries), len(tokens))
        self._open = np.ones(shape, bool) if everything else _informative(tokens, queries)
        if query is not None:
            self._open &= (np.arange(shape[0]) == query)[:, None]

    def add(self, layer: int, heads: Sequence[int], weights: np.ndarray[Any, Any]) -> None:
        """Look at one layer's weights [head, query, key]; keys past the tokens (learned ones) are ignored."""
        keys = self._open.shape[1]
        for place, head in enumerate(heads):
            rows = np.where(self._open, np.nan_to_num(weights[place][:, :keys]), 0.0)
            count = min(self.top, rows.size)
            flat = rows.reshape(-1)
            least = max(float(np.partition(flat, -count)[-count]), 0.0)
            above = np.flatnonzero(flat > least)
            # of those that tie with the last place, the first ones: a million equal weights give ten links
            level = np.flatnonzero(flat == least)[: count - len(above)] if least > 0 else above[:0]
            for at in (*above, *level):
                self._found.append((-float(flat[at]), layer, head, int(at // keys), int(at % keys)))
        self._found = sorted(self._found)[: self.top]

    def strongest(self, weights: np.ndarray[Any, Any]) -> list[dict[str, Any] | None]:
        """The strongest link of each head of weights [head, query, key]; None where all that could be one is 0."""
        keys = self._open.shape[1]
        rows = np.where(self._open, np.nan_to_num(weights[:, :, :keys]), 0.0).reshape(len(weights), -1)
        places = rows.argmax(1)
        return [
            {"query": int(at // keys), "key": int(at % keys), "weight": float(row[at])} if row[at] > 0 else None
            for row, at in zip(rows, places, strict=True)
        ]

    def found(self) -> list[dict[str, Any]]:
        """The links, strongest first, as documents hold them."""
        return [
            {"layer": layer, "head": head, "query": query, "key": key, "weight": -less} for less, layer, head, query, key in self._found
        ]


def _informative(tokens: Sequence[Token], queries: Sequence[Token] | None) -> np.ndarray[Any, Any]:
    """Which pairs [query, key] say something."""
    same = queries is None
    asking = tokens if queries is None else queries
    special = np.array([token.special for token in tokens])
    open_ = ~special[None, :] & ~np.array([token.special for token in asking])[:, None]
    if same:
        distance = np.abs(np.arange(len(tokens))[:, None] - np.arange(len(tokens))[None, :])
        open_ &= distance > 1
        open_[:, 0] = False
    return open_
