"""A command that a screen prints computes what the screen shows: it carries every option that
changes the computation, and where no such command exists none is printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask

from attncli.cli.declarations import RunSetup, TextOptions
from attncli.cli.option import RUN, subjects_of
from attncli.cli.output import CARRIED

TEXT = "my dog sleeps here"
SEEDED = {
    "plain": (),
    "several": (
        *("--mask", "causal", "--scale", "none", "--d-model", "32", "--num-heads", "2"),
        *("--position", "rope"),
    ),
    "masks": ("--mask", "causal", "--mask", "window:2,0", "--num-heads", "2", "--scale", "0.3"),
    "random": ("--mask", "random:2", "--seed", "5", "--num-heads", "2", "--position", "learned"),
    "widths": ("--d-k", "6", "--d-v", "5", "--num-heads", "2", "--softcap", "0.75"),
    "after the heads": ("--residual", "--layer-norm", "--bias", "--num-heads", "2"),
    "projection": ("--no-output-projection", "--num-heads", "2", "--dtype", "float64"),
    "characters": ("--tokenizer", "char", "--num-heads", "2"),
}


def printed(screen: str) -> dict[str, list[str]]:
    """The words of each `attn` command of a screen as a shell reads them, by the command's name."""
    lines = screen.replace("\\\n", "")
    found = re.findall(r"attn (?:find|ablate) .*", lines)
    return {parts[1]: parts[1:] for parts in map(shlex.split, found)}


def link_weight(find: Any, layer: int, head: int) -> float:
    """The weight of the link that `attn find --json` tells of in one head."""
    row = next(row for row in find["heads"] if (row["layer"], row["head"]) == (layer, head))
    return float(row["weight"])


def check_commands(*words: str, options: tuple[str, ...], query: str = "#2") -> None:
    """Check that the commands which `attn explain WORDS` prints show the same link and the same
    effect."""
    told = ask("explain", *words, *options, "--query", query, "--json").json
    screen = ask("explain", *words, *options, "--query", query)
    assert screen.code == 0, screen.err
    commands = printed(screen.out)
    if told["model"]["heads"] > 1:
        find = ask(*commands["find"], "--json").json
        weight = told["matrices"]["weights"][find["from"]][find["to"]]
        assert find["from"] == told["query"]
        shown = link_weight(find, told["layer"], told["head"])
        np.testing.assert_allclose(shown, weight, rtol=1e-5)
        assert find["attention"]["dtype"] == told["attention"]["dtype"]
    ablate = ask(*commands["ablate"], "--baseline", "none", "--json").json
    place = ("--head", f"L{told['layer']}H{told['head']}")
    if told["model"]["heads"] == 1:
        place = ("--num-heads", "1")  # where attn ablate takes eight
    asked = ("--query", query, *place, "--baseline", "none", "--json")
    assert ablate == ask("ablate", *words, *options, *asked).json


@pytest.mark.parametrize("options", SEEDED.values(), ids=SEEDED)
def test_commands_of_explain_carry_what_changes_the_computation(options: tuple[str, ...]) -> None:
    check_commands(TEXT, options=options)


def test_commands_carry_a_file_of_weights_and_what_stands_around_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    weights = tmp_path / "my weights.npz"
    names = ("W_Q", "W_K", "W_V")
    np.savez(weights, **{name: rng.normal(size=(8, 8)).astype("<f4") for name in names})
    vectors = tmp_path / "vectors.npy"
    np.save(vectors, rng.normal(size=(4, 8)).astype("<f4"))
    mask = tmp_path / "mask.npy"
    np.save(mask, np.tril(np.ones((4, 4), dtype="u1")))
    given = ("--weights", str(weights), "--num-heads", "2", "--mask", str(mask), "--scale", "0.9")
    check_commands(TEXT, options=(*given, "--embeddings", str(vectors)))
    check_commands(TEXT, options=(*given, "--tokenizer", "whitespace", "--seed", "3"))


def test_commands_of_a_checkpoint_carry_its_changes() -> None:
    options = ("--mask", "causal", "--scale", "none", "--softcap", "2")
    words = ("a cat sat", "--model", "minilm", *options, "--query", "cat")
    run = ask("run", *words, "--json").json
    commands = printed(ask("run", *words).out)
    find = ask(*commands["find"], "--json").json
    back = run["strongest_back"]
    shown = link_weight(find, back["layer"], back["head"])
    assert shown == pytest.approx(back["weight"], rel=1e-5)
    assert find["attention"] == run["attention"]
    assert commands["ablate"] == ["ablate", *words[1:-2], words[0], *words[-2:]]


def test_commands_carry_the_second_text_of_a_pair() -> None:
    words = ("a cat sat", "--model", "minilm", "--query", "cat", "--pair", "it's a nap")
    command = printed(ask("run", *words).out)["ablate"]
    given = ["--model", "minilm", "a cat sat", "--pair", "it's a nap", "--query", "cat"]
    assert command == ["ablate", *given]


def test_no_command_is_printed_that_would_leave_out_what_was_weighed() -> None:
    words = ("run", "a cat sat", "--model", "minilm", "--query", "cat")
    assert "attn ablate" in ask(*words).out
    assert "attn " not in ask(*words, "--weigh", "a=×4").out


def test_a_saved_document_says_that_it_does_not_hold_the_options(tmp_path: Path) -> None:
    file = tmp_path / "explained.json"
    options = ("--bias", "--mask", "causal", "--num-heads", "2", "--d-k", "6")
    file.write_text(ask("explain", TEXT, "--query", "#2", *options, "--json").out)
    screen = ask("view", str(file)).out
    commands = printed(screen)
    given = ["--num-heads", "2", "--d-k", "6", "--mask", "causal", "OPTIONS", TEXT]
    assert commands["ablate"][1 : 1 + len(given)] == given
    assert "OPTIONS: those that this was run with" in screen
    refusal = ask(*commands["find"])
    assert refusal.code == 2
    assert "OPTIONS" in refusal.err


def test_the_page_of_a_derivation_carries_the_options(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    options = ("--model", "minilm", "--mask", "causal", "--scale", "none")
    ask("explain", "a cat sat", "--query", "cat", *options, "--html", str(page), "-q")
    command = 'attn find --model minilm --mask causal --scale none \\"a cat sat\\" --from cat'
    assert command in page.read_text()


def test_each_option_of_a_run_is_carried_or_names_no_number() -> None:
    """What stands for a text or for places is in the command in words of its own."""
    own = {"lines", "layer", "head"}
    groups = subjects_of(TextOptions, RunSetup)
    assert {name for name, about in groups.items() if about & RUN} - own == CARRIED - {"weigh"}
