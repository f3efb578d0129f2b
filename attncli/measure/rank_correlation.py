"""Spearman's rank correlation."""

from __future__ import annotations

from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[Any]]


def rank_correlation(a: Floats, b: Floats) -> float | None:
    """Spearman's correlation of two lists of values, [value] each, from −1 to 1; equal values share
    their mean rank. None where one side does not vary.
    """
    ranks = (_ranks(a), _ranks(b))
    if min(side.std() for side in ranks) == 0:
        return None
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: Floats) -> Floats:
    """The rank of each value, of equal ones their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    mean_ranks = counts.cumsum() - (counts + 1) / 2
    return np.asarray(mean_ranks[places])
