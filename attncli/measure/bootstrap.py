"""The bootstrap: how often each value is drawn when as many are drawn again."""

from __future__ import annotations

from typing import Any

import numpy as np

from attncli.arrays.numpy_backend import integers

Floats = np.ndarray[Any, np.dtype[Any]]


def resample(count: int, seed: int = 0, draws: int = 1000) -> Floats:
    """How often each of `count` values is drawn in each of `draws` bootstrap samples of as many
    values, as shares that sum to 1: [draw, value], float64. One seed gives the same draws on every
    machine."""
    numbers = integers(seed, f"bootstrap\0{count}", draws * count).reshape(draws, count) % count
    counts = np.zeros((draws, count))
    np.add.at(counts, (np.arange(draws)[:, None], numbers), 1.0)
    return counts / count
