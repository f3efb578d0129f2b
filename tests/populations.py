"""Populations whose means intervals are to hold: from textbooks, and what a real model gave."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

EFFECTS = Path(__file__).parent / "fixtures" / "pair_effects.csv"
"""A line for each of some heads of SmolLM2-135M: what m loses without it, pair after pair of the
indirect-object task."""


def real_effects(drawn: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Samples of what taking single heads away changes, less the head's mean: of each column one
    of the heads in the file, which holds what a real model gave on pairs."""
    heads = np.loadtxt(EFFECTS, delimiter=",")
    heads = heads - heads.mean(1, keepdims=True)
    chosen = heads[np.arange(shape[1]) % len(heads)]
    places = drawn.integers(0, heads.shape[1], shape)
    return np.take_along_axis(chosen.T, places, 0)


Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
POPULATIONS: dict[str, tuple[Draw, float]] = {
    "normal": (lambda drawn, shape: drawn.normal(size=shape), 0.0),
    "uniform": (lambda drawn, shape: drawn.random(shape), 0.5),
    "exponential": (lambda drawn, shape: drawn.exponential(size=shape), 1.0),
    "gamma .5": (lambda drawn, shape: drawn.gamma(0.5, size=shape), 0.5),
    "chi² 3": (lambda drawn, shape: drawn.chisquare(3, shape), 3.0),
    "t 3": (lambda drawn, shape: drawn.standard_t(3, shape), 0.0),
    "1 in 10 ten times as far": (
        lambda drawn, shape: drawn.normal(size=shape) * np.where(drawn.random(shape) < 0.1, 10, 1),
        0.0,
    ),
    "beta .5": (lambda drawn, shape: drawn.beta(0.5, 0.5, shape), 0.5),
    "beta 2 5": (lambda drawn, shape: drawn.beta(2, 5, shape), 2 / 7),
    "0 or 1, .1": (lambda drawn, shape: 1.0 * (drawn.random(shape) < 0.1), 0.1),
    "0 or 1, .2": (lambda drawn, shape: 1.0 * (drawn.random(shape) < 0.2), 0.2),
    "0 or 1, .3": (lambda drawn, shape: 1.0 * (drawn.random(shape) < 0.3), 0.3),
    "0 or 1, .5": (lambda drawn, shape: 1.0 * (drawn.random(shape) < 0.5), 0.5),
    "Poisson .5": (lambda drawn, shape: 1.0 * drawn.poisson(0.5, shape), 0.5),
    "1 in 10 larger": (
        lambda drawn, shape: drawn.normal(size=shape) + np.where(drawn.random(shape) < 0.1, 5, 0),
        0.5,
    ),
    "log-normal": (lambda drawn, shape: drawn.lognormal(size=shape), math.exp(0.5)),
    "effects": (real_effects, 0.0),
}
"""By name, how to draw samples of a shape, and the mean."""


def share_held(low: np.ndarray, high: np.ndarray, mean: float) -> float:
    """How many of the intervals that there are hold the mean; rounding of equal numbers aside."""
    shown = ~np.isnan(low)
    hold = (low <= mean + 1e-12) & (high >= mean - 1e-12)
    return float(hold[shown].mean())
