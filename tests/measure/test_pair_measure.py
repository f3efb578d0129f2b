"""Pairs as a model reads them: answers as entries of its vocabulary, and the measure m."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace
from small_gpt2 import small_gpt2

import attncli
from attncli.errors import InputError
from attncli.inputs.pairs import Pair, PairFile
from attncli.inputs.token import Token
from attncli.measure.pair_measure import (
    _measure_one_by_one,
    answer_id,
    answer_ids,
    fit_pair,
    fit_pairs,
    measured_differences,
)
from attncli.models.model import Model

PAIR = Pair("it was too", "it the too", " the", " it")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return attncli.load(small_gpt2(tmp_path_factory.mktemp("pairs") / "gpt2"))


def test_m_is_the_difference_of_two_logits(model: Model) -> None:
    pair = fit_pair(model, PAIR)
    assert pair.first_difference == 2
    (trace,) = model.trace(list(pair.clean), layers=[1], keep=())
    logits = np.asarray(model.backend.numpy(model.logits(trace.after[-1:])), np.float64)[0]
    longer = (*pair.corrupt, *pair.clean)
    texts = [
        (pair.clean, pair.answer, pair.versus),
        ([replace(token, index=place) for place, token in enumerate(longer)], 5, 6),
        (pair.clean, pair.versus, pair.answer),
    ]
    m = measured_differences(model, texts)
    assert m[0] == pytest.approx(logits[pair.answer] - logits[pair.versus], abs=1e-5)
    assert m[2] == pytest.approx(-m[0])
    np.testing.assert_allclose(_measure_one_by_one(model, texts, lambda share: None), m, atol=1e-5)


def test_an_answer_without_a_blank_is_tried_with_one_first(model: Model) -> None:
    tokenizer = model.tokenizer
    with_blank, without = (answer_id(tokenizer, "it was", word) for word in (" it", "it"))
    assert with_blank == without
    assert with_blank == tokenizer.encode("it it")[2].id
    assert with_blank != tokenizer.encode("it")[1].id


class Greedy:
    """A tokenizer that takes the longest piece of its list, or a letter."""

    pieces = ("北京", " 北京", "伦敦", " 东京", "的", " Paris", "Rome", " Rome", " it", ",")

    def encode(self, text: str) -> list[Token]:
        """The tokens of a text, without specials."""
        tokens: list[Token] = []
        place = 0
        while place < len(text):
            fitting = [piece for piece in self.pieces if text.startswith(piece, place)]
            piece = max(fitting, key=len, default=text[place])
            number = self.pieces.index(piece) if piece in self.pieces else 100 + ord(piece)
            tokens.append(Token(len(tokens), piece, number, place, place + len(piece)))
            place += len(piece)
        return tokens


@pytest.mark.parametrize(
    ("answers", "entries"),
    [
        (("北京", "伦敦"), ("北京", "伦敦")),  # a script without blanks
        (("北京", "东京"), (" 北京", " 东京")),  # both with one, where one of them needs it
        (("伦敦", "东京"), ("伦敦", " 东京")),  # no common way: each as it can be had
        (("Paris", "Rome"), (" Paris", " Rome")),
        (("Rome", ","), ("Rome", ",")),  # both without a blank rather than one with it
        ((" Rome", ","), (" Rome", ",")),  # as it was written
    ],
)
def test_both_answers_of_a_pair_are_written_in_the_same_way(
    answers: tuple[str, str], entries: tuple[str, str]
) -> None:
    tokenizer = Greedy()
    found = answer_ids(tokenizer, "中国的首都是", *answers)  # type: ignore[arg-type]
    assert tuple(tokenizer.pieces[entry] for entry in found) == entries


def test_an_answer_of_several_tokens_is_told_as_its_script_is_written() -> None:
    with pytest.raises(InputError) as told:
        answer_id(Greedy(), "中国的首都是", "巴黎")  # type: ignore[arg-type]
    assert str(told.value) == "'巴黎' is 2 tokens to this model: '巴', '黎'"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"corrupt": "it the the too"}, "the clean text has"),
        ({"corrupt": PAIR.clean}, "both texts are the same to this model"),
        ({"answer": " zebra"}, "' zebra' is 6 tokens to this model"),
        ({"answer": "it"}, "answer and versus are the same entry"),
    ],
)
def test_a_pair_that_does_not_fit_is_told_with_both_values(
    model: Model, change: dict[str, str], said: str
) -> None:
    members = {name: getattr(PAIR, name) for name in ("clean", "corrupt", "answer", "versus")}
    pair = Pair(**{**members, **change})
    with pytest.raises(InputError) as told:
        fit_pair(model, pair)
    assert said in str(told.value)
    fitted = fit_pairs(model, PairFile("pairs", (PAIR, pair), ("pairs:1", "pairs:2")))
    assert [place.pair for place in fitted.pairs] == [PAIR]
    assert [(number, error.where) for number, error in fitted.faults] == [(1, "pairs:2")]
