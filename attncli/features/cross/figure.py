"""The figure of `attn cross`: the alignment of both texts, and the weights of its heads."""

from __future__ import annotations

import numpy as np
from msgspec import UNSET

from attncli.draw.figures.charts import (
    SIZE,
    FigureMap,
    draw_maps,
    draw_title,
    model_note,
    names_of,
)
from attncli.draw.figures.drawing import Drawing, broken_to_fit
from attncli.draw.figures.head_maps import (
    HeadWeights,
    MapAxes,
    are_named,
    attention_axes,
    check_maps,
    draw_head_maps,
)
from attncli.draw.names import link_title
from attncli.draw.safe import label
from attncli.draw.shaded_matrix import as_matrix
from attncli.draw.view import View
from attncli.features.cross.document import Aligned, CrossDocument
from attncli.language import message, say
from attncli.mechanism.spec import spoken_head


def cross_figure(document: CrossDocument, drawing: Drawing, view: View, scale: str) -> None:
    """Draw the alignment of both texts, and a map of the weights of every head that looks at the
    other text.

    Raises:
        InputError: The document was shortened, and holds no weights.
        LimitError: It holds more heads than anybody waits for.
    """
    weights = [
        HeadWeights(
            name=say(view, spoken_head(part.layer, head.head)),
            layer=part.layer,
            head=head.head,
            weights=head.weights,
            scores=head.scores,
        )
        for part in document.layers
        for head in part.heads
    ]
    check_maps(weights)
    queries = document.shown_queries
    top = draw_title(drawing, _title(document), model_note(document, view))
    top = _draw_alignment(document, drawing, top, view, scale)
    names = names_of(document.queries)
    axes = MapAxes([names[place] for place in queries], names_of(document.keys), queries)
    chosen_heads = are_named(weights, document.model)  # whether --head chose them
    draw_head_maps(drawing, weights, axes, top, view, scale=scale, chosen_heads=chosen_heads)


def _title(document: CrossDocument) -> str:
    """The figure's title: the text that looks, an arrow, and the text looked at, if that has a
    name."""
    if not document.key_text:
        return document.query_text
    return link_title(document.query_text, document.key_text)


def _draw_alignment(
    document: CrossDocument, drawing: Drawing, top: float, view: View, scale: str
) -> float:
    """Draw the mean weights over the heads, source across and target down, special tokens of the
    source apart at the right, the best key of each query in a frame. Returns where it ends.

    Without special tokens, and with one head, whose map is the same, nothing is drawn, unless it is
    asked for, or its rows are named by what is said there.

    top: where it begins, in points.
    """
    has_special = any(token.special for token in document.keys)
    count = sum(len(layer.heads) for layer in document.layers)
    is_asked = drawing.is_asked_for("alignment")
    is_other_map = has_special or count > 1 or document.said is not UNSET
    if not drawing.shows("alignment") or not (is_asked or is_other_map):
        return top
    aligned = _alignment_map(document, view)
    top = draw_maps(drawing, [aligned], top, view, scale=scale, part="alignment")
    note = message("source across, target down; framed: the word with the largest weight of a row")
    if has_special:
        note = message(
            "source across, special tokens apart at the right; target down; framed: the word with"
            " the largest weight of a row"
        )
    notes = [note]
    if document.said is not UNSET:
        notes.append(
            message(
                "rows here are named by the word that is said, elsewhere by the one read before"
            )
        )
    # distances are in points: the first line 12 below, a line of small text 11 high, 20 after all
    for text in notes:
        for line in broken_to_fit(say(view, text), SIZE, min(WIDE, drawing.room)):
            drawing.text(0, top + 12, line, size=SIZE, quiet=True)
            top += 11
    return top + 20


def _alignment_map(document: CrossDocument, view: View) -> FigureMap:
    """The mean weights over the heads as a map: the words of the source, then a gap and its special
    tokens, where it has any; the best word of each row in a frame."""
    heads = [head for layer in document.layers for head in layer.heads]
    mean = np.mean([as_matrix(head.weights) for head in heads], axis=0)
    names = names_of(document.keys)
    special = [place for place, token in enumerate(document.keys) if token.special]
    words = [place for place in range(len(names)) if place not in special]
    values = mean[:, words]
    columns = [names[place] for place in words]
    if special:
        gap = np.full((len(mean), 1), np.nan)
        values = np.concatenate([values, gap, mean[:, special]], axis=1)
        columns += ["", *(names[place] for place in special)]
    caption = message("alignment")
    if len(heads) > 1:
        caption = message("alignment: mean of {count} heads", count=len(heads))
    queries = names_of(document.queries)
    if document.said is not UNSET:  # each word at the row in which it is said
        queries = [label(text) for text in document.said]
    rows = [queries[place] for place in document.shown_queries]
    framed = []
    for row, aligned in enumerate(document.alignment):
        best = _best_word(aligned)
        if best in words:  # None, and a special token, get no frame
            framed.append((row, words.index(best)))
    return FigureMap(
        say(view, caption),
        values,
        rows,
        columns,
        framed=tuple(framed),
        row_positions=document.shown_queries,
        axes=attention_axes(view),
        meaning=say(view, "attention weight"),
    )


def _best_word(aligned: Aligned) -> int | None:
    """The key that a query looks at most, without special tokens where the source has any."""
    if aligned.beyond_special is UNSET:
        return aligned.key
    if aligned.beyond_special is None:
        return None
    return aligned.beyond_special.key


WIDE = 460.0
"""Points of a note, at most."""
