"""Saved documents that were changed by hand or by somebody who means harm, shown and compared."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import ask
from tiny_checkpoints import CASES, make

SAMPLES = Path(__file__).parents[2] / "sample_inputs"

CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a row cut short": lambda run: run["layers"][0]["heads"][0]["output"][0].pop(),
    "a score without end": lambda run: run["layers"][0]["heads"][0]["scores"][0].__setitem__(
        0, 10**400
    ),
    "a word for a weight": lambda run: run["layers"][0]["heads"][0]["weights"][0].__setitem__(
        0, "x"
    ),
    "no name": lambda run: run["model"].pop("name"),
    "a score that is a list": lambda run: run["layers"][0]["heads"][0]["scores"].__setitem__(
        0, None
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_does_not_fit_is_bad_input(change: str, tmp_path: Path) -> None:
    whole = ask("run", "a b c", "--json").out
    run = json.loads(whole)
    CHANGES[change](run)
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(whole)
    bad.write_text(json.dumps(run))
    answer = ask("compare", str(good), str(bad))
    assert (answer.code, answer.out) == (3, "")
    assert str(bad) in answer.err
    assert ask("view", str(bad)).code in (0, 3)


IMPOSSIBLE: dict[str, tuple[tuple[str, ...], Callable[[dict[str, Any]], Any], str]] = {
    "no mask at all": (("mask", "-n", "4"), lambda gallery: gallery["masks"].clear(), "$.masks"),
    "a tree that is higher than any distance": (
        ("heads", "a b", "--num-heads", "2", "--across", "similarity"),
        lambda heads: heads["similarity"]["tree"][0].update(height=1e9),
        "tree[0].height",
    ),
}
"""What is of the declared types and no command writes: a command, a change and the place that is
told.
"""


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_what_cannot_be_is_bad_input_in_every_form(case: str, tmp_path: Path) -> None:
    command, change, place = IMPOSSIBLE[case]
    document = ask(*command, "--json").json
    change(document)
    saved = tmp_path / "changed.json"
    saved.write_text(json.dumps(document))
    for view in ((), ("--svg", str(tmp_path / "drawn.svg"))):
        answer = ask("view", str(saved), *view)
        assert (answer.code, answer.out) == (3, ""), answer.err
        assert place in answer.err


@pytest.mark.parametrize("member", ["backend", "dtype", "mask", "position"])
def test_no_word_of_a_document_reaches_the_terminal_raw(member: str, tmp_path: Path) -> None:
    run = json.loads(ask("run", "a b c", "--json").out)
    run["attention"][member] = "x\x1b[31m\u202e"
    (tmp_path / "a.json").write_text(json.dumps(run))
    for command in (("view",), ("view", "--as", "heads"), ("compare", str(tmp_path / "a.json"))):
        answer = ask(*command, str(tmp_path / "a.json"))
        assert not set(answer.out + answer.err) & set("\x1b\u202e")


def test_a_run_without_the_average_of_its_heads_is_shown(tmp_path: Path) -> None:
    run = json.loads(ask("run", "a b c", "--num-heads", "4", "--query", "#1", "--json").out)
    del run["average"]
    saved = tmp_path / "a.json"
    saved.write_text(json.dumps(run))
    answer = ask("view", str(saved))
    assert (answer.code, answer.err) == (0, "")


KINDS_OF_COMMANDS: list[tuple[str, ...]] = [
    ("run", "the cat", "--num-heads", "2"), ("heads", "the cat"), ("explain", "the cat"), ("tokens", "the cat"),
    ("explain", "softmax"), ("explain", "scaling", "--samples", "60"), ("explain", "metric", "entropy"),
    ("explain", "order", "the cat"), ("explain", "position", "the cat"), ("explain", "mask", "the cat"),
    ("explain", "multihead", "the cat"), ("explain", "residual", "the cat"), ("explain", "training", "the cat"),
    ("explain", "matrix-softmax", "the cat"),
    ("find", "the cat", "--from", "cat", "--to", "the"), ("compare", "the cat", "the dog"), ("cross", "the cat", "a"),
    ("ablate", "the cat", "--num-heads", "2"), ("patch", "the cat", "the dog", "--num-heads", "2", "--residual"),
    ("tensors", str(SAMPLES / "captured.npz")), ("mask", "causal"), ("cost",), ("models", "list"),
    ("weights", "show", str(SAMPLES / "mha.safetensors")),
]  # fmt: skip
"""A command line for every kind of document that needs no trained model."""


def texts_of(value: Any, place: str = "$") -> list[tuple[str, Any, Any]]:
    """Every text of parsed JSON: its place, what holds it, and its name there."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    found = []
    for name, one in inner:
        at = f"{place}.{name}" if isinstance(value, dict) else f"{place}[{name}]"
        found += [(at, value, name)] if isinstance(one, str) else texts_of(one, at)
    return found


@pytest.mark.parametrize(
    "command", KINDS_OF_COMMANDS, ids=lambda command: " ".join(command[:2])[:30]
)
def test_half_a_character_is_bad_input_with_its_place(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    document = ask(*command, "--json").json
    saved = tmp_path / "changed.json"
    places = texts_of(document)
    for place, holder, name in (places[0], places[len(places) // 2], places[-1]):
        before, holder[name] = holder[name], f"a\ud800{holder[name]}"
        saved.write_text(json.dumps(document))
        answer = ask("view", str(saved))
        assert (answer.code, answer.out) == (3, ""), answer
        assert f"where: {saved}: {place}\n" in answer.err
        holder[name] = before
    document["x\udfff"] = 1
    saved.write_text(json.dumps(document))
    assert ask("view", str(saved)).code == 3


def test_two_halves_are_one_character(tmp_path: Path) -> None:
    saved = tmp_path / "whole.json"
    saved.write_text(json.dumps(ask("run", "the \U0001f600 cat", "--json").json, ensure_ascii=True))
    assert "\\ud83d\\ude00" in saved.read_text()
    assert "\U0001f600" in ask("view", str(saved)).out


def test_half_a_character_in_saved_tensors_is_bad_input(tmp_path: Path) -> None:
    ask("run", "the cat", "--save", str(tmp_path / "run.npz"))
    with (
        zipfile.ZipFile(tmp_path / "run.npz") as whole,
        zipfile.ZipFile(tmp_path / "half.npz", "w") as half,
    ):
        for name in whole.namelist():
            data = whole.read(name)
            half.writestr(
                name,
                data.replace(b"the cat", b"the \\ud800 cat") if name.endswith(".json") else data,
            )
    answer = ask("view", str(tmp_path / "half.npz"))
    assert (answer.code, answer.out) == (3, ""), answer
    assert "half of a character" in answer.err


def test_a_forged_run_of_many_layers_is_shown_in_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "attncli.cli.output.MOST_LINES", 20_000
    )  # a tenth, for a document of a tenth
    run = ask("run", "the cat", "--json").json
    run["layers"] = [{**run["layers"][0], "layer": at} for at in range(700)]
    run["model"]["layers"] = len(run["layers"])
    saved = tmp_path / "forged.json"
    saved.write_text(json.dumps(run))
    answer = ask("view", str(saved), "--show", "all", "--full")
    assert (answer.code, answer.out) == (5, "")
    assert "at most 20,000 lines" in answer.err
    assert len(ask("view", str(saved), "--show", "all").out) < 20_000
    run["layers"] = run["layers"][:20]
    run["model"]["layers"] = 20
    saved.write_text(json.dumps(run))
    assert ask("view", str(saved), "--show", "all", "--full").code == 0


@pytest.mark.parametrize(
    "asked", [("run", "a b c d e f g"), ("heads", "a b c d e f g", "--num-heads", "4")]
)
def test_whole_screens_are_shown_in_bounds_of_lines(
    asked: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ask(*asked, "--full").code == 0
    monkeypatch.setattr("attncli.cli.output.MOST_LINES", 20)
    answer = ask(*asked, "--full")
    assert (answer.code, answer.out, "at most 20 lines" in answer.err) == (5, "", True), answer
    for shown in ((), ("--json",), ("--plain",)):
        assert ask(*asked, *shown).code == 0


def test_what_a_query_sees_is_told_in_the_language_of_the_view(tmp_path: Path) -> None:
    """The sentence of a saved document is English; a view in Chinese says it as the run did, with
    windows in some layers. What a document says of its own is left as it is."""
    folder = make(CASES["gemma3_text"], tmp_path / "gemma")
    for line in (("--model", str(folder), "--ids", "3 4 5 6"), ("a b c d", "--mask", "window:2")):
        asked = ("run", *line, "--show", "header")
        saved = tmp_path / "run.json"
        saved.write_text(ask(*asked[:-2], "--json").out)
        view = ("view", str(saved), "--show", "header", "--lang", "zh")
        lines = ask(*asked, "--lang", "zh").out.splitlines()
        assert ask(*view).out.splitlines()[1:] == lines[1:]
        assert "查询能看到" in "".join(lines)
        document = json.loads(saved.read_text())
        document["attention"]["mask_says"] = "a query sees what it likes"
        saved.write_text(json.dumps(document))
        assert "a query sees what it likes" in ask(*view).out
