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
from attncli.draw.figures.head_maps import HeadWeights, MapAxes, check_maps, draw_head_maps
from attncli.draw.shaded_matrix import as_matrix
from attncli.draw.view import View
from attncli.features.cross.document import CrossDocument
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
            say(view, spoken_head(part.layer, head.head)),
            part.layer,
            head.head,
            head.weights,
            head.scores,
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
    draw_head_maps(drawing, weights, axes, top, view, scale=scale)


def _title(document: CrossDocument) -> str:
    """Both texts, the one that looks first."""
    if not document.key_text:
        return document.query_text
    return f"{document.query_text}  →  {document.key_text}"


def _draw_alignment(
    document: CrossDocument, drawing: Drawing, top: float, view: View, scale: str
) -> float:
    """Draw the mean weights over the heads, source across and target down, special tokens of the
    source apart at the right, the best key of each query in a frame. Returns where it ends.

    Without special tokens, and with one head, whose map is the same, nothing is drawn, unless it is
    asked for.
    """
    special = [place for place, token in enumerate(document.keys) if token.special]
    count = sum(len(layer.heads) for layer in document.layers)
    is_asked = drawing.is_asked_for("alignment")
    if not drawing.shows("alignment") or not (is_asked or special or count > 1):
        return top
    mean = np.mean(
        [as_matrix(head.weights) for layer in document.layers for head in layer.heads], axis=0
    )
    words = [place for place in range(len(document.keys)) if place not in special]
    names = names_of(document.keys)
    rows = [names_of(document.queries)[place] for place in document.shown_queries]
    if count > 1:
        caption = say(view, "alignment: mean of {count} heads", count=count)
    else:
        caption = say(view, "alignment")
    values = mean[:, words]
    columns = [names[place] for place in words]
    note = message("source across, target down; framed: the word with the largest weight of a row")
    if special:
        gap = np.full((len(rows), 1), np.nan)
        values = np.concatenate([values, gap, mean[:, special]], axis=1)
        columns += ["", *(names[place] for place in special)]
        note = message(
            "source across, special tokens apart at the right; target down; framed: the word with"
            " the largest weight of a row"
        )
    best = []
    for row in document.alignment:
        key = row.key
        if row.beyond_special is not UNSET:
            key = row.beyond_special.key if row.beyond_special is not None else None
        if key in words:
            best.append((document.shown_queries.index(row.query), words.index(key)))
    aligned = FigureMap(caption, values, rows, columns, framed=tuple(best))
    top = draw_maps(drawing, [aligned], top, view, scale=scale, part="alignment")
    for line in broken_to_fit(say(view, note), SIZE, min(WIDE, drawing.room)):
        drawing.text(0, top + 12, line, size=SIZE, quiet=True)
        top += 11
    return top + 20


WIDE = 460.0
"""Points of a note, at most."""
