"""`attn heads`: metrics, averages, single heads, options that do not fit."""

from __future__ import annotations

import json

import numpy as np
import pytest
from asking import ask
from validity import validate

SENTENCE = "The animal didn't cross the street because it was too tired"


def test_eight_heads_by_default_and_valid_json() -> None:
    document = ask("heads", SENTENCE, "--json").json
    validate(document, "attn.heads/1")
    assert [head["head"] for head in document["heads"]] == list(range(8))
    mean = np.mean([head["weights"] for head in document["heads"]], 0)
    assert np.allclose(document["average"]["weights"], mean, atol=1e-7)


def test_metrics_agree_with_loops_over_the_weights() -> None:
    head = ask("heads", SENTENCE, "--json", "--mask", "causal").json["heads"][3]
    rows = head["weights"]
    entropy = float(np.mean([-sum(a * np.log(a) for a in row if a > 0) for row in rows]))
    previous = float(np.mean([rows[i][i - 1] for i in range(1, len(rows))]))
    assert head["metrics"]["entropy"]["value"] == pytest.approx(entropy, abs=1e-6)
    assert head["metrics"]["previous"] == {
        "value": pytest.approx(previous, abs=1e-6),
        "rows": len(rows) - 1,
    }
    uniform = float(np.mean([np.log(i + 1) for i in range(len(rows))]))
    assert head["baseline"]["entropy"]["value"] == pytest.approx(uniform, abs=1e-9)


def test_one_head_is_multi_head_with_one_and_gives_identical_numbers() -> None:
    alone = ask("run", SENTENCE, "--json").json["layers"][0]["heads"][0]
    among = ask("run", SENTENCE, "--json", "--num-heads", "1", "--output-projection").json[
        "layers"
    ][0]["heads"][0]
    compared = ask("heads", SENTENCE, "--json", "--num-heads", "1").json
    assert alone == among
    assert compared["heads"][0]["weights"] == alone["weights"] == compared["average"]["weights"]


def test_heads_that_do_not_divide_are_told_with_both_numbers() -> None:
    found = ask("heads", "x", "--num-heads", "7")
    assert found.code == 2
    assert "64" in found.err
    assert "7" in found.err
    assert "--num-heads 8" in found.err


def test_chosen_heads_and_metrics() -> None:
    document = ask(
        "heads", SENTENCE, "--json", "--head", "2,5-6", "--metric", "entropy", "--metric", "band"
    ).json
    assert [head["head"] for head in document["heads"]] == [2, 5, 6]
    assert set(document["heads"][0]["metrics"]) == {"entropy", "band"}
    whole = ask("heads", SENTENCE, "--json").json["heads"][5]
    assert document["heads"][1]["weights"] == whole["weights"]


def test_texts_by_line() -> None:
    lines = ask(
        "heads", "--lines", "--ndjson", stdin=b"one two three\nfour five\n"
    ).out.splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["one two three", "four five"]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize(
    "options", [(), ("--ascii",), ("--color", "always"), ("--show", "all"), ("--num-heads", "1")]
)
def test_screens_fit(options: tuple[str, ...], width: int) -> None:
    import re

    from attncli.draw.safe import cells

    found = ask("heads", SENTENCE, *options, width=width)
    assert found.code == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", found.out)
    assert max(cells(line) for line in plain.splitlines()) <= width
    assert ("--color" in options) == ("\x1b[" in found.out)


def test_long_texts_run_by_rows_and_are_still_refused_over_the_limit() -> None:
    text = " ".join(f"w{n % 50}" for n in range(2100))
    asked = ("heads", text, "--num-heads", "2", "--d-model", "4", "--show", "metrics")
    assert ask(*asked).code == 0
    found = ask(*asked, "--max-memory", "1kB")
    assert (found.code, found.out) == (5, "")


@pytest.mark.parametrize(
    ("part", "option"),
    [
        ("roles", "--roles"),
        ("rules", "--rules"),
        ("moved", "--moved"),
        ("rollout", "--across rollout"),
        ("directions", "--directions L0H0"),
        ("regions", "--regions FILE"),
        ("layers", "--metric massive"),
    ],
)
def test_a_part_that_is_not_there_names_the_option_that_adds_it(part: str, option: str) -> None:
    told = ask("heads", "the cat", "--show", part).out
    assert f"attn heads {option} adds it" in " ".join(told.split())


def test_labels_have_a_column_where_they_were_asked_for() -> None:
    said = ("heads", "the cat", "--plain")
    assert "labels" not in ask(*said).out.splitlines()[0].split("\t")
    assert "labels" in ask(*said, "--labels").out.splitlines()[0].split("\t")


def test_heads_chosen_out_of_several_layers_have_their_layer() -> None:
    line = ("heads", "the cat sat", "--model", "minilm", "--metric", "sink", "--sort", "sink")
    document = ask(*line, "--top", "1", "--json").json
    (head,) = document["heads"]
    shown = ask(*line, "--top", "1", "--show", "metrics,maps").out
    assert f"layer {head['layer']} head {head['head']}\n" in shown
    (names,) = [row for row in shown.splitlines() if row.startswith("layer ")]
    assert names.split()[:2] == ["layer", "head"]
    # of a layer that was asked for whole, the number of the head is enough
    whole = ask(*line, "--layer", "2", "--show", "metrics").out
    assert "layer" not in whole
