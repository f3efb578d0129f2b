"""What `attn heads` says of heads that rest, and of texts too short to say anything."""

from __future__ import annotations

import numpy as np
import pytest
import resting_model
from msgspec.structs import replace

from attncli.draw.figures.charts import FigureHead, draw_metrics
from attncli.draw.figures.drawing import Drawing
from attncli.draw.lines import draw_parts
from attncli.draw.token_names import name_tokens
from attncli.draw.view import View
from attncli.features.heads.compute import heads
from attncli.features.heads.document import HeadsDocument
from attncli.features.heads.screen import (
    HEADS_PARTS,
    _attention_shares,
    _positional_heads,
    heads_sentences,
    metrics_part,
)
from attncli.measure.rest import choosing_queries, mean_at_offset, mean_received

WIDE = View(width=300)
TEXT = "cdbeacfa"


def _said(document: HeadsDocument) -> str:
    return " ".join(heads_sentences(document, WIDE))


def test_rows_with_a_choice_alone_say_what_a_head_does() -> None:
    causal = np.tril(np.random.default_rng(1).random((2, 7, 7)) + 0.1)
    weights = causal / causal.sum(-1, keepdims=True)
    assert choosing_queries(weights).tolist() == [False, *[True] * 6]
    assert mean_received(weights) == pytest.approx(weights[:, 1:].mean(1))
    rest = np.array([True, False, False, True, False, False, False])
    # keys 1, 2, 4, 5 of the queries 2, 3, 5, 6
    expected = [np.mean([head[i, i - 1] for i in (2, 3, 5, 6)]) for head in weights]
    assert mean_at_offset(weights, -1, rest) == pytest.approx(expected)
    expected = [np.mean([head[i, i] for i in (1, 2, 4, 5, 6)]) for head in weights]
    assert mean_at_offset(weights, 0, rest) == pytest.approx(expected)
    assert np.isnan(mean_at_offset(weights[:, :4, :4], -1, rest[:4])).all()
    assert mean_received(weights[:, :4, :4]).shape == (2, 0)


def test_the_head_that_rests_is_told_from_the_one_that_looks_before() -> None:
    document = heads(resting_model.model(), TEXT)
    said = _said(document)
    assert '1 of 3 heads rests on "c", the first token whatever it is' in said
    assert "Layer 0 head 2 looks at the previous word (" in said
    # on the screen the letters are pieces of one word
    pieces = " ".join(heads_sentences(name_tokens(document), WIDE))
    assert "Layer 0 head 2 looks at the previous token (" in pieces
    assert "looks at the word itself" not in said
    assert (
        "Not counted: the first token, where heads rest; the word itself; its neighbours." in said
    )
    assert _attention_shares(document)[0] == 0.0


def test_a_metric_that_counts_more_rows_than_its_sentence_is_told() -> None:
    document = heads(resting_model.model(), TEXT)
    note = "previous: of all rows and keys; sentences leave out rows with a single key"
    assert note not in metrics_part(document, WIDE).plain
    ((share, layer, head),) = _positional_heads(document)["previous"]
    for difference, is_told in ((0.004, False), (0.006, True)):
        changed = [
            replace(
                place,
                metrics={
                    **place.metrics,
                    "previous": replace(place.metrics["previous"], value=share - difference),
                },
            )
            if (place.layer, place.head) == (layer, head)
            else place
            for place in document.heads
        ]
        shown = metrics_part(replace(document, heads=changed), WIDE).plain
        assert (note in shown) is is_told


def test_of_weights_that_are_not_learned_no_head_rests() -> None:
    said = _said(heads(resting_model.model(source="file"), TEXT))
    assert '1 of 3 heads keeps more than half of its weight on "c"' in said
    assert "rests" not in said
    assert "Not counted" not in said


@pytest.mark.parametrize("text", ["c", "cd", "cdbe"])
def test_a_short_text_says_nothing_of_its_heads_and_has_no_labels(text: str) -> None:
    model = resting_model.model()
    document = heads(model, text, labels=True, repeats={(0, head): {} for head in range(3)})
    said = _said(document)
    assert "looks at the" not in said
    assert "rest on" not in said
    assert "rests on" not in said
    assert "says what a head does" in said or "too few to say what a head does" in said
    assert not any(head.labels for head in document.heads)


def test_every_link_that_counts_may_rest_but_is_none_that_a_word_looks_at() -> None:
    document = heads(resting_model.model(), TEXT, all_links=True)
    assert any(head.top_link.key == 0 for head in document.heads)
    assert 'looks at "c" with' not in _said(document).replace('"c" (0)', "")
    assert 'looks at "c" (0)' not in _said(document)


def test_what_no_head_has_a_value_of_is_no_column_and_no_grid() -> None:
    document = heads(resting_model.model(), TEXT, metrics=("entropy", "next"))
    assert all(head.metrics["next"].value is None for head in document.heads)
    table = draw_parts(HEADS_PARTS, document, replace(WIDE, show=("metrics",))).plain
    assert "entropy" in table
    assert "next" not in table


def test_titles_above_narrow_grids_of_a_figure_are_whole() -> None:
    figure_heads = [
        FigureHead(layer, head, f"L{layer}H{head}", {"sink": 0.25, "next": None}, {})
        for layer in range(40)
        for head in range(2)
    ]
    drawing = Drawing(room=700)
    titles = {"sink": "first token", "next": "next token"}
    draw_metrics(drawing, figure_heads, titles, 0.0, line_note="")
    drawn = " ".join(drawing.pieces)
    assert "first token" in drawn
    assert "next token" not in drawn


def test_a_note_on_links_stands_only_beside_links() -> None:
    """Two words leave no link that counts: no column of links, and no note on what they leave out;
    with every link in the list, the sentence names what it does not count."""
    model = resting_model.model()
    notes = {
        text: draw_parts(HEADS_PARTS, heads(model, text), replace(WIDE, show=("metrics",))).plain
        for text in ("cd", TEXT)
    }
    assert "top link" not in notes["cd"]
    assert "top links leave out" in notes[TEXT]
    said = _said(heads(model, TEXT, all_links=True))
    assert "Not counted: the first token, where heads rest." in said


def test_a_head_that_only_rests_has_no_strongest_link(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = _said(heads(resting_model.model(), TEXT, heads=[resting_model.RESTS]))
    assert "The head rests: 97% of its weight is on the first token. The strongest link" in alone
    monkeypatch.setattr(resting_model, "SHARP", 9.0)
    document = heads(resting_model.model(), TEXT, heads=[resting_model.RESTS])
    (rows,) = [np.asarray(head.weights) for head in document.heads]
    assert rows[:, 1:].max() < 0.001
    said = _said(document)
    assert said.startswith("The head rests: >99.9% of its weight is on the first token.")
    assert "No link that counts has as much as 0.1% of a word's weight." in said
    assert "strongest link" not in said
