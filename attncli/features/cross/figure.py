"""The figure of `attn cross`: the weights of its heads."""

from __future__ import annotations

from attncli.draw.figures.charts import (
    draw_title,
    model_note,
    names_of,
)
from attncli.draw.figures.drawing import Drawing
from attncli.draw.figures.head_maps import HeadWeights, MapAxes, check_maps, draw_head_maps
from attncli.draw.view import View
from attncli.features.cross.document import CrossDocument
from attncli.language import say
from attncli.mechanism.spec import spoken_head


def cross_figure(document: CrossDocument, drawing: Drawing, view: View, scale: str) -> None:
    """Draw a map of the weights of every head that looks at the other text.

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
    top = draw_title(drawing, document.query_text, model_note(document, view))
    axes = MapAxes(names_of(document.queries), names_of(document.keys))
    draw_head_maps(drawing, weights, axes, top, view, scale=scale)
