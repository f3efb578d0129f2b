"""What answers of effects say of which words, and of how large an effect is."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from draw.documents import ablate
from msgspec import json as documents_json

from attncli.documents.parts import NextToken, TargetToken
from attncli.draw.screen_header import draw_parts
from attncli.draw.shaded_matrix import draw_grid, head_grid
from attncli.draw.view import View
from attncli.features.effects.document import AblateDocument, LensRow
from attncli.features.effects.effect_answer import (
    _lens_words,
    ablate_answer,
    ablate_sentences,
    effect_columns,
)
from attncli.features.effects.screen import ABLATE_PARTS


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
        (0.20, 0.11, "1.8 times what a random change of the same size makes (0.110)"),
        (0.00041, 0.00036, "1.1 times what a random change of the same size makes (0.00036)"),
        (0.11, 0.20, "less than a random change"),
        (0.01, 0.20, "less than a random change"),
        (0.19999, 0.20001, "A random change of the same size makes as much"),
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


def test_changes_beside_probabilities_have_their_unit() -> None:
    """Of a log-probability, what stands in brackets is nats: the sentence before tells percent."""
    rows = [
        effect(0, 0.3, logprob=-1.0, random={"logprob": -0.8}),
        effect(1, 0.01, logprob=-0.02, looks={"key": 1, "weight": 0.45}),
    ]
    told = document(
        effects=rows,
        measures=["logprob"],
        together={"logprob": -1.2},
        target={"text": "cat", "id": 5},
    )
    text = " ".join(ablate_sentences(told, View()))
    assert "a random change of the same size makes (-0.800 nats)" in text
    assert "hardly matters here (-0.02 nats)" in text


def said_of_logprob(*changes: float, **members: Any) -> str:
    """The answer on an answer of two tokens, whose log-probability these heads change."""
    rows = [effect(head, 0.3, logprob=change) for head, change in enumerate(changes)]
    whole = document(
        effects=rows,
        measures=["logprob"],
        together={"logprob": -0.973},
        target={"text": "cat", "id": 5},
        **members,
    )
    return " ".join(ablate_sentences(whole, View(width=400)))


@pytest.mark.parametrize(
    ("change", "direction"),
    [(1.101, "+1.101 nats, likelier."), (-1.101, "-1.101 nats, less likely.")],
)
def test_a_log_probability_goes_up_or_down(change: float, direction: str) -> None:
    text = said_of_logprob(change, 0.7)
    assert f'changes the log-probability of "cat" most: {direction}' in text
    assert "The 2 heads taken away together: -0.973 nats, less likely." in text
    assert direction in said_of_logprob(change)
    assert "less likely" not in " ".join(ablate_sentences(document(), View()))


@pytest.mark.parametrize(("other", "is_opposite"), [(0.197, True), (-0.197, False)])
def test_a_head_that_looks_alike_may_change_the_other_way(other: float, is_opposite: bool) -> None:
    text = said_of_logprob(-1.0, other)
    assert f"({other:+.3f} nats)" in text
    assert ("far less, and the other way" in text) == is_opposite


@pytest.mark.parametrize(
    ("change", "is_hardly"), [(-0.099, False), (-0.051, False), (-0.049, True)]
)
def test_what_takes_a_twentieth_of_a_probability_does_not_hardly_matter(
    change: float, is_hardly: bool
) -> None:
    text = said_of_logprob(-2.0, change)
    assert f"({change:.3f}"[:7] in text
    assert ("hardly matters here" in text) == is_hardly
    assert ("changes it far less (" in text) != is_hardly


@pytest.mark.parametrize(
    ("measure", "member", "note"),
    [
        ("logprob", {"logprob": -0.4}, "log p: + likelier without it, - less likely"),
        ("difference", {"difference": {"all": 0.4}}, "- where that grows without it"),
    ],
)
def test_a_table_says_what_its_signs_mean(measure: str, member: dict[str, Any], note: str) -> None:
    rows = [effect(0, 0.1, **member), effect(1, 0.1, **member)]
    whole = document(effects=rows, measures=[measure], together=member)
    assert note in draw_parts(ABLATE_PARTS, whole, View(width=120)).plain
    assert note not in draw_parts(ABLATE_PARTS, document(), View(width=120)).plain


def test_a_link_that_a_mask_hides_is_told_as_that() -> None:
    """Cutting it changes nothing because there is nothing, which is no finding about heads."""
    link = {"query": 1, "key": 2}
    for weight in (0.0, 0.4):
        rows = [effect(head, 0.0, weight=weight) for head in range(3)]
        text = " ".join(ablate_sentences(document(effects=rows, link=link), View()))
        assert ("there is nothing to cut" in text) == (weight == 0)
        assert ("changes nothing" in text) == (weight > 0)


def test_small_effects_keep_a_digit_that_tells_them_apart() -> None:
    assert effect_columns([0.0013, 0.0004, None])[0] == ["0.0013", "0.0004", "-"]
    assert effect_columns([0.105, 0.0004])[0] == ["0.105", "0.000"]
    assert effect_columns([1.87e-4, 4.5e-5])[0] == ["1.870e-04", "4.500e-05"]
    assert effect_columns([None, None])[0] == ["-", "-"]
    assert effect_columns([0.0, 0.0])[0] == ["0.000", "0.000"]


def test_a_row_of_the_lens_ends_with_a_whole_number() -> None:
    """Tokens that a line has no room for are left out, never cut in their probability."""
    entries = [
        NextToken(token=TargetToken(id=at, text=text), probability=0.25)
        for at, text in enumerate(("mountain", "hill", "rock"))
    ]
    row = LensRow(layer=3, stage="end", rank=1, probability=0.25, top=entries)
    whole = "mountain 0.25  hill 0.25  rock 0.25"
    assert _lens_words(row, len(whole), View()) == whole
    assert _lens_words(row, len(whole) - 1, View()) == "mountain 0.25  hill 0.25"
    assert _lens_words(row, 3, View()) == "mountain 0.25"
