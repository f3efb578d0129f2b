"""Which entry of a vocabulary a word stands for after a text: the likelier of its spellings."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from asking import ask
from counting import tokens_run
from small_gpt2 import small_gpt2

import attncli
from attncli.errors import AttnError, InputError
from attncli.features.effects.page import logits_page_focus
from attncli.features.effects.targets import (
    choose_target,
    following_tokens,
    likeliest,
    log_probabilities,
    probability_text,
    target_token,
)
from attncli.models.model import Model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small GPT-2 whose vocabulary has `cat` with a blank before it and without."""
    made = small_gpt2(tmp_path_factory.mktemp("targets") / "model")
    letters = {letter: number for number, letter in enumerate("abcdeostĠ")}
    pieces = ["at", "cat", "Ġcat", "os", "Ġt", "Ġa"]
    merges = [("a", "t"), ("c", "at"), ("Ġ", "cat"), ("o", "s"), ("Ġ", "t"), ("Ġ", "a")]
    vocabulary = letters | {piece: len(letters) + number for number, piece in enumerate(pieces)}
    vocabulary |= {f"{{{number}}}": number for number in range(len(vocabulary), 320)}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocabulary,
            "merges": [" ".join(pair) for pair in merges],
        },
    }
    (made / "tokenizer.json").write_text(json.dumps(tokenizer))
    return made


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    """The small model, loaded."""
    return attncli.load(str(folder))


TEXTS = ("a cat", "to", "at a cat", "cats", "aced", "do", "d", "test", "east", "coast")


@pytest.mark.thorough
def test_the_likelier_spelling_is_taken(model: Model) -> None:
    """Against the logits of the model itself, and in some of the texts either of the two."""
    chosen = set()
    for text in TEXTS:
        tokens = model.encode(text)
        row = log_probabilities(model, tokens, len(tokens) - 1)
        ids = [number for number in range(320) if target_token(model, number).text.strip() == "cat"]
        assert len(ids) == 2
        likelier = max(ids, key=lambda number: row[number])
        told: list[str] = []
        target = choose_target(model, tokens, "cat", note=told.append)
        assert target.ids == (likelier,)
        assert target.logprob == pytest.approx(row[likelier])
        assert target.own == int(np.argmax(row))
        assert len(told) == 1
        assert "likelier here" in told[0]
        chosen.add(target.ids)
    assert len(chosen) == 2


def test_a_blank_before_a_word_asks_for_that_spelling(model: Model) -> None:
    for text in TEXTS:
        tokens = model.encode(text)
        for name in (" cat", "␣cat"):
            (number,) = choose_target(model, tokens, name).ids
            assert target_token(model, number).text == " cat"


def test_several_entries_are_told_by_all_of_them(model: Model) -> None:
    """The probability of an answer is the product of its entries', each after those before it."""
    tokens = model.encode("a cat")
    target = choose_target(model, tokens, "tos")
    text = "".join(target_token(model, number).text for number in target.ids)
    assert text in ("tos", " tos")
    whole = 0.0
    for place, number in enumerate(target.ids):
        before = model.tokenizer.text_of(target.ids[:place])
        read = model.encode(f"a cat{before}")
        assert len(read) == len(tokens) + place
        whole += float(log_probabilities(model, read, len(read) - 1)[number])
    assert target.logprob == pytest.approx(whole, abs=1e-4)
    told: list[str] = []
    first = choose_target(model, tokens, "tos", several=False, note=told.append)
    assert first.ids == target.ids[:1]
    assert any("the first of them" in text for text in told)


@pytest.mark.thorough
def test_every_spelling_is_told_with_its_whole_probability(model: Model) -> None:
    """The note holds what each spelling has in all, so that none stands above the one taken."""
    first_decides = set()
    for text, name in product(TEXTS, ("tos", "cat", "ac", "dos")):
        tokens = model.encode(text)
        told: list[str] = []
        target = choose_target(model, tokens, name, note=told.append)
        wholes, firsts = [], []
        for ids in _ids_of_spellings(model, name):
            steps = [
                float(log_probabilities(model, read, len(read) - 1)[number])
                for place, number in enumerate(ids)
                for read in [[*tokens, *following_tokens(model, tokens, ids[:place])]]
            ]
            wholes.append(sum(steps))
            firsts.append(steps[0])
        assert target.logprob == pytest.approx(max(wholes), abs=1e-4)
        texts = [f"({probability_text(float(np.exp(whole)))})" for whole in sorted(wholes)]
        assert re.findall(r"\([^)]*%\)", told[0]) == texts[::-1]
        first_decides.add(np.argmax(firsts) == np.argmax(wholes))
    assert first_decides == {True, False}, "in some texts the first token misleads"


def _ids_of_spellings(model: Model, name: str) -> list[list[int]]:
    """The ids of a word without a blank before it and with one."""
    return [
        [token.id for token in model.encode(text) if token.id is not None]
        for text in (name, f" {name}")
    ]


def test_what_the_model_hardly_expects_is_warned_of(folder: Path, model: Model) -> None:
    tokens = model.encode("a cat")
    row = log_probabilities(model, tokens, len(tokens) - 1)
    names = {number: target_token(model, number).text for number in range(320)}
    assert np.exp(row.min()) < 0.01
    for number in (int(row.argmin()), int(row.argmax())):
        name = names[number].replace(" ", "␣")
        if not name.startswith("␣"):
            name = f"id:{number}"
        told = ask("logits", "a cat", "--model", str(folder), "--target", name, "--json").json
        rare = number == int(row.argmin())
        assert any("has a probability of" in text for text in told["warnings"]) == rare
    for command in (("ablate", "a cat"), ("patch", "a cat", "o cat")):
        for name in ("s", "cat", "at"):
            told = ask(*command, "--model", str(folder), "--target", name, "--json").json
            number = told["target"]["id"]
            rare = np.exp(row[number]) < 0.01 and number != int(row.argmax())
            assert any("has a probability of" in text for text in told["warnings"]) == rare


def test_a_page_names_the_logit_that_is_split(folder: Path, tmp_path: Path) -> None:
    """With a blank that is seen, and of a difference both tokens."""
    for versus, name in ((None, "␣a"), ("id:70", "␣a − ")):
        document = attncli.logits(attncli.load(str(folder)), "a cat", target="␣a", versus=versus)
        focus = logits_page_focus(document)
        assert focus is not None
        assert focus.effects[0].by.startswith(name)
        assert ("−" in focus.effects[0].by) == (versus is not None)


def test_a_word_without_entries_is_refused(model: Model) -> None:
    with pytest.raises(InputError, match="zzz"):
        choose_target(model, model.encode("a"), "zzz")


def test_a_vocabulary_of_whole_words_shows_no_blanks(tmp_path: Path) -> None:
    """WordLevel cuts at blanks first: no entry says whether a blank stood before it."""
    made = small_gpt2(tmp_path / "words")
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {"[UNK]": 0, "a": 1, "f": 2},
            "unk_token": "[UNK]",
        },
    }
    (made / "tokenizer.json").write_text(json.dumps(tokenizer))
    padded = attncli.load(str(made))
    assert target_token(padded, 2).text == "f"
    notes: list[str] = []
    for number, told in ((2, 0), (300, 1)):  # the output has 320 rows, the vocabulary 3 entries
        target = choose_target(padded, padded.encode("a"), f"id:{number}", note=notes.append)
        assert target.ids == (number,)
        assert sum("the tokenizer has no token 300" in str(note) for note in notes) == told


def test_the_likeliest_are_those_of_a_stable_sort():
    """Ties by the smaller number, also where the last place is one of several."""
    random = np.random.default_rng(0)
    for count in (1, 3, 40, 60):
        values = random.integers(0, 8, 40) / 8
        assert likeliest(values, count) == np.argsort(-values, kind="stable")[:count].tolist()


def test_the_models_own_choice_as_versus_is_refused_before_heads_are_taken_away(
    model: Model,
) -> None:
    text = "a cat sat"
    tokens = model.encode(text)
    own = int(log_probabilities(model, tokens, len(tokens) - 1).argmax())

    def refused() -> None:
        with pytest.raises(AttnError, match="same entry"):
            attncli.ablate(model, text, versus=f"id:{own}")

    assert tokens_run(refused) == len(tokens) * len(model.spec.blocks)
