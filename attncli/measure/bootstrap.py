"""Intervals of means by the bootstrap: how far a mean over pairs would move if they were drawn
again."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from attncli.arrays.numpy_backend import integers

Floats = np.ndarray[Any, np.dtype[Any]]

FEWEST = 20
"""Values below which no interval is given."""
DRAWS = 1000
SURE = 0.95
"""How often an interval is to hold the mean."""
TINY = 1e-6
"""A standard error below this share of that of all values is none."""


class MeanInterval(Struct, frozen=True):
    """A mean with its 95% interval by the bootstrap. low, high: None below `FEWEST` values.
    same_sign: the share of the values that have the sign of the mean, 0 to 1."""

    mean: float
    low: float | None
    high: float | None
    same_sign: float


def resample(count: int, seed: int = 0, draws: int = DRAWS) -> Floats:
    """How often each of `count` values is drawn in each of `draws` resamples of as many, as shares
    that sum to 1: [draw, value], float64, from a named stream."""
    numbers = integers(seed, f"bootstrap\0{count}", draws * count).reshape(draws, count) % count
    counts = np.zeros((draws, count))
    np.add.at(counts, (np.arange(draws)[:, None], numbers), 1.0)
    return counts / count


def mean_ends(values: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """The ends of the 95% interval of the mean of each column of `values`, [value, column], by the
    bootstrap of Student's t: how far resampled means lie from the mean, in their own standard
    errors.

    It is symmetric. Of 20 values it holds the mean in 94.7% of 4,000 samples from a normal
    distribution, in 93.5% from an exponential one, and in 94.6% of samples from what SmolLM2's heads
    change over pairs (percentiles moved outwards by Student's t: 93.6, 92.2 and 93.4%). Its limit is
    skewness: of a log-normal distribution 89.7%.
    weights: of the values in each resample, [draw, value]. Source: Efron, Bootstrap methods, 1979;
    Hall, On symmetric bootstrap confidence intervals, 1988.
    """
    return ratio_ends(values, np.ones(len(values)), weights)


def ratio_ends(values: Floats, sizes: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """The ends of the 95% interval of Σ values / Σ sizes of each column, as `mean_ends` has them;
    its standard error is that of the mean of what the ratio leaves, values − ratio · sizes, over
    the mean size.

    values: [value, column]. sizes: [value]. weights: of the values in each resample, [draw, value].
    Source of the error: Cochran, Sampling techniques, 1977, chapter 6.
    """
    ratio = values.sum(0) / sizes.sum()
    # what the ratio leaves: of sums near to each other few digits would be left
    rest = values - ratio * sizes[:, None]
    whole = np.full((1, len(values)), 1.0 / len(values))
    _, (error,) = _shift_and_error(rest, sizes, whole)
    shifts, errors = _shift_and_error(rest, sizes, weights)
    # a resample of one value drawn throughout has no error of its own
    known = errors > TINY * error
    distances = np.where(known, np.abs(shifts) / np.where(known, errors, 1.0), 0.0)
    reach = np.quantile(distances, SURE, axis=0) * error
    return ratio - reach, ratio + reach


def _shift_and_error(rest: Floats, sizes: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """By how much a ratio moves in each resample, and its standard error there times the root of how
    many values there are, both [draw, column]. rest: values less the ratio times sizes."""
    size = (weights @ sizes)[:, None]
    shift = (weights @ rest) / size
    products = weights @ (rest * sizes[:, None])
    squares = weights @ rest**2 - 2.0 * shift * products
    squares += shift**2 * (weights @ sizes**2)[:, None]
    return shift, np.sqrt(np.maximum(squares, 0.0)) / np.abs(size)


def mean_intervals(values: Floats, *, seed: int = 0) -> list[MeanInterval]:
    """The mean of each column of `values`, [value, column], with its interval.

    Args:
        values: One row for each pair, without NaN.
        seed: Of the resamples, which are the same for all columns.

    Returns:
        One interval for each column; without ends below `FEWEST` rows.
    """
    means = values.mean(0)
    share = (np.sign(values) == np.sign(means)).mean(0)
    if len(values) < FEWEST:
        pairs = zip(means.tolist(), share.tolist(), strict=True)
        return [MeanInterval(mean, None, None, same_sign) for mean, same_sign in pairs]
    low, high = mean_ends(values, resample(len(values), seed))
    # a column of one value has ends that differ from its mean by rounding alone
    columns = zip(means, np.minimum(low, means), np.maximum(high, means), share, strict=True)
    return [MeanInterval(*map(float, column)) for column in columns]


def ratio_intervals(values: Floats, sizes: Floats, *, seed: int = 0) -> list[MeanInterval]:
    """Σ values / Σ sizes of each column of `values`, [value, column], with its interval; the sign is
    that of single values over their size.

    Args:
        values: One row for each pair, without NaN.
        sizes: One for each pair, whose sum is not 0.
        seed: Of the resamples.

    Returns:
        One interval for each column; without ends below `FEWEST` rows.
    """
    ratios = values.sum(0) / sizes.sum()
    share = (np.sign(values / sizes[:, None]) == np.sign(ratios)).mean(0)
    if len(values) < FEWEST:
        pairs = zip(ratios.tolist(), share.tolist(), strict=True)
        return [MeanInterval(ratio, None, None, same_sign) for ratio, same_sign in pairs]
    low, high = ratio_ends(values, sizes, resample(len(values), seed))
    columns = zip(ratios, low, high, share, strict=True)
    return [MeanInterval(*map(float, column)) for column in columns]
