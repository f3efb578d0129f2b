"""Metrics of many texts: what each text gets alone, whatever stands beside it."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_checkpoints import CASES, make

import attncli
from attncli.arrays.backend import choose
from attncli.inputs.token import Token
from attncli.inputs.tokenize import tokenizer
from attncli.measure import batch_measure
from attncli.mechanism.mask import Causal, Everywhere, Hashed, Window
from attncli.metrics import METRICS, Metric, measure_texts
from attncli.models import model as models
from attncli.models.one_layer import Settings, seeded_model

TEXTS = (
    "it was tired",
    "the animal slept",
    "the cat sat on the mat, and the cat slept on the mat",
    "a",
    "the animal slept on the mat",
    "she ate it, and it was good",
    "no",
)


def alone(model, text, names, **chosen):
    """What `attn heads` tells of a text, by metric [layer, head]: value, baseline, rows."""
    heads = attncli.heads(model, text, metrics=names, labels=False, **chosen).heads
    layers = sorted({head.layer for head in heads})
    rows = [[head for head in heads if head.layer == layer] for layer in layers]

    def table(pick):
        return np.array(
            [[np.nan if pick(head) is None else pick(head) for head in row] for row in rows], float
        )

    return {
        name: tuple(
            table(pick)
            for pick in (
                lambda head, name=name: head.metrics[name].value,
                lambda head, name=name: head.baseline[name].value,
                lambda head, name=name: head.metrics[name].rows,
            )
        )
        for name in names
    }


def same(model, single, names, texts=TEXTS, tolerance=1e-9, **chosen):
    results = list(measure_texts(model, texts, metrics=names, **chosen))
    assert len(results) == len(texts)
    for text, result in zip(texts, results, strict=True):
        expected = alone(single, text, names, **chosen)
        for name in names:
            for found, wanted in zip(
                (result[name].value, result[name].baseline, result[name].rows),
                expected[name],
                strict=True,
            ):
                assert found.shape == wanted.shape
                np.testing.assert_allclose(
                    found, wanted, atol=tolerance, rtol=tolerance, err_msg=f"{name} of {text}"
                )


@pytest.mark.thorough
def test_a_checkpoint_with_its_weights_held(monkeypatch):
    monkeypatch.setattr(models, "BATCH", 8)  # several batches, that threads share
    same(attncli.load("minilm", hold=True), attncli.load("minilm"), tuple(METRICS), tolerance=3e-5)


@pytest.mark.parametrize("together", [0, 2000, 1 << 21])
def test_some_layers_and_heads_of_a_checkpoint(monkeypatch, together):
    monkeypatch.setattr(
        "attncli.measure.text_metrics.TOGETHER", together
    )  # each layer alone, some of them, all
    model = attncli.load("minilm", hold=True, backend="numpy")
    names = ("entropy", "previous", "special")
    same(
        model,
        attncli.load("minilm"),
        names,
        TEXTS[:4],
        tolerance=3e-5,
        layers=[1, 4],
        heads=[0, 3, 11],
    )


def test_layers_under_masks_of_their_own(tmp_path, monkeypatch):
    model = attncli.load(make(CASES["gemma2"], tmp_path))
    assert len({repr(block.attention.mask) for block in model.spec.blocks}) > 1
    texts = [
        [Token(n, f"t{n}", n % 20 + 3, None, None) for n in range(count)] for count in (2, 9, 9, 30)
    ]
    together = list(measure_texts(model, texts, metrics=("entropy", "self", "distance", "special")))
    monkeypatch.setattr("attncli.measure.text_metrics.TOGETHER", 0)  # each layer alone
    for result, alone_in_turn in zip(
        together, measure_texts(model, texts, metrics=tuple(together[0])), strict=True
    ):
        for name, measured in result.items():
            np.testing.assert_allclose(
                measured.value, alone_in_turn[name].value, atol=1e-9, err_msg=name
            )
            assert np.array_equal(measured.rows, alone_in_turn[name].rows)
            np.testing.assert_allclose(measured.baseline, alone_in_turn[name].baseline, atol=1e-12)


@pytest.mark.parametrize("mask", [Everywhere(), Causal(), Window(2, 1), Hashed(4)], ids=repr)
def test_every_kind_of_mask(mask):
    model = seeded_model(
        Settings(d_model=8, heads=2, mask=mask),
        0,
        "seeded",
        tokenizer("word"),
        choose("numpy", device=None, dtype="float64"),
    )
    same(model, model, tuple(METRICS))


def test_texts_too_long_for_coefficients_go_by_rows(monkeypatch):
    monkeypatch.setattr(batch_measure, "LARGEST", 0)
    model = attncli.load(seed=0, heads=2)
    same(model, model, ("entropy", "distance", "duplicate_pattern"), tolerance=1e-6)


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_whatever_runs_together(monkeypatch, most):
    monkeypatch.setattr(models, "BATCH", most)
    monkeypatch.setattr("attncli.measure.text_metrics.AT_ONCE", most)
    model = attncli.load(seed=3, heads=2)
    same(model, model, ("entropy", "self"), tolerance=1e-6)


def test_a_metric_of_ones_own():
    last = Metric(
        "last_key",
        "A_{i,n}",
        0,
        1,
        "",
        "",
        "",
        "",
        lambda rows: METRICS["self"].of(rows),
        needs="",
        aligned=False,
    )
    model = attncli.load(seed=0)
    for result, text in zip(
        measure_texts(model, TEXTS, metrics=(last, "self")), TEXTS, strict=True
    ):
        assert np.array_equal(result["last_key"].value, result["self"].value), text


def test_nothing_gives_nothing_and_what_is_wrong_is_said():
    model = attncli.load(seed=0)
    assert list(measure_texts(model, [])) == []
    with pytest.raises(attncli.AttnError, match="no metric 'entrpy'"):
        list(measure_texts(model, TEXTS, metrics=("entrpy",)))
    with pytest.raises(attncli.AttnError, match="no tokens"):
        list(measure_texts(model, ["a b", " "]))


def test_weights_are_read_once_when_they_are_held():
    model = attncli.load("minilm", hold=True)
    list(measure_texts(model, TEXTS[:2], metrics=("entropy",)))
    read = model.store.bytes_read()
    list(measure_texts(model, TEXTS[:2], metrics=("entropy",)))
    assert model.store.bytes_read() == read
