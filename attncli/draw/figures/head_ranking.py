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
    top: where the map begins, in points from the upper edge.
    """
    top = draw_grid(drawing, rows, top, view)
    if not drawing.shows("bars"):
        return
    measured = [
        (layer, head, number, random) for layer, head, number, random in rows if number is not None
    ]
    measured.sort(key=lambda row: -abs(row[2]))  # by the magnitude of the number
    ranking = measured[:RANKED]
    bars = [
        bar_of(say(view, spoken_head(layer, head)), number, mark=random)
        for layer, head, number, random in ranking
    ]
    top = write_shown_count(drawing, (len(ranking), len(measured)), top, view)
    marked = sum(bar.mark is not None for bar in bars)
    if marked:
        note = say(view, "line: a random change of the same size")
        if marked < len(bars):
            note = say(
                view, "line: a random change of the same size, made for {count}", count=marked
            )
        # in points, as in `write_shown_count`: a line of text takes 16
        drawing.text(0, top + 20, note, size=8.5, quiet=True)
        top += 16
    draw_bars(drawing, bars, top + 16)


def draw_grid(drawing: Drawing, rows: Sequence[HeadNumber], top: float, view: View) -> float:
    """Draw a map of layers × heads, each cell coloured by the number of its head. Returns where it
    ends. The second number of each row is not drawn."""
    numbers = ((layer, head, number) for layer, head, number, _ in rows)
    heads_map = grid_map(say(view, "layers × heads"), numbers)
    if not heads_map.values.size:
        # a document about several heads together, or about heads that look at another text
        return top
    is_signed = bool((np.nan_to_num(heads_map.values) < 0).any())
    heads_map = replace(heads_map, signed=is_signed)
    return draw_maps(drawing, [heads_map], top, view, scale="linear", part="grid")


def grid_map(caption: str, numbers: Iterable[tuple[int, int, float | None]]) -> FigureMap:
    """A map of layers × heads from a (layer, head, number) of each head; None is left blank."""
    grid = head_grid(numbers)
    return FigureMap(caption, grid.values, [*map(str, grid.layers)], [*map(str, grid.heads)])
