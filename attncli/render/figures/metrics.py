"""Metrics of heads: bars beside the names of a few heads, a layers × heads grid of each metric for many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attncli.render.figures.charts import LINE
from attncli.render.figures.drawing import Drawing, shorten_to_fit, width
from attncli.render.figures.maps import CELL, SIZE, colour_cells
from attncli.render.head_grid import head_grid

FEW = 24
"""Heads that get a row each."""
BAR, COLUMN = 44.0, 96.0
"""Length of the longest bar, and from one metric to the next."""
ACROSS = 3
"""Grids in a row."""


@dataclass(frozen=True)
class FigureHead:
    """A head's metrics by name, None where no row could be used. uniform: the same of uniform weights."""

    layer: int
    head: int
    name: str
    values: Mapping[str, float | None]
    uniform: Mapping[str, float | None]


def draw_metrics(
    drawing: Drawing, heads: Sequence[FigureHead], titles: Mapping[str, str], top: float, *, line_note: str
) -> float:
    """The metrics that `titles` names, of all heads. line_note: what the line on a bar is. Returns where they end."""
    if len(heads) <= FEW or len({head.layer for head in heads}) == 1:
        bottom = _rows(drawing, heads, titles, top)
        if any(head.uniform for head in heads):
            drawing.text(0, bottom + 12, line_note, size=SIZE, quiet=True)
        return bottom + 14
    return _grids(drawing, heads, titles, top)


def _rows(drawing: Drawing, heads: Sequence[FigureHead], titles: Mapping[str, str], top: float) -> float:
    edge = min(max(width(head.name, 9) for head in heads), 180) + 12
    for index, head in enumerate(heads):
        drawing.text(edge - 10, top + 14 + index * LINE + 9, shorten_to_fit(head.name, 9, 176), anchor="end")
    for place, (metric, title) in enumerate(titles.items()):
        x = edge + place * COLUMN
        drawing.text(x, top + 6, shorten_to_fit(title, SIZE, COLUMN - 6), size=SIZE, bold=True)
        sizes = [abs(value) for head in heads if (value := head.values.get(metric)) is not None]
        largest = max(sizes, default=0.0) or 1.0
        for index, head in enumerate(heads):
            y, value = top + 14 + index * LINE, head.values.get(metric)
            drawing.rectangle(x, y + 2, BAR, 8, drawing.theme.ground)
            if value is None:
                drawing.text(x + BAR + 5, y + 9, "–", size=SIZE, quiet=True)
                continue
            series = drawing.theme.series[0 if value >= 0 else 1]
            drawing.rectangle(x, y + 2, BAR * abs(value) / largest, 8, series)
            uniform = head.uniform.get(metric)
            if uniform is not None and abs(uniform) <= largest:
                drawing.rectangle(x + BAR * abs(uniform) / largest - 0.5, y, 1, 12, drawing.theme.ink)
            drawing.text(x + BAR + 5, y + 9, _value_text(value), size=SIZE, quiet=True)
    return top + 14 + len(heads) * LINE


def _grids(drawing: Drawing, heads: Sequence[FigureHead], titles: Mapping[str, str], top: float) -> float:
    layers, numbers = (
        sorted({figure_head.layer for figure_head in heads}),
        sorted({figure_head.head for figure_head in heads}),
    )
    edge = max(width(str(layer), SIZE) for layer in layers) + 6
    cell = min(CELL, 200 / len(numbers))
    wide, tall = edge + len(numbers) * cell + 22, len(layers) * cell + 40
    for place, (metric, title) in enumerate(titles.items()):
        x, y = place % ACROSS * wide, top + place // ACROSS * tall
        grid = head_grid(
            (figure_head.layer, figure_head.head, figure_head.values.get(metric)) for figure_head in heads
        ).values
        visible = grid[np.isfinite(grid)]
        low, high = (float(visible.min()), float(visible.max())) if visible.size else (0.0, 0.0)
        span = f"{_value_text(low)} – {_value_text(high)}"
        room = wide - 22 - width(span, SIZE) - 8
        drawing.text(x, y + 8, shorten_to_fit(title, SIZE, room / 1.08), size=SIZE, bold=True)
        drawing.text(x + wide - 22, y + 8, span, size=SIZE, quiet=True, anchor="end")
        for index, layer in enumerate(layers):
            drawing.text(x + edge - 4, y + 24 + (index + 0.5) * cell + 3, str(layer), size=7, quiet=True, anchor="end")
        for index, head in enumerate(numbers):
            if cell >= 11 or index % 4 == 0:
                drawing.text(x + edge + (index + 0.5) * cell, y + 20, str(head), size=7, quiet=True, anchor="middle")
        shares = colour_cells(grid - low, drawing.theme.weights, "linear", high - low or 1.0)
        drawing.rectangle(x + edge, y + 24, len(numbers) * cell, len(layers) * cell, "none", stroke=drawing.theme.line)
        drawing.cells(x + edge, y + 24, len(numbers) * cell, len(layers) * cell, shares)
    return top + -(-len(titles) // ACROSS) * tall


def _value_text(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")
