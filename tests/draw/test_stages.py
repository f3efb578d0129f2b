"""The stages that the texts teach: tables on request that add up, one entry of q worked out,
residual and norm.
"""

import numpy as np
import pytest
from asking import ask

TEXT = "humpty dumpty sat on"


def test_the_input_is_the_sum_of_embeddings_and_positions() -> None:
    found = ask("run", TEXT, "--position", "sinusoidal", "--json", "--stages", "all").json[
        "layers"
    ][0]["stages"]
    summed = np.add(found["embedding"], found["position"])
    np.testing.assert_allclose(summed, found["hidden"], atol=1e-6)
    alone = ask("run", TEXT, "--json", "--stages", "all").json["layers"][0]["stages"]
    np.testing.assert_allclose(alone["hidden"], found["embedding"], atol=1e-6)
    assert "position" not in alone
    places = np.asarray(found["position"])
    np.testing.assert_allclose(places[2, :2], [np.sin(2), np.cos(2)], atol=1e-6)


@pytest.mark.parametrize(
    ("part", "options", "title"),
    [
        ("embedding", ("--position", "learned"), "embeddings E"),
        ("positions", ("--position", "learned"), "positions P"),
        ("input", (), "input X"), ("q", (), "queries Q"), ("raw", (), "similarity S"), ("scaled", (), "scaled S"),
        ("capped", ("--softcap", "2"), "capped S"), ("biased", ("--position", "alibi"), "biased S"),
        ("masked", ("--mask", "causal"), "masked S"), ("concat", (), "output of all heads"),
        ("sum", ("--residual",), "residual X + O"), ("norm", ("--residual", "--layer-norm"), "layer norm of X + O"),
    ],
)  # fmt: skip
def test_each_stage_is_a_table_on_request(part: str, options: tuple[str, ...], title: str) -> None:
    shown = ask("run", TEXT, "--show", part, *options).out
    assert shown.startswith(title)
    assert all(word in shown for word in TEXT.split())


@pytest.mark.parametrize("part", ["positions", "capped", "biased", "masked", "sum", "norm"])
def test_a_stage_that_did_nothing_says_how_to_have_it(part: str) -> None:
    shown = ask("run", TEXT, "--show", part).out
    assert "here; --" in shown
    assert "humpty" not in shown


def test_one_entry_of_q_is_worked_out() -> None:
    step = ask("explain", TEXT, "--query", "on", "--json").json["steps"][0]
    worked = sum(x * w for x, w in zip(step["x"], step["column"], strict=True)) + step.get(
        "bias", 0.0
    )
    assert worked == pytest.approx(step["q"][0], abs=1e-5)
    shown = ask("explain", TEXT, "--query", "on", "--show", "projections").out
    assert f"{step['q'][0]:.4f}" in next(
        line for line in shown.splitlines() if line.startswith("q_0  ")
    )
    turned = ask("explain", TEXT, "--query", "on", "--position", "rope", "--json").json["steps"][0]
    assert "column" not in turned  # what is shown there is q after rotation


def test_residual_and_norm_are_visible_and_are_those_of_the_run() -> None:
    options = ("--residual", "--layer-norm", "--num-heads", "2")
    after = ask("explain", TEXT, "--query", "on", *options, "--json").json["after"]
    run = ask("run", TEXT, *options, "--json", "--stages", "all").json["layers"][0]
    np.testing.assert_allclose(after["out"], run["stages"]["out"][3], atol=1e-6)
    np.testing.assert_allclose(after["sum"], np.add(after["x"], after["out"]), atol=1e-6)
    np.testing.assert_allclose(after["norm"], run["stages"]["norm"][3], atol=1e-6)
    shown = ask("explain", TEXT, "--query", "on", *options).out
    assert "norm(x + O)" in shown
    assert "norm(x + O)" not in ask("explain", TEXT, "--query", "on").out


def test_the_derivation_ends_in_its_answer() -> None:
    shown = ask("explain", TEXT, "--query", "on").out.splitlines()
    assert any(
        line.startswith('"on" looks most at "humpty": 89% of its weight.') for line in shown[-4:]
    )
    assert ask("explain", TEXT, "--query", "on", "--brief").out.splitlines()[0].endswith("[on]")


def test_a_learner_meets_the_names_of_the_texts() -> None:
    shown = ask("run", TEXT, "--show", "shapes").out
    assert [line.split("  ")[0] for line in shown.splitlines()[2:8]] == [
        "X",
        "Q",
        "K",
        "V",
        "S",
        "S scaled",
    ]
    assert not {"kv", "hidden", "raw", "mixed"} & set(shown.split())


def test_every_metric_has_a_line_of_meaning() -> None:
    from attncli.measure.layer_metrics import EVERY_METRIC

    table, told = ask("explain", "metric", width=120).out.split("\n\n")
    lines = table.splitlines()[1:]
    assert [line.split()[0] for line in lines] == list(EVERY_METRIC)
    assert all(EVERY_METRIC[line.split()[0]].says in line for line in lines)
    more = "attn explain metric NAME tells the formula, the range and an example of one."
    assert told == f"{len(EVERY_METRIC)} metrics: {more}\n"
    chinese = ask("explain", "metric", "--lang", "zh").out
    assert all(
        any("\u4e00" <= char <= "\u9fff" for char in line) for line in chinese.splitlines() if line
    )
    brief = ask("explain", "metric", "--brief").out
    assert brief.replace("\n", " ") == f"{len(EVERY_METRIC)} metrics: {', '.join(EVERY_METRIC)}. "
