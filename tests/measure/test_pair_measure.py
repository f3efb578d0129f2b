"""Pairs as a model reads them: answers as entries of its vocabulary, and the measure m."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace
from small_gpt2 import small_gpt2

import attncli
from attncli.errors import InputError
from attncli.inputs.pairs import Pair, PairFile
from attncli.measure.pair_measure import (
    _measured_alone,
    answer_id,
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
    np.testing.assert_allclose(_measured_alone(model, texts, lambda share: None), m, atol=1e-5)


def test_an_answer_without_a_blank_is_tried_with_one_first(model: Model) -> None:
    tokenizer = model.tokenizer
    with_blank, without = (answer_id(tokenizer, "it was", word) for word in (" it", "it"))
    assert with_blank == without
    assert with_blank == tokenizer.encode("it it")[2].id
    assert with_blank != tokenizer.encode("it")[1].id


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
