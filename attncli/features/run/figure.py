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
from attncli.draw.figures.head_maps import (
    HeadWeights,
    MapAxes,
    are_named,
    check_maps,
    draw_head_maps,
)
from attncli.draw.figures.region_bars import draw_regions
from attncli.draw.view import View
from attncli.errors import UsageError
from attncli.features.run.document import RunDocument
from attncli.language import say
from attncli.mechanism.spec import spoken_head


def _run_weights(document: RunDocument, view: View) -> Iterator[HeadWeights]:
    """Yield the heads of a run for a figure: those whose weights it holds, or the small maps of
    all."""
    for layer in document.layers:
        for head in layer.heads:
            if head.weights is not UNSET:
                name = say(view, spoken_head(layer.layer, head.head))
                yield HeadWeights(name, layer.layer, head.head, head.weights, head.scores)
    if any(layer.heads for layer in document.layers):
        return
    for pooled in document.maps or ():
        name = say(view, spoken_head(pooled.layer, pooled.head))
        yield HeadWeights(name, pooled.layer, pooled.head, pooled.weights, pool=pooled.pool)


def run_figure(document: RunDocument, drawing: Drawing, view: View, scale: str) -> None:
    """Draw the weights of a run: a map for every head; with one query, its shaded sentence; with
    one head of a short text, its links; with regions, what goes to each.

    Raises:
        InputError: The document was shortened, and holds no weights.
        UsageError: Maps of a run with regions are asked for.
        LimitError: It holds more heads than anybody waits for.
    """
    top = draw_title(drawing, document.text, model_note(document, view))
    if document.region_shares is not UNSET:
        rows = document.regions or ()
        draw_regions(drawing, rows, document.tokens, document.region_shares, top, view)
        if any(drawing.is_asked_for(part) for part in MAP_PARTS):
            raise UsageError(
                "a run with regions sums weights and keeps none of a head",
                expected="--figure-parts regions, or attn heads --region … --head L5H11",
            )
        return
    weights = list(_run_weights(document, view))
    check_maps(weights)
    keys = names_of(document.tokens)
    queries = document.queries or range(len(keys))
    query = None
    if document.queries:
        query = document.queries[0]
    axes = MapAxes([keys[index] for index in queries], keys, queries)
    draw_head_maps(
        drawing,
        weights,
        axes,
        top,
        view,
        scale=scale,
        text=document.tokens,
        query=query,
        chosen_heads=are_named(weights, document.model),
    )


MAP_PARTS = ("matrix", "grid", "links", "sentence")
"""The parts of a figure that need the weights of heads."""
