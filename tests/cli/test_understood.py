"""What people type who have not read the help: understood, or answered by the command meant."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from asking import ask

from attncli.measure.layer_metrics import EVERY_METRIC, TEXT_METRICS
from attncli.models.families import MODEL_TYPES

SOFTMAX = (
    "2.0 1.0 0.1", "[2.0, 1.0, 0.1]", "2.0，1.0，0.1", "(2.0;1.0;0.1)", "【2.0、1.0、0.1】",
    "［2.0，1.0，0.1］", "[[2.0, 1.0, 0.1]]",
)  # fmt: skip


@pytest.mark.parametrize("written", SOFTMAX)
def test_numbers_are_read_as_any_list_writes_them(written: str) -> None:
    expected = ask("explain", "softmax", "2.0", "1.0", "0.1", "--json").out
    assert ask("explain", "softmax", written, "--json").out == expected
    assert ask("explain", "softmax", *written.split(), "--json").out == expected


def test_a_minus_of_print_is_a_minus() -> None:
    assert (
        ask("explain", "softmax", "[−1, 0]", "--json").out
        == ask("explain", "softmax", "-1", "0", "--json").out
    )


@pytest.mark.parametrize(
    ("given", "meant"), [("zh-CN", "zh"), ("zh_Hans_CN.UTF-8", "zh"), ("ZH", "zh"), ("en-GB", "en")]
)
def test_a_language_with_its_region_is_that_language(given: str, meant: str) -> None:
    expected = ask("run", "a b", "--brief", "--lang", meant).out
    assert ask("run", "a b", "--brief", "--lang", given).out == expected
    assert ask("run", "a b", "--brief", ATTN_LANG=given).out == expected
    assert ask("--lang", given).out == ask("--lang", meant).out
    error = ask("run", "a b", "--query", "c", "--lang", given).err
    assert error == ask("run", "a b", "--query", "c", "--lang", meant).err


HINTS = (
    (("run", "a b", "—query", "a"), "attn run 'a b' --query a"),
    (("run", "a b", "–-query=a"), "attn run 'a b' --query=a"),
    (("heads", "a b", "—query", "a"), "attn heads has no option --query\n"),
    (("heads", "a b", "—sorted", "a"), "did you mean --sort?"),
    (("explain", "a b", "−−query", "a"), "attn explain 'a b' --query a"),
    (("run", "a b", "--causal"), "--mask causal"),
    (("heads", "a b", "--window"), "--mask window:4"),
    (("heads", "a b", "--chinese"), "--lang zh"),
    (("cost", "1000"), "attn cost -n 1000"),
    (("run", "a b", "c d"), r"printf '%s\n' 'a b' 'c d' | attn run --lines"),
    (
        ("run", "a b", "c d", "--lines", "--padded"),
        r"printf '%s\n' 'a b' 'c d' | attn run --lines --padded",
    ),
    (("heads", "a", "b"), "attn heads 'a b'"),
    (("run", "a b", "-query", "a"), "attn run 'a b' --query a"),
    (("run", "a b", "-output", "x.json"), "attn run 'a b' --output x.json"),
    (("mask", "--causal"), "attn mask causal"),
    (("cost", "1,000"), "attn cost -n 1000"),
    (("cost", "n = 1000"), "attn cost -n 1000"),
    (("softmax", "[2.0, 1.0, 0.1]"), "attn explain softmax '[2.0, 1.0, 0.1]'"),
    (("scaling", "--d-k", "64"), "attn explain scaling --d-k 64"),
)


@pytest.mark.parametrize(("words", "hint"), HINTS, ids=lambda value: str(value)[:40])
def test_the_error_tells_the_command_meant(words: tuple[str, ...], hint: str) -> None:
    found = ask(*words)
    assert found.code == 2
    assert hint in found.err


def test_a_matrix_is_no_list_of_scores() -> None:
    found = ask("explain", "softmax", "[[2.0, 1.0], [0.1, 3]]")
    assert (found.code, found.out) == (3, "")
    assert "2 rows of numbers" in found.err
    assert "attn explain softmax 2.0 1.0\n" in found.err


@pytest.mark.parametrize(
    ("typed", "meant"), [("1，2", "1,2"), ("０", "0"), ("Ｌ0Ｈ2", "L0H2"), ("1、3", "1,3")]
)
def test_heads_are_read_from_a_keyboard_of_wide_signs(typed: str, meant: str) -> None:
    line = ("run", "the cat sat", "--num-heads", "4", "--json", "--head")
    typed_answer, meant_answer = ask(*line, typed), ask(*line, meant)
    assert typed_answer.code == 0
    assert json.loads(typed_answer.out)["layers"] == json.loads(meant_answer.out)["layers"]


def test_a_dash_in_a_text_is_text() -> None:
    assert ask("tokens", "—query is what was pasted").code == 0
    assert ask("tokens", "—qery").code == 0
    assert ask("tokens", "--", "-query").code == 0


PLACES = (
    (("explain", "a b", "--num-heads", "4"), "L0H2", "2"),
    (("explain", "matrix-softmax", "a b", "--num-heads", "4"), "L0 H2", "2"),
    (("explain", "position", "a b", "--num-heads", "4"), "0.2", "2"),
    (("cross", "a b", "c d", "--num-heads", "4"), "L0H2", "2"),
    (("run", "a b", "--num-heads", "4"), "L0H2,L0H1", "2,1"),
)


@pytest.mark.parametrize(("words", "name", "number"), PLACES, ids=lambda value: str(value)[:40])
def test_every_head_option_takes_a_head_by_its_name(
    words: tuple[str, ...], name: str, number: str
) -> None:
    found = ask(*words, "--head", name, "--json")
    assert found.code == 0, found.err
    assert found.out == ask(*words, "--layer", "0", "--head", number, "--json").out


def test_captured_tensors_take_a_head_by_its_name(tmp_path: Path) -> None:
    path = str(tmp_path / "run.npz")
    assert ask("run", "a b", "--num-heads", "4", "--save", path).code == 0
    found = ask("tensors", path, "--head", "L0H2,L0H1", "--json")
    assert found.out == ask("tensors", path, "--layer", "0", "--head", "2,1", "--json").out
    assert found.code == 0
    assert ask("tensors", path, "--head", "L0H2,L1H1").code == 2


def test_there_is_one_list_of_metrics() -> None:
    listed = ask("explain", "metric", width=200).out
    assert [name for name in EVERY_METRIC if not re.search(rf"^{name} ", listed, re.M)] == []
    assert f"{len(EVERY_METRIC)} metrics" in listed
    refused = {
        command: ask(*command.split(), "nonesuch").err.split("expected: ")[1].splitlines()[0]
        for command in ("explain metric", "heads a --metric", "series a b --text a --metric")
    }
    assert set(refused.values()) == {", ".join(EVERY_METRIC)}
    every = ask("heads", "a b", "--metric", "all", "--json").json
    measured = {*every["heads"][0]["metrics"], "massive"}  # that one is a layer's
    assert measured == {*TEXT_METRICS}


@pytest.mark.parametrize("name", EVERY_METRIC)
def test_every_metric_is_explained(name: str) -> None:
    assert ask("explain", "metric", name).code == 0


def test_there_is_one_count_of_families() -> None:
    texts = {
        "README": Path("README.md").read_text("utf-8"),
        "models": ask("models", "list").out,
        "changes": ask("guide", "changes").out,
    }
    for name, text in texts.items():
        counts = re.findall(r"(\d+) families", " ".join(text.split()))
        assert counts, name
        assert {*counts} == {str(len(MODEL_TYPES))}, name


@pytest.mark.parametrize(
    "width", [44, *(pytest.param(wide, marks=pytest.mark.thorough) for wide in (80, 120))]
)
def test_does_it_matter_is_a_command_that_can_be_copied(width: int) -> None:
    text = "The animal didn't cross the street because it was too tired"
    model = ("--model", "minilm")
    for words in (
        ("run", text, *model, "--query", "it"),
        ("why", text, *model, "--from", "it", "--to", "animal"),
        ("run", "--ids", "101 5 77 90 200 31 102", *model, "--query", "#3"),
    ):
        screen = ask(*words, width=width).out
        command = screen.partition("Does it matter?")[2].strip()
        parts = shlex.split(command.replace("\\\n", ""))  # lines that go on
        assert parts[:2] == ["attn", "ablate"]
        assert words[2 if words[1] == "--ids" else 1] in parts
        if words[0] == "why":  # about the head that was explained, and no other
            answer = ask(*parts[1:], "--brief")
            assert "in layer 5 head 11 changes" in " ".join(answer.out.split())
        else:
            answer = ask(*parts[1:], "--layer", "5", "--brief")
        assert answer.code == 0, answer.err
