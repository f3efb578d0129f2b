"""The bootstrap: which values are drawn, against a loop."""

from __future__ import annotations

import numpy as np

from attncli.arrays.numpy_backend import integers
from attncli.measure.bootstrap import resample


def test_resampled_means_are_those_of_a_loop() -> None:
    values = np.random.default_rng(0).normal(size=7)
    drawn = integers(3, "bootstrap\0" + "7", 7 * 50).tolist()
    expected = [
        sum(values[number % 7] for number in drawn[draw * 7 : draw * 7 + 7]) / 7
        for draw in range(50)
    ]
    np.testing.assert_allclose(resample(7, 3, 50) @ values, expected, atol=1e-14)
