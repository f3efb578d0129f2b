"""Formulas name the biases of a model's projections, and no others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from asking import ask
from tiny_checkpoints import CASES, make

from attncli.documents.header import latent_formulas
from attncli.features.run.document import RunDocument
from attncli.features.view.command import open_document
from attncli.features.view.compute import saved_derivation
from attncli.inputs.tensors import read_tensors, tensor_file, write_tensors
from attncli.mechanism.spec import Latent, Norm

TEXT = "humpty dumpty sat on"
TOY = ("--num-heads", "2", "--d-model", "8")
BARE = ("Q = X·W_Q", "K = X·W_K", "V = X·W_V")
WITH = ("Q = X·W_Q + b_Q", "K = X·W_K + b_K", "V = X·W_V + b_V")


def said(*words: str) -> str:
    """What a command prints, in one line."""
    return " ".join(ask(*words).out.split())


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_derivation_names_the_biases(lang: str) -> None:
    with_bias = said("explain", TEXT, *TOY, "--bias", "--full", "--lang", lang)
    assert " ".join(WITH) in with_bias
    assert "q_0 = Σ x_i · W_Q[i, 0] + b_Q[0]" in with_bias
    assert "concat(O₁ … O_h)·W_O + b_O" in with_bias
    without = said("explain", TEXT, *TOY, "--full", "--lang", lang)
    assert " ".join(BARE) in without
    assert "b_" not in without


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_other_screens_name_them(lang: str) -> None:
    found = said("explain", "qkv", TEXT, *TOY, "--bias", "--lang", lang)
    for name in ("q", "k", "v"):
        assert found.count(f"{name} = x·W_{name.upper()} + b_{name.upper()}") == 2
    several = said("explain", "multihead", TEXT, *TOY, "--bias", "--lang", lang)
    assert "concat(O₁ … O_h)·W_O + b_O" in several
    assert "Σ O_h·W_O^h + b_O" in several
    shown = said("run", TEXT, *TOY, "--bias", "--show", "shapes,q,concat", "--lang", lang)
    assert all(shown.count(formula) >= 1 for formula in (*WITH, "concat·W_O + b_O"))
    assert "concat(O₁ … O_h)·W_O + b_O" in shown
    assert f" · {WITH[0]}" in shown
    crossed = said("cross", TEXT, "a wall", *TOY, "--bias", "--show", "shapes", "--lang", lang)
    assert "K = Y·W_K + b_K" in crossed
    assert "Q = X·W_Q + b_Q" in crossed


def test_the_document_and_its_page_say_the_same(tmp_path: Path) -> None:
    page = tmp_path / "steps.html"
    found = ask("explain", TEXT, *TOY, "--bias", "--json", "--html", str(page)).json
    assert found["steps"][0]["formula"] == "q = x·W_Q + b_Q, k = x·W_K + b_K, v = x·W_V + b_V"
    assert "   ".join(WITH) in page.read_text("utf-8")
    bare = ask("explain", "qkv", TEXT, *TOY, "--json").json
    assert "biased" not in bare
    assert ask("explain", "qkv", TEXT, *TOY, "--bias", "--json").json["biased"] == ["q", "k", "v"]


def test_only_the_biases_of_a_file_are_named(tmp_path: Path) -> None:
    draw = np.random.default_rng(3).standard_normal
    arrays = {f"{name}.weight": draw((8, 8)) for name in "qkvo"}
    place = tmp_path / "one.npz"
    np.savez(place, **arrays, **{"q.bias": draw(8)})
    found = ask("explain", "qkv", TEXT, "--weights", str(place), "--json").json
    assert found["biased"] == ["q"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("qwen2", "q k v"), ("bert", "q k v out"), ("llama linear", ""), ("xlnet", "q")],
)
def test_those_of_a_checkpoint(name: str, expected: str, tmp_path: Path) -> None:
    place = str(make(CASES[name], tmp_path))
    found = ask("run", "--ids", "7 3 50", "--model", place, "--json").json
    formulas = {row["step"]: row["formula"] for row in found["shapes"]}
    assert [step for step, formula in formulas.items() if "+ b_" in formula] == expected.split()


def test_a_global_query_has_projections_of_its_own(tmp_path: Path) -> None:
    asked = ("explain", "--ids", "7 3 50 11 9", "--model", str(make(CASES["longformer"], tmp_path)))
    for query, added in ((0, "_g"), (2, "")):
        formula = ask(*asked, "--query", f"#{query}", "--json").json["steps"][0]["formula"]
        assert formula.startswith(f"q = x·W_Q{added} + b_Q{added}, k = x·W_K{added}")


def biased(document: dict) -> set[str]:
    """The steps of a document's shape trace whose formula names a bias."""
    return {row["step"] for row in document["shapes"] if "+ b_" in row["formula"]}


def saved(place: Path, *options: str) -> Path:
    """A saved run: the document, or its tensors, by the file's ending."""
    if place.suffix == ".json":
        assert ask("run", TEXT, *TOY, *options, "--json", "--output", str(place)).code == 0
    else:
        assert ask("run", TEXT, *TOY, *options, "--save", str(place)).code == 0
    return place


@pytest.mark.parametrize("ending", ["npz", "safetensors", "json"])
def test_a_saved_run_tells_its_biases(ending: str, tmp_path: Path) -> None:
    place = saved(tmp_path / f"biased.{ending}", "--bias")
    assert biased(ask("view", str(place), "--json").json) == {"q", "k", "v", "out"}
    assert WITH[0] in said("view", str(place), "--show", "shapes", "--lang", "zh")
    bare = saved(tmp_path / f"bare.{ending}")
    shown = said("view", str(bare), "--show", "shapes")
    assert BARE[0] in shown
    assert "b_" not in shown


def forget(place: Path, *names: str) -> None:
    """Take members out of a tensor file's metadata, as it was before they were written."""
    file = tensor_file(place)
    facts = {name: value for name, value in file.metadata.items() if name not in names}
    write_tensors(place, file.tensors(allow_nonfinite=True), facts)


def test_a_file_that_does_not_tell_the_formulas_is_not_given_any(tmp_path: Path) -> None:
    place = saved(tmp_path / "old.npz", "--bias", "--head", "1")
    forget(place, "formulas", "heads")
    found = ask("view", str(place), "--json").json
    assert not [row for row in found["shapes"] if "W_" in row["formula"]]
    assert "holds 1 of 2 heads and does not say which" in found["warnings"][-1]
    assert "由 X 得来；此文件未说明公式" in said(
        "view", str(place), "--lang", "zh", "--show", "shapes"
    )


def test_a_saved_head_keeps_its_number(tmp_path: Path) -> None:
    place = saved(tmp_path / "one.npz", "--head", "1")
    found = ask("view", str(place), "--json").json
    ran = ask("run", TEXT, *TOY, "--head", "1", "--json").json
    assert [head["head"] for head in found["layers"][0]["heads"]] == [1]
    assert {link["head"] for link in found["links"]} == {1}
    assert found["warnings"] == []
    trace = {row["step"]: (row["shape"], row["formula"]) for row in ran["shapes"]}
    assert {row["step"]: (row["shape"], row["formula"]) for row in found["shapes"]} == trace
    tensors = read_tensors(place, allow_nonfinite=True)
    run = open_document(place)
    assert isinstance(run, RunDocument)
    derived = saved_derivation(tensors, run, 0, 1, 2)
    assert derived.head == 1
    np.testing.assert_allclose(
        derived.matrices.weights, ran["layers"][0]["heads"][0]["weights"], atol=1e-6
    )


def test_heads_that_a_file_does_not_hold_are_refused(tmp_path: Path) -> None:
    place = saved(tmp_path / "one.npz", "--head", "1")
    file = tensor_file(place)
    facts = {**file.metadata, "heads": '{"0": [0, 1]}'}
    write_tensors(place, file.tensors(allow_nonfinite=True), facts)
    answer = ask("view", str(place))
    assert answer.code == 3
    assert "heads 0, 1 in layer 0, and the file holds 1" in answer.err


NARROW = {
    "q": "Q = norm(X·W_DQ + b_DQ)·W_UQ",
    "k": "K = [norm(X·W_DKV + b_DKV)·W_UK, X·W_KR + b_KR]",
    "v": "V = norm(X·W_DKV + b_DKV)·W_UV",
    "out": "concat·W_O + b_O",
}
"""How latent attention with biases on the way to its narrow vectors comes about."""


def test_latent_attention_names_its_narrow_vectors(tmp_path: Path) -> None:
    place = str(make(CASES["deepseek_v3"], tmp_path))
    asked = ("--ids", "7 3 50", "--model", place)
    found = {row["step"]: row["formula"] for row in ask("run", *asked, "--json").json["shapes"]}
    assert {step: found[step] for step in NARROW} == NARROW
    step = ask("explain", *asked, "--json").json["steps"][0]["formula"]
    assert step.startswith("q = norm(x·W_DQ + b_DQ)·W_UQ, k = [norm(x·W_DKV + b_DKV)·W_UK, ")
    told = ask("explain", "qkv", *asked, "--json").json
    assert told["latent"] == [
        f"{formula[0].lower()}{formula[1:]}".replace("X", "x")
        for formula in list(NARROW.values())[:3]
    ]
    assert "biased" not in told
    assert NARROW["v"] in said("run", *asked, "--layer", "0", "--head", "0", "--show", "v")
    assert "v = norm(x·W_DKV + b_DKV)·W_UV" in said("explain", "qkv", *asked)


def test_latent_attention_without_biases_or_narrow_queries() -> None:
    latent = Latent(None, 4, Norm("rms", 1e-6), 2)
    assert latent_formulas(latent, ()) == {
        "q": "Q = X·W_Q",
        "k": "K = [norm(X·W_DKV)·W_UK, X·W_KR]",
        "v": "V = norm(X·W_DKV)·W_UV",
    }


def test_a_saved_run_is_not_told_to_lack_what_it_did_not_keep(tmp_path: Path) -> None:
    place = str(saved(tmp_path / "run.json"))
    assert "no W_O is kept here" in said("view", place, "--show", "W_O")
    one_head = tmp_path / "one.json"
    ask("run", TEXT, "--d-model", "8", "--json", "--output", str(one_head))
    assert "--output-projection has one" in said("view", str(one_head), "--show", "W_O")
