"""`attn explain qkv` against loops over the run's own queries, keys and values."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from asking import ask
from msgspec.structs import replace
from tiny_checkpoints import CASES, make

from attncli.features.explain.document import SharedKeyValue
from attncli.features.explain.qkv_screen import _value_sentence

TEXT = "humpty dumpty sat on"
ASKED = ("--d-model", "12", "--num-heads", "2", "--head", "1")


@cache
def stages(*words: str) -> dict[str, list[list[float]]]:
    """Queries, keys and values of the second head, each [token][dim], as the run has them."""
    run = ask("run", TEXT, *ASKED, *words, "--stages", "all", "--json").json
    head = next(head for head in run["layers"][0]["heads"] if head["head"] == 1)
    return head["stages"]


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def cosine(a: list[float], b: list[float]) -> float:
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def softmax(scores: list[float]) -> list[float]:
    raised = [math.exp(score) for score in scores]
    return [one / sum(raised) for one in raised]


@pytest.mark.parametrize("query", [1, 3])
def test_the_search_is_what_the_query_key_and_value_give(query: int) -> None:
    found = ask("explain", "qkv", TEXT, *ASKED, "--query", f"#{query}", "--json").json
    q, k, v = (stages()[name] for name in "qkv")
    scale = 1 / math.sqrt(len(q[0]))
    scores = [dot(q[query], key) * scale for key in k]
    weights = softmax(scores)
    assert found["scores"] == pytest.approx(scores, abs=1e-5)
    assert found["weights"] == pytest.approx(weights, abs=1e-6)
    for key, value in enumerate(v):
        length = math.sqrt(dot(value, value))
        assert found["value_lengths"][key] == pytest.approx(length, abs=1e-5)
        assert found["brought"][key] == pytest.approx(weights[key] * length, abs=1e-5)
    for view in found["views"][1:]:
        rows = stages()[view["view"]]
        near = {key: cosine(rows[query], rows[key]) for key in range(4) if key != query}
        nearest = max(near, key=lambda key: near[key])
        assert (view["nearest"], view["cosine"]) == (
            nearest,
            pytest.approx(near[nearest], abs=1e-5),
        )


@pytest.mark.parametrize("words", [(), ("--mask", "causal", "--position", "alibi")])
def test_one_matrix_for_two_is_what_loops_make_of_it(words: tuple[str, ...]) -> None:
    found = ask("explain", "qkv", TEXT, *ASKED, *words, "--query", "sat", "--json").json
    q, k, v = (stages(*words)[name] for name in "qkv")
    causal = bool(words)
    scale = 1 / math.sqrt(len(q[0]))
    pair = found["shared_query_key"]
    key = pair["key"]
    assert pair["forward"] == pytest.approx(dot(q[2], k[key]) * scale, abs=1e-5)
    assert pair["backward"] == pytest.approx(dot(q[key], k[2]) * scale, abs=1e-5)
    assert pair["shared"] == pytest.approx(dot(k[2], k[key]) * scale, abs=1e-5)
    slope = 2**-8 if causal else 0.0  # of the second of two heads
    firsts = {}
    for name, asks in (("self_first", q), ("shared_self_first", k)):
        firsts[name] = 0
        for row in range(1 if causal else 0, 4):
            keys = range(row + 1 if causal else 4)
            scores = [dot(asks[row], k[j]) * scale - slope * abs(row - j) for j in keys]
            firsts[name] += max(keys, key=lambda j: scores[j]) == row
            if name == "shared_self_first" and row == 2:
                given = pair["weights"][: len(scores)]
                assert given == pytest.approx(softmax(scores), abs=1e-6)
    assert {name: pair[name] for name in firsts} == firsts
    assert pair["words"] == (3 if causal else 4)
    weights = np.asarray(found["weights"])
    values = found["shared_key_value"]
    np.testing.assert_allclose(values["output"], weights @ np.asarray(v), atol=1e-5)
    np.testing.assert_allclose(values["shared"], weights @ np.asarray(k), atol=1e-5)
    assert values["cosine"] == pytest.approx(cosine(values["output"], values["shared"]), abs=1e-6)
    assert values["shared_query_cosine"] == pytest.approx(cosine(q[2], values["shared"]), abs=1e-5)


def test_the_answer_says_the_numbers_and_no_more() -> None:
    found = ask("explain", "qkv", TEXT, "--query", "on", "--json").json
    said = " ".join(ask("explain", "qkv", TEXT, "--query", "on", "--brief").out.split())
    pair = found["shared_query_key"]
    assert f"{pair['shared']:.2f} both ways" in said
    assert f"{pair['shared_self_first']} of 4 tokens would look most at themselves" in said
    alone = " ".join(ask("explain", "qkv", "on").out.split())
    assert "both ways" not in alone  # there is no other word to ask
    assert "nearest other word" not in alone
    wide = ask("explain", "qkv", TEXT, "--d-v", "5").out
    assert "the one cannot stand in for the other" in " ".join(wide.split())
    assert "K = V" not in wide


def test_what_has_no_one_query_is_refused() -> None:
    refused = ask("explain", "qkv", TEXT, "--attention", "reformer:2")
    assert (refused.code, "no one query" in refused.err) == (4, True)


@pytest.mark.parametrize("topic", ["qkv", "multihead"])
def test_quiet_topics_tell_no_note(topic: str) -> None:
    asked = ("explain", topic, "a cat sat", "--query", "cat", "--model", "minilm", "--brief")
    assert "--layer" in ask(*asked).err
    assert ask(*asked, "--quiet").err == ""


def said_of(*words: str) -> str:
    """What a call says in short, in one line."""
    return " ".join(ask("explain", "qkv", *words, "--brief").out.split())


def test_a_word_that_is_repeated_is_not_compared_with_itself() -> None:
    found = ask("explain", "qkv", "the the the", "--json").json
    assert "shared_query_key" not in found
    assert "W_Q is not W_K" not in said_of("the the the")
    pair = ask("explain", "qkv", "the the cat", "--query", "#0", "--json").json["shared_query_key"]
    # both of "the" tie, and a tie is no look at oneself
    assert pair["key"] == 2
    assert pair["self_first"] <= 1
    assert pair["shared_self_first"] <= 1


def test_keys_that_tie_are_named_together() -> None:
    assert 'by "the" (0), "the" (1), "the" (2) alike: 33% of its weight each' in said_of(
        "the the the"
    )
    assert "by 6 keys alike: 17% of its weight each" in said_of("the the the the the the")
    assert "alike: " not in said_of("the a cat")
    derived = " ".join(ask("explain", "the the cat cat", "--query", "#0", "--brief").out.split())
    assert "alike: " in derived
    assert 'looks most at "' in derived


def test_a_key_is_compared_whose_scores_there_and_back_differ() -> None:
    words = ("the a cat", "--query", "#0", "--json")
    for seed in range(4):
        pair = ask("explain", "qkv", *words, "--seed", str(seed)).json["shared_query_key"]
        assert f"{pair['forward']:.2f}" != f"{pair['backward']:.2f}"


def test_nearer_to_the_query_is_said_of_a_positive_cosine_alone() -> None:
    values = SharedKeyValue(
        output=[1.0], shared=[1.0], cosine=0.5, query_cosine=-0.2, shared_query_cosine=-0.06
    )
    assert "nearer" not in _value_sentence(values, "X")
    assert "nearer" in _value_sentence(replace(values, shared_query_cosine=0.3), "X")


@pytest.mark.parametrize(
    "words",
    [("hello",), (TEXT, "--mask", "causal", "--query", "#0")],
)
def test_a_word_that_sees_nothing_else_answers_nothing(words: tuple[str, ...]) -> None:
    said = said_of(*words)
    assert "sees nothing but itself: 100%" in said
    assert "answered best" not in said
    chinese = said_of(*words, "--lang", "zh")
    assert "除自己之外什么也看不到" in chinese


def test_queries_and_keys_with_a_norm_of_their_own_are_named_and_not_compared(
    tmp_path: Path,
) -> None:
    folder = make(CASES["qwen3"], tmp_path)
    words = ("--ids", "3,17,42,7", "--model", str(folder), "--layer", "0", "--head", "0")
    found = ask("explain", "qkv", *words, "--json").json
    assert found["normed"] == "rms"
    assert "shared_query_key" not in found
    assert "shared_key_value" not in found
    screen = " ".join(ask("explain", "qkv", *words).out.split())
    assert "a norm of their own here (RMS norm)" in screen
    assert "q = norm(x·W_Q + b_Q)" in screen
    assert "both ways" not in screen
    untold = "What one matrix for two of the three would do is not told"
    assert untold in " ".join(ask("explain", "qkv", *words, "--brief").out.split())


@pytest.mark.parametrize("width", [44, 55, 80])
def test_names_of_views_are_whole_at_any_width(width: int) -> None:
    screen = ask("explain", "qkv", TEXT, width=width).out
    assert "x·W_…" not in screen
    assert "what the query of" in screen
    assert "…" not in screen.partition("each matrix is")[2].partition("what the query of")[0]
