"""Saved documents that were changed by hand or by somebody who means harm, shown and compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import ask

CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a row cut short": lambda run: run["layers"][0]["heads"][0]["output"][0].pop(),
    "a score without end": lambda run: run["layers"][0]["heads"][0]["scores"][0].__setitem__(0, 10**400),
    "a word for a weight": lambda run: run["layers"][0]["heads"][0]["weights"][0].__setitem__(0, "x"),
    "no name": lambda run: run["model"].pop("name"),
    "a score that is a list": lambda run: run["layers"][0]["heads"][0]["scores"].__setitem__(0, None),
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
"""What is of the declared types and no command writes: a command, a change and the place that is told."""


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
