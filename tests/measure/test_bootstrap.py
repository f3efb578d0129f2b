"""Intervals by the bootstrap: against a loop, how often they hold the mean, and where there are
none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attncli.arrays.numpy_backend import integers
from attncli.measure.bootstrap import FEWEST, mean_ends, mean_intervals, resample

EFFECTS = Path(__file__).parents[1] / "fixtures" / "pair_effects.csv"
"""A line for each of some heads of SmolLM2-135M: what m loses without it, pair after pair of the
indirect-object task."""


def test_resampled_means_are_those_of_a_loop() -> None:
    values = np.random.default_rng(0).normal(size=7)
    drawn = integers(3, "bootstrap\0" + "7", 7 * 50).tolist()
    expected = [
        sum(values[number % 7] for number in drawn[draw * 7 : draw * 7 + 7]) / 7
        for draw in range(50)
    ]
    np.testing.assert_allclose(resample(7, 3, 50) @ values, expected, atol=1e-14)


DISTRIBUTIONS = {
    "normal": lambda drawn, shape: drawn.normal(size=shape),
    "exponential": lambda drawn, shape: drawn.exponential(size=shape) - 1.0,
    "effects": lambda drawn, shape: real_effects(drawn, shape),
}


def real_effects(drawn: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Samples of what taking single heads away changes, less the head's mean: of each column one
    of the heads in the file, which holds what a real model gave on pairs."""
    heads = np.loadtxt(EFFECTS, delimiter=",")
    heads = heads - heads.mean(1, keepdims=True)
    chosen = heads[np.arange(shape[1]) % len(heads)]
    places = drawn.integers(0, heads.shape[1], shape)
    return np.take_along_axis(chosen.T, places, 0)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("count", [20, 64])
def test_at_least_93_of_100_intervals_hold_the_mean(count: int, name: str) -> None:
    samples = DISTRIBUTIONS[name](np.random.default_rng(1), (count, 3000))
    low, high = mean_ends(samples, resample(count))
    share = ((low <= 0) & (high >= 0)).mean()
    assert 0.93 <= share <= 0.97
    # the negative control: intervals of half the width do not
    middle, half = (low + high) / 2, (high - low) / 4
    assert ((middle - half <= 0) & (middle + half >= 0)).mean() < 0.8


def test_ends_are_those_of_a_loop() -> None:
    values = np.random.default_rng(2).exponential(size=21)
    weights = resample(21)
    distances = []
    for row in weights:
        copies = [
            value
            for value, times in zip(values, np.rint(row * 21).astype(int), strict=True)
            for _ in range(times)
        ]
        mean = sum(copies) / 21
        error = (sum((value - mean) ** 2 for value in copies) / 21) ** 0.5
        distances.append(abs(mean - values.mean()) / error)
    low, high = mean_ends(values[:, None], weights)
    error = np.sqrt(((values - values.mean()) ** 2).mean())
    reach = error * np.quantile(distances, 0.95)
    assert low[0] == pytest.approx(values.mean() - reach)
    assert high[0] == pytest.approx(values.mean() + reach)


def test_few_values_have_no_interval_and_signs_are_counted() -> None:
    values = np.asarray([[1.0, 0.0], [2.0, 0.0], [-0.5, 0.0], [1.5, 0.0]])
    few, zero = mean_intervals(values)
    assert (few.mean, few.low, few.high, few.same_sign) == (1.0, None, None, 0.75)
    assert zero.same_sign == 1.0
    many = mean_intervals(np.tile(values, (FEWEST // 4, 1)))[0]
    assert many.low is not None
    assert many.high is not None
    assert many.low < many.mean < many.high
    assert mean_intervals(np.tile(values, (5, 1)), seed=1)[0].low != many.low
