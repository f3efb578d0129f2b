"""The word behind a mask: against transformers' own heads in float64, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from tiny_checkpoints import CASES, Case, make
from tiny_sizes import BERT

import attncli
from attncli.mechanism.context import Zero
from attncli.models.model import Model
from attncli.models.verify import reference_model, run_short_text_whole

IDS = (7, 3, 3, 50, 11, 28, 5, 44)
ENCODERS = (
    "bert", "modernbert", "deberta-v2", "roberta", "xlm-roberta", "camembert", "mpnet", "distilbert", "electra",
    "albert", "nomic_bert", "gte", "jina_embeddings_v3", "longformer", "big_bird",
)  # fmt: skip
LIMIT = 1e-10
VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on a mat dog wall ##s . 我 爱 你 猫 狗"
TEXT = "the cat sat on the [MASK]."
MASK = 6


def logits_of_transformers(folder: Path) -> np.ndarray:
    """[token, vocabulary]: what transformers' model for masked words gives, float64 throughout."""
    import torch
    import transformers

    whole: Any = transformers.AutoModelForMaskedLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager"
    ).eval()
    with reference_model(folder, both=False) as base:
        setattr(whole, whole.base_model_prefix, base)
        run_short_text_whole(base, len(IDS))
        return np.asarray(whole(torch.tensor([IDS])).logits[0].numpy())


def last_vectors(model: Model) -> np.ndarray:
    *_, trace = model.trace(model.tokenizer.ids_to_tokens(IDS), idle=True)
    return np.asarray(trace.after)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if place < 3 else pytest.mark.thorough)
        for place, name in enumerate(ENCODERS)
    ],
)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    case = Case(CASES[name].model_type, CASES[name].config, "AutoModelForMaskedLM")
    folder = make(case, tmp_path / "model")
    model = attncli.load(folder, dtype="float64")
    known = logits_of_transformers(folder)
    vectors = last_vectors(model)
    assert np.abs(np.asarray(model.masked_logits(vectors)) - known).max() < LIMIT
    # the negative control: each part of the head matters, and so does the layer it reads
    outer = dict(model.store.binding.outer)
    for role in [role for role in outer if role.startswith("masked.") and role.endswith(".bias")]:
        model.store.binding.outer.pop(role)
        assert np.abs(np.asarray(model.masked_logits(vectors)) - known).max() > 1e-3
        model.store.binding.outer[role] = outer[role]
    assert np.abs(np.asarray(model.masked_logits(vectors[::-1])) - known).max() > 1e-3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT with its head, and a vocabulary that has a mask."""
    words = VOCABULARY.split()
    sizes = {**BERT, "vocab_size": len(words), "num_hidden_layers": 4}
    case = Case("bert", sizes, "AutoModelForMaskedLM")
    path = make(case, tmp_path_factory.mktemp("masked") / "model")
    (path / "vocab.txt").write_text("\n".join(words) + "\n", "utf-8")
    return path


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return attncli.load(folder, dtype="float64")


def shares(model: Model, text: str, place: int, **how: Any) -> np.ndarray:
    """[layer, vocabulary]: the softmax of what each layer would put at a token."""
    rows = []
    for trace in model.trace(text, idle=True, **how):
        scores = np.asarray(model.masked_logits(trace.after[place : place + 1]))[0]
        rows.append(np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum())
    return np.stack(rows)


def test_the_first_mask_is_told_by_layer_and_without_heads(model: Model) -> None:
    known = shares(model, TEXT, MASK)
    document = attncli.next_word(model, TEXT, top=3, target="dog", without=[(0, 1), (2, 0)])
    assert document.masked
    assert document.position == MASK
    order = np.argsort(-known[-1])[:3]
    assert [row.token.id for row in document.top] == order.tolist()
    assert np.allclose([row.probability for row in document.top], known[-1][order], atol=1e-12)
    dog = VOCABULARY.split().index("dog")
    assert document.target.probability == pytest.approx(known[-1][dog], abs=1e-12)
    first = known.argmax(-1).tolist()
    changes = [at for at, entry in enumerate(first) if at == 0 or entry != first[at - 1]]
    assert [row.layer for row in document.layers] == changes
    zeros = {(0, "self"): (Zero((1,)),), (2, "self"): (Zero((0,)),)}
    without = shares(model, TEXT, MASK, interventions=zeros)[-1]
    assert document.without.target.probability == pytest.approx(without[dog], abs=1e-12)
    assert abs(without[dog] - known[-1][dog]) > 1e-4  # the heads matter


def test_doses_are_of_the_word_behind_the_mask(model: Model) -> None:
    document = attncli.next_word(model, TEXT, target="dog", weigh="cat=×3")
    own = next(dose for dose in document.doses if dose.factor == 1.0)
    assert own.probability == pytest.approx(document.target.probability, abs=1e-12)
    assert own.text == document.top[0].token.text
    assert len({dose.probability for dose in document.doses}) == len(document.doses)


def test_each_mask_can_be_asked_about(model: Model) -> None:
    said: list[str] = []
    text = "the [MASK] sat on [MASK]"
    first = attncli.next_word(model, text, note=said.append)
    assert first.position == 2
    assert "2 masks" in said[0]
    for query, place in (("#5", 5), ("[MASK]:2", 5), ("[MASK]", 2)):
        assert attncli.next_word(model, text, query=query).position == place


def test_the_command_says_it_in_both_languages(folder: Path) -> None:
    line = ("next", "--model", str(folder))
    shown = ask(*line, "我爱[MASK]").out
    assert 'what would stand in place of "[MASK]"' in shown
    assert 'The likeliest in place of "[MASK]" is' in shown
    assert "[MASK]”处最可能的是“" in ask(*line, "我爱[MASK]", "--lang", "zh").out
    document = ask(*line, "我爱[MASK]", "--json").json
    assert document["masked"] is True
    several = ask(
        *line, "--lines", "--ndjson", stdin="the [MASK]\n我爱[MASK] .\n".encode()
    ).out.splitlines()
    assert len(several) == 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("the cat",), 3, "a text with [MASK]"),
        ((TEXT, "--query", "cat"), 3, "'cat' is not masked"),
        ((TEXT, "--target", "cats"), 3, "a mask hides one"),
        ((TEXT, "--each"), 2, "--each"),
    ],
)
def test_what_has_no_answer_is_refused(
    words: tuple[str, ...], code: int, said: str, folder: Path
) -> None:
    answer = ask("next", *words, "--model", str(folder))
    assert answer.code == code
    assert said in answer.err
    assert not answer.out


def test_a_file_without_the_head_says_so(folder: Path, tmp_path: Path) -> None:
    """The same model saved as a sentence encoder, and as the decoder that BERT can be."""
    bare = make(Case("bert", BERT), tmp_path / "bare")
    refused = ask("next", "--ids", "5 6", "--model", str(bare))
    assert refused.code == 4
    assert "saved without the head that tells a masked word" in refused.err
    decoder = make(Case("bert", {**BERT, "is_decoder": True}), tmp_path / "decoder")
    refused = ask("next", "--ids", "5 6", "--model", str(decoder))
    assert refused.code == 4
    assert "predicts no next token" in refused.err
    assert ask("ablate", TEXT, "--measure", "logprob", "--model", str(folder)).code == 4
