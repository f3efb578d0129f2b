"""Intervals by the bootstrap: against a loop, how often they hold the mean, and where there are
none."""

from __future__ import annotations

import numpy as np
import pytest

from attncli.arrays.numpy_backend import integers
from attncli.measure.bootstrap import FEWEST, bootstrap_ends, mean_intervals, resample


def test_resampled_means_are_those_of_a_loop() -> None:
    values = np.random.default_rng(0).normal(size=7)
    drawn = integers(3, "bootstrap\0" + "7", 7 * 50).tolist()
    expected = [
        sum(values[number % 7] for number in drawn[draw * 7 : draw * 7 + 7]) / 7
        for draw in range(50)
    ]
    np.testing.assert_allclose(resample(7, 3, 50) @ values, expected, atol=1e-14)


@pytest.mark.parametrize("count", [20, 24, 64])
def test_of_normal_values_at_least_93_of_100_intervals_hold_the_mean(count: int) -> None:
    samples = np.random.default_rng(1).normal(size=(count, 4000))
    low, high = bootstrap_ends(resample(count) @ samples, count)
    share = ((low <= 0) & (high >= 0)).mean()
    assert 0.93 <= share <= 0.97
    # the negative control: intervals of half the width do not
    middle, half = (low + high) / 2, (high - low) / 4
    assert ((middle - half <= 0) & (middle + half >= 0)).mean() < 0.8


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
