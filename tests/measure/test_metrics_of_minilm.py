"""Every metric of every head of MiniLM, from the document to an independent recomputation of
transformers' weights.
"""

from __future__ import annotations

import math
import unicodedata
from functools import cache

import oracles_metrics as oracle
import pytest
from telling import telling

import attncli
from attncli.features.heads.compute import HeadsRequest
from attncli.features.heads.compute import heads as compute_heads
from attncli.measure.metric import METRICS
from attncli.models.aliases import locate
from attncli.models.model import Model
from attncli.models.verify import reference

compute_heads = telling(compute_heads)

SAMPLE = "The animal didn't cross the street because it was too tired"
TEXTS = (
    SAMPLE,
    "Le café est fermé; le CAFE d'à côté, lui, est ouvert — qqzxv ⁂ ⁑ zzyxq!",
    "我昨天去超市，买了牛奶和面包，今天发现面包过期了",
)


@cache
def minilm() -> Model:
    return attncli.load("minilm", backend="numpy")


def document(text: str, **wanted: object) -> list[dict]:
    found = compute_heads(
        minilm(),
        text,
        request=HeadsRequest(metrics=tuple(METRICS), maps=False, **wanted),
        tokens=minilm().encode(text),
    )
    return found["heads"]


@pytest.mark.many
@pytest.mark.parametrize("text", TEXTS)
def test_seventy_two_heads(text: str) -> None:
    tokens = minilm().encode(text)
    (side,) = reference(locate("minilm").folder, [token.id for token in tokens])
    seen = [[True] * len(tokens)] * len(tokens)
    special = [token.special for token in tokens]
    punctuation = [
        not token.special and all(unicodedata.category(letter)[0] in "PS" for letter in token.text)
        for token in tokens
    ]
    for told in document(text):
        weights = side.weights[told["layer"]][told["head"]].tolist()
        expected = oracle.metrics(
            weights, seen, [token.id for token in tokens], special, punctuation
        )
        for name, (value, rows) in expected.items():
            found = told["metrics"][name]
            assert found["rows"] == rows, name
            if math.isnan(value):
                assert found["value"] is None, name
            else:
                assert found["value"] == pytest.approx(value, abs=1e-6), (
                    told["layer"],
                    told["head"],
                    name,
                )


def test_the_same_token_is_the_same_id() -> None:
    """`The` and `the` are one token of an uncased vocabulary."""
    first = document(SAMPLE, layers=[0], heads=[0])[0]["metrics"]
    assert first["duplicate_pattern"]["value"] == pytest.approx(0.0053, abs=5e-5)
    assert first["induction_pattern"]["value"] == pytest.approx(0.0027, abs=5e-5)
    (unknown,) = document("⁂ lies beside ⁑", layers=[0], heads=[0])
    assert unknown["metrics"]["duplicate_pattern"]["value"] > 0


def test_the_same_word_has_the_same_ids() -> None:
    """Merged words: `Qqzxv` and `qqzxv` are the same pieces."""
    (same,) = document("Qqzxv saw qqzxv", layers=[0], heads=[0], words=True)
    (other,) = document("Qqzxv saw qqzxw", layers=[0], heads=[0], words=True)
    assert same["metrics"]["duplicate_pattern"]["value"] > 0
    assert other["metrics"]["duplicate_pattern"]["value"] == 0
