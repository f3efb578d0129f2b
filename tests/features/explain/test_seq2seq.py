"""`attn explain seq2seq`: what one vector gives back against loops, and the search against `cross`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from asking import ask
from tiny_checkpoints import CASES, make

import attncli
from attncli.arrays.numpy_backend import integers, uniform
from attncli.features.explain.seq2seq_topic import SEED, measure_read_back
from attncli.measure.run_record import CrossTexts

TEXTS = ("le chat noir dort", "the black cat sleeps")


def test_words_are_read_back_as_loops_read_them() -> None:
    words = 8
    width = 24
    table = uniform(SEED, "seq2seq\0words", (256, width)).astype(float)
    table = np.stack([row / np.sqrt(sum(row * row)) for row in table])
    places = uniform(SEED, "seq2seq\0places", (words, width)).astype(float)
    ids = integers(SEED, f"seq2seq\0{words}\0ids", 256) % 256
    right = {"vector": 0, "search": 0}
    for start in range(0, 256, words):
        sentence = ids[start : start + words]
        one = np.zeros(width)
        for place, word in enumerate(sentence):
            one += np.sign(places[place]) * table[word]
        for place, word in enumerate(sentence):
            raised = np.exp([places[place] @ other / width**0.5 for other in places])
            context = sum(
                w * table[at] for w, at in zip(raised / raised.sum(), sentence, strict=True)
            )
            for name, answer in (("vector", np.sign(places[place]) * one), ("search", context)):
                right[name] += int(np.argmax(table @ answer)) == word
    found = measure_read_back(words, width)
    assert (found.reads, found.vector, found.search) == (
        256,
        right["vector"] / 256,
        right["search"] / 256,
    )


def test_the_search_is_the_run_of_cross_and_said_with_its_numbers() -> None:
    found = ask("explain", "seq2seq", *TEXTS, "--d-model", "16", "--json").json
    run = ask("cross", *TEXTS, "--d-model", "16", "--json").json
    head = run["layers"][0]["heads"][0]
    assert found["weights"] == head["weights"]
    rows = [np.asarray(row) / np.linalg.norm(row) for row in head["output"]]
    pairs = [rows[a] @ rows[b] for a in range(4) for b in range(4) if a != b]
    assert found["cosine"] == pytest.approx(sum(pairs) / 12, abs=1e-6)
    said = " ".join(ask("explain", "seq2seq", *TEXTS, "--d-model", "16", "--brief").out.split())
    first = next(row for row in found["bottleneck"] if row["vector"] < 0.5)
    beside = f"Apart from this text: of {first['words']} random words added into one vector"
    share = f"{first['vector']:.0%}"
    assert f"{beside} of width 16, {share} can be read back, the first length tried" in said
    assert f"by guessing among {found['vocabulary']} words, 0.4%." in said  # 1 of 256
    assert said.index("At ") < said.index(beside)  # what is asked about comes first
    assert f"mean cosine of two: {found['cosine']:.2f}" in said
    assert ask("explain", "seq2seq", "--d-model", "16", "--json").json == found
    alone = ask("explain", "seq2seq", "le", "the cat", "--d-model", "16").out
    assert "mean cosine" not in alone


def test_of_several_heads_the_sharpest_is_shown() -> None:
    sizes = ("--d-model", "16", "--num-heads", "4")
    found = ask("explain", "seq2seq", *TEXTS, *sizes, "--json").json
    run = ask("cross", *TEXTS, *sizes, "--json").json
    sharp = [np.max(head["weights"], axis=1).mean() for head in run["layers"][0]["heads"]]
    assert found["head"] == int(np.argmax(sharp))
    named = ask("explain", "seq2seq", *TEXTS, *sizes, "--head", "2", "--json").json
    assert named["head"] == 2


@pytest.mark.thorough
def test_an_encoder_decoder_searches_what_its_encoder_has_read(tmp_path: Path) -> None:
    model = attncli.load(make(CASES["bart"], tmp_path), backend="numpy")
    keys = model.tokenizer.ids_to_tokens((7, 3, 50, 11, 28, 5))
    queries = model.tokenizer.ids_to_tokens((2, 9, 40))
    texts = CrossTexts("", "", queries, keys)
    found = attncli.topics.seq2seq(model, "", "", texts=texts)
    run = attncli.cross(model, "", "", texts=texts)
    sharp = {
        (layer.layer, head.head): np.asarray(head.weights).max(axis=1).mean()
        for layer in run.layers
        for head in layer.heads
    }
    assert (found.layer, found.head) == max(sharp, key=lambda place: sharp[place])
    assert np.shape(found.weights) == (3, 6)


def test_one_text_alone_is_refused() -> None:
    refused = ask("explain", "seq2seq", "le chat")
    assert (refused.code, "an encoder-decoder has two" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("texts", "english", "chinese"),
    [
        (("le chat noir", "cats"), "gets the same context vector", "取到的都是同一个上下文向量"),
        (("the the the", "a b"), "nearly the same here", "几乎相同"),
    ],
)
def test_equal_vectors_are_not_told_as_vectors_of_their_own(
    texts: tuple[str, str], english: str, chinese: str
) -> None:
    said = " ".join(ask("explain", "seq2seq", *texts, "--brief").out.split())
    assert english in said
    assert "vector of its own" not in said
    assert chinese in "".join(
        ask("explain", "seq2seq", *texts, "--brief", "--lang", "zh").out.split()
    )
