"""`attn cost`: computed, measured, per model; bad input."""

from functools import cache
from pathlib import Path

import pytest
from asking import ask
from msgspec.structs import replace
from validity import validate

from attncli.arrays.backend import torch_is_installed
from attncli.draw.lines import draw_parts
from attncli.draw.safe import cells
from attncli.draw.view import View
from attncli.features.cost import compute
from attncli.features.cost.document import Timing
from attncli.features.cost.screen import COST_PARTS, cost_answer


@pytest.mark.many
@pytest.mark.parametrize(
    "question",
    [
        (),
        ("-n", "1"),
        ("-n", "7", "--mask", "window:2,2|global:0"),
        ("-n", "7", "--mask", "padding:7"),
        ("-n", "1000000"),
        ("-n", "1000000000"),
        ("--dtype", "bfloat16"),
    ],
)
def test_json_is_valid_and_screens_fit(
    question: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        compute, "reach", cache(compute.reach)
    )  # of long texts it takes longest, and is the same each time
    document = ask("cost", *question, "--json").json
    validate(document, "attn.cost/1")
    for width in (60, 80, 120):
        for options in ((), ("--ascii",), ("--lang", "zh")):
            answer = ask("cost", *question, *options, width=width)
            assert answer.code == 0, answer.err
            assert all(cells(line) <= width for line in answer.out.split("\n"))
            assert answer.out.isascii() or options != ("--ascii",)


def test_measuring_puts_times_beside_what_was_computed(tmp_path: Path) -> None:
    path = tmp_path / "cost.svg"
    answer = ask(
        "cost",
        "-n",
        "64",
        "--d-model",
        "32",
        "--num-heads",
        "2",
        "--time",
        "--json",
        "--svg",
        str(path),
    )
    validate(answer.json, "attn.cost/1")
    fused = {"fused"} if torch_is_installed() else set()  # it is torch's own
    assert {row["name"] for row in answer.json["measured"]} == {
        "full",
        "streamed",
        "causal",
        "window",
        "rnn",
    } | fused
    assert "timing full on numpy" in answer.err
    assert path.read_text().startswith("<svg")
    # the brief answer tells the times, too, with the quickest of each backend
    saved = tmp_path / "cost.json"
    saved.write_text(answer.out)
    said = " ".join(ask("view", str(saved), "--brief").out.split())
    timings = [row for row in answer.json["measured"] if row["backend"] == "numpy"]
    full = next(row for row in timings if row["name"] == "full")
    shown = f"with numpy on this machine: full attention takes {full['seconds'] * 1000:.2f} ms; "
    assert shown in said
    assert ("nothing timed is quicker" in said) or ("the quickest is" in said)


def test_the_quickest_of_those_timed_is_named() -> None:
    document = compute.cost(64)
    timing = Timing(name="full", backend="numpy", seconds=2.0, repeats=1, ratio=1.0, computed=1.0)
    window = replace(timing, name="window", seconds=0.5)

    def said(*timings: Timing) -> str:
        timed = replace(document, measured=list(timings))
        return " ".join(cost_answer(timed, View(lang="en", width=200)).plain.split())

    assert "full attention takes 2.00 s; the quickest is window, 500.00 ms." in said(timing, window)
    slower = replace(window, seconds=3.0)
    assert "full attention takes 2.00 s; nothing timed is quicker." in said(timing, slower)
    assert "Measured" not in said()


def test_the_crossing_with_a_recurrent_network() -> None:
    """n·h·(d_k + d_v) multiply-adds a token pass 2·d_model² one token after the length where they
    are equal.
    """
    screen = ask("cost", "--show", "growth").out
    assert "From n = 513 on" in screen
    full, rnn = (
        {
            variant["name"]: variant["multiply_adds"]
            for variant in ask("cost", "-n", str(n), "--json").json["variants"]
        }
        for n in (512, 513)
    )
    assert full["full"] == full["rnn"]
    assert rnn["full"] > rnn["rnn"]


def test_with_its_projections_attention_is_dearer_at_every_length() -> None:
    """The projections alone take 4·n·d², the recurrent network 2·n·d²: said where they do."""
    for n in ("1", "64", "4096"):
        document = ask("cost", "-n", n, "--json").json
        rnn = document["variants"][-1]
        assert rnn["name"] == "rnn"
        assert (
            document["variants"][0]["multiply_adds"] + document["projections"]
            > (rnn["multiply_adds"])
        )
    said = "With its projections, left out here, attention takes more at every n."
    assert said in ask("cost", "--show", "growth").out
    # heads that are narrow together have cheap projections
    narrow = replace(compute.cost(64, d_model=64, heads=1), d_k=4, d_v=4, projections=64 * 64 * 16)
    parts = draw_parts(COST_PARTS, narrow, View(lang="en", width=200)).plain
    assert "From n = 1,025 on" in parts
    assert said not in parts


def test_what_grows_is_named_with_its_value() -> None:
    said = " ".join(
        ask("cost", "--window", "32", "--chunk", "16", "--show", "variants").out.split()
    )
    assert "d = 512 their width (d_model), w = 32 the keys of the window, c = 16" in said


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (("-n", "0"), 2), (("--num-heads", "7"), 2), (("--dtype", "int8"), 2), (("--mask", "nope"), 2), (("--rows",
        "0"), 2),
        (("-n", "100000", "--time"), 5), (("--model", "minilm", "--d-model", "8"), 2),
    ],
)  # fmt: skip
def test_bad_questions_are_told_with_their_exit_code(question: tuple[str, ...], code: int) -> None:
    answer = ask("cost", *question)
    assert (answer.code, answer.out) == (code, ""), answer.err
    assert answer.err.startswith("error: ")


def test_a_figure_says_no_growth_of_a_mask_of_ones_own(tmp_path: Path) -> None:
    figure = tmp_path / "cost.svg"
    assert ask("cost", "-n", "50", "--mask", "window:3", "--figure", str(figure)).code == 0
    text = figure.read_text("utf-8")
    assert "None" not in text
    assert "n²" in text
