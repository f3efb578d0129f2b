"""The scores of a scan's labels, without the first token: against loops, by rows and by coefficients,
and that weight which rests on the first token changes none of them."""

from __future__ import annotations

import math

import numpy as np
import oracles_metrics
import pytest

from attncli.arrays.backend import numpy_backend
from attncli.measure.batch_measure import LengthTally, TextBatch
from attncli.measure.beyond_first import BEYOND
from attncli.measure.metric import measure
from attncli.measure.row_facts import TokenFacts
from attncli.mechanism.mask import parse_mask

COUNT = 9
PUNCTUATION = np.arange(COUNT) % 3 == 0


def random_weights(mask: str, resting: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights [head, query, key] of two heads and the keys that each query sees; `resting` of the
    weight is on the first token of every row that sees others."""
    seen = np.ones((COUNT, COUNT), bool)
    if mask == "causal":
        seen = np.tril(seen)
    scores = np.random.default_rng(3).normal(size=(2, COUNT, COUNT)) * 2
    weights = np.where(seen, np.exp(scores), 0.0)
    weights[:, 1:, 0] = 0.0
    weights[:, 1:] /= weights[:, 1:].sum(-1, keepdims=True)
    weights[:, 0] /= weights[:, 0].sum(-1, keepdims=True)
    weights[:, 1:] *= 1 - resting
    weights[:, 1:, 0] = resting
    return weights, seen


@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("resting", [0.0, 0.3, 0.97])
def test_scores_are_those_of_loops(mask: str, resting: float) -> None:
    weights, seen = random_weights(mask, resting)
    by_rows = measure(weights, seen, metrics=BEYOND, punctuation=PUNCTUATION)
    tally = LengthTally(BEYOND, parse_mask(mask), COUNT)
    batch = TextBatch(tally, [TokenFacts(punctuation=PUNCTUATION)])
    sums = batch.sums(numpy_backend("float64"), weights[None], None)
    even = [[1 / seen[i].sum() if seen[i][j] else 0.0 for j in range(COUNT)] for i in range(COUNT)]
    baseline = oracles_metrics.beyond_first(even, seen, PUNCTUATION)
    for head in range(2):
        expected = oracles_metrics.beyond_first(weights[head].tolist(), seen, PUNCTUATION)
        for place, metric in enumerate(BEYOND):
            value, rows = expected[metric.name]
            found = by_rows[metric.name]
            assert found.rows[head] == rows == sums.rows[place]
            if math.isnan(value):
                assert np.isnan(found.value[head])
                assert not sums.norm[0, head, place]
                continue
            assert found.value[head] == pytest.approx(value, abs=1e-12)
            assert found.baseline[head] == pytest.approx(baseline[metric.name][0], abs=1e-12)
            quotient = sums.value[0, head, place] / sums.norm[0, head, place]
            assert quotient == pytest.approx(value, abs=1e-12)
            assert sums.baseline[0, place] == pytest.approx(baseline[metric.name][0], abs=1e-12)


@pytest.mark.parametrize("mask", ["none", "causal"])
def test_weight_that_rests_changes_no_score(mask: str) -> None:
    awake, resting = (
        measure(*random_weights(mask, share), metrics=BEYOND, punctuation=PUNCTUATION)
        for share in (0.0, 0.97)
    )
    for metric in BEYOND:
        a, b = awake[metric.name].value, resting[metric.name].value
        assert np.allclose(a, b, atol=1e-12, equal_nan=True), metric.name
