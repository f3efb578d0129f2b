"""How much of heads rules say on texts that they were not fitted to, beside plain baselines."""

from __future__ import annotations

from typing import Any

import numpy as np

from attncli.features.rules.attention_rows import HeadPlaces, PatternBlock
from attncli.features.rules.rule_fit import distance_bins
from attncli.features.rules.token_patterns import Bools, Ints

Floats = np.ndarray[Any, np.dtype[np.float64]]


def distance_rows(profile: Floats, queries: Ints, visible: Bools) -> Floats:
    """Rows of heads that look by distance alone, [head, query, key], of sum 1 where a query sees
    something.

    profile: mean weight by distance, [head, distance].
    queries: positions, [query].
    visible: [query, key].
    """
    rows = profile[:, distance_bins(queries, visible.shape[-1])] * visible
    # where all visible keys have a mean of 0, spread evenly over them
    total = rows.sum(-1, keepdims=True)
    rows = np.where(total > 0, rows, visible)
    total = rows.sum(-1, keepdims=True)
    scaled: Floats = rows / np.maximum(total, 1e-300)  # rows that see nothing stay 0
    return scaled


class OverlapSums:
    """Collects the overlap of heads with their mixtures of rules and with baselines: Σ min(A, Â) of
    each row.

    mixtures: [head, rule].
    profile: mean weight by distance, [head, distance].
    first, even: the indices of the rules of the first token and of an even spread.
    """

    def __init__(
        self, places: HeadPlaces, mixtures: Floats, profile: Floats, first: int, even: int
    ) -> None:
        """Begin with sums of 0 for the mixture and three baselines of each head.

        mixtures: the weights of the rules, [head, rule].
        profile: mean weight by distance, [head, distance].
        first, even: the indices of the rules of the first token and of an even spread.
        """
        self._mixtures = mixtures
        self._profile = profile
        self._baselines = (first, even)
        # [what is compared with the head, head]: its mixture, the rules of the first token and of
        # an even spread, its mean by distance
        self._sums = np.zeros((4, places.count))
        self._rows = np.zeros(places.count)  # how many were added, [head]

    def add(self, block: PatternBlock) -> None:
        """Add the overlaps of a block of rows of one layer in one text; rows that see a single key
        are left out."""
        keep = block.with_choice
        weights = block.weights[:, keep]
        rules = block.rules[:, keep]
        # in the order of `_sums`
        predictions = (
            np.tensordot(self._mixtures[block.heads], rules, 1),  # Σ over rules of weight × rule
            *(rules[place] for place in self._baselines),
            distance_rows(self._profile[block.heads], block.queries[keep], block.visible[keep]),
        )
        for place, predicted_rows in enumerate(predictions):
            overlap = np.minimum(weights, predicted_rows).sum((-2, -1))
            self._sums[place, block.heads] += overlap
        self._rows[block.heads] += int(keep.sum())

    def overlaps(self) -> Floats:
        """The overlap of each head with its mixture, the first token, an even spread, and its own
        mean by distance, [4, head]; 0 where no row had a choice."""
        return self._sums / np.maximum(self._rows, 1)
