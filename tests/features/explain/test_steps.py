"""`attn explain TEXT`: its numbered steps, the flow of their shapes, their code, and the head they
are about.
"""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import resting_model
import torch
from asking import ask

import attncli
from attncli.features.explain.page import _commands

TEXT = "humpty dumpty sat on"


def flat(screen: str) -> str:
    return " ".join(screen.split())


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize(
    "options",
    [
        (TEXT, "--query", "on"),
        (
            "The animal did not cross the street because it was too tired",
            "--query",
            "it",
            "--mask",
            "causal",
        ),
        (
            "a b c d e f",
            "--softcap",
            "3",
            "--position",
            "alibi",
            "--num-heads",
            "2",
            "--residual",
            "--layer-norm",
        ),
    ],
)
def test_the_steps_fit_in_sixty_lines(options: tuple[str, ...], width: int, lang: str) -> None:
    screen = ask("explain", *options, "--lang", lang, width=width).out
    # a residual and a norm that somebody asks for have their table after the steps
    limit = 80 if "--residual" in options else 60
    # below that width the two commands at the end are broken
    assert len(screen.splitlines()) < limit + (4 if width < 120 else 0)
    query = options[2] if options[1] == "--query" else "f"
    titles = [
        f"1 similarity of {query}",
        "2 scale",
        "3 mask",
        f"4 softmax of {query}",
        f"5 output of {query}",
    ]
    if lang == "zh":
        titles = [
            f"1 “{query}”与每个键",
            "2 缩放",
            "3 掩码",
            f"4 “{query}”的 softmax",
            f"5 “{query}”的输出",
        ]
    titles += (
        ["6 the other heads", "7 without the head"]
        if lang == "en"
        else ["6 其他的头", "7 去掉这个头"]
    )
    places = [screen.index(f"\n{title}") for title in titles]
    assert places == sorted(places)
    flow = flat(screen[: places[0]])
    assert flow.count(" → ") == 7
    found = [
        flow.index(f"→ {name}")
        for name in ("Q, K, V", "1 QKᵀ", "2 ", "3 ", "4 softmax", "5 A·V", "O")
    ]
    assert found == sorted(found)
    assert ("more: --full" if lang == "en" else "更多：--full") in screen


def test_the_flow_has_the_shapes_of_the_run() -> None:
    screen = ask(
        "explain", TEXT, "--num-heads", "2", "--d-model", "12", "--d-v", "5", width=120
    ).out
    rows = screen.splitlines()
    at = next(place for place, row in enumerate(rows) if row.startswith("X "))
    assert rows[at + 1].split() == ["4×12", "4×6,", "4×6,", "4×5", *["4×4"] * 4, "4×5"]


def test_a_step_tells_of_the_mask_whether_there_is_one_or_none() -> None:
    assert 'Nothing is hidden: "on" may look at all 4 keys.' in ask("explain", TEXT).out
    hidden = flat(ask("explain", TEXT, "--query", "dumpty", "--mask", "causal").out)
    assert 'Hidden from "dumpty": 2 of 4 keys, their score becomes −∞ (2 sat, 3 on).' in hidden
    assert "没有遮住任何键" in ask("explain", TEXT, "--lang", "zh").out
    many = " ".join(f"w{at}" for at in range(20))
    assert "and 13 more)" in flat(ask("explain", many, "--query", "#0", "--mask", "causal").out)
    assert "and 13 more)" not in flat(
        ask("explain", many, "--query", "#0", "--mask", "causal", "--full").out
    )


@pytest.mark.parametrize(
    "options",
    [
        (), ("--scale", "none"), ("--scale", "0.3", "--softcap", "3", "--position", "alibi"),
        ("--scale", "sqrt-dmodel", "--num-heads", "2", "--head", "1"), ("--mask", "causal", "--softcap", "0.7"),
    ],
)  # fmt: skip
def test_the_scale_is_worked_out_for_one_key(options: tuple[str, ...]) -> None:
    asked = ("explain", TEXT, "--query", "sat", *options)
    line = flat(ask(*asked).out).rpartition("2 scale")[2].partition(" 3 mask")[0]
    steps = ask(*asked, "--json").json["steps"]
    at = int(re.search(r"for (\d) ", line)[1])  # type: ignore[index]
    raw, score = steps[1]["raw"][at], steps[2]["scores"][at]
    assert f"q·k = {raw:.4f}" in line
    told = re.findall(r"(-?\d+\.\d{4})", line.partition(";")[0])
    assert float(told[-1]) == pytest.approx(score, abs=2e-4)


def run_code(lines: list[str], library: str, options: tuple[str, ...]) -> None:
    """The code of the screen, run on the run's own q, k and v, gives the run's own weights and
    output.
    """
    run = ask("run", TEXT, *options, "--json", "--stages", "all", "--dtype", "float64").json
    stages = run["layers"][0]["heads"][0]["stages"]
    held = {name: np.asarray([[np.nan if cell is None else cell for cell in row] for row in stages[name]], float)
            for name in ("q", "k", "v", "scaled", "weights", "mixed") if name in stages}  # fmt: skip
    capped, biased = (
        np.asarray(stages.get(name, stages["scaled"]), float) for name in ("capped", "biased")
    )
    if "biased" not in stages:
        biased = capped
    masked = stages.get("masked") or stages["scaled"]
    values = {
        "q": held["q"], "k": held["k"], "v": held["v"], "bias": biased - capped,
        "visible": np.asarray([[cell is not None for cell in row] for row in masked]),
    }  # fmt: skip
    if library == "torch":
        values = {name: torch.as_tensor(value) for name, value in values.items()}
    with np.errstate(invalid="ignore"):
        exec("\n".join(lines), {"np": np, "torch": torch}, values)
    np.testing.assert_allclose(values["a"], held["weights"], atol=1e-9)
    np.testing.assert_allclose(values["o"], held["mixed"], atol=1e-9)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize(
    "options",
    [
        (), ("--scale", "0.3"), ("--scale", "none", "--mask", "causal"), ("--softcap", "3", "--position", "alibi"),
        ("--position", "rope", "--num-heads", "2", "--head", "1"), ("--mask", "padding:4", "--mask", "window:1"),
        ("--d-model", "7", "--softcap", "0.125", "--mask", "sample_inputs/nothing.json"),
    ],
)  # fmt: skip
def test_each_steps_code_computes_what_the_run_does(
    options: tuple[str, ...], library: str, tmp_path: Path
) -> None:
    if "sample_inputs/nothing.json" in options:  # one row sees nothing
        mask = tmp_path / "mask.json"
        mask.write_text(json.dumps([[1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 0, 1], [1, 1, 0, 0]]))
        options = (*options[:-1], str(mask))
    wide = ask("explain", TEXT, *options, "--code", library, width=200).out
    found = [
        piece.strip()
        for line in wide.splitlines()
        for piece in re.split(r" {2,}|; ", line)
        if re.match(r"[saeo] = (?!q·k|−|Σ)", piece.strip())
    ]
    order = [line[:1] for line in found]
    assert order == sorted(order, key="seao".index)
    run_code(found, library, options)


def test_code_is_part_of_a_screen() -> None:
    assert ask("explain", TEXT, "--code", "numpy", "--json").code == 2
    assert ask("explain", TEXT, "--code", "numpy", "--brief").code == 2
    assert ask("explain", TEXT, "--code", "jax").code == 2
    assert "s = q @ k.T" in ask("explain", TEXT, "--code", "torch", "--full").out
    assert "s = q @ k.T" not in ask("explain", TEXT).out
    assert ask("explain", "mask", TEXT, "--code", "torch").code == 2


@pytest.mark.thorough
def test_a_model_is_explained_at_the_strongest_link_of_the_query() -> None:
    sentence = "The animal didn't cross the street because it was too tired"
    asked = ("explain", sentence, "--model", "minilm", "--query", "it")
    link = ask("run", *asked[1:], "--top", "1", "--json").json["links"][0]
    answer = ask(*asked)
    assert f"layer {link['layer']} head {link['head']} · query" in answer.out
    assert (
        f'layer {link["layer"]} head {link["head"]} has the strongest link of "it" that counts:'
        ' to "tired"' in answer.err
    )
    assert (link["layer"], link["head"]) == (2, 1)
    fifth = ask(*asked, "--layer", "5", "--json").json
    assert (fifth["layer"], fifth["head"]) == (5, 11)
    eleventh = ask(*asked, "--head", "11", "--json").json
    assert (eleventh["layer"], eleventh["head"]) == (5, 11)
    named = ask(*asked, "--layer", "0", "--head", "3")
    assert "layer 0 head 3 · query" in named.out
    assert "strongest" not in named.err
    assert ask(*asked, "--head", "12").code == 3
    assert ask("explain", TEXT, "--num-heads", "4", "--json").json["head"] == 0
    for topic in ("mask", "position"):
        found = ask("explain", topic, *asked[1:], "--json").json
        assert (found["layer"], found["head"]) == (2, 1)


def test_the_last_two_steps_are_commands_of_the_same_head_and_link() -> None:
    alone = ask("explain", TEXT, "--query", "on").out
    assert "6 the other heads  there are none: this model has one head\n" in alone
    last_step = alone.partition("7 without the head")[2].partition("\n\n")[0]
    command = shlex.split(last_step.replace("\\\n", ""))
    assert command[:2] == ["attn", "ablate"]
    assert TEXT in command
    found = json.loads(ask(*command[1:], "--json").out)
    assert [(row["layer"], row["head"]) for row in found["effects"]] == [(0, 0)]
    several = ("explain", "on and on", "--num-heads", "4", "--head", "2", "--query", "on:2")
    answer = ask(*several).out
    weights = json.loads(ask(*several, "--json").out)["steps"][3]["weights"]
    key = ("'#0'", "and", "'#2'")[
        int(np.argmax(weights))
    ]  # a word that stands twice is named by its place
    command_start = '--num-heads 4 "on and on"'
    assert f"6 the other heads  attn find {command_start} --from '#2' --to {key}\n" in answer
    assert f"attn ablate {command_start} --query '#2' --head L0H2\n" in answer
    # where its letters cannot be written a word is named by its place, too
    assert "--query '#2'" in ask("explain", "我 看 你", "--ascii", "--show", "further").out
    assert ask(*several, "--show", "further").out.count("\n") == 3
    assert "attn ablate" not in ask(*several, "--brief").out


def test_a_page_asks_other_heads_about_a_key_where_heads_do_not_rest() -> None:
    model = resting_model.model()
    place = {"query": "#5", "layer": 0, "head": resting_model.PREVIOUS}
    rests = {**place, "head": resting_model.RESTS}
    commands = [_commands(attncli.explain(model, "cdbeacfd", **at), None) for at in (place, rests)]
    weights = np.asarray(next(iter(model.trace("cdbeacfd"))).stages["weights"])
    assert (
        weights[resting_model.RESTS, 5].argmax() == 0
    )  # of the resting head it is the first token
    second = int(weights[resting_model.RESTS, 5, 1:].argmax()) + 1
    found = [command["heads"].rpartition(" --to ")[2] for command in commands]
    names = [token.text for token in model.encode("cdbeacfd")]
    assert [found[0] in ("#4", names[4], "'#4'"), found[1] in (names[second], f"'#{second}'")] == [
        True,
        True,
    ]
