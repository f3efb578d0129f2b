"""How often intervals of means over pairs hold the mean, and how wide they are.

    python tests/benchmarks/pair_intervals.py [EFFECTS.npy …]

A line for each population and number of pairs: in percent, how many of 20,000 samples' intervals
hold the mean, by percentiles of the bootstrap (of 2,000 samples), by Student's t and by ours, and our
mean width beside Student's. Samples of equal values have no interval and are told apart. EFFECTS: what
each head, [pair, head], loses on many pairs, the population of which samples are drawn with
replacement; of those the head that is held least is told, too. Aim: 93 at 20 pairs of everything but
"1 in 10 larger", which 20 pairs lack in one sample of eight.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from populations import POPULATIONS, share_held

from attncli.measure.bootstrap import resample
from attncli.measure.mean_intervals import mean_ends
from attncli.measure.student import student

SIZES = (10, 20, 32, 64)
TRIALS, FEW = 20_000, 2_000
BAR = 0.93
EXEMPT = "1 in 10 larger"

Ends = tuple[np.ndarray, np.ndarray]


def student_ends(values: np.ndarray) -> Ends:
    """Student's t alone; NaN for equal values."""
    deviation = values.std(0, ddof=1)
    half = student(len(values) - 1) * deviation / math.sqrt(len(values))
    half[deviation < 1e-12] = np.nan
    return values.mean(0) - half, values.mean(0) + half


def percentile_ends(values: np.ndarray) -> Ends:
    """Percentiles of resampled means."""
    low, high = np.quantile(resample(len(values)) @ values, (0.025, 0.975), axis=0)
    return np.where(values.std(0) < 1e-12, np.nan, low), high


def tell(name: str, values: np.ndarray, mean: float | np.ndarray) -> float:
    """Print a line for samples [value, trial], and return how often ours hold the mean."""
    by_student, ours = student_ends(values), mean_ends(values)
    percentiles = percentile_ends(values[:, :FEW])
    few = mean if isinstance(mean, float) else mean[:FEW]
    wide = np.nanmean(ours[1] - ours[0]) / np.nanmean(by_student[1] - by_student[0])
    held = share_held(*ours, mean)
    print(
        f"{len(values):3} of {name:26} percentiles {share_held(*percentiles, few):6.1%}   Student's t"
        f" {share_held(*by_student, mean):6.1%}   ours {held:6.1%}   width {wide:.2f}   none"
        f" {np.isnan(ours[0]).mean():.1%}",
        flush=True,
    )
    return held


def main() -> None:
    """Print a line for each population and size, and end with 1 where an aim is missed."""
    missed = False
    for count in SIZES:
        for number, (name, (draw, mean)) in enumerate(POPULATIONS.items()):
            values = draw(np.random.default_rng([2026, number]), (count, TRIALS))
            held = tell(name, values, mean)
            missed |= count >= 20 and name != EXEMPT and held < BAR
        for path in map(Path, sys.argv[1:]):
            heads = np.load(path)
            drawn = np.random.default_rng(count)
            chosen = np.arange(TRIALS) % heads.shape[1]
            values = heads[drawn.integers(0, len(heads), (count, TRIALS)), chosen]
            missed |= tell(path.stem, values, heads.mean(0)[chosen]) < BAR and count >= 20
            rates = []
            for head in range(heads.shape[1]):
                samples = heads[drawn.integers(0, len(heads), (count, FEW)), head]
                rates.append(share_held(*mean_ends(samples), heads[:, head].mean()))
            order = np.argsort(rates)
            print(
                f"    {len(heads)} pairs, {len(rates)} heads: held least {rates[order[0]]:.1%} (head"
                f" {order[0]}), one in twenty below {np.quantile(rates, 0.05):.1%}, below {BAR:.0%}:"
                f" {sum(rate < BAR for rate in rates)}",
                flush=True,
            )
    sys.exit(missed)


if __name__ == "__main__":
    main()
