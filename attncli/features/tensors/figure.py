"""The figure of `attn tensors`: the weights of its heads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from msgspec import UNSET

from attncli.draw.figures.charts import (
    draw_title,
    model_note,
)
from attncli.draw.figures.drawing import Drawing
from attncli.draw.figures.head_maps import HeadWeights, MapAxes, check_maps, draw_head_maps
from attncli.draw.view import View
from attncli.features.tensors.document import TensorsDocument
from attncli.language import message, say


def _tensor_weights(document: TensorsDocument, view: View) -> Iterator[HeadWeights]:
    """Yield the weights of each head in the document with its name, to which its place in the batch
    belongs where that holds several entries."""
    has_several_entries = len(document.batch) > 1
    if has_several_entries:
        template = message("batch {batch} head {head}")
    else:
        template = message("head {head}")
    for place, entry in enumerate(document.batch):
        for head in entry.heads:
            if head.weights is not UNSET:
                batch = ".".join(map(str, entry.index))
                name = say(view, template, batch=batch, head=head.head)
                # captured arrays tell no layer: the place in the batch stands in its field
                layer = place if has_several_entries else None
                yield HeadWeights(
                    name, layer, head.head, head.weights, head.scores, is_captured=True
                )


def tensors_figure(document: TensorsDocument, drawing: Drawing, view: View, scale: str) -> None:
    """Draw a map of the weights of every head in a file of tensors.

    Raises:
        InputError: The document was shortened, and holds no weights.
        LimitError: It holds more heads than anybody waits for.
    """
    weights = list(_tensor_weights(document, view))
    check_maps(weights)
    top = draw_title(drawing, PurePath(document.file).name, model_note(document, view))
    rows = [str(index) for index in range(document.queries)]
    keys = [str(index) for index in range(document.keys)]
    draw_head_maps(drawing, weights, MapAxes(rows, keys), top, view, scale=scale)
