"""Statistics of what shards added up: means, intervals, effect sizes, and which differences are news.

Everything is computed from sums, histograms and replicates, so that it does not depend on the order of texts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from attncli.analysis.visible_keys import Floats, Ints

LEVEL = (2.5, 97.5)
"""Percentiles that a 95 % interval lies between."""
Z = 1.959963984540054
"""The normal quantile of 0.975."""


def interval(replicates: Floats) -> Floats:
    """95 % intervals from replicates [replicate, ...]: [2, ...]; NaN where a replicate has no texts.

    Source: Efron, Bootstrap methods: another look at the jackknife, 1979 (percentile interval).
    """
    found: Floats = np.percentile(replicates, LEVEL, axis=0)
    return found


def wilson(successes: int, count: int) -> tuple[float, float] | None:
    """The 95 % interval of a share; None without trials. Source: Wilson, Probable inference, 1927."""
    if count == 0:
        return None
    share = successes / count
    centre = (share + Z * Z / (2 * count)) / (1 + Z * Z / count)
    half = Z / (1 + Z * Z / count) * math.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
    return max(centre - half, 0.0) if successes else 0.0, min(centre + half, 1.0) if successes < count else 1.0


def cohens_d(means: tuple[float, float], deviations: tuple[float, float], counts: tuple[int, int]) -> float | None:
    """Difference of means over the pooled standard deviation; None where that is 0. Source: Cohen 1988."""
    free = counts[0] + counts[1] - 2
    if free <= 0:
        return None
    pooled = math.sqrt(((counts[0] - 1) * deviations[0] ** 2 + (counts[1] - 1) * deviations[1] ** 2) / free)
    return None if pooled == 0 else (means[0] - means[1]) / pooled


def cliffs_delta(a: Ints, b: Ints) -> tuple[float, float] | None:
    """P(x > y) − P(x < y) of values in histograms [bin] of one scale, and how far off the bins may make it.

    Values that share a bin count as equal; their share is the most that the result is off. None without values.
    Source: Cliff, Dominance statistics, 1993.
    """
    total = int(a.sum()) * int(b.sum())
    if total == 0:
        return None
    # whole numbers that may pass 2⁶³ in all; each product of a bin fits
    below = np.concatenate([[0], np.cumsum(b)[:-1]]).astype(object)
    above = (int(b.sum()) - np.cumsum(b)).astype(object)
    larger, smaller = int((a.astype(object) * below).sum()), int((a.astype(object) * above).sum())
    ties = total - larger - smaller
    return (larger - smaller) / total, ties / total


def two_sided(z: float) -> float:
    """The probability of a normal deviate at least as far from 0 as z."""
    return math.erfc(abs(z) / math.sqrt(2))


def benjamini_hochberg(probabilities: Sequence[float]) -> list[float]:
    """Adjusted probabilities in the order given: those below q are discoveries with a false rate of at most q.

    Source: Benjamini and Hochberg, Controlling the false discovery rate, 1995.
    """
    count = len(probabilities)
    order = sorted(range(count), key=lambda at: probabilities[at], reverse=True)
    adjusted, least = [0.0] * count, 1.0
    for rank, at in zip(range(count, 0, -1), order, strict=True):
        least = min(least, probabilities[at] * count / rank)
        adjusted[at] = least
    return adjusted
