"""Formulas name the biases of a model's projections, and no others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from asking import ask
from tiny_checkpoints import CASES, make

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
