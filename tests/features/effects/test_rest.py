"""What `attn ablate` and `attn logits` say a head looks at, where heads rest on the first token."""

from __future__ import annotations

import numpy as np
import pytest
import resting_model
from msgspec.structs import replace
from resting_model import RESTS, SEEKS

from attncli.draw.lines import draw_parts
from attncli.draw.view import View
from attncli.features.effects.compute import ablate, logits
from attncli.features.effects.document import telling_look
from attncli.features.effects.effect_answer import ablate_sentences, look_tint
from attncli.features.effects.page import _shown_link
from attncli.features.effects.screen import ABLATE_PARTS, logits_sentences

WIDE = View(width=200)
TEXT = "cdbeac"


def _weights() -> np.ndarray:
    model = resting_model.model()
    (trace,) = model.trace(model.encode(TEXT))
    return np.asarray(trace.stages["weights"])[:, 5]


def test_what_a_head_looks_at_leaves_the_first_token_out() -> None:
    """The member that counts all weight stays, beside one without the first token."""
    document = ablate(resting_model.model(), TEXT, query="#5", baseline="none")
    rows = _weights()
    for effect in document.effects:
        row = rows[effect.head]
        assert (effect.looks.key, effect.looks.weight) == pytest.approx((row.argmax(), row.max()))
        beyond = effect.looks_beyond_rest
        assert beyond.key == 1 + int(row[1:].argmax())
        assert beyond.weight == pytest.approx(row[1:].max())
    by_head = {effect.head: effect for effect in document.effects}
    assert by_head[RESTS].looks.key == 0
    assert telling_look(by_head[SEEKS]).key == TEXT.index("b")
    screen = draw_parts(ABLATE_PARTS, document, WIDE).plain
    assert "what a head looks at most leaves out where heads rest: the first token" in screen
    assert "c 0." not in screen.split("looks most at")[1].split("what a head")[0]
    assert _shown_link(document, (0, RESTS))[1] != 0


def test_a_cut_link_to_the_first_token_is_said_to_rest_there() -> None:
    """As `attn find` says it; not of another key, nor of weights that nobody trained."""
    said = "is the first token: heads rest there whatever it is."
    for source, key, is_said in (
        ("checkpoint", "#0", 1),
        ("checkpoint", "#2", 0),
        ("file", "#0", 0),
    ):
        model = resting_model.model(source=source)
        document = ablate(model, TEXT, link=("#4", key), baseline="none")
        assert " ".join(ablate_sentences(document, WIDE)).count(said) == is_said


def test_parts_of_a_logit_look_at_what_is_no_rest() -> None:
    document = logits(resting_model.model(), TEXT)
    heads = {part.head: part for part in document.parts if part.part == "head"}
    rows = _weights()
    for head, part in heads.items():
        assert part.looks.key == int(rows[head].argmax())
        assert part.looks_beyond_rest.key == 1 + int(rows[head, 1:].argmax())
    assert look_tint(heads[RESTS], WIDE).endswith("; where heads rest is left out")


def test_a_head_is_part_of_a_sum_only_where_that_is_larger() -> None:
    """What a head adds is told as "of" the logit unless the logit is less, or below 0."""
    document = logits(resting_model.model(), TEXT)
    most = max(part.value for part in document.parts if part.part == "head")
    for logit, is_part in ((most, True), (most - 0.1, False), (-1.0, False)):
        said = logits_sentences(replace(document, logit=logit), WIDE)
        assert any(f"{most:+.2f} of {logit:.2f}." in text for text in said) == is_part
        assert any(f"{most:+.2f}." in text for text in said) != is_part


def test_weights_that_nobody_trained_rest_nowhere() -> None:
    model = resting_model.model(source="file")
    document = ablate(model, TEXT, query="#5", baseline="none")
    assert not any(effect.looks_beyond_rest for effect in document.effects)
    by_head = {effect.head: effect for effect in document.effects}
    assert telling_look(by_head[RESTS]).key == 0
    assert "leaves out" not in draw_parts(ABLATE_PARTS, document, WIDE).plain
