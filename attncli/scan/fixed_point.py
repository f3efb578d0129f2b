"""Numbers whose sums do not depend on order: whole multiples of 2⁻²⁴, and histograms of fixed bins.

Integers add up exactly, so any number of workers in any order find the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attncli.measure.metric import Metric
from attncli.measure.visible_keys import Floats, Ints

UNIT = 1 << 24
"""What 1 is as an integer."""
SHARES, SIZES, SIDE = 1024, 1280, 1152
"""Bins of shares, of sizes, and of signed quantities on either side of 0."""
WIDTH = 1.02
"""Logarithmic bins are 2% wide; they reach to millions of tokens."""
STEP = np.log(WIDTH)
SMALLEST = 1e-4
"""Where logarithmic bins of quantities that are never negative begin; bin 0 holds what is smaller."""
NEAREST = 1e-3
"""Where the bins of signed quantities begin on either side of 0."""


def to_fixed(values: Floats) -> Ints:
    """Values in multiples of 2⁻²⁴, NaN as 0."""
    integers: Ints = np.rint(np.nan_to_num(values) * UNIT).astype(np.int64)
    return integers


HALF = 22
"""Bits of the lower half of a value that is squared: products of halves of values below 10⁶ fit, 65,536 of them."""


def squares(values: Ints) -> Ints:
    """Sums over texts of values² [3, column, head], of values [text, column, head] in multiples of 2⁻²⁴: exactly, as
    sums of high², high · low and low², where a value is high · 2²² + low. See `square_sum`."""
    high, low = values >> HALF, values & ((1 << HALF) - 1)
    return np.stack([(high * high).sum(0), (high * low).sum(0), (low * low).sum(0)])


def square_sum(parts: Floats) -> Floats:
    """What `squares` stand for, as float64. parts: [3, ...]."""
    total: Floats = (parts[0] * 4.0**HALF + parts[1] * 2.0 ** (HALF + 1) + parts[2]) / float(UNIT) ** 2
    return total


UPPER = 32
"""Bits of the lower half of a sum over a text's rows: of 65,536 texts of a million tokens both halves add up."""


def halves(values: Ints) -> Ints:
    """Sums over texts of values [text, column, head], of the upper and of the lower halves: [2, column, head], where a
    value is upper · 2³² + lower. See `from_halves`."""
    return np.stack([(values >> UPPER).sum(0), (values & ((1 << UPPER) - 1)).sum(0)])


def from_halves(parts: Floats) -> Floats:
    """What `halves` stand for, as float64. parts: [2, ...]."""
    total: Floats = (parts[0] * 2.0**UPPER + parts[1]) / float(UNIT)
    return total


@dataclass(frozen=True)
class Scale:
    """How a metric's values are binned. kind: "share" (0 to 1, equal bins), "size" (from 0, logarithmic) or
    "signed" (logarithmic on both sides of 0)."""

    kind: str

    @property
    def count(self) -> int:
        """How many bins there are."""
        return {"share": SHARES, "size": SIZES}.get(self.kind, 2 * SIDE)

    @property
    def least(self) -> float:
        """What is nearer to 0 is told as 0; 0 for shares."""
        return {"share": 0.0, "size": SMALLEST}.get(self.kind, NEAREST)

    @property
    def error(self) -> float:
        """The most that a quantile read off the bins is off: absolute for shares, relative for the others."""
        return 0.5 / SHARES if self.kind == "share" else float(np.expm1(STEP / 2))

    def bins(self, values: Floats) -> Ints:
        """The bin of each value, 0 to `count` − 1; values beyond the last bin are in it."""
        finite = np.nan_to_num(values)
        match self.kind:
            case "share":
                bins = np.floor(finite * SHARES)
            case "size":
                bins = _steps(finite, SMALLEST)
            case _:
                bins = SIDE + np.sign(finite) * np.minimum(_steps(np.abs(finite), NEAREST), SIDE - 1)
        return np.clip(bins, 0, self.count - 1).astype(np.int64)

    def centres(self) -> Floats:
        """The value that stands for each bin, ascending."""
        index = np.arange(self.count)
        match self.kind:
            case "share":
                return (index + 0.5) / SHARES
            case "size":
                return _middles(index, SMALLEST)
            case _:
                return np.sign(index - SIDE) * _middles(np.abs(index - SIDE), NEAREST)


def _steps(size: Floats, least: float) -> Floats:
    """Which logarithmic bin each size is in: 0 below `least`."""
    steps: Floats = np.floor(np.log(np.maximum(size, least) / least) / STEP) + (size >= least)
    return steps


def _middles(index: Ints, least: float) -> Floats:
    """The sizes that stand for logarithmic bins."""
    return np.where(index == 0, 0.0, least * np.exp((index - 0.5) * STEP))


def scale_of(metric: Metric) -> Scale:
    """The scale that a metric's declared range asks for."""
    if metric.low is None:
        return Scale("signed")
    return Scale("share") if metric.high is not None and metric.high <= 1 and metric.low >= 0 else Scale("size")


def quantiles(histogram: Ints, scale: Scale, shares: tuple[float, ...]) -> list[float | None]:
    """Quantiles of a histogram [bin]; None for an empty one."""
    total = int(histogram.sum())
    if total == 0:
        return [None] * len(shares)
    up_to = np.cumsum(histogram)
    places = [int(np.searchsorted(up_to, min(max(share * total, 0.5), total - 0.5))) for share in shares]
    return [float(scale.centres()[place]) for place in places]
