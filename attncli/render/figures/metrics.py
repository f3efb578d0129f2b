"""Metrics of heads: bars beside the names of a few heads, a layers × heads grid of each metric for many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attncli.render.figures.charts import LINE
from attncli.render.figures.drawing import Drawing, fitted, width
from attncli.render.figures.maps import CELL, SIZE, coloured
from attncli.render.head_grid import head_grid

FEW = 24
"""Heads that get a row each."""
BAR, COLUMN = 44.0, 96.0
"""Length of the longest bar, and from one metric to the next."""
ACROSS = 3
"""Grids in a row."""


@dataclass(frozen=True)
class Measured:
    """A head's metrics by name, None where no row could be used. uniform: the same of uniform weights."""

    layer: int
    head: int
    name: str
    values: Mapping[str, float | None]
    uniform: Mapping[str, float | None]


def draw_metrics(
    drawing: Drawing, heads: Sequence[Measured], titles: Mapping[str, str], top: float, *, said: str
) -> float:
    """The metrics that `titles` names, of all heads. said: what the line on a bar is. Returns where they end."""
    if len(heads) <= FEW or len({one.layer for one in heads}) == 1:
        bottom = _rows(drawing, heads, titles, top)
        if any(one.uniform for one in heads):
            drawing.text(0, bottom + 12, said, size=SIZE, quiet=True)
        return bottom + 14
    return _grids(drawing, heads, titles, top)


def _rows(drawing: Drawing, heads: Sequence[Measured], titles: Mapping[str, str], top: float) -> float:
    edge = min(max(width(one.name, 9) for one in heads), 180) + 12
    for at, one in enumerate(heads):
        drawing.text(edge - 10, top + 14 + at * LINE + 9, fitted(one.name, 9, 176), anchor="end")
    for place, (metric, title) in enumerate(titles.items()):
        x = edge + place * COLUMN
        drawing.text(x, top + 6, fitted(title, SIZE, COLUMN - 6), size=SIZE, bold=True)
        held = [abs(value) for one in heads if (value := one.values.get(metric)) is not None]
        most = max(held, default=0.0) or 1.0
        for at, one in enumerate(heads):
            y, value = top + 14 + at * LINE, one.values.get(metric)
            drawing.rectangle(x, y + 2, BAR, 8, drawing.theme.ground)
            if value is None:
                drawing.text(x + BAR + 5, y + 9, "–", size=SIZE, quiet=True)
                continue
            series = drawing.theme.series[0 if value >= 0 else 1]
            drawing.rectangle(x, y + 2, BAR * abs(value) / most, 8, series)
            uniform = one.uniform.get(metric)
            if uniform is not None and abs(uniform) <= most:
                drawing.rectangle(x + BAR * abs(uniform) / most - 0.5, y, 1, 12, drawing.theme.ink)
            drawing.text(x + BAR + 5, y + 9, _told(value), size=SIZE, quiet=True)
    return top + 14 + len(heads) * LINE


def _grids(drawing: Drawing, heads: Sequence[Measured], titles: Mapping[str, str], top: float) -> float:
    layers, numbers = sorted({one.layer for one in heads}), sorted({one.head for one in heads})
    edge = max(width(str(layer), SIZE) for layer in layers) + 6
    cell = min(CELL, 200 / len(numbers))
    wide, tall = edge + len(numbers) * cell + 22, len(layers) * cell + 40
    for place, (metric, title) in enumerate(titles.items()):
        x, y = place % ACROSS * wide, top + place // ACROSS * tall
        grid = head_grid((one.layer, one.head, one.values.get(metric)) for one in heads).values
        seen = grid[np.isfinite(grid)]
        low, high = (float(seen.min()), float(seen.max())) if seen.size else (0.0, 0.0)
        span = f"{_told(low)} – {_told(high)}"
        room = wide - 22 - width(span, SIZE) - 8
        drawing.text(x, y + 8, fitted(title, SIZE, room / 1.08), size=SIZE, bold=True)
        drawing.text(x + wide - 22, y + 8, span, size=SIZE, quiet=True, anchor="end")
        for at, layer in enumerate(layers):
            drawing.text(x + edge - 4, y + 24 + (at + 0.5) * cell + 3, str(layer), size=7, quiet=True, anchor="end")
        for at, head in enumerate(numbers):
            if cell >= 11 or at % 4 == 0:
                drawing.text(x + edge + (at + 0.5) * cell, y + 20, str(head), size=7, quiet=True, anchor="middle")
        shares = coloured(grid - low, drawing.theme.weights, "linear", high - low or 1.0)
        drawing.rectangle(x + edge, y + 24, len(numbers) * cell, len(layers) * cell, "none", stroke=drawing.theme.line)
        drawing.cells(x + edge, y + 24, len(numbers) * cell, len(layers) * cell, shares)
    return top + -(-len(titles) // ACROSS) * tall


def _told(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")
