"""Scores of heads by role: against loops, by ground truth, and in what commands write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from scan.test_atlas import scanned
from small_gpt2 import small_gpt2

import attncli
from attncli.features.heads import roles
from attncli.features.heads.roles import ROLES, role_scores
from attncli.measure.labels import ordinary_tokens, repeat_scores
from attncli.measure.layer_metrics import ROLE_METRICS
from attncli.models.model import Model

WORDS = ("it was too", "the it d")
"""Words that the sample tokenizer has as one token."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_gpt2(tmp_path_factory.mktemp("roles") / "gpt2")


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return attncli.load(folder, dtype="float64")


def normed(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    rows = []
    for row in x:
        centred = row - row.mean()
        rows.append(centred / np.sqrt((centred**2).mean() + 1e-5) * weight + bias)
    return np.stack(rows)


def outputs(model: Model, tokens: list[Any]) -> dict[tuple[int, int], np.ndarray]:
    """By head, what it adds to the logit of each token where it looks at each alone, [token,
    token], up to the final norm's division."""
    outer = model.store.outer(model.backend)
    table = np.asarray(outer("tokens.weight"))[[token.id for token in tokens]]
    read = table * np.asarray(outer("final.weight"))
    read = read - read.mean(-1, keepdims=True)
    start = model.encode("a")[:1]
    start = [token for token in start if token.special]
    vectors = []
    for token in tokens:
        text = [*start, attncli.models.model.replace(token, index=len(start))]
        vectors.append(np.asarray(next(iter(model.trace(text))).after)[-1])
    result = {}
    for layer in range(len(model.spec.blocks)):
        weights = model.store.layer(model.backend, layer)
        numbers = {name: np.asarray(weights(name)) for name in (
            "attn.in.weight", "attn.in.bias", "attn.v.weight", "attn.v.bias", "attn.o.weight",
        )}  # fmt: skip
        entering = normed(np.stack(vectors), numbers["attn.in.weight"], numbers["attn.in.bias"])
        values = entering @ numbers["attn.v.weight"].T + numbers["attn.v.bias"]
        for head in range(3):
            part = slice(head * 8, (head + 1) * 8)
            output = values[:, part] @ numbers["attn.o.weight"][:, part].T
            result[layer, head] = output @ read.T
    return result


def test_copying_and_successors_are_those_of_loops(
    model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(roles, "DRAWN", 12)
    (tmp_path / "sequences.txt").write_text("\n".join(WORDS))
    monkeypatch.setattr(roles, "SEQUENCES", tmp_path / "sequences.txt")
    scores = role_scores(model, ["copying", "successor"])
    drawn = ordinary_tokens(model, 0)[:12]
    for place, table in outputs(model, drawn).items():
        right = [int(np.argmax(row)) == number for number, row in enumerate(table)]
        assert scores.values["copying"][place] == pytest.approx(np.mean(right))
    assert scores.chance["copying"] == pytest.approx(1 / 12)
    followed = list(roles._followed_tokens(model))
    tokens = [token for token, _ in followed]
    assert len(tokens) >= 4
    for place, table in outputs(model, tokens).items():
        right = [
            int(np.argmax(table[number])) == after
            for number, (_, after) in enumerate(followed)
            if after is not None
        ]
        assert scores.values["successor"][place] == pytest.approx(np.mean(right))
    # the negative control: heads differ
    assert len(set(scores.values["copying"].values())) > 1


def test_repeats_are_those_of_the_labels(model: Model) -> None:
    repeats = repeat_scores(model, [0, 1])
    scores = role_scores(model, ["induction", "duplicate"])
    for place, row in repeats.items():
        assert scores.values["induction"][place] == row["repeats_induction"]
        assert scores.values["duplicate"][place] == row["repeats_duplicate"]
    even = np.mean([1 / (query + 1) for query in range(32, 64)])
    assert scores.chance["induction"] == pytest.approx(even)


def test_heads_are_ranked_by_each_role(folder: Path) -> None:
    line = ["heads", "it was too the it was too", "--model", str(folder), "--roles"]
    document = ask(*line, "--json").json
    names = [rank["role"] for rank in document["roles"]]
    assert names == [role for role in ROLES if role in names]
    assert {"previous token", "first-token rest", "duplicate token", "induction", "copying"} <= {
        *names
    }
    for rank in document["roles"]:
        values = {
            (head["layer"], head["head"]): head["metrics"][rank["metric"]]["value"]
            for head in document["heads"]
        }
        told = [head["score"] for head in rank["heads"]]
        assert told == sorted(values.values(), reverse=True)[:10]
        for head in rank["heads"]:
            assert values[head["layer"], head["head"]] == head["score"]
    screen = ask(*line).out
    assert "heads by role" in screen
    plain = ask(*line, "--plain").out.splitlines()[0]
    assert "induction" in plain
    assert "copying" in plain


def test_a_scan_has_the_scores_of_the_model(folder: Path, model: Model, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("it was too the\nthe it was\ntoo it\n")
    names = ("entropy", "induction", "copying")
    _, _, document = scanned(folder, tmp_path / "corpus.txt", tmp_path / "out", metrics=names)
    scores = role_scores(model, names[1:])
    for head in document.heads:
        for name in names[1:]:
            known = scores.values[name][head.layer, head.head]
            assert head.metrics[name].mean_texts == pytest.approx(known, abs=1e-5)


def test_rows_of_weights_have_no_such_score() -> None:
    for metric in ROLE_METRICS.values():
        with pytest.raises(attncli.errors.UsageError):
            metric(np.eye(3))
