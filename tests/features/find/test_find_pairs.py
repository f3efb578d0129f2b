"""Links over pairs: means of what each text gives, and what cutting them takes of the difference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from asking import ask
from small_gpt2 import small_gpt2

import attncli
from attncli.inputs.pairs import read_pairs
from attncli.models.model import Model

SAMPLES = Path(__file__).parents[3] / "sample_inputs" / "pairs.jsonl"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_gpt2(tmp_path_factory.mktemp("pairs") / "gpt2")


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return attncli.load(folder, dtype="float64")


def test_a_link_over_pairs_is_the_mean_of_what_single_texts_give(model: Model) -> None:
    document = attncli.find_pairs(model, SAMPLES, key="#1", effect=True)
    pairs = read_pairs(SAMPLES).pairs
    sums: dict[tuple[int, int], list[list[float]]] = {}
    for pair in pairs:
        last = f"#{len(model.encode(pair.clean)) - 1}"
        clean = attncli.find(
            model, pair.clean, last, "#1", effect=True, target=" it", versus=" the"
        )
        corrupt = attncli.find(model, pair.corrupt, last, "#1")
        weights = {(row.layer, row.head): row.weight for row in corrupt.heads}
        for row in clean.heads:
            place = (row.layer, row.head)
            numbers = [row.weight, weights[place], row.difference.all]
            sums.setdefault(place, []).append(numbers)
    assert document.heads == []
    assert document.pairs.count == len(pairs)
    for row in document.pair_links:
        weight, other, lost = np.mean(sums[row.layer, row.head], 0)
        assert row.weight == pytest.approx(weight, abs=1e-12)
        assert row.corrupt == pytest.approx(other, abs=1e-12)
        assert row.change == pytest.approx(weight - other, abs=1e-12)
        assert row.difference.all == pytest.approx(lost, abs=1e-9)
        assert row.low is None


def test_what_a_cut_link_costs_is_what_ablate_says(folder: Path) -> None:
    line = ["the cat sat on the mat", "--model", str(folder), "--from", "#5", "--to", "#1"]
    versus = ["--target", "id:5", "--versus", "id:6"]
    found = ask("find", *line, "--effect", *versus, "--json").json
    cut = ask("ablate", *line, *versus, "--json").json
    known = {(row["layer"], row["head"]): row["difference"]["all"] for row in cut["effects"]}
    for row in found["heads"]:
        assert row["difference"]["all"] == pytest.approx(known[row["layer"], row["head"]], abs=1e-7)
    together = cut["together"]["difference"]["all"]
    assert found["difference_together"]["all"] == pytest.approx(together, abs=1e-7)


def test_the_answer_of_pairs_is_looked_for_in_their_texts(folder: Path, tmp_path: Path) -> None:
    line = ["find", "--model", str(folder), "--pairs", str(SAMPLES)]
    failed = ask(*line)
    assert failed.code == 3
    assert "does not stand in" in failed.err
    assert "--to TOK" in failed.err
    (path := tmp_path / "many.jsonl").write_text("\n".join(SAMPLES.read_text().splitlines() * 7))
    line = ["find", "--model", str(folder), "--pairs", str(path), "--to", "#1", "--effect"]
    assert "95% interval" in ask(*line).out
    assert ask(*line, "--plain").out.startswith("layer\thead\tweight\tcorrupt")
    assert ask(*line, "--html", str(tmp_path / "page.html")).code == 2
