"""The weights that the page makes in a browser are those of the run, head by head, within the error
that it states.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import Opened, opened
from tiny_checkpoints import CASES, make

import attncli
from attncli.arrays.backend import EVERY
from attncli.arrays.numpy_backend import NumpyBackend
from attncli.draw.page import Page, page_bytes, words
from attncli.features.tensors.compute import (
    Options,
    _tensors_document,
    capture_attention,
    captured_record,
)
from attncli.inputs.token import Token
from attncli.inputs.tokenize import tokenizer
from attncli.inputs.word_groups import merged_words
from attncli.measure.run_record import CrossTexts, RunRecord, cross_record, run_record
from attncli.mechanism.mask import Causal, Everywhere, Mask, MatrixMask, Window, parse_mask
from attncli.models.model import Model
from attncli.models.one_layer import Settings, seeded_model

LIMIT = 5e-4
TEXT = " ".join(f"w{at % 17}" for at in range(41))
HEAD_WEIGHTS = """() => Promise.all(attn.meta.runs[0].heads.map(async (_, at) => {
  const found = await attn.weights(0, at);
  return Array.from({length: found.n}, (_, i) => Array.from(found.row(i)));
}))"""


def seeded(mask: Mask = Everywhere(), **given: Any) -> Model:  # noqa: B008 - frozen and without state
    settings = Settings(**{"d_model": 24, "heads": 3, "mask": mask, **given})
    return seeded_model(settings, 3, "seeded", tokenizer("whitespace"), NumpyBackend("float32"))


def true_weights(model: Model, tokens: Any) -> dict[tuple[int, int], np.ndarray]:
    """Each head's weights as a dense run gives them, hidden ones −1."""
    found = {}
    for trace in model.trace(tokens, keep=("masked", "weights")):
        weights, masked = (
            np.asarray(model.backend.numpy(trace.stages[name])) for name in ("weights", "masked")
        )
        for head, (one, scores) in enumerate(zip(weights, masked, strict=True)):
            found[trace.layer, head] = np.where(np.isneginf(scores), -1, one)
    return found


@pytest.fixture(scope="module")
def window(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """One window for all pages."""
    model = seeded()
    file = tmp_path_factory.mktemp("first") / "page.html"
    file.write_bytes(
        b"".join(page_bytes(Page("test", [run_record(model, "a b", model.encode("a b"))])))
    )
    found = opened(chromium, file)
    yield found
    found.page.context.close()


def compared(
    window: Opened, folder: Path, record: RunRecord, expected: dict[tuple[int, int], np.ndarray]
) -> set[str]:
    """Hold every head of the page against what is expected; how the heads were kept."""
    file = folder / "page.html"
    file.write_bytes(b"".join(page_bytes(Page("test", [record]))))
    window.go(file)
    heads = window.value("attn.meta.runs[0].heads")
    assert {(head["l"], head["h"]) for head in heads} == set(expected)
    for head, weights in zip(heads, window.value(HEAD_WEIGHTS), strict=True):
        found = np.array(weights)
        wanted = expected[head["l"], head["h"]]
        assert found.shape == wanted.shape
        assert ((found < 0) == (wanted < 0)).all()
        assert np.abs(found - wanted).max() <= LIMIT
        assert (
            np.abs(found - wanted).max() <= 3 * head["e"] + 2e-5
        )  # it was measured on sampled rows
    window.clean()
    return {head["r"] for head in heads}


MASKS = {
    "everywhere": Everywhere(),
    "causal": Causal(),
    "window": Window(4, 0),
    "window both ways": Window(3, 2),
    "dilated": parse_mask("dilated:9,3"),
    "sinks and recent": parse_mask("sinks:2,5"),
    "blocks": parse_mask("block:7"),
    "rows without keys": Window(-2, 5),
    "by head": MatrixMask(np.random.default_rng(1).random((3, 41, 41)) > 0.4),
    "hashed": parse_mask("lsh:4"),
}


@pytest.mark.many
@pytest.mark.parametrize("name", MASKS)
def test_masks(window: Opened, tmp_path: Path, name: str) -> None:
    model = seeded(MASKS[name])
    tokens = model.encode(TEXT)
    kept = compared(window, tmp_path, run_record(model, TEXT, tokens), true_weights(model, tokens))
    assert kept == {"products"}


@pytest.mark.many
@pytest.mark.parametrize(
    "given",
    [
        {"softcap": 1.5},
        {"position": "alibi"},
        {"position": "rope"},
        {"kv_heads": 1},
        {"scale": "none", "d_k": 5},
    ],
    ids=str,
)
def test_scores(window: Opened, tmp_path: Path, given: dict[str, Any]) -> None:
    model = seeded(Causal(), **given)
    tokens = model.encode(TEXT)
    kept = compared(window, tmp_path, run_record(model, TEXT, tokens), true_weights(model, tokens))
    assert kept == {"products"}


def test_short_texts_are_kept_as_they_are(window: Opened, tmp_path: Path) -> None:
    model = seeded(d_k=16)
    tokens = model.encode("humpty dumpty sat on")
    kept = compared(window, tmp_path, run_record(model, "", tokens), true_weights(model, tokens))
    assert kept == {"exact"}


def test_scores_that_16_bits_do_not_hold_take_more(window: Opened, tmp_path: Path) -> None:
    model = seeded(scale="40.0")
    tokens = model.encode(TEXT)
    record = run_record(model, TEXT, tokens)
    compared(window, tmp_path, record, true_weights(model, tokens))
    assert all(
        isinstance(head.terms.q, np.ndarray)
        for head in run_record(model, TEXT, tokens).heads
        if head.terms
    )


@pytest.mark.thorough
def test_hash_attention(window: Opened, tmp_path: Path) -> None:
    from attncli.cli.declarations import AttentionOptions
    from attncli.cli.model_option import with_hash_attention

    model = with_hash_attention(seeded(), "reformer:4,2", AttentionOptions())
    text = " ".join(f"w{at % 23}" for at in range(160))
    tokens = model.encode(text)
    expected = {
        (0, head): weights
        for trace in model.trace(tokens, keep=("masked", "weights"))
        for head, weights in enumerate(
            np.where(np.isneginf(trace.stages["masked"]), -1, trace.stages["weights"])
        )
    }
    assert compared(window, tmp_path, run_record(model, text, tokens), expected) == {"roots"}


def test_merged_words(window: Opened, tmp_path: Path) -> None:
    model = attncli.load("minilm")
    text = "The antidisestablishmentarian didn't unwrap her sandwiches"
    tokens = model.encode(text)
    words = merged_words(tokens, text)
    assert len(words.words) < len(tokens)
    expected = {}
    for trace in model.trace(tokens, layers=[2, 5], keep=("weights",)):
        for head, weights in enumerate(words.merge(model.backend.numpy(trace.stages["weights"]))):
            expected[trace.layer, head] = weights
    record = run_record(model, text, tokens, layers=[2, 5], words=True)
    assert compared(window, tmp_path, record, expected) == {"exact"}


def test_cross_attention(window: Opened, tmp_path: Path) -> None:
    from attncli.measure.run_record import cross_traces

    model = seeded(Causal(), heads=2, position="rope")
    texts = CrossTexts(TEXT, TEXT[:60], model.encode(TEXT), model.encode(TEXT[:60]))
    expected = {}
    for _, trace in cross_traces(model, texts, EVERY, EVERY):
        for head, weights in enumerate(trace.stages["weights"]):
            expected[0, head] = np.where(np.isneginf(trace.stages["masked"][head]), -1, weights)
    assert compared(window, tmp_path, cross_record(model, texts), expected) == {"products"}


@pytest.mark.many
@pytest.mark.parametrize(
    ("extra", "kept"),
    [
        ({}, "products"),
        ({"sinks": np.array([2.0, -1.0, 0.5, 3.0])}, "products"),
        ({"mask": np.random.default_rng(2).random((40, 33)) > 0.3}, "products"),
        ({"bias": np.random.default_rng(3).standard_normal((4, 40, 33))}, "exact"),
    ],
    ids=["plain", "sinks", "mask", "bias"],
)
def test_captured_arrays(
    window: Opened, tmp_path: Path, extra: dict[str, np.ndarray], kept: str
) -> None:
    rng = np.random.default_rng(4)
    tensors = {
        "q": rng.standard_normal((2, 4, 40, 8)),
        "k": rng.standard_normal((2, 2, 33, 8)),
        "v": rng.standard_normal((2, 2, 33, 5)),
    } | extra
    arrays = capture_attention(tensors, "file", NumpyBackend("float64"), Options(softcap=3.0))
    trace = arrays.attend()
    document = _tensors_document(
        "file", arrays, trace, Everywhere(), heads=range(4), top=3, stages=False
    )
    hidden = np.isneginf(trace.stages["masked"])
    expected = {
        (batch, head): np.where(hidden[batch, head], -1, trace.stages["weights"][batch, head])
        for batch in range(2)
        for head in range(4)
    }
    record = captured_record(arrays, trace, document)
    assert compared(window, tmp_path, record, expected) == {kept}


STRUCTURES = {
    "buckets": ("t5", "t5 gated", "mt5", "umt5", "umt5 not gated"),
    "slopes": ("bloom", "falcon alibi"),
    "windows, soft caps, sinks": ("gemma2", "gemma3_text", "gpt_neo", "gpt_oss", "mistral", "modernbert", "cohere2"),
    "scores of several terms": ("deberta-v2", "deberta-v2 one way", "deberta-v2 by silence", "mpnet"),
    "latent and partly without positions": ("deepseek_v2", "deepseek_v3", "llama4_text", "smollm3", "exaone4"),
}  # fmt: skip
"""Families whose scores are made unlike the others'."""


def drawn() -> tuple[int, list[str]]:
    """Families drawn, one of each structure and two of the others: by the seed in
    `ATTN_FAMILIES_SEED`; all of them where `ATTN_EVERY_FAMILY` is set."""
    seed = int(os.environ.get("ATTN_FAMILIES_SEED", 7))
    if os.environ.get("ATTN_EVERY_FAMILY"):
        return seed, list(CASES)
    draw = random.Random(seed)
    others = sorted(set(CASES) - {name for names in STRUCTURES.values() for name in names})
    return seed, [draw.choice(names) for names in STRUCTURES.values()] + draw.sample(others, 2)


@pytest.mark.thorough
def test_families_at_random(window: Opened, tmp_path: Path) -> None:
    assert {name for names in STRUCTURES.values() for name in names} <= set(CASES)
    seed, names = drawn()
    wrong = []
    for at, name in enumerate(names):
        (tmp_path / str(at)).mkdir()
        model = attncli.load(str(make(CASES[name], tmp_path / str(at))), dtype="float64")
        if CASES[name].model_type == "whisper":  # a decoder that reads what an encoder made
            model = model.decoder_over(np.random.default_rng(2).standard_normal((9, 30)))
        tokens = model.tokenizer.ids_to_tokens([(7 * place) % 58 + 1 for place in range(26)])
        record = run_record(model, "", tokens)
        try:
            compared(window, tmp_path, record, true_weights(model, tokens))
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
    assert not wrong, f"ATTN_FAMILIES_SEED={seed}: {wrong}"


def test_a_generated_token_stands_apart_where_its_blank_is_its_own() -> None:
    text = "of it is Par."
    spans = [("of", 0, 2), ("it", 3, 5), ("is", 5, 8), ("Par", 8, 12), (".", 12, 13)]
    tokens = [
        Token(index, said, index, start, end) for index, (said, start, end) in enumerate(spans)
    ]
    assert [row[1] for row in words(tokens, text)] == [0, 0, 0, 0, 1]
