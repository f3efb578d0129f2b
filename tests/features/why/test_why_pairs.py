"""Why a head looks there over pairs: means of what single texts give, and parts interchanged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from asking import ask
from counting import tokens_run
from small_gpt2 import small_gpt2

import attncli
from attncli.errors import InputError
from attncli.features.effects.ablation import text_for_sweep
from attncli.features.effects.contributions import Link, contributions
from attncli.features.why.pair_reasons import READ_BY_PARTS, interchanged_weights, runs_of_pair
from attncli.inputs.pairs import read_pairs
from attncli.models.model import Model

SAMPLES = Path(__file__).parents[3] / "sample_inputs" / "pairs.jsonl"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_gpt2(tmp_path_factory.mktemp("pairs") / "gpt2")


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return attncli.load(folder, dtype="float64")


def test_parts_over_pairs_are_means_that_add_up_to_the_total(model: Model) -> None:
    document = attncli.why_pairs(model, SAMPLES, key="#1", layers=[1], heads=[0])
    singles = [
        attncli.why(
            model, pair.clean, f"#{len(model.encode(pair.clean)) - 1}", "#1", layers=[1], heads=[0]
        )
        for pair in read_pairs(SAMPLES).pairs
    ]
    for place, part in enumerate(document.parts):
        for side in ("query_side", "key_side"):
            known = np.mean([getattr(single.parts[place], side) for single in singles])
            assert getattr(part, side) == pytest.approx(known, abs=1e-12)
    sums = [
        sum(getattr(part, side) for part in document.parts) for side in ("query_side", "key_side")
    ]
    assert sums == pytest.approx([document.total] * 2, abs=1e-9)
    assert document.weight == pytest.approx(np.mean([one.weight for one in singles]), abs=1e-12)


def test_all_parts_interchanged_give_the_weight_of_the_other_texts_query(model: Model) -> None:
    pair = read_pairs(SAMPLES).pairs[0]
    texts = [model.encode(text) for text in (pair.clean, pair.corrupt)]
    last = len(texts[0]) - 1
    link = Link(1, "self", 1, last, 1)
    clean, corrupt = (contributions(text_for_sweep(model, text, []), link) for text in texts)
    weights = interchanged_weights(clean, corrupt)
    rows = []
    for text in texts:
        (trace,) = model.trace(text, layers=[1], keep=("q", "k"))
        rows.append((np.asarray(trace.stages["q"])[1, last], np.asarray(trace.stages["k"])[1]))
    scale = clean.scale

    def weight(query: np.ndarray) -> float:
        scores = scale * rows[0][1][: last + 1] @ query
        shares = np.exp(scores - scores.max())
        return shares[1] / shares.sum()

    # part by part: its share of the query is that of the corrupt text, all else of the clean one
    for place, part in enumerate(clean.parts):
        moved = rows[0][0] + corrupt.queries[place] - clean.queries[place]
        assert weights["query"][place] == pytest.approx(weight(moved), abs=1e-9), part
    whole = rows[0][0] + (corrupt.queries - clean.queries).sum(0)
    assert weight(whole) == pytest.approx(weight(rows[1][0]), abs=1e-9)
    assert weight(whole) != pytest.approx(clean.weight, abs=1e-6)


def test_what_a_head_writes_is_told_of_a_difference_of_logits(folder: Path) -> None:
    line = ["why", "the cat sat on the mat", "--model", str(folder), "--from", "#5", "--to", "#1"]
    line += ["--layer", "0", "--head", "0", "--writes"]
    whole = ask(*line, "--target", "id:5", "--versus", "id:6", "--json").json["writes"]
    parts = [ask(*line, "--target", f"id:{entry}", "--json").json["writes"] for entry in (5, 6)]
    assert whole["logit"] == pytest.approx(parts[0]["logit"] - parts[1]["logit"], abs=1e-6)
    assert whole["versus"]["id"] == 6
    assert "less that of" in ask(*line, "--target", "id:5", "--versus", "id:6").out


def test_the_screen_over_pairs_tells_intervals_and_no_single_text(
    folder: Path, tmp_path: Path
) -> None:
    (path := tmp_path / "many.jsonl").write_text("\n".join(SAMPLES.read_text().splitlines() * 7))
    line = ["why", "--model", str(folder), "--pairs", str(path), "--to", "#1"]
    shown = ask(*line).out
    assert "95% interval" in shown
    assert "the last token" in shown
    assert ask(*line, "--plain").out.split("\n")[0].endswith("key_sign_share")
    assert ask(*line, "--json").json["over_pairs"]["measured"]["count"] == 21


@pytest.mark.parametrize(("heads", "several"), [([0], 1), ([0, 1, 2], 3)])
def test_the_runs_of_a_pair_are_counted(model: Model, heads: list[int], several: int) -> None:
    """Two of them are read part by part, which takes longer than other runs; they end at the head's
    layer, which is not known before."""
    run = tokens_run(lambda: attncli.why_pairs(model, SAMPLES, key="#1", layers=[1], heads=heads))
    tokens = sum(len(model.encode(pair.clean)) for pair in read_pairs(SAMPLES).pairs)
    slower = 2 * (READ_BY_PARTS - 1)
    counted = (runs_of_pair(several) - slower) * tokens * len(model.spec.blocks)
    assert 0.6 < run / counted <= 1.0


def test_another_key_that_is_not_there_is_told_before_anything_runs(model: Model) -> None:
    def refused() -> None:
        with pytest.raises(InputError, match="no token 'zebra'") as raised:
            attncli.why_pairs(model, SAMPLES, key="#1", than="zebra")
        assert "pair 1" in str(raised.value.where)

    assert tokens_run(refused) == 0


def test_another_key_that_the_mask_hides_is_refused(model: Model) -> None:
    """From the third token the fourth cannot be seen."""
    seen = attncli.why_pairs(model, SAMPLES, query="#2", key="#1", than="#0", layers=[0], heads=[0])
    assert 0 < seen.centred.weight < 1
    with pytest.raises(InputError, match="hides the other key"):
        attncli.why_pairs(model, SAMPLES, query="#2", key="#1", than="#3", layers=[0], heads=[0])
