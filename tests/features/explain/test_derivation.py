"""One query's derivation: its numbers against loops, and against the run that it explains."""

from pathlib import Path
from typing import Any

import numpy as np
import oracles
import pytest
from asking import ask
from telling import telling

from attncli.arrays.backend import choose
from attncli.errors import UnsupportedError
from attncli.features.explain import compute
from attncli.features.explain.document import SoftmaxRow
from attncli.features.run.document import RunDocument
from attncli.features.view.command import open_document
from attncli.features.view.compute import saved_derivation
from attncli.inputs.tensors import read_tensors
from attncli.inputs.tokenize import tokenizer
from attncli.mechanism.mask import AllOf, Causal, Mask, Padding, Window
from attncli.models.model import Model
from attncli.models.one_layer import Settings, seeded_model

derivation_document = telling(compute.derivation_document)

TEXT = "one two three four five six seven"


def made(settings: Settings, dtype: str = "float64", backend: str = "numpy") -> Model:
    return seeded_model(
        settings, 3, "seeded", tokenizer("word"), choose(backend, device=None, dtype=dtype)
    )


def derive(settings: Settings, query: int, head: int = 0, **options: str) -> dict[str, Any]:
    model = made(settings, **options)
    return derivation_document(model, TEXT, model.encode(TEXT), layer=0, head=head, query=query)


def steps(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {step["step"]: step for step in document["steps"]}


@pytest.mark.parametrize("mask", [Causal(), Window(2, 1), AllOf((Causal(), Padding(2)))])
@pytest.mark.parametrize("query", [0, 3, 6])
def test_scores_weights_and_output_agree_with_loops(mask: Mask, query: int) -> None:
    document = derive(Settings(d_model=15, heads=3, mask=mask, softcap=2.0), query, head=1)
    found = steps(document)
    q, k, v = (
        found["projections"]["q"].tolist(),
        found["projections"]["k"].tolist(),
        found["projections"]["v"].tolist(),
    )
    raw = [oracles.dot(q, key) for key in k]
    assert found["similarity"]["raw"] == pytest.approx(raw)
    capped = [2.0 * np.tanh(score * 5**-0.5 / 2.0) for score in raw]
    seen = found["scores"]["visible"]
    weights = oracles.softmax(capped, seen)
    assert found["softmax"]["weights"] == pytest.approx(weights)
    assert found["output"]["output"] == pytest.approx(
        [sum(w * row[at] for w, row in zip(weights, v, strict=True)) for at in range(5)]
    )
    assert np.allclose(document["matrices"]["weights"][query], weights)
    assert document["agreement"] < 1e-12


@pytest.mark.parametrize("position", ["none", "rope", "alibi", "sinusoidal"])
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_every_step_follows_from_the_one_before(position: str, backend: str) -> None:
    document = derive(Settings(d_model=22, d_k=6, d_v=7, position=position), 4, backend=backend)
    found = steps(document)
    assert np.allclose(found["similarity"]["products"].sum(axis=1), found["similarity"]["raw"])
    bias = 0.0 if found["scores"]["bias"] is None else found["scores"]["bias"]
    assert (found["scores"]["bias"] is None) == (position != "alibi")
    assert np.allclose(
        found["scores"]["scores"], found["similarity"]["raw"] * found["scores"]["scale"] + bias
    )
    softmax = found["softmax"]
    assert np.allclose(np.asarray(softmax["exponentials"]) / softmax["sum"], softmax["weights"])
    assert np.allclose(found["output"]["terms"].sum(axis=0), document["matrices"]["output"][4])
    assert document["rotated"] == (position == "rope")


def test_the_agreement_would_show_a_difference() -> None:
    """The negative control: a run of other weights does not agree with these steps."""
    model = made(Settings(d_model=10))
    right = compute.derivation_document(model, TEXT, model.encode(TEXT), layer=0, head=0, query=2)
    plain, wrong = derive(Settings(d_model=10), 2), derive(Settings(d_model=10, scale="none"), 2)
    found = {
        "raw": np.zeros((1, 7, 7)),
        "weights": wrong["matrices"]["weights"][None],
        "mixed": wrong["matrices"]["output"][None],
    }
    found["raw"][0, 2] = steps(plain)["similarity"]["raw"]
    assert compute.agreement(right.steps, found, 2) > 1e-3


def test_a_query_that_sees_nothing_has_no_weights() -> None:
    document = derive(Settings(d_model=10, mask=Padding(7)), 1)
    softmax = steps(document)["softmax"]
    assert (softmax["highest"], softmax["sum"], softmax["weights"].tolist()) == (
        None,
        0.0,
        [0.0] * 7,
    )
    assert steps(document)["output"]["output"].tolist() == [0.0] * 10
    assert {"layer": 0, "head": 0, "query": 1} in document["empty_rows"]


def test_float32_agrees_to_its_own_rounding() -> None:
    assert derive(Settings(d_model=64), 5, dtype="float32")["agreement"] < 1e-5


def test_a_saved_row_that_a_sink_took_from_is_not_derived_but_an_empty_one_is(
    tmp_path: Path,
) -> None:
    for name, mask in (("whole", "causal"), ("empty", "padding:3")):
        file = tmp_path / f"{name}.npz"
        assert (
            ask("run", "a b c", "--num-heads", "2", "--mask", mask, "--save", str(file)).code == 0
        )
        tensors, document = read_tensors(file, allow_nonfinite=True), open_document(file)
        assert isinstance(document, RunDocument)
        found = saved_derivation(tensors, document, 0, 1, 2).steps
        weights = next(np.asarray(step.weights) for step in found if isinstance(step, SoftmaxRow))
        np.testing.assert_allclose(weights, tensors["layers.0.weights"][1, 2], atol=1e-6)
        assert weights.any() == (name == "whole")
        if name == "whole":
            tensors["layers.0.weights"] = tensors["layers.0.weights"] * np.float32(0.9)
            with pytest.raises(UnsupportedError, match="sink"):
                saved_derivation(tensors, document, 0, 1, 2)


def test_a_row_that_sees_nothing_is_not_said_to_sum_to_one(tmp_path: Path) -> None:
    mask = tmp_path / "mask.csv"
    mask.write_text("0,0\n1,1\n")
    blind = ask("explain", "a b", "--mask", str(mask), "--query", "a").out
    assert "together 1" not in blind
    assert "This query sees no key" in blind
    assert "together 1" in ask("explain", "a b", "--mask", str(mask), "--query", "b").out
