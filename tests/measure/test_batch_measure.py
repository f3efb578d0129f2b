"""Metrics of batches against the same metrics row by row, for every metric, mask and length."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from attncli.arrays.backend import choose
from attncli.measure.batch_measure import (
    FormRows,
    LengthTally,
    LinearForm,
    TextBatch,
    coefficients,
    sight_of,
)
from attncli.measure.metric import METRICS, OFFSETS, Metric, PerRow, measure, metric_of
from attncli.measure.row_facts import TokenFacts, TokenPairs
from attncli.mechanism.mask import AllOf, Blocks, Causal, Dilated, Everywhere, Window

NAMES = (*METRICS, *OFFSETS)
MASKS = (
    Everywhere(),
    Causal(),
    Window(2, 1),
    Window(3, 0),
    Blocks(3),
    Dilated(7, 2),
    AllOf((Causal(), Blocks(5))),
)
NOT_LINEAR = {"strongest_link", "effective_keys", "missing"}


@pytest.mark.many
@pytest.mark.parametrize("mask", MASKS, ids=repr)
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("count", [1, 2, 5, 13])
def test_batches_measure_what_rows_measure(mask, library, count):
    random = np.random.default_rng(count)
    backend = choose(library, device=None, dtype="float64")
    shown = sight_of(mask, count).visibility_matrix(count)[0]
    weights = random.random((4, 3, count, count)) ** 4 * shown
    weights /= weights.sum(-1, keepdims=True)
    tokens = [random.integers(0, 4, count).tolist() for _ in range(4)]
    special, punctuation = random.random((2, 4, count)) > 0.6
    abouts = [TokenFacts(TokenPairs(tokens[at]), special[at], punctuation[at]) for at in range(4)]
    texts = TextBatch(LengthTally(NAMES, mask, count), abouts)
    found = texts.sums(backend, backend.array(weights), None)
    for at in range(4):
        wanted = measure(
            weights[at],
            shown,
            metrics=NAMES,
            tokens=tokens[at],
            special=special[at],
            punctuation=punctuation[at],
        )
        for place, name in enumerate(NAMES):
            with np.errstate(invalid="ignore", divide="ignore"):
                value = found.value[at, :, place] / found.norm[at, :, place]
            np.testing.assert_allclose(value, wanted[name].value, rtol=0, atol=1e-12, err_msg=name)
            np.testing.assert_allclose(
                np.full(3, found.baseline[at, place]),
                wanted[name].baseline,
                rtol=0,
                atol=1e-12,
                err_msg=name,
            )
            assert (wanted[name].rows == found.rows[place]).all(), name


def test_every_metric_says_its_own_coefficients():
    about = TokenFacts(TokenPairs([1, 2, 1, 1]), np.ones(4, bool), np.zeros(4, bool))
    rows = FormRows(np.arange(4), sight_of(Causal(), 4), about, 4)
    assert {name for name in NAMES if coefficients(metric_of(name), rows) is None} == NOT_LINEAR
    new_fact = Metric("new", "", 0, 1, "", "", "", "", lambda rows: PerRow(rows.median, rows.i > 0))  # type: ignore[attr-defined]
    assert coefficients(new_fact, rows) is None


def _odd(rows):
    return PerRow(np.maximum(rows.at_pairs(*rows.about.pairs.of(rows.i, 0)), 0.1) ** 2, rows.i > 0)


def _share(rows):
    """Of tokens, with a norm that is a number."""
    return PerRow(
        rows.at_pairs(*rows.about.pairs.of(rows.i, 0)), rows.i > 0, np.full(rows.i.size, 2.0)
    )


def _entropy_after_same(rows):
    """Of tokens, with a fact that is not linear in the weights."""
    return PerRow(rows.entropy + rows.at_pairs(*rows.about.pairs.of(rows.i, 0)), rows.i > 0)


def _new(rows):
    return PerRow(rows.key(0) + 0.5 * rows.at_offset(1), rows.i >= 0)


def test_a_new_metric_works_in_batches_by_itself(monkeypatch):
    """Linear or not, of the tokens or not: whoever adds a metric to the table adds nothing for
    batches.
    """
    for name, of, needs in (("new_linear", _new, ""),
                            ("new_odd", lambda rows: PerRow(rows.at_offset(0) ** 2, rows.i > 0), ""),
                            ("new_odd_tokens", _odd, "tokens"),
                            ("new_share", _share, "tokens"),
                            ("new_entropy", _entropy_after_same, "tokens")):  # fmt: skip
        monkeypatch.setitem(METRICS, name, Metric(name, "", 0, 1, "", "", "", "", of, needs=needs))
    monkeypatch.setattr(sys.modules[__name__], "NAMES", (*METRICS,))
    test_batches_measure_what_rows_measure(Causal(), "torch", 7)
    test_batches_measure_what_rows_measure(Everywhere(), "numpy", 5)


def test_entropy_that_the_step_has_told_is_used():
    backend = choose("numpy", device=None, dtype="float64")
    weights = np.full((1, 2, 3, 3), 1 / 3)
    texts = TextBatch(LengthTally(("entropy",), Everywhere(), 3), [TokenFacts()])
    told = texts.sums(backend, weights, np.full((1, 2, 3), 5.0))
    assert (told.value == 15.0).all()
    assert np.allclose(texts.sums(backend, weights, None).value, 3 * np.log(3))


def test_what_is_not_linear_is_no_form():
    form = LinearForm(np.zeros(2), np.ones((2, 3)), {})
    for broken in (
        lambda: form * form,
        lambda: form / form,
        lambda: np.exp(form),
        lambda: np.maximum(form, 0.0),
        lambda: form + np.ones((2, 2)),
        lambda: np.sum(form),
    ):
        with pytest.raises(TypeError):
            broken()
