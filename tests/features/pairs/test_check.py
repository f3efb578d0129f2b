"""`attn pairs check`: what fits, what does not, with its line, and the means."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from asking import ask
from small_gpt2 import small_gpt2

SAMPLES = Path(__file__).parents[3] / "sample_inputs" / "pairs.jsonl"


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(small_gpt2(tmp_path_factory.mktemp("pairs") / "gpt2"))


def test_means_are_those_of_the_pairs(gpt2: str) -> None:
    document = ask("pairs", "check", str(SAMPLES), "--model", gpt2, "--json").json
    rows = document["pairs"]
    assert [row["answer"]["text"] for row in rows] == ["it"] * 3
    clean = [row["m_clean"] for row in rows]
    assert document["clean"] == {"mean": pytest.approx(np.mean(clean)), "low": None, "high": None}
    assert document["right"] == pytest.approx(np.mean(np.asarray(clean) > 0))
    assert document["faults"] == []


def test_pairs_that_do_not_fit_are_told_and_end_with_1(gpt2: str, tmp_path: Path) -> None:
    lines = SAMPLES.read_text().splitlines()
    wrong = {**json.loads(lines[0]), "answer": " zebra"}
    (path := tmp_path / "pairs.jsonl").write_text("\n".join([lines[0], json.dumps(wrong)]))
    answer = ask("pairs", "check", str(path), "--model", gpt2, "--json")
    assert answer.code == 1
    assert "1 of 2 pairs do not fit this model" in answer.err
    (fault,) = answer.json["faults"]
    assert fault["where"] == f"{path}:2"
    assert "' zebra' is 6 tokens" in fault["fault"]
    assert len(answer.json["pairs"]) == 1
    shown = ask("pairs", "check", str(path), "--model", gpt2, "--lang", "zh").out
    assert "“ zebra”是 6 个词元" in shown


def test_the_screen_says_how_often_it_is_right(gpt2: str) -> None:
    shown = ask("pairs", "check", str(SAMPLES), "--model", gpt2, "--brief").out
    assert "3 of 3 pairs fit this model." in shown
    assert "Below 20 pairs there is no interval." in shown
