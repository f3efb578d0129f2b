"""A logit as a sum over words: exact in ten families, against a propagation of each token's part by
hand, and in what the command writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import resting_model
from asking import ask
from counting import tokens_run
from msgspec.structs import replace
from small_gpt2 import small_gpt2
from tiny_checkpoints import CASES, make

import attncli
from attncli.draw.view import View
from attncli.errors import UnsupportedError
from attncli.features.effects.compute import logits
from attncli.features.effects.document import DeletionStep
from attncli.features.effects.screen import _deletion_sentence, logits_sentences
from attncli.features.effects.sweep import SweepText
from attncli.features.effects.word_parts import deletion_passes, word_sum
from attncli.mechanism.spec import Head
from attncli.models.model import Model
from attncli.models.run import unembedding

IDS = (7, 3, 3, 50, 11, 28, 5)
LAST = len(IDS) - 1
FAMILIES = (
    "llama", "gpt2", "gemma2", "gemma3_text", "qwen2", "qwen3", "gpt_neox", "phi", "mistral", "falcon alibi",
    "mixtral",
)  # fmt: skip
"""Grouped queries, windows, soft caps, norms after and within, parallel blocks, biases, experts."""


def with_head(model: Model) -> Model:
    """The model with its token table as output head, where its checkpoint has none."""
    if model.spec.head is not None and not model.spec.head.projection:
        tied = replace(model.spec.head, tied=True)
    else:
        tied = Head(tied=True)
    return replace(model, spec=replace(model.spec, head=tied))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if place % 6 == 0 else pytest.mark.thorough)
        for place, name in enumerate(FAMILIES)
    ],
)
def test_words_and_biases_add_up_to_the_logit(name: str, tmp_path: Path) -> None:
    model = with_head(attncli.load(make(CASES[name], tmp_path), dtype="float64"))
    tokens = model.tokenizer.ids_to_tokens(IDS)
    text = SweepText(model, tokens, model.backend)
    for versus in (None, 4):
        result = word_sum(text, "", LAST, 19, versus)
        *_, trace = model.trace(tokens, idle=True)
        bare = replace(model.spec.head, softcap=None)
        model_bare = replace(model, spec=replace(model.spec, head=bare))
        scores = np.asarray(model_bare.logits(trace.after[-1:]))[0]
        own = scores[19] - (0.0 if versus is None else scores[versus])
        assert result.logit == pytest.approx(own, abs=1e-9)
        whole = sum(word.value for word in result.words) + result.biases
        assert whole == pytest.approx(result.logit, abs=1e-9)
        # the negative control: no word is idle, so that a sum without one is another
        assert min(abs(word.value) for word in result.words) > 1e-9


def test_each_word_is_what_its_part_becomes_by_hand(tmp_path: Path) -> None:
    """Llama: the part of each token through norms divided as in the run, weights and gates as they
    were."""
    model = with_head(attncli.load(make(CASES["llama"], tmp_path), dtype="float64"))
    tokens = model.tokenizer.ids_to_tokens(IDS)
    x = np.asarray(model.store.embed(model.backend, tokens))
    parts = np.zeros((len(IDS), *x.shape))
    for place in range(len(IDS)):
        parts[place, place] = x[place]
    eps = model.spec.final_norm.eps

    def divide(part: np.ndarray, whole: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return part / np.sqrt((whole**2).mean(-1, keepdims=True) + eps) * weight

    for trace in model.trace(tokens):
        weights = model.store.layer(model.backend, trace.layer)
        attention = model.spec.blocks[trace.layer].attention
        pattern = np.asarray(trace.stages["weights"])
        normed = divide(parts, x, np.asarray(weights("attn.in.weight")))
        values = normed @ np.asarray(weights("attn.v.weight")).T
        added = np.zeros_like(parts)
        for head in range(attention.heads):
            kv = head * attention.kv_heads // attention.heads
            own = values[..., kv * attention.v_dim : (kv + 1) * attention.v_dim]
            columns = slice(head * attention.v_dim, (head + 1) * attention.v_dim)
            added += pattern[head] @ own @ np.asarray(weights("attn.o.weight"))[:, columns].T
        parts, x = parts + added, np.asarray(trace.stages["sum"])  # biases included
        scale = np.asarray(weights("mlp.in.weight"))
        entering, whole = divide(parts, x, scale), divide(x, x, scale)
        gate = whole @ np.asarray(weights("mlp.gate.weight")).T
        if weights("mlp.gate.bias") is not None:
            gate = gate + np.asarray(weights("mlp.gate.bias"))
        passed = gate / (1 + np.exp(-gate)) * (entering @ np.asarray(weights("mlp.up.weight")).T)
        added = passed @ np.asarray(weights("mlp.down.weight")).T
        parts, x = parts + added, np.asarray(trace.after)
    outer = model.store.outer(model.backend)
    last = divide(parts, x, np.asarray(outer("final.weight")))[:, LAST]
    known = last @ np.asarray(unembedding(model.spec.head, outer))[19]
    result = word_sum(SweepText(model, tokens, model.backend), "", LAST, 19, None)
    assert [word.value for word in result.words] == pytest.approx(known.tolist(), abs=1e-10)


def test_what_is_no_sum_over_words_is_refused(tmp_path: Path) -> None:
    model = with_head(attncli.load(make(CASES["gpt_oss"], tmp_path), dtype="float64"))
    tokens = model.tokenizer.ids_to_tokens(IDS)
    with pytest.raises(UnsupportedError, match="no sum over words"):
        word_sum(SweepText(model, tokens, model.backend), "", LAST, 19, None)


def test_the_command_tells_the_sum_what_is_held_and_the_test(tmp_path: Path) -> None:
    folder = small_gpt2(tmp_path / "gpt2")
    line = ["logits", "--model", str(folder), "it was too the", "--by", "word"]
    document = ask(*line, "--json").json
    words = document["words"]
    assert words["sum"] == pytest.approx(words["logit"], abs=1e-9)
    assert words["logit"] == pytest.approx(document["logit"], abs=1e-4)
    removed = [step["removed"] for step in words["deletion"]]
    assert removed[0] == 0
    assert removed == sorted(set(removed))
    assert words["deletion"][0]["value"] == pytest.approx(document["logit"], abs=1e-4)
    screen = " ".join(ask(*line).out.split())
    assert "with attention held" in screen
    assert "Attention weights, the statistics of norms and gates are held" in screen
    assert "L0 H0" not in screen  # never of heads
    assert ask(*line[:-1], "head").code == 2


@pytest.mark.parametrize(
    ("own", "orders", "verdict"),
    [
        ((2.0, 0.0), ([3.0, 2.5], [1.0, 0.0]), "the order stands the test, as one in"),
        ((2.0, 0.0), ([9.0, 1.9], [9.0, 0.0]), "the order does not stand the test"),
        ((2.0, 0.0), ([9.0, 2.0], [9.0, 0.0]), "the order does not stand the test"),
        ((2.0,), ([2.0, 2.0],), ""),
    ],
)
def test_an_order_stands_the_test_where_it_beats_each_random_one(
    own: tuple[float, ...], orders: tuple[list[float], ...], verdict: str
) -> None:
    deletion = [DeletionStep(removed=0, value=5.0, random=5.0, random_orders=[5.0, 5.0])]
    for removed, (value, by_order) in enumerate(zip(own, orders, strict=True), 1):
        deletion.append(
            DeletionStep(
                removed=removed, value=value, random=sum(by_order) / 2, random_orders=by_order
            )
        )
    said = " ".join(_deletion_sentence(deletion, View(width=300)))
    assert verdict in said
    assert bool(said) == bool(verdict)


def test_words_of_the_same_text_are_told_apart(tmp_path: Path) -> None:
    """A word that stands twice has its place beside it, in the table and in the sentence."""
    folder = str(small_gpt2(tmp_path / "model"))
    shown = ask("logits", "a cat sat on a mat", "--by", "word", "--model", folder, "--full").out
    told = ask("logits", "a cat sat on a mat", "--by", "word", "--model", folder, "--json").json
    words = told["words"]["words"]
    twice = [word for word in words if word["word"] == "a"]
    assert len(twice) == 2
    for word in twice:
        assert shown.count(f'"a" ({word["first"]})') >= 1
    assert '"cat" (' not in shown


def test_the_word_that_adds_most_is_none_where_heads_rest() -> None:
    """The first token adds most to some logits; the sentence names the word after it, and says how
    much is not counted."""
    document = logits(resting_model.model(), "a c d b", by="word", target="id:0")
    part = document.words
    assert part
    values = {0: 9.0, 2: 5.0}
    raised = [replace(word, value=values.get(word.first, 0.0)) for word in part.words]
    document = replace(document, words=replace(part, words=raised))
    said = " ".join(logits_sentences(document, View(width=300)))
    assert 'Of the words "c" adds most' in said
    assert 'Not counted: "a", where heads rest, with +9.00.' in said
    nobody = replace(document, model=replace(document.model, source="file"))
    assert 'Of the words "a" adds most' in " ".join(logits_sentences(nobody, View(width=300)))


def test_the_runs_without_words_are_counted_before(tmp_path: Path) -> None:
    """All but the two special tokens and the last word may be taken out, which counts as all."""
    model = attncli.load(small_gpt2(tmp_path / "gpt2", longest=40), hold=True)
    text = " ".join(["it was too the"] * 5)
    count = len(model.encode(text))
    run = tokens_run(lambda: attncli.logits(model, text, target="id:9", by="word"))
    own_and_wide = 2 * count
    counted = own_and_wide + sum(passes.tokens_run for passes in deletion_passes(count))
    assert counted * len(model.spec.blocks) == pytest.approx(run, rel=0.1)
