"""Statistics of what shards added up: means, intervals, effect sizes, and which differences are
news.

Everything is computed from sums, histograms and replicates, so that it does not depend on the order
of texts. Sums are of integers, whole multiples of 2⁻²⁴, which add up exactly: any number of workers
in any order find the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from attncli.measure.metric import Metric
from attncli.measure.row_facts import Bools, Floats, Ints
from attncli.measure.student import skewed_deviate
from attncli.scan.document import LEAST_TEXTS

UNIT = 1 << 24
"""What 1 is as an integer."""
SHARES, SIZES, SIDE = 1024, 1280, 1152
"""Bins of shares, of sizes, and of signed quantities on either side of 0."""
WIDTH = 1.02
"""Logarithmic bins are 2% wide; they reach to millions of tokens."""
STEP = np.log(WIDTH)
SMALLEST = 1e-4
"""Where logarithmic bins of quantities that are never negative begin; bin 0 holds what is smaller.
"""
NEAREST = 1e-3
"""Where the bins of signed quantities begin on either side of 0."""


def to_fixed(values: Floats) -> Ints:
    """Values as integers in multiples of 2⁻²⁴, rounded; NaN as 0."""
    integers: Ints = np.rint(np.nan_to_num(values) * UNIT).astype(np.int64)
    return integers


HALF = 22
"""Bits of the lower half of a value that is squared: products of halves of values below 10⁶ fit,
65,536 of them.
"""


def squares(values: Ints) -> Ints:
    """Exact sums of squares over texts, in three parts [3, column, head], of values [text, column,
    head] in multiples of 2⁻²⁴: the sums of high², high · low and low², where a value is high · 2²²
    + low. `square_sum` puts them together."""
    high = values >> HALF
    low = values & ((1 << HALF) - 1)
    return np.stack([(high * high).sum(0), (high * low).sum(0), (low * low).sum(0)])


def square_sum(parts: Floats) -> Floats:
    """The sums of squares, float64 [...], that the three parts [3, ...] from `squares` make up."""
    # (high · 2²² + low)² = high² · 4²² + 2 · high · low · 2²² + low²
    total: Floats = parts[0] * 4.0**HALF + parts[1] * 2.0 ** (HALF + 1) + parts[2]
    return total / float(UNIT) ** 2


UPPER = 32
"""Bits of the lower half of a sum over a text's rows: of 65,536 texts of a million tokens both
halves add up.
"""


def halves(values: Ints) -> Ints:
    """Exact sums over texts of values [text, column, head], in two parts [2, column, head]: the
    sums of the upper and of the lower halves, where a value is upper · 2³² + lower. `from_halves`
    puts them together."""
    return np.stack([(values >> UPPER).sum(0), (values & ((1 << UPPER) - 1)).sum(0)])


def from_halves(parts: Floats) -> Floats:
    """The sums, float64 [...], that the two parts [2, ...] from `halves` make up."""
    total: Floats = (parts[0] * 2.0**UPPER + parts[1]) / float(UNIT)
    return total


class Scale(Struct, frozen=True):
    """How a metric's values are binned.

    kind: "share" (0 to 1, equal bins), "size" (from 0, logarithmic) or "signed" (logarithmic on
        both sides of 0).
    """

    kind: str

    @property
    def count(self) -> int:
        """How many bins there are."""
        return {"share": SHARES, "size": SIZES}.get(self.kind, 2 * SIDE)

    @property
    def least(self) -> float:
        """The smallest absolute value that has a bin apart from 0's; 0 for shares."""
        return {"share": 0.0, "size": SMALLEST}.get(self.kind, NEAREST)

    @property
    def error(self) -> float:
        """How far a quantile read from the bins may be off at most: absolute for shares, relative
        for the other kinds."""
        if self.kind == "share":
            return 0.5 / SHARES
        return float(np.expm1(STEP / 2))

    def bins(self, values: Floats) -> Ints:
        """The index of each value's bin, 0 to `count` − 1, values beyond either end in the first or
        last bin; NaN counts as 0."""
        finite = np.nan_to_num(values)
        match self.kind:
            case "share":
                bins = np.floor(finite * SHARES)
            case "size":
                bins = _logarithmic_bins(finite, SMALLEST)
            case _:  # signed numbers: bins to both sides of the middle one, that of 0
                steps_from_0 = np.minimum(_logarithmic_bins(np.abs(finite), NEAREST), SIDE - 1)
                bins = SIDE + np.sign(finite) * steps_from_0
        return np.clip(bins, 0, self.count - 1).astype(np.int64)

    def centres(self) -> Floats:
        """The value that stands for each bin, ascending."""
        index = np.arange(self.count)
        match self.kind:
            case "share":
                return (index + 0.5) / SHARES
            case "size":
                return _bin_middles(index, SMALLEST)
            case _:
                return np.sign(index - SIDE) * _bin_middles(np.abs(index - SIDE), NEAREST)


def _logarithmic_bins(size: Floats, least: float) -> Floats:
    """The index of the logarithmic bin of each size: 0 below `least`, from 1 upwards above."""
    steps = np.floor(np.log(np.maximum(size, least) / least) / STEP)
    bins: Floats = np.where(size >= least, steps + 1, steps)
    return bins


def _bin_middles(index: Ints, least: float) -> Floats:
    """The size in the middle of each logarithmic bin, by its index; 0 for bin 0."""
    return np.where(index == 0, 0.0, least * np.exp((index - 0.5) * STEP))


def scale_of(metric: Metric) -> Scale:
    """The scale for a metric's values, from the range that it declares: "share" within 0 to 1,
    "size" from 0, "signed" else."""
    if metric.low is None:
        return Scale("signed")
    if metric.high is not None and metric.high <= 1 and metric.low >= 0:
        return Scale("share")
    return Scale("size")


def quantiles(histogram: Ints, scale: Scale, shares: tuple[float, ...]) -> list[float | None]:
    """The values at these shares (0.5 is the median) of a histogram [bin]; each None for an empty
    histogram.
    """
    total = int(histogram.sum())
    if total == 0:
        return [None] * len(shares)
    up_to = np.cumsum(histogram)  # values in each bin and those before it
    centres = scale.centres()
    values: list[float | None] = []
    for share in shares:
        # half a value from either end at least, so that shares 0 and 1 give the first and the last
        rank = min(max(share * total, 0.5), total - 0.5)
        values.append(float(centres[int(np.searchsorted(up_to, rank))]))
    return values


Z = 1.959963984540054
"""The normal quantile of 0.975."""
ROUNDING = 1e-14
"""What float64 may leave of a sum of squares and the square of a sum that are equal, as a share."""


def mean_interval(
    mean: Floats,
    deviation: Floats,
    skew: Floats,
    units: Floats,
    *,
    share: bool,
    least: float = 0.0,
    is_doubtful: Bools | bool = False,
) -> Floats:
    """The ends of the 95% interval of each mean, [2, ...]: Student's t, corrected for skewness; NaN
    where there are fewer than `LEAST_TEXTS` units (texts, or clusters of texts).

    Where a unit or two make up all the spread (the skewness tells it, or `is_doubtful`), or nothing
    varies at all, other units as rare may not have been met yet. A share's interval is then widened
    by the largest share of such units that would be missed in `units` draws with a chance of 1 in
    40; other quantities get no interval.

    mean, deviation, skew: of the units' values [...].
    units: how many there are.
    share: whether values lie from 0 to 1.
    least: the deviation below which there is no interval: units that hardly differ do not tell of
        rare ones.
    is_doubtful: where a unit or two are known to make up the spread, whatever the skewness.

    Source: Johnson, Modified t tests and confidence intervals for asymmetrical populations, 1978;
    Hall, On the removal of skewness by transformation, 1992; Jovanovic and Levy, A look at the rule
    of three, 1997.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        # a single unit among equal ones has a squared skewness of about `units`; NaN is not below
        is_moderate = skew * skew < units / 2
        is_reliable = is_moderate & ~np.asarray(is_doubtful, bool)
        # how many standard errors the ends are away, for the lower end and for the upper
        t = np.vectorize(reach, otypes=[float])(units - 1)
        moderate_skew = np.where(is_moderate, skew, 0.0)
        deviates = np.stack([skewed_deviate(side, moderate_skew, units) for side in (t, -t)])
        bounds: Floats = mean - deviation / np.sqrt(units) * deviates
        if share:
            # (1 − missed) ** units = 1 / 40; units that were missed may have any value from 0, for
            # the lower end, to 1, for the upper
            missed = np.where(is_reliable, 0.0, 1 - 0.025 ** (1 / units))
            extremes = np.stack([0 * missed, missed])
            bounds = np.clip((1 - missed) * bounds + extremes, 0.0, 1.0)
            is_reliable = np.ones_like(is_reliable)
        has_interval = is_reliable & (units >= LEAST_TEXTS) & (deviation >= least)
        return np.where(has_interval, bounds, np.nan)


def ratio_interval(ratios: Floats, replicates: Floats, units: float) -> Floats:
    """The ends of the 95% interval of each ratio of two sums over texts, [2, ...]: Student's t
    times the standard deviation of its bootstrap replicates; NaN where there are fewer than
    `LEAST_TEXTS` units (texts, or clusters of texts).

    Percentiles of the replicates would be too narrow: of 30 texts they hold 92% of means.

    ratios: [...].
    replicates: the same ratios in each replicate, [replicate, ...].
    units: how many there are.
    """
    # replicates vary as means of units do, less by (units − 1) / units: the deviation of one unit
    if units > 1:
        deviation = replicates.std(0, ddof=1) * np.sqrt(units * units / (units - 1))
    else:
        deviation = np.zeros_like(ratios)
    return mean_interval(
        ratios, deviation, np.zeros_like(ratios), np.full_like(ratios, units), share=False
    )


def skewness(histogram: Ints, centres: Floats) -> Floats:
    """The skewness of the values in histograms [..., bin], [...]; NaN where one bin holds them all.

    centres: each bin's value.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        share = histogram / histogram.sum(-1, keepdims=True)
        around = centres - (share @ centres)[..., None]  # each bin's distance from the mean
        square = (share * around**2).sum(-1)
        cube = (share * around**3).sum(-1)
        skew: Floats = np.where(square > 0, cube / square**1.5, np.nan)
    return skew


LOPSIDED, PEAKED = 0.5, 0.8
"""Skewness and excess of replicates' means from which on few clusters make up their spread: chance
gives means of many 0 ± 0.17 and 0 ± 0.35."""
EVENER = 3
"""How many times the least deviation clusters must differ by: nearer to it, the rare cluster
decides whether a mean has an interval at all, and those that have one hold the truth in four of
five scans."""


def rests_on_few(means: Floats) -> Bools:
    """Whether a few clusters of texts cause most of a mean's spread, booleans [...], judged by its
    bootstrap replicates [replicate, ...].

    Where one cluster does, the replicates' means vary as the number of times that it is drawn, a
    Poisson number of skewness 1 and excess kurtosis 1; where n equal clusters do, these are 1/√n
    and 1/n. A few do where either is above a bound, `LOPSIDED` or `PEAKED`.
    """
    around = means - means.mean(0)
    square = (around**2).mean(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        lopsided = np.abs((around**3).mean(0)) >= LOPSIDED * square**1.5
        peaked = (around**4).mean(0) >= (3 + PEAKED) * square**2
    return lopsided | peaked


def clusters(texts: Floats, times: Floats) -> Floats:
    """The effective number of clusters [...]: how many clusters of equal size would make the number
    of texts in a replicate vary as much as it does; at most the number of texts.

    texts: how many there are [...].
    times: how many each bootstrap replicate drew [replicate, ...].

    Source: Kish, Survey Sampling, 1965, 8.2.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.minimum(texts * texts / times.var(0, ddof=1), texts)


def variance(texts: Floats, value: Floats, square: Floats) -> Floats:
    """The sample variance (n − 1) of texts' values, from how many there are, their sum and the sum
    of their squares; 0 for one text, NaN for none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        around = square - value * value / texts
        # texts that are all equal leave nothing but rounding
        around = np.where(around <= ROUNDING * square, 0.0, around)
        result: Floats = around / np.maximum(texts - 1, 1)  # of one text 0 / 1
    return result


def mean_variance(share: Floats, texts: Floats, spread: Floats) -> tuple[Floats, Floats]:
    """The variance of a mean weighted over strata (ranges of text lengths) [stratum, ...], Σ share²
    · spread / texts; and half the variance of that estimate, for its degrees of freedom.

    share: the weight of each stratum in the mean.
    texts: how many are in each, 1 at least.
    spread: the variance of the texts in each. A stratum of one text has none of its own, and takes
        the variance pooled over all strata; the results are NaN where no stratum has two texts.

    Source: Cochran, Sampling Techniques, 1977, 5.4 and 5A.12; Holt and Smith, Post stratification,
    1979.
    """
    free = texts - 1  # degrees of freedom of each stratum's variance
    with np.errstate(invalid="ignore", divide="ignore"):
        pooled = (free * np.where(free > 0, spread, 0.0)).sum(0) / free.sum(0)
        # what each stratum adds to the variance of the mean, and to half the variance of that
        mean_part = share * share * np.where(free > 0, spread, pooled) / texts
        doubt_part = mean_part * mean_part / np.where(free > 0, free, free.sum(0))
    return mean_part.sum(0), doubt_part.sum(0)


def reach(free: float) -> float:
    """How many standard errors a 95% interval reaches to either side, with `free` degrees of
    freedom: 1.96 for many, infinite for two or fewer. This is the inverse of `deviate`: the t that
    it maps to 1.96."""
    # `deviate` solved for t, which is Z / √remainder; of few degrees of freedom no t is mapped to Z
    if free > 0:
        remainder = (1 - 1 / (4 * free)) ** 2 - Z * Z / (2 * free)
    else:
        remainder = 0.0
    if remainder > 0:
        return Z / math.sqrt(remainder)
    return math.inf


def deviate(t: float, free: float) -> float:
    """The standard normal z that is nearly as improbable as Student's t with `free` degrees of
    freedom.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 1964, 26.7.8.
    """
    return t * (1 - 1 / (4 * free)) / math.sqrt(1 + t * t / (2 * free))


def design_effect(means: Floats, alone: float) -> float:
    """The design effect of sampling texts in clusters (Kish): the variance of a mean under that
    sampling, divided by the variance if single texts were drawn. 1 where all texts are equal.

    means: of the bootstrap replicates.
    alone: the variance of the mean of single texts.

    Source: Kish, Survey Sampling, 1965, 8.2.
    """
    if alone > 0:
        return float(means.var(ddof=1)) / alone
    return 1.0


def correlation(means: Sequence[Floats], texts: Sequence[Floats]) -> float:
    """The correlation of two scans' means, from their bootstrap replicates: above 0 where they
    share texts, which a replicate counts equally often in both; 0 where replicates show no sign of
    shared texts.

    means, texts: of each scan's replicates. Their numbers of texts have a correlation of (shared
    texts) / √(n · m).
    """
    count = len(texts[0])  # replicates
    if min(values.std() for values in (*means, *texts)) == 0:  # what is constant has no correlation
        return 0.0
    alike = np.corrcoef(texts[0], texts[1])[0, 1]
    # of replicates that have nothing in common, one correlation in 700 is so far above 0
    if alike > 3 / math.sqrt(count):
        return float(np.corrcoef(means[0], means[1])[0, 1])
    return 0.0


def wilson(successes: float, count: float) -> list[float] | None:
    """The 95% interval [low, high] of the share successes / count; None for a count of 0. Source:
    Wilson, Probable inference, 1927."""
    if count == 0:
        return None
    share = successes / count
    centre = (share + Z * Z / (2 * count)) / (1 + Z * Z / count)
    half = (
        Z
        / (1 + Z * Z / count)
        * math.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
    )
    # of no successes, or of nothing else, an end is exactly 0 or 1, and not beside it by rounding
    return [
        max(centre - half, 0.0) if successes else 0.0,
        min(centre + half, 1.0) if successes < count else 1.0,
    ]


def cohens_d(
    means: tuple[float, float], deviations: tuple[float, float], counts: tuple[int, int]
) -> float | None:
    """Difference of means over the pooled standard deviation; None where that is 0. Source: Cohen
    1988.
    """
    free = counts[0] + counts[1] - 2
    if free <= 0:
        return None
    squares_a = (counts[0] - 1) * deviations[0] ** 2
    squares_b = (counts[1] - 1) * deviations[1] ** 2
    pooled = math.sqrt((squares_a + squares_b) / free)
    if pooled == 0:
        return None
    return (means[0] - means[1]) / pooled


def cliffs_delta(a: Ints, b: Ints) -> tuple[float, float] | None:
    """Cliff's delta of two histograms [bin] of one scale: (P(x > y) − P(x < y) for a value x of `a`
    and y of `b`, the largest error that binning may cause); None where one of them is empty.

    Values that share a bin count as equal; the share of such pairs is the largest error.

    Source: Cliff, Dominance statistics, 1993.
    """
    total = int(a.sum()) * int(b.sum())
    if total == 0:
        return None
    # of each bin, how many of b are below and above; as Python's whole numbers (dtype object), for
    # sums of their products may pass 2⁶³
    below = np.concatenate([[0], np.cumsum(b)[:-1]]).astype(object)
    above = (int(b.sum()) - np.cumsum(b)).astype(object)
    # pairs in which a's value is larger, and smaller
    larger = int((a.astype(object) * below).sum())
    smaller = int((a.astype(object) * above).sum())
    ties = total - larger - smaller
    return (larger - smaller) / total, ties / total


def two_sided(z: float) -> float:
    """The probability of a normal deviate at least as far from 0 as z."""
    return math.erfc(abs(z) / math.sqrt(2))


def benjamini_hochberg(probabilities: Sequence[float]) -> list[float]:
    """The probabilities adjusted for multiple tests (q values), in the order given: calling those
    below q discoveries makes a share of at most q of them false.

    Source: Benjamini and Hochberg, Controlling the false discovery rate, 1995.
    """
    count = len(probabilities)
    # from the largest probability, whose rank is `count`, to the smallest
    order = sorted(range(count), key=lambda index: probabilities[index], reverse=True)
    q_values = [0.0] * count
    least = 1.0  # no q value is above one of a larger probability
    for rank, index in zip(range(count, 0, -1), order, strict=True):
        least = min(least, probabilities[index] * count / rank)
        q_values[index] = least
    return q_values
