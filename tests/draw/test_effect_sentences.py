"""What answers of effects say of which words, and of how large an effect is."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from draw.documents import ablate
from msgspec import json as documents_json

from attncli.draw.shaded_matrix import draw_grid, head_grid
from attncli.draw.view import View
from attncli.features.effects.document import AblateDocument
from attncli.features.effects.effect_answer import ablate_answer, ablate_sentences


def document(**changes: Any) -> AblateDocument:
    """A document of `attn ablate` with members replaced."""
    return documents_json.decode(json.dumps(ablate() | changes), type=AblateDocument)


def effect(head: int, change: float, **members: Any) -> dict[str, Any]:
    """A row of an effect of layer 0."""
    return {
        "attention": "self",
        "layer": 0,
        "head": head,
        "vector": {"cosine": change, "norm": 0.1},
        "weight": None,
        "looks": {"key": 1, "weight": 0.5},
        "random": None,
    } | members


@pytest.mark.parametrize(
    ("change", "random", "said"),
    [
        (0.30, 0.10, None),
        (0.20, 0.11, "at most twice what a random change"),
        (0.11, 0.20, "less than a random change"),
        (0.01, 0.20, "less than a random change"),
    ],
)
def test_a_random_change_is_told_by_its_side(
    change: float, random: float, said: str | None
) -> None:
    rows = [effect(0, change, random={"vector": {"cosine": random, "norm": 0.1}})]
    text = " ".join(ablate_sentences(document(effects=rows), View()))
    assert ("random change" in text) == (said is not None)
    assert said is None or said in text


@pytest.mark.parametrize(
    ("weight", "is_alike"), [(0.38, False), (0.42, True), (0.6, True), (0.76, False)]
)
def test_heads_look_alike_only_within_a_fifth_of_each_other(weight: float, is_alike: bool) -> None:
    rows = [effect(0, 0.3), effect(1, 0.01, looks={"key": 1, "weight": weight})]
    text = " ".join(ablate_sentences(document(effects=rows), View()))
    assert ("about as much" in text) == is_alike


def test_keys_of_cross_attention_are_words_of_the_other_text() -> None:
    words = ["au", "lieu", "de", "ce", "que", "nous", "avions", "dit", "hier", "soir", "à", "tous"]
    source = [
        {"index": at, "text": word, "id": at, "start": None, "end": None, "special": False}
        for at, word in enumerate(words)
    ]
    looks = {"key": len(words) - 1, "weight": 0.5}
    rows = [effect(head, 0.3 / (1 + 9 * head), looks=looks, attention="cross") for head in (0, 1)]
    whole = document(effects=rows, source_tokens=source)
    shown = ablate_answer(whole, View()).plain
    assert '"tous" about as much' in " ".join(shown.split())
    assert "au lieu de" in shown
    # a document of before, which does not tell the other text, names no word
    unknown = " ".join(ablate_sentences(document(effects=rows), View()))
    assert "about as much" not in unknown


def test_of_signed_numbers_the_largest_is_the_farthest_from_zero() -> None:
    values = np.full((40, 6), 0.1)
    values[23, 2] = -1.7
    values[23, 4] = 0.14
    cells = [(layer, head, float(values[layer, head])) for layer in range(40) for head in range(6)]
    shown = draw_grid(head_grid(cells), View(), title="change", note="", signed=True).plain
    row = next(line for line in shown.splitlines() if line.split()[:1] == ["23"])
    assert "-1.70*" in row
    assert "0.14*" not in row
    assert "those farthest from 0" in shown


def test_sizes_have_their_units() -> None:
    text = " ".join(ablate_sentences(document(), View()))
    assert "0.300 (1 − cosine)" in text
