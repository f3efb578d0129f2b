"""Statistics against their definitions, by loops and by simulation."""

from __future__ import annotations

import math
import random
import statistics

import numpy as np
import pytest

from attncli.measure.metric import metric_of
from attncli.scan import statistics as statistics_module
from attncli.scan.intake import REPLICATES, replicate_counts, text_hash
from attncli.scan.plan import metric_version
from attncli.scan.statistics import (
    UNIT,
    Scale,
    benjamini_hochberg,
    cliffs_delta,
    clusters,
    cohens_d,
    correlation,
    design_effect,
    deviate,
    from_halves,
    halves,
    mean_interval,
    mean_variance,
    quantiles,
    ratio_interval,
    reach,
    rests_on_few,
    scale_of,
    skewness,
    square_sum,
    squares,
    to_fixed,
    two_sided,
    variance,
    wilson,
)
from attncli.scan.totals import NONE, Examples, least_deviation


def test_fixed_point_sums_do_not_depend_on_order():
    values = np.random.default_rng(0).random(5000) * 7
    whole = to_fixed(values).sum()
    assert whole == to_fixed(values[::-1]).sum() == sum(int(one) for one in to_fixed(values))
    assert abs(whole / UNIT - values.sum()) < 5000 / UNIT
    assert to_fixed(np.array([np.nan, 0.5])).tolist() == [0, UNIT // 2]


SIZES = np.geomspace(1e-5, 131_072, 4001)
"""To the longest texts that models take."""


@pytest.mark.parametrize(
    ("kind", "values", "least"),
    [
        ("share", np.linspace(0, 1, 4001), 1),
        ("size", np.array([0.0, *SIZES]), 1e-4),
        ("signed", np.array([*-SIZES[::-1], 0.0, *SIZES]), 1e-3),
    ],
)
def test_a_bin_stands_for_its_values(kind, values, least):
    scale = Scale(kind)
    bins = scale.bins(values)
    assert bins.min() >= 0
    assert bins.max() < scale.count == len(scale.centres())
    assert (np.diff(bins) >= 0).all()
    assert (np.diff(scale.centres()) > 0).all()
    # within `least` of 0 a value may be told as 0
    bound = scale.error * (
        1 if kind == "share" else np.maximum(np.abs(values), least / scale.error)
    )
    assert (np.abs(scale.centres()[bins] - values) <= bound * (1 + 1e-9)).all()
    assert scale.error <= (0.0014 if kind == "share" else 0.01)


def test_another_binning_is_another_version_of_a_metric(monkeypatch):
    names = ("signed_distance", "distance", "sink")
    before = [metric_version(name) for name in names]
    monkeypatch.setattr(statistics_module, "NEAREST", 0.02)
    assert [metric_version(name) == old for name, old in zip(names, before, strict=True)] == [
        False,
        True,
        True,
    ]


def test_quantiles_are_near_the_true_ones():
    values = np.random.default_rng(1).beta(2, 5, 20_000)
    scale = Scale("share")
    histogram = np.bincount(scale.bins(values), minlength=scale.count)
    for at in (0.05, 0.5, 0.95):
        (found,) = quantiles(histogram, scale, (at,))
        assert abs(found - np.quantile(values, at)) <= 0.0014
    assert quantiles(np.zeros(scale.count, np.int64), scale, (0.5,)) == [None]
    assert [
        scale_of(metric_of(name)).kind
        for name in ("sink", "distance", "signed_distance", "entropy")
    ] == [
        "share",
        "size",
        "signed",
        "size",
    ]


def test_wilson():
    low, high = wilson(7, 20)
    # the share p for which the observed one is 1.96 standard errors away
    for bound in (low, high):
        assert math.isclose(
            abs(7 / 20 - bound),
            1.959963984540054 * math.sqrt(bound * (1 - bound) / 20),
            rel_tol=1e-9,
        )
    assert wilson(0, 10)[0] == 0
    assert wilson(10, 10)[1] == 1
    assert wilson(0, 0) is None


def test_cliffs_delta_counts_pairs():
    drawn = np.random.default_rng(2)
    a, b = drawn.integers(0, 9, 40), drawn.integers(2, 12, 50)
    found = cliffs_delta(np.bincount(a, minlength=16), np.bincount(b, minlength=16))
    pairs = [(x, y) for x in a for y in b]
    wanted = (sum(x > y for x, y in pairs) - sum(x < y for x, y in pairs)) / len(pairs)
    assert found == (
        pytest.approx(wanted),
        pytest.approx(sum(x == y for x, y in pairs) / len(pairs)),
    )
    assert cliffs_delta(np.zeros(4, np.int64), np.ones(4, np.int64)) is None


def test_cohens_d():
    drawn = np.random.default_rng(3)
    a, b = drawn.normal(1, 2, 30), drawn.normal(0, 1, 50)
    pooled = math.sqrt((29 * a.var(ddof=1) + 49 * b.var(ddof=1)) / 78)
    found = cohens_d((a.mean(), b.mean()), (a.std(ddof=1), b.std(ddof=1)), (30, 50))
    assert found == pytest.approx((a.mean() - b.mean()) / pooled)
    assert cohens_d((1.0, 0.0), (0.0, 0.0), (5, 5)) is None


def by_strata(strata: list[list[float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Texts, sum and sum of squares of each stratum."""
    of = [
        lambda some: len(some),
        lambda some: math.fsum(some),
        lambda some: math.fsum(one * one for one in some),
    ]
    return tuple(np.array([float(told(some)) for some in strata]) for told in of)


def test_the_variance_of_a_mean_over_strata():
    drawn = random.Random(1)
    strata = [
        [drawn.gauss(middle, 1 + middle) for _ in range(count)]
        for middle, count in ((0, 7), (2, 11), (9, 1))
    ]
    share = np.array([0.5, 0.3, 0.2])
    spread = [statistics.variance(one) for one in strata[:2]]
    spread.append((6 * spread[0] + 10 * spread[1]) / 16)
    texts, value, square = by_strata(strata)
    parts = [w * w * s / len(one) for w, s, one in zip(share, spread, strata, strict=True)]
    doubt = sum(part**2 / free for part, free in zip(parts, (6, 10, 16), strict=True))
    assert mean_variance(share, texts, variance(texts, value, square)) == pytest.approx(
        (sum(parts), doubt)
    )
    texts, value, square = by_strata([[3.0], [5.0]])
    assert np.isnan(mean_variance(share[:2], texts, variance(texts, value, square))[0])
    assert variance(*by_strata([[0.3] * 7])) == 0


def test_intervals_of_differences_within_strata_hold_them():
    """Three strata of far means and other sizes on either side: 95 of 100 intervals hold the
    difference that all share, where an interval from the spread of all texts would be several times
    as wide."""
    drawn, sizes, found = np.random.default_rng(4), ((30, 20, 10), (10, 25, 35)), []
    middles, spreads, times = (0.0, 6.0, 18.0), (1.0, 0.5, 2.0), 2000
    for counts_of_side, more in zip(sizes, (0.7, 0.0), strict=True):
        values = [
            drawn.normal(more + middle, spread, (count, times))
            for middle, spread, count in zip(middles, spreads, counts_of_side, strict=True)
        ]
        parts = [
            np.stack([told(one) for one in values])
            for told in (lambda x: x.sum(0), lambda x: (x * x).sum(0))
        ]
        texts = np.array(counts_of_side, float)[:, None] * np.ones((1, times))
        whole = np.concatenate(values).var(0, ddof=1) / sum(counts_of_side)
        found.append((texts, *parts, whole))
    share = sum(one[0] for one in found)
    share = share / share.sum(0)
    differences = [(share * value / texts).sum(0) for texts, value, _, _ in found]
    off = np.abs(differences[0] - differences[1] - 0.7)
    spread = [mean_variance(share, texts, variance(texts, *more)) for texts, *more, _ in found]
    total, doubt = (sum(parts) for parts in zip(*spread, strict=True))
    width = np.sqrt(total) * [reach(free) for free in total**2 / doubt]
    assert 0.935 < (off <= width).mean() < 0.965
    wide = np.sqrt(sum(one[3] for one in found))
    assert (off <= 1.96 * wide).all()
    assert (1.96 * wide > 2 * width).all()


def test_few_degrees_of_freedom_widen_an_interval():
    # Student's t of 0.975, from tables
    for free, wanted in ((5, 2.571), (10, 2.228), (30, 2.042), (1e9, 1.96)):
        assert wanted - 1e-3 < reach(free) < wanted * 1.06
        assert deviate(reach(free), free) == pytest.approx(1.959963984540054)
        assert deviate(-1.3, free) == -deviate(1.3, free)
    assert [reach(free) for free in (2, 0)] == [math.inf, math.inf]


def test_clusters_and_shared_texts_show_in_replicates():
    """Each text four times in a document: a mean of 200 varies as one of 50 does. Half the texts in
    common: half the variance of each mean is the other's."""
    values = np.random.default_rng(5).normal(3, 1, 350)
    times = replicate_counts([text_hash(f"{at}") for at in range(350)]).T
    mean = (times[:, :50] * values[:50]).sum(1) / times[:, :50].sum(1)
    assert 3 < design_effect(mean, values[:50].var() / 200) < 5
    assert design_effect(mean, 0.0) == 1
    some, other, apart = slice(0, 100), slice(50, 150), slice(150, 350)
    drawn = {one.start: (times[:, one] @ values[one] / times[:, one].sum(1), times[:, one].sum(1)) for one in
             (some, other, apart)}  # fmt: skip
    together = [
        correlation(*zip(drawn[a], drawn[b], strict=True)) for a, b in ((0, 50), (0, 150), (0, 0))
    ]
    assert 0.3 < together[0] < 0.7
    assert together[1:] == [0.0, pytest.approx(1.0)]


def test_squares_of_small_and_of_large_values_add_up_exactly():
    drawn = np.random.default_rng(6)
    for middle, spread in ((2e-4, 2e-5), (1.0, 1e-3), (-0.3, 0.2), (9e5, 3e4)):
        whole = to_fixed(drawn.normal(middle, spread, (400, 1, 1)))
        parts = squares(whole).astype(float)
        exact = [int(one) for one in whole.ravel()]
        assert float(square_sum(parts)[0, 0]) == pytest.approx(
            sum(one * one for one in exact) / UNIT**2, rel=1e-14
        )
        wanted = statistics.variance(one / UNIT for one in exact)
        assert variance(
            np.float64(400), np.float64(sum(exact) / UNIT), square_sum(parts)[0, 0]
        ) == pytest.approx(wanted)


def test_sums_over_the_rows_of_long_texts_add_up_exactly():
    """Of 65,536 texts of a million tokens, in each of which every row is a third of a million away."""
    one = to_fixed(np.full((1, 1, 1), 1e12 / 3))
    parts = halves(np.repeat(one, 64, 0)) * 1024
    assert (
        sum(int(part) << shift for part, shift in zip(parts.ravel(), (32, 0), strict=True))
        == int(one[0, 0, 0]) << 16
    )
    assert float(from_halves(parts.astype(float))[0, 0]) == pytest.approx(
        65536 * 1e12 / 3, rel=1e-14
    )
    assert float(from_halves(halves(-one).astype(float))[0, 0]) == pytest.approx(
        -1e12 / 3, rel=1e-14
    )


def test_examples_are_the_same_in_any_pieces(monkeypatch):
    drawn = np.random.default_rng(3)
    values = drawn.integers(0, 5, (30, 3, 4))
    values[drawn.random(values.shape) < 0.2] = NONE
    places = {name: drawn.integers(0, 9, 30) for name in ("hash", "file", "line")}
    links = drawn.integers(0, 7, (2, 30, 4))
    found = []
    for piece in (1, 5, 2048):
        monkeypatch.setattr("attncli.scan.totals.PIECE", piece)
        held = Examples(3, 4, 6)
        for start in range(0, 30, 7):
            some = slice(start, start + 7)
            held.add(
                values[some], {name: place[some] for name, place in places.items()}, links[:, some]
            )
        found.append(held.table)
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()
    for column, head in np.ndindex(3, 4):
        there = [text for text in range(30) if values[text, column, head] != NONE]
        order = sorted(
            there,
            key=lambda text: (
                -values[text, column, head],
                *(place[text] for place in places.values()),
            ),
        )
        best = order[:6]
        assert found[0][0, column, head].tolist() == values[best, column, head].tolist()
        assert found[0][4:, column, head].tolist() == links[:, best, head].tolist()


def test_benjamini_hochberg():
    assert benjamini_hochberg([0.01, 0.04, 0.03, 0.5]) == pytest.approx(
        [0.04, 0.16 / 3, 0.16 / 3, 0.5]
    )
    assert benjamini_hochberg([]) == []
    assert two_sided(1.959963984540054) == pytest.approx(0.05)


def test_replicates_are_poisson_and_cover_the_mean():
    hashes = [text_hash(f"text {at}") for at in range(4000)]
    times = replicate_counts(hashes)
    assert times.shape == (4000, REPLICATES)
    for value in range(4):
        assert abs((times == value).mean() - math.exp(-1) / math.factorial(value)) < 0.004
    assert abs(np.corrcoef(times[:, 3], times[:, 4])[0, 1]) < 0.06
    # in nineteen of twenty samples the interval holds the true mean
    held = 0
    for sample in range(40):
        values = np.random.default_rng(sample).exponential(1.0, 200)
        drawn = replicate_counts([text_hash(f"{sample} {at}") for at in range(200)])
        low, high = np.percentile((drawn * values[:, None]).sum(0) / drawn.sum(0), (2.5, 97.5))
        held += low <= 1.0 <= high
    assert 33 <= held <= 40


def test_hashes_are_of_what_a_reader_sees():
    assert text_hash(" caf\u00e9 ") == text_hash("cafe\u0301")
    assert text_hash("a") != text_hash("b")
    assert text_hash("a") != text_hash("a", 1)


DRAWN = {
    "normal": (lambda drawn, shape: drawn.normal(3, 1, shape), 3.0),
    "right": (lambda drawn, shape: drawn.exponential(1.0, shape), 1.0),
    "left": (lambda drawn, shape: drawn.beta(8, 1, shape), 8 / 9),
    "far right": (lambda drawn, shape: drawn.lognormal(0, 0.8, shape), math.exp(0.32)),
}


@pytest.mark.parametrize("kind", DRAWN)
def test_intervals_of_few_texts_hold_the_mean(kind):
    """As often as is promised, nearly; a plain t would hold the mean of far values less often."""
    draw, truth = DRAWN[kind]
    for count, least in ((30, 0.92), (100, 0.93)):
        values = draw(np.random.default_rng(7), (4000, count))
        mean, deviation = values.mean(1), values.std(1, ddof=1)
        skew = ((values - mean[:, None]) ** 3).mean(1) / values.std(1) ** 3
        units = np.full(4000, float(count))
        low, high = mean_interval(mean, deviation, skew, units, share=False)
        there = ~np.isnan(low)
        assert there.mean() > 0.95
        assert ((low <= truth) & (truth <= high)).sum() / there.sum() > least - (
            kind == "far right"
        ) * 0.025


def test_few_texts_have_no_interval_and_a_spread_of_one_is_none():
    four = [np.array(one, float) for one in ((0.5, 0.5, 0.998, 0.998), (0.1, 0.1, 0.01, 0.0))]
    skew, units = np.array([0.0, 0.0, -5.0, np.nan]), np.array([29.0, 30.0, 40.0, 40.0])
    low, high = mean_interval(*four, skew, units, share=False)
    assert np.isnan(low).tolist() == np.isnan(high).tolist() == [True, False, True, True]
    assert high[1] - 0.5 == pytest.approx(2.045 * 0.1 / math.sqrt(30), rel=2e-3)
    low, high = mean_interval(*four, skew, units, share=True)
    assert np.isnan(low).tolist() == [True, False, False, False]
    # one text in eleven may be of another kind: forty tries miss it 39 times in 40
    assert low[3] == pytest.approx(0.998 * 0.025 ** (1 / 40))
    assert high[2:].max() <= 1.0


def test_units_that_hardly_differ_have_no_interval():
    """Values that are nearly one number but for a rare one: of the intervals shown, enough hold the
    mean.
    """
    drawn = np.random.default_rng(11)
    values = (
        0.999 + drawn.normal(0, 0.0004, (2000, 100)) - 0.2 * (drawn.random((2000, 100)) < 0.005)
    )
    mean, deviation = values.mean(1), values.std(1, ddof=1)
    skew = ((values - mean[:, None]) ** 3).mean(1) / values.std(1) ** 3
    shown = {}
    for least in (0.0, least_deviation("previous")):
        low, high = mean_interval(
            mean, deviation, skew, np.full(2000, 100.0), share=True, least=least
        )
        there = ~np.isnan(low)
        shown[least] = there.mean(), ((low <= 0.998) & (high >= 0.998)).sum() / there.sum()
    assert shown[0.0][1] < 0.5
    assert 0.2 < shown[0.002][0] < 0.6
    assert shown[0.002][1] > 0.93


def test_skewness_is_read_off_histograms():
    values = np.random.default_rng(8).beta(2, 9, (3, 5000))
    scale = Scale("share")
    histogram = np.stack([np.bincount(scale.bins(one), minlength=scale.count) for one in values])
    wanted = ((values - values.mean(1)[:, None]) ** 3).mean(1) / values.std(1) ** 3
    assert skewness(histogram, scale.centres()) == pytest.approx(wanted, abs=2e-3)
    assert np.isnan(skewness(np.eye(1, scale.count, 7), scale.centres())).all()


def test_clusters_are_counted_by_replicates():
    for size in (1, 4):
        hashes = np.repeat([text_hash(f"{at}") for at in range(240 // size)], size)
        assert clusters(np.float64(240), replicate_counts(hashes).sum(0)) == pytest.approx(
            240 / size, rel=0.25
        )


def test_intervals_of_ratios_are_those_of_their_residuals() -> None:
    """Against the linearised ratio: the deviation of value − ratio·total over the mean total
    (Cochran, 1977, 6.3).
    """
    chance = np.random.default_rng(5)
    texts = 300
    totals = chance.uniform(0.5, 3, texts)
    values = np.stack(
        [0.4 * totals + chance.normal(0, 0.3, texts), chance.exponential(0.2, texts)], 1
    )
    times = replicate_counts([text_hash(str(place)) for place in range(texts)]).T
    ratios = values.sum(0) / totals.sum()
    replicates = (times @ values) / (times @ totals)[:, None]
    low, high = ratio_interval(ratios, replicates, texts)
    residuals = values - ratios * totals[:, None]
    expected = 1.968 * residuals.std(0, ddof=1) / np.sqrt(texts) / totals.mean()
    np.testing.assert_allclose((high - low) / 2, expected, rtol=0.15)
    np.testing.assert_allclose((high + low) / 2, ratios, atol=1e-9)
    assert np.isnan(ratio_interval(ratios, replicates, 29)).all()
    assert np.isnan(ratio_interval(ratios, replicates, 1)).all()


def test_a_rare_cluster_makes_no_narrow_interval():
    """Of 100 clusters of 5 texts one is far from the others: where it is drawn, a share's interval
    holds what so many tries may miss, and a size has none."""
    drawn = np.random.default_rng(6)
    values = np.repeat(drawn.normal(0.01, 0.002, 100), 5)
    values[:5] = 0.9
    hold, told = {"share": [], "size": []}, []
    for _ in range(150):
        chosen = drawn.integers(0, 100, 60)
        texts = values.reshape((100, 5))[chosen]
        if (chosen == 0).sum() != 1:
            continue  # nothing tells of it, or several do
        times = drawn.poisson(1, (REPLICATES, 60))
        means = (times @ texts.sum(1)) / (5 * times.sum(1))
        told.append(bool(rests_on_few(means[:, None])[0]))
        around = texts - texts.mean()
        skew = (around**3).mean() / (around**2).mean() ** 1.5
        facts = (
            np.array([number])
            for number in (texts.mean(), means.std() * 60**0.5, min(skew, 3.0), 60.0)
        )
        mean, deviation, bend, units = facts
        for kind, bounds in hold.items():
            low, high = mean_interval(
                mean, deviation, bend, units, share=kind == "share", is_doubtful=np.array([True])
            )[:, 0]
            bounds.append(np.isnan(low) if kind == "size" else low <= values.mean() <= high)
    assert np.mean(told) > 0.95
    assert np.mean(hold["share"]) > 0.93
    assert all(hold["size"])
    even = drawn.normal(size=(60, 5))
    times = drawn.poisson(1, (REPLICATES, 60))
    assert rests_on_few((times @ even) / times.sum(1)[:, None]).mean() < 0.3
