"""Spearman's rank correlation."""

from __future__ import annotations

from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[Any]]


def rank_correlation(a: Floats, b: Floats) -> float | None:
    """Spearman's correlation of two lists of values, [value] each, from −1 to 1; equal values share
    their mean rank. None where all values of one list are equal."""
    a_ranks = _ranks(a)
    b_ranks = _ranks(b)
    if a_ranks.std() == 0 or b_ranks.std() == 0:
        return None
    return float(np.corrcoef(a_ranks, b_ranks)[0, 1])


def _ranks(values: Floats) -> Floats:
    """The rank of each value, from 0 for the least; equal values get their mean rank: 5 7 7 9 have
    the ranks 0, 1.5, 1.5 and 3."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    # of each different value: the rank of its last occurrence less half of its other occurrences
    mean_ranks = counts.cumsum() - (counts + 1) / 2
    return np.asarray(mean_ranks[places])
