"""The figure of `attn heads`: the weights of its heads and their metrics."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from attncli.documents.parts import Metrics
from attncli.draw.figures.charts import (
    FigureHead,
    draw_metrics,
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
from attncli.draw.figures.region_bars import draw_regions, named_regions
from attncli.draw.view import View
from attncli.features.heads.document import HeadMetrics, HeadsDocument
from attncli.language import say
from attncli.measure.metric import METRIC_TITLES
from attncli.mechanism.spec import spoken_head


def _figure_head(head: HeadMetrics, view: View) -> FigureHead:
    """A head's name, metrics and the metrics of uniform weights, in the form that figures draw."""

    def values(metrics: Metrics | UnsetType) -> dict[str, float | None]:
        """The number of each metric by its name; {} where a document has none."""
        return {name: metric.value for name, metric in (metrics or {}).items()}

    name = say(view, spoken_head(head.layer, head.head))
    return FigureHead(head.layer, head.head, name, values(head.metrics), values(head.baseline))


GAP = 20
"""Points between two parts of the figure."""


def heads_figure(document: HeadsDocument, drawing: Drawing, view: View, scale: str) -> None:
    """Draw a map of the weights of every head that the document holds (where it is a single head of
    a short text, its links, too); then the metrics of every head.

    Raises:
        InputError: The document was shortened, and holds neither weights nor metrics.
        LimitError: It holds more heads than anybody waits for.
    """
    # the weights that the document holds, and the title
    weights = [
        HeadWeights(
            name=say(view, spoken_head(row.layer, row.head)),
            layer=row.layer,
            head=row.head,
            weights=row.weights,
            # a map that is not pooled has a cell for each token
            pool=row.pool or 1,
        )
        for row in document.heads
        if row.weights is not UNSET
    ]
    check_maps(weights, len(document.heads))
    if weights:
        note = model_note(document, view)
    else:
        note = say(view, "metrics")
    # each part is drawn below the one before: `top` is where the next begins, and `end` where the
    # last ended, which is `top` again if it drew nothing
    top = draw_title(drawing, document.text, note)

    # attention on regions of the text, where it was measured
    regions: list[tuple[str, list[int]]] = []
    if document.region_shares is not UNSET:
        rows = document.regions or ()
        regions = named_regions(rows, view)
        end = draw_regions(drawing, rows, document.tokens, document.region_shares, top, view)
        if end > top:
            top = end + GAP

    # the maps
    if weights:
        keys = names_of(document.tokens)
        average = None
        if document.average:
            average = document.average.weights
        axes = MapAxes(keys, keys, regions=regions)
        end = draw_head_maps(
            drawing,
            weights,
            axes,
            top,
            view,
            scale=scale,
            average=average,
            chosen_heads=are_named(weights, document.model),
        )
        if end > top:
            top = end + GAP

    # the metrics, of all heads or of those that the user chose
    if not document.heads:
        return
    # all heads have the same metrics; the user's own have no title
    titles = {
        name: say(view, METRIC_TITLES[name]) if name in METRIC_TITLES else name
        for name in document.heads[0].metrics
    }
    # this figure can use the choice of heads; where none can, it is refused
    drawing.offered.add("heads")
    chosen = drawing.choice.heads
    rows_drawn = [row for row in document.heads if not chosen or (row.layer, row.head) in chosen]
    heads = [_figure_head(row, view) for row in rows_drawn]
    draw_metrics(
        drawing, heads, titles, top, line_note=say(view, "line: what uniform weights would give")
    )
