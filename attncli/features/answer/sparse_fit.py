"""A sparse linear model of how likely an answer is by which regions are there, from runs without
random sets of them.

Source: Cohen-Wang et al., ContextCite: attributing model generation to context, 2024 (arXiv
2409.00729): each region is there with probability 1/2; the logit of the answer's probability, over
its tokens, is fitted by Lasso with penalty 0.01 on standardised masks; how well subsets that were
not used are ranked is the linear datamodeling score (LDS).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from attncli.arrays.numpy_backend import integers
from attncli.measure.bootstrap import resample
from attncli.measure.rank_correlation import rank_correlation

Floats = np.ndarray[Any, np.dtype[Any]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

PENALTY = 0.01
"""α of Lasso, as ContextCite has it."""
TOLERANCE = 1e-12
"""The largest change of a weight in a round after which no more rounds follow."""
ROUNDS = 10_000
"""Rounds over all weights at most."""


class SparseFit(Struct, frozen=True, eq=False):
    """A linear model of masks.

    weights: [region], what a region that is there adds.
    intercept: the value without any.
    """

    weights: Floats
    intercept: float

    def predict(self, masks: Bools) -> Floats:
        """The predicted value of each mask, [mask], from masks [mask, region] that are true where a
        region is there."""
        return np.asarray(masks @ self.weights + self.intercept)


def random_masks(regions: int, count: int, seed: int) -> Bools:
    """Draw `count` different random sets of regions, [mask, region], true where a region is there:
    each region with probability 1/2. All sets in random order where there are fewer than `count`.
    """
    count = min(count, 2**regions)
    # by their bytes, so that a set drawn twice counts once
    masks: dict[bytes, Bools] = {}
    draw = 0
    while len(masks) < count:
        mask = integers(seed, f"subset\0{draw}", regions) % 2 == 1
        masks.setdefault(mask.tobytes(), mask)
        draw += 1
    return np.stack(list(masks.values()))


def answer_logit(logprob: float) -> float:
    """log(p / (1 − p)) of a probability p given as `logprob`, log p in nats."""
    # p is kept a little below 1, where the logit is infinite
    bounded = min(logprob, -1e-12)
    return float(bounded - np.log(-np.expm1(bounded)))


FEWEST_TESTED = 3
"""Subsets below which ranks say nothing."""


def fit_sparse(masks: Bools, values: Floats, penalty: float = PENALTY) -> SparseFit:
    """The weights w that make (1/2n) Σ (value − intercept − mask·w)² + penalty Σ|w·σ| smallest, σ a
    region's standard deviation over the masks: Lasso on standardised masks, by coordinate descent.

    Args:
        masks: [mask, region], true where a region is there.
        values: Of each mask.
        penalty: α; 0 gives least squares.

    Returns:
        The model; 0 for a region that all masks treat alike.
    """
    features = np.asarray(masks, np.float64)
    center = features.mean(0)
    scale = features.std(0)
    varies = scale > 0
    columns = (features - center) / np.where(varies, scale, 1.0)
    weights = np.zeros(columns.shape[1])
    residual = values - values.mean()
    for _ in range(ROUNDS):
        largest = 0.0
        for place in np.flatnonzero(varies):
            column = columns[:, place]
            before = weights[place]
            # least squares in this column alone, which has the mean square 1; then shrunk to 0
            least_squares = before + column @ residual / len(values)
            weights[place] = np.sign(least_squares) * max(abs(least_squares) - penalty, 0.0)
            change = weights[place] - before
            residual = residual - change * column
            largest = max(largest, abs(change))
        if largest < TOLERANCE:
            break
    # back from standardised columns to masks of 0 and 1
    mask_weights = np.where(varies, weights / np.where(varies, scale, 1.0), 0.0)
    return SparseFit(mask_weights, float(values.mean() - center @ mask_weights))


def rank_score(predicted: Floats, values: Floats) -> tuple[float, float, float] | None:
    """How well predictions rank subsets that the fit has not seen: their rank correlation with the
    measured values, and the ends of its 95% interval (percentile bootstrap over subsets). None for
    fewer than `FEWEST_TESTED` subsets, and where predictions or values do not vary."""
    if len(values) < FEWEST_TESTED:
        return None
    score = rank_correlation(predicted, values)
    if score is None:
        return None
    draws = []
    for shares in resample(len(values)):
        # a resample gives the share of each value: repeat it as often as it was drawn
        times = np.rint(shares * len(values)).astype(int)
        indices = np.repeat(np.arange(len(values)), times)
        correlation = rank_correlation(predicted[indices], values[indices])
        if correlation is not None:  # None where the values drawn are all alike
            draws.append(correlation)
    if not draws:
        return None
    low, high = np.percentile(draws, (2.5, 97.5))
    return score, float(low), float(high)
