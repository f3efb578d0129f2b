"""`attn heads`: exclusions, what is moved, words, sorting, labels, long texts by blocks of rows."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from asking import ask
from telling import telling
from validity import validate

import attncli
from attncli.arrays.numpy_backend import NumpyBackend
from attncli.errors import UsageError
from attncli.features.heads.compute import HeadsRequest, _measured_heads, value_sizes
from attncli.features.heads.compute import heads as compute_heads
from attncli.inputs.token import Token
from attncli.inputs.tokenize import tokenizer
from attncli.measure.metric import METRICS, measure
from attncli.measure.row_facts import exclusion, is_punctuation, parse_exclusion
from attncli.mechanism.mask import Causal, Everywhere
from attncli.models.one_layer import Settings, seeded_model

compute_heads = telling(compute_heads)
heads_document = telling(_measured_heads)

TEXT = "The animal, tired, didn't cross the street, because it was the animal."


def model(**settings):
    return seeded_model(
        Settings(d_model=30, heads=5, **settings),
        3,
        "seeded",
        tokenizer("word"),
        NumpyBackend("float64"),
    )


def weights_of(made, text: str = TEXT) -> np.ndarray:
    (trace,) = made.trace(text)
    return trace.stages["weights"]


def tokens_with(*texts: str) -> list[Token]:
    return [Token(at, text, at, None, None, text.startswith("[")) for at, text in enumerate(texts)]


def test_what_each_exclusion_leaves_out() -> None:
    tokens = tokens_with("[CLS]", "a", ",", "b", "[SEP]")
    expected = {
        "first": {(i, 0) for i in range(5)},
        "special": {(i, j) for i in range(5) for j in range(5) if i in (0, 4) or j in (0, 4)},
        "self": {(i, i) for i in range(5)},
        "neighbours": {(i, j) for i in range(5) for j in range(5) if abs(i - j) == 1},
        "punctuation": {(i, 2) for i in range(5)},
    }
    for name, pairs in expected.items():
        found = exclusion([name], tokens).rows(np.arange(5))
        assert {(int(i), int(j)) for i, j in zip(*np.nonzero(found), strict=True)} == pairs, name
    assert [is_punctuation(token) for token in tokens] == [False, False, True, False, False]
    crossed = exclusion(["first", "self", "special"], tokens, queries=tokens[1:3]).rows(
        np.arange(2)
    )
    assert crossed.tolist() == [[True, False, False, False, True]] * 2


def test_parsing_exclusions() -> None:
    assert parse_exclusion("self, first") == ("first", "self")
    for wrong in ("", "sink", "first,speciall"):
        with pytest.raises(UsageError):
            parse_exclusion(wrong)


@pytest.mark.parametrize("renormalise", [False, True])
def test_excluded_weight_is_in_no_number(renormalise: bool) -> None:
    made = model(mask=Causal())
    tokens = made.encode(TEXT)
    names = ("first", "self", "punctuation")
    document = compute_heads(
        made,
        TEXT,
        request=HeadsRequest(metrics=tuple(METRICS), exclude=names, renormalise=renormalise),
        tokens=tokens,
    )
    out = exclusion(names, tokens).rows(np.arange(len(tokens)))
    visible = np.tril(np.ones((len(tokens),) * 2, bool)) & ~out
    weights = np.where(visible, weights_of(made), 0.0)
    if renormalise:
        sums = weights.sum(-1, keepdims=True)
        weights = weights / np.where(sums > 0, sums, 1)
    about = {
        "tokens": [t.text for t in tokens],
        "special": [False] * len(tokens),
        "punctuation": [is_punctuation(t) for t in tokens],
    }
    expected = measure(weights, visible, metrics=tuple(METRICS), **about)
    for head, part in enumerate(document["heads"]):
        np.testing.assert_allclose(part["weights"], weights[head], atol=1e-12)
        for name, metric in part["metrics"].items():
            value = expected[name].value[head]
            assert metric["value"] == (
                None if np.isnan(value) else pytest.approx(value, abs=1e-12)
            ), name
            assert metric["rows"] == expected[name].rows[head]
        link = part["top_link"]
        assert link["weight"] == pytest.approx(weights[head].max())
    assert document["excluded"] == {"names": list(names), "renormalised": renormalise}


@pytest.mark.parametrize("mask", [Everywhere(), Causal()])
def test_blocks_of_rows_give_the_same_document(mask) -> None:
    made = model(mask=mask)
    tokens = made.encode(TEXT)
    wanted = HeadsRequest(metrics=tuple(METRICS), labels=True, sort="distance", exclude=("first",))
    whole = compute_heads(made, TEXT, request=wanted, tokens=tokens)
    for rows in (1, 3, 100):
        shares: list[float] = []
        blocks = heads_document(made, TEXT, tokens, wanted, rows=rows, progress=shares.append)
        assert shares[-1] == 1.0
        for left, right in zip(blocks["heads"], whole["heads"], strict=True):
            assert (left["layer"], left["head"], left["labels"]) == (
                right["layer"],
                right["head"],
                right["labels"],
            )
            assert left["top_link"] == pytest.approx(right["top_link"])
            np.testing.assert_allclose(left["weights"], right["weights"], atol=1e-12)
            for name in METRICS:
                assert left["metrics"][name]["value"] == pytest.approx(
                    right["metrics"][name]["value"], abs=1e-12
                ), name


def test_what_is_moved_is_weight_times_the_size_of_the_transformed_value() -> None:
    for settings in ({"output_projection": True}, {"output_projection": False}):
        made = model(**settings)
        (trace,) = made.trace(TEXT)
        v, weights = trace.stages["v"], trace.stages["weights"]
        w_o = made.store.layer(made.backend, 0)("attn.o.weight")
        for head in range(5):
            for key in range(v.shape[1]):
                moved = (
                    v[head, key] if w_o is None else w_o[:, head * 6 : head * 6 + 6] @ v[head, key]
                )
                assert value_sizes(made, trace)[head, key] == pytest.approx(np.linalg.norm(moved))
        document = compute_heads(
            made,
            TEXT,
            request=HeadsRequest(metrics=("sink",), moved=True),
            tokens=made.encode(TEXT),
        )
        shares = weights * value_sizes(made, trace)[:, None, :]
        shares /= shares.sum(-1, keepdims=True)
        for head, part in enumerate(document["heads"]):
            assert part["moved"]["metrics"]["sink"]["value"] == pytest.approx(
                shares[head, 1:, 0].mean()
            )
            assert part["moved"]["top_link"]["weight"] == pytest.approx(shares[head].max())


def test_sorting_and_cutting() -> None:
    for order, sign in (("entropy", -1), ("entropy:asc", 1)):
        answer = ask(
            "heads", TEXT, "--sort", order, "--metric", "distance", "--top", "3", "--json"
        ).json
        values = [head["sorted_by"] for head in answer["heads"]]
        assert values == sorted(values, key=lambda value: sign * value)
        assert len(values) == 3
        assert answer["heads_in_all"] == 8
        assert list(answer["heads"][0]["metrics"]) == ["distance"]


def test_documents_with_everything_are_valid(tmp_path: Path) -> None:
    command = (
        "heads",
        TEXT,
        "--num-heads",
        "4",
        "--metric",
        "all",
        "--labels",
        "--moved",
        "--exclude",
        "first",
        "--sort",
        "self",
    )
    answer = ask(*command, "--across", "rollout,similarity,circuits", "--words", "--json")
    assert answer.code == 0, answer.err
    validate(answer.json, "attn.heads/1")
    for width in (60, 80, 200):
        screen = ask(*command, "--across", "rollout,similarity,circuits", width=width)
        assert max(map(len, screen.out.splitlines())) <= width
        assert "excluded from every number: the first token" in " ".join(screen.out.split())
    assert ask(*command, "--ascii", "--across", "rollout,similarity,circuits").out.isascii()
    path = tmp_path / "heads.csv"
    assert ask(*command, "--csv", str(path)).code == 0
    table = list(csv.DictReader(path.read_text().splitlines()))
    assert len(table) == 4
    assert float(table[0]["self"]) >= float(table[1]["self"])


def test_flow_is_refused_for_long_texts() -> None:
    answer = ask("heads", "a b c d e f g h " * 20, "--across", "flow", "--show", "flow")
    assert answer.code == 5
    assert "maximum-flow" in answer.err


def test_misuse_is_told() -> None:
    wrong = [
        "--sort entropi",
        "--sort entropy:up",
        "--renormalise",
        "--exclude sinks",
        "--top 0",
        "--across everything",
        "--metric confidance",
    ]
    for line, code in (*((line, 2) for line in wrong), ("--across circuits --num-heads 1", 4)):
        arguments = line.split()
        answer = ask("heads", TEXT, *arguments)
        assert answer.code == code, (arguments, answer.err)
        assert "Traceback" not in answer.err


def test_labels_in_a_table_have_their_scores_and_thresholds() -> None:
    document = attncli.heads(attncli.load("minilm"), "The animal was too tired", labels=True)
    rows = document.rows()
    assert any(row["labels"] is None for row in rows)
    for row, head in zip(rows, document.heads, strict=True):
        cells = [row[name] for name in ("labels", "label_scores", "label_thresholds")]
        if not head.labels:
            assert cells == [None, None, None]
            continue
        names, scores, thresholds = (cell.split(",") for cell in cells)
        assert names == head.labels
        assert [float(value) for value in thresholds] == [
            score.threshold for score in head.label_scores
        ]
        assert all(
            float(score) >= float(least)
            for name, score, least in zip(names, scores, thresholds, strict=True)
            if name != "broad"  # its threshold is a share of the largest entropy
        )
