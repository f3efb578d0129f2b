"""Statistics against their definitions, by loops and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attncli.analysis.measure import known
from attncli.scan import fixed_point
from attncli.scan.fixed_point import ONE, Scale, fixed, quantiles, scale_of
from attncli.scan.plan import metric_version
from attncli.scan.statistics import benjamini_hochberg, cliffs_delta, cohens_d, interval, two_sided, wilson
from attncli.scan.text_hash import REPLICATES, counts, text_hash


def test_fixed_point_sums_do_not_depend_on_order():
    values = np.random.default_rng(0).random(5000) * 7
    whole = fixed(values).sum()
    assert whole == fixed(values[::-1]).sum() == sum(int(one) for one in fixed(values))
    assert abs(whole / ONE - values.sum()) < 5000 / ONE
    assert fixed(np.array([np.nan, 0.5])).tolist() == [0, ONE // 2]


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
    bound = scale.error * (1 if kind == "share" else np.maximum(np.abs(values), least / scale.error))
    assert (np.abs(scale.centres()[bins] - values) <= bound * (1 + 1e-9)).all()
    assert scale.error <= (0.0014 if kind == "share" else 0.01)


def test_another_binning_is_another_version_of_a_metric(monkeypatch):
    names = ("signed_distance", "distance", "sink")
    before = [metric_version(name) for name in names]
    monkeypatch.setattr(fixed_point, "NEAREST", 0.02)
    assert [metric_version(name) == old for name, old in zip(names, before, strict=True)] == [False, True, True]


def test_quantiles_are_near_the_true_ones():
    values = np.random.default_rng(1).beta(2, 5, 20_000)
    scale = Scale("share")
    histogram = np.bincount(scale.bins(values), minlength=scale.count)
    for at in (0.05, 0.5, 0.95):
        (found,) = quantiles(histogram, scale, (at,))
        assert abs(found - np.quantile(values, at)) <= 0.0014
    assert quantiles(np.zeros(scale.count, np.int64), scale, (0.5,)) == [None]
    assert [scale_of(known(name)).kind for name in ("sink", "distance", "signed_distance", "entropy")] == [
        "share",
        "size",
        "signed",
        "size",
    ]


def test_wilson():
    low, high = wilson(7, 20)
    # the share p for which the observed one is 1.96 standard errors away
    for bound in (low, high):
        assert math.isclose(abs(7 / 20 - bound), 1.959963984540054 * math.sqrt(bound * (1 - bound) / 20), rel_tol=1e-9)
    assert wilson(0, 10)[0] == 0
    assert wilson(10, 10)[1] == 1
    assert wilson(0, 0) is None


def test_cliffs_delta_counts_pairs():
    random = np.random.default_rng(2)
    a, b = random.integers(0, 9, 40), random.integers(2, 12, 50)
    found = cliffs_delta(np.bincount(a, minlength=16), np.bincount(b, minlength=16))
    pairs = [(x, y) for x in a for y in b]
    wanted = (sum(x > y for x, y in pairs) - sum(x < y for x, y in pairs)) / len(pairs)
    assert found == (pytest.approx(wanted), pytest.approx(sum(x == y for x, y in pairs) / len(pairs)))
    assert cliffs_delta(np.zeros(4, np.int64), np.ones(4, np.int64)) is None


def test_cohens_d():
    random = np.random.default_rng(3)
    a, b = random.normal(1, 2, 30), random.normal(0, 1, 50)
    pooled = math.sqrt((29 * a.var(ddof=1) + 49 * b.var(ddof=1)) / 78)
    found = cohens_d((a.mean(), b.mean()), (a.std(ddof=1), b.std(ddof=1)), (30, 50))
    assert found == pytest.approx((a.mean() - b.mean()) / pooled)
    assert cohens_d((1.0, 0.0), (0.0, 0.0), (5, 5)) is None


def test_benjamini_hochberg():
    assert benjamini_hochberg([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.16 / 3, 0.16 / 3, 0.5])
    assert benjamini_hochberg([]) == []
    assert two_sided(1.959963984540054) == pytest.approx(0.05)


def test_replicates_are_poisson_and_cover_the_mean():
    hashes = [text_hash(f"text {at}") for at in range(4000)]
    times = counts(hashes)
    assert times.shape == (4000, REPLICATES)
    for value in range(4):
        assert abs((times == value).mean() - math.exp(-1) / math.factorial(value)) < 0.004
    assert abs(np.corrcoef(times[:, 3], times[:, 4])[0, 1]) < 0.06
    # in nineteen of twenty samples the interval holds the true mean
    held = 0
    for sample in range(40):
        values = np.random.default_rng(sample).exponential(1.0, 200)
        drawn = counts([text_hash(f"{sample} {at}") for at in range(200)])
        low, high = interval((drawn * values[:, None]).sum(0) / drawn.sum(0))
        held += low <= 1.0 <= high
    assert 33 <= held <= 40


def test_hashes_are_of_what_a_reader_sees():
    assert text_hash(" caf\u00e9 ") == text_hash("cafe\u0301")
    assert text_hash("a") != text_hash("b")
    assert text_hash("a") != text_hash("a", 1)
