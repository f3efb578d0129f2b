"""What `attn run --generate` says of weight that rests on the first token."""

from __future__ import annotations

import numpy as np
import pytest
import resting_model
from resting_model import PREVIOUS, RESTS

from attncli.draw.lines import draw_parts
from attncli.draw.view import View
from attncli.features.generate.compute import generate
from attncli.features.generate.screen import GENERATE_PARTS, generate_sentences
from attncli.inputs.regions import Region

WIDE = View(width=300)
TEXT = "cdbea"


def test_weight_on_the_first_token_is_told_apart_from_the_prompt() -> None:
    document = generate(resting_model.model(), TEXT, 3)
    for step in document.steps:
        for head in step.heads:
            row = np.asarray(head.weights)
            assert head.rest == pytest.approx(row[0])
            others = row[1:-1]
            assert head.top_beyond_rest.key == 1 + int(others.argmax())
            assert head.top_beyond_rest.weight == pytest.approx(others.max())
        assert step.rest == pytest.approx(np.mean([head.rest for head in step.heads]))
    first = document.steps[0]
    assert first.heads[RESTS].top.key == 0
    assert first.heads[PREVIOUS].top_beyond_rest.key == len(TEXT) - 1
    rest = np.mean([step.rest for step in document.steps])
    said = " ".join(generate_sentences(document, WIDE))
    assert f"have {round(100 * rest)}% of their weight on the first token, where heads rest" in said


def test_regions_are_told_without_the_keys_where_heads_rest() -> None:
    regions = [Region("start", (0, 1)), Region("end", (2, 3, 4))]
    document = generate(resting_model.model(), TEXT, 2, regions=regions)
    for step in document.steps:
        rows = np.array([head.weights for head in step.heads])
        assert step.regions[0] == pytest.approx(rows[:, :2].sum(1).mean())
        assert step.regions_beyond_rest == pytest.approx(
            [rows[:, 1].mean(), rows[:, 2:5].sum(1).mean()]
        )
        count = rows.shape[1]
        assert step.even_beyond_rest == pytest.approx([1 / count, 3 / count])
        assert step.even_rest == pytest.approx(1 / count)


def test_lookback_and_even_attention_are_of_the_weight_that_does_not_rest() -> None:
    """The sentences on regions and the map of heads leave the first token out on both sides."""
    regions = [Region("start", (0, 1)), Region("end", (2, 3, 4))]
    document = generate(resting_model.model(), TEXT, 2, regions=regions)
    rows = [np.array([head.weights for head in step.heads]) for step in document.steps]
    left = 1 - np.mean([row[:, 0].mean() for row in rows])
    start = np.mean([row[:, 1].mean() for row in rows]) / left
    said = " ".join(generate_sentences(document, WIDE))
    assert f'{100 * start:.1f}% is in "start"' in said
    # six, then seven keys, without the first
    even = np.mean([1 / row.shape[1] for row in rows])
    assert f'{100 * even / (1 - even):.1f}% in "start"' in said
    screen = draw_parts(GENERATE_PARTS, document, View(width=300, show=("heads",))).plain
    seeks = [row[RESTS] for row in rows]
    share = sum(row[1:5].sum() for row in seeks) / sum(row[1:].sum() for row in seeks)
    assert f"{share:.2f}" in screen.splitlines()[-1].split()[1:][RESTS]


def test_the_lookback_of_each_new_token_leaves_out_what_rests() -> None:
    document = generate(resting_model.model(), TEXT, 2)
    screen = draw_parts(GENERATE_PARTS, document, View(width=300, show=("lookback",))).plain
    for step, line in zip(document.steps, screen.splitlines()[-2:], strict=True):
        rows = np.array([head.weights for head in step.heads])
        prompt = rows[:, 1 : len(TEXT)]
        new = rows[:, len(TEXT) :]
        lookback = prompt.sum() / (prompt.sum() + new.sum())
        per_key = np.mean(prompt.mean(1) / (prompt.mean(1) + new.mean(1)))
        assert line.split()[3] == f"{lookback:.2f}"
        assert line.split()[5] == f"{per_key:.2f}"


def test_weights_that_are_not_learned_are_told_as_before() -> None:
    document = generate(resting_model.model(source="file"), TEXT, 2)
    assert not document.steps[0].rest
    assert "of their weight on the prompt" in " ".join(generate_sentences(document, WIDE))
