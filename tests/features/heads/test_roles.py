"""Scores of heads by role: against loops, by ground truth, and in what commands write."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from counting import tokens_run
from msgspec.structs import replace
from scan.test_atlas import scanned
from small_gpt2 import small_gpt2

import attncli
from attncli.draw.view import View
from attncli.features.heads import roles
from attncli.features.heads.roles import (
    ROLES,
    RoleScores,
    role_cost,
    role_passes,
    role_scores,
)
from attncli.features.heads.screen import _role_sentences
from attncli.measure.labels import ordinary_tokens, repeat_scores
from attncli.measure.layer_metrics import ROLE_METRICS
from attncli.models.aliases import local_folder
from attncli.models.estimate import CostEstimate
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


CORPUS = ("it was too the it was", "the it was the", "too it too it")


@pytest.fixture(scope="module")
def told(
    folder: Path, model: Model, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, dict[tuple[int, int], float]]]:
    """The score of each head by place, by metric: in the table on the screen's document, as CSV, in
    a scan and in Python; and what is known of it. Needles are put in by hand: this model finds
    none."""
    work = tmp_path_factory.mktemp("told")
    names = tuple(ROLES.values())

    def needles(model: Model, scores: RoleScores, progress: object) -> None:
        del progress
        places = [(layer, head) for layer in model.spec.attending() for head in range(3)]
        scores.values["retrieval"] = {
            (layer, head): 0.1 + layer / 10 + head / 100 for layer, head in places
        }
        scores.chance["retrieval"] = 0.25
        scores.tested["retrieval"] = 8

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(roles, "_add_retrieval", needles)
        (work / "sequences.txt").write_text("\n".join(WORDS))
        patched.setattr(roles, "SEQUENCES", work / "sequences.txt")
        wanted = [word for name in names for word in ("--metric", name)]
        line = ["heads", CORPUS[0], "--model", str(folder), *wanted]
        document = ask(*line, "--csv", str(work / "heads.csv"), "--json").json
        with (work / "heads.csv").open() as file:
            table = list(csv.DictReader(file))
        (work / "corpus.txt").write_text("\n".join(CORPUS))
        _, _, scan = scanned(folder, work / "corpus.txt", work / "scan", metrics=names)
        python = attncli.heads(model, CORPUS[0], metrics=names)
        known = dict(role_scores(model, names).values)
    for name in set(names) - set(known):  # those of a text: loops over its rows
        known[name] = of_rows(model, CORPUS[0], name)
    texts = {
        name: np.mean([[*of_rows(model, text, name).values()] for text in CORPUS], 0)
        for name in ("previous", "sink")
    }
    places = list(known["induction"])
    return {
        "known": known,
        "rows": {
            name: {
                (head["layer"], head["head"]): head["metrics"][name]["value"]
                for head in document["heads"]
            }
            for name in names
        },
        "csv": {
            name: {(int(row["layer"]), int(row["head"])): float(row[name]) for row in table}
            for name in names
        },
        "python": {
            name: {(head.layer, head.head): head.metrics[name].value for head in python.heads}
            for name in names
        },
        "scan": {
            name: {(head.layer, head.head): head.metrics[name].mean_texts for head in scan.heads}
            for name in names
        },
        "known of the scan": {
            name: dict(zip(places, texts[name], strict=True)) if name in texts else known[name]
            for name in names
        },
    }


def of_rows(model: Model, text: str, name: str) -> dict[tuple[int, int], float]:
    """The mean weight on the token before, over rows that have one, or on the first token, over
    rows that have another."""
    result = {}
    for trace in model.trace(text):
        for head, rows in enumerate(np.asarray(trace.stages["weights"])):
            values = [
                rows[query, query - 1 if name == "previous" else 0] for query in range(1, len(rows))
            ]
            result[trace.layer, head] = float(np.mean(values))
    return result


@pytest.mark.parametrize("place", ["rows", "csv", "python", "scan"])
@pytest.mark.parametrize("name", ROLES.values())
def test_every_role_is_a_number_of_every_head(name: str, place: str, told: dict) -> None:
    known = told["known of the scan" if place == "scan" else "known"][name]
    values = told[place][name]
    assert values.keys() == known.keys()
    assert len(values) == 6
    for head, value in known.items():
        assert values[head] == pytest.approx(value, abs=1e-5)
    # the negative control: it is the number of this head, not of its neighbour
    assert len({round(value, 6) for value in known.values()}) > 1


def test_rows_of_weights_have_no_such_score() -> None:
    for metric in ROLE_METRICS.values():
        with pytest.raises(attncli.errors.UsageError):
            metric(np.eye(3))


def test_heads_that_score_the_same_are_counted(model: Model) -> None:
    """The first of a role is named alone only where no other reaches its score."""
    document = attncli.heads(model, "the cat sat on the mat", roles=True)
    rank = next(rank for rank in document.roles if rank.heads[0].score > 0)
    first, second = rank.heads[:2]
    for score, told in ((first.score, " and 1 more ("), (first.score / 2, f"head {first.head} (")):
        heads = [first, replace(second, score=score)]
        ranks = [replace(rank, heads=heads, chance=0.0)]
        (said, *_) = _role_sentences(replace(document, roles=ranks), View(width=300))
        assert told in said.replace("1+", "1"), said


def test_what_scoring_takes_is_told_before(model: Model) -> None:
    costs: dict[bool, CostEstimate] = {}
    for scored in (False, True):
        tell = partial(costs.__setitem__, scored)
        attncli.heads(
            model, "it was too", roles=scored, on_cost=lambda expected, _, tell=tell: tell(expected)
        )
    _, seconds = role_cost(model, list(ROLE_METRICS))
    assert seconds > 0
    assert costs[True].seconds == pytest.approx(costs[False].seconds + seconds)
    assert costs[True].peak > costs[False].peak


def test_runs_of_random_repeats_are_counted(tmp_path: Path) -> None:
    """Those of haystacks are, too, where they fit: held on a real model."""
    model = attncli.load(small_gpt2(tmp_path / "gpt2", longest=80))
    run = tokens_run(lambda: role_scores(model, ["induction", "duplicate"]))
    (passes,) = role_passes(model, ["induction", "duplicate"])
    around = 2 * passes.passes  # special tokens stand around each text
    assert run == (passes.tokens_run + around) * len(model.spec.blocks)


@pytest.mark.thorough
def test_runs_of_roles_are_counted_on_a_real_model() -> None:
    if local_folder("smollm2") is None:
        pytest.skip("smollm2 is not installed")
    model = attncli.load("smollm2", hold=True)
    run = tokens_run(lambda: role_scores(model, list(ROLE_METRICS)))
    counted = sum(passes.tokens_run for passes in role_passes(model, list(ROLE_METRICS)))
    assert 0.7 < run / (counted * len(model.spec.blocks)) < 1.1


def test_roles_of_a_text_that_is_too_short_are_not_called_the_models(model: Model) -> None:
    document = attncli.heads(model, "it was too", roles=True)
    ranks = [rank for rank in document.roles if rank.metric not in ("previous", "retrieval")]
    said = " ".join(_role_sentences(replace(document, roles=ranks), View(width=300)))
    assert "This text is too short for scores of previous token." in said
    assert "This model has no scores of retrieval, successor." in said


def test_a_text_that_cannot_be_read_is_told_before_heads_are_scored(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[bool] = []
    monkeypatch.setattr(roles, "role_scores", lambda *a, **k: scored.append(True))
    for text in ("", "  "):
        answer = ask("heads", text, "--roles", "--model", str(folder))
        assert (answer.code, scored) == (3, []), answer.err


def test_scores_of_the_model_are_not_called_means_over_the_texts_rows(folder: Path) -> None:
    line = ("heads", "it was too", "--model", str(folder), "--show", "metrics")
    alone = ask(*line, "--metric", "copying", width=200).out
    assert "means over the rows" not in alone
    assert "of the model, whatever the text, and beside uniform what chance gives: copying" in alone
    assert "spread evenly" not in alone
    both = ask(*line, "--metric", "copying,entropy", width=200).out
    for said in ("means over the rows", "spread evenly", "what chance gives: copying"):
        assert said in both
    assert "what chance gives" not in ask(*line, "--metric", "entropy", width=200).out
