"""The figure of `attn run`: the weights of its heads, or its regions."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from attncli.draw.figures.charts import (
    draw_title,
    model_note,
    names_of,
)
from attncli.draw.figures.drawing import Drawing
from attncli.draw.figures.head_maps import HeadWeights, check_maps, draw_head_maps
from attncli.draw.figures.region_bars import draw_regions
from attncli.draw.view import View
from attncli.features.run.document import RunDocument
from attncli.language import say
from attncli.mechanism.spec import spoken_head


def _run_weights(document: RunDocument, view: View) -> Iterator[HeadWeights]:
    """The heads of a run: those whose weights it holds, or the small maps of all."""
    for layer in document.layers:
        for head in layer.heads:
            if head.weights is not UNSET:
                name = say(view, spoken_head(layer.layer, head.head))
                yield HeadWeights(name, layer.layer, head.head, head.weights, head.scores)
    if any(layer.heads for layer in document.layers):
        return
    for pooled in document.maps or ():
        name = say(view, spoken_head(pooled.layer, pooled.head))
        yield HeadWeights(name, pooled.layer, pooled.head, pooled.weights, UNSET, pooled.pool)


def run_figure(document: RunDocument, drawing: Drawing, view: View, scale: str) -> None:
    """Draw a map of the weights of every head, with one query its shaded sentence, with one head of
    a short text its links; of a run with regions what goes to each.

    Raises:
        InputError: The document was shortened, and holds no weights.
        LimitError: It holds more heads than anybody waits for.
    """
    if document.region_shares is not UNSET:
        top = draw_title(drawing, document.text, model_note(document, view))
        draw_regions(
            drawing, document.regions or (), document.tokens, document.region_shares, top, view
        )
        return
    weights = list(_run_weights(document, view))
    check_maps(weights)
    top = draw_title(drawing, document.text, model_note(document, view))
    keys = names_of(document.tokens)
    queries = document.queries or ()
    rows = [keys[index] for index in queries or range(len(keys))]
    query = None
    if queries:
        query = queries[0]
    draw_head_maps(
        drawing, weights, rows, keys, top, view, scale=scale, text=document.tokens, query=query
    )
