"""A map of layers × heads and the heads of the largest numbers: what figures of effects share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec.structs import replace

from attncli.draw.figures.charts import (
    RANKED,
    FigureMap,
    bar_of,
    draw_bars,
    draw_maps,
    write_shown_count,
)
from attncli.draw.figures.drawing import Drawing
from attncli.draw.shaded_matrix import head_grid
from attncli.draw.view import View
from attncli.language import say
from attncli.mechanism.spec import spoken_head

HeadNumber = tuple[int, int, float | None, float | None]
"""Layer, head, the number of it, and the number to compare it with."""


def draw_ranking(drawing: Drawing, rows: Sequence[HeadNumber], top: float, view: View) -> None:
    """Draw a map of layers × heads, then the heads of the largest numbers by magnitude as bars.

    rows: layer, head, number, and the number of a random change (None for none).
    """
    top = draw_grid(drawing, rows, top, view)
    if not drawing.shows("bars"):
        return
    known = sorted((row for row in rows if row[2] is not None), key=lambda row: -abs(row[2] or 0))
    ranking = known[:RANKED]
    bars = [
        bar_of(say(view, spoken_head(layer, head)), value or 0.0, mark=random)
        for layer, head, value, random in ranking
    ]
    top = write_shown_count(drawing, (len(ranking), len(known)), top, view)
    marked = sum(bar.mark is not None for bar in bars)
    if marked:
        note = say(view, "line: a random change of the same size")
        if marked < len(bars):
            note = say(
                view, "line: a random change of the same size, made for {count}", count=marked
            )
        drawing.text(0, top + 20, note, size=8.5, quiet=True)
        top += 16
    draw_bars(drawing, bars, top + 16)


def draw_grid(drawing: Drawing, rows: Sequence[HeadNumber], top: float, view: View) -> float:
    """Draw a map of layers × heads of these rows (layer, head, number, and one not drawn here).
    Returns where it ends."""
    heads_map = grid_map(say(view, "layers × heads"), (row[:3] for row in rows))
    if not heads_map.values.size:
        # it tells of heads together, or of those that look at another text
        return top
    is_signed = bool((np.nan_to_num(heads_map.values) < 0).any())
    heads_map = replace(heads_map, signed=is_signed)
    return draw_maps(drawing, [heads_map], top, view, scale="linear", part="grid")


def grid_map(caption: str, numbers: Iterable[tuple[int, int, float | None]]) -> FigureMap:
    """A map of layers × heads from the layer, the head and the number of each."""
    grid = head_grid(numbers)
    return FigureMap(caption, grid.values, [*map(str, grid.layers)], [*map(str, grid.heads)])
