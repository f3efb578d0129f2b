"""The figure of `attn cost`: multiply-adds of each kind of attention."""

from __future__ import annotations

from attncli.draw.figures.charts import (
    Bar,
    draw_bars,
    draw_curves,
    draw_title,
)
from attncli.draw.figures.drawing import Drawing
from attncli.draw.view import View
from attncli.features.cost.document import CostDocument, variant_name
from attncli.language import contextual, say


def cost_figure(document: CostDocument, drawing: Drawing, view: View, scale: str) -> None:
    """Draw the multiply-adds of each kind of attention: as curves over text lengths, and as bars
    for the document's length.

    scale: not used, as nothing here is shaded.
    """
    title = say(view, "cost of attention, n = {n}", n=f"{document.n:,}")
    sizes = say(
        view, "d_model {d_model}, {heads} heads", d_model=document.d_model, heads=document.heads
    )
    top = draw_title(drawing, title, sizes)
    series = []
    for name in (variant.name for variant in document.variants):
        # growth has no masks of one's own
        points = [
            (row.n, row.multiply_adds[name]) for row in document.growth if name in row.multiply_adds
        ]
        series.append((variant_name(name, view), points))
    y_name = say(view, contextual("figure", "multiply-adds per layer"))
    top = draw_curves(drawing, series, top, say(view, "tokens"), y_name)
    bars = [
        Bar(
            variant_name(row.name, view),
            row.multiply_adds,
            f"{row.multiply_adds:.3g} · {row.grows}" if row.grows else f"{row.multiply_adds:.3g}",
        )
        for row in document.variants
    ]
    draw_bars(drawing, bars, top + 16)  # 16 points below the curves
