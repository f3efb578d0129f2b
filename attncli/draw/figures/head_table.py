"""Small maps of many heads as a table: layers to the right, heads downward, in bands of layers where
not all fit beside each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from attncli.draw.figures.charts import (
    ROOTS,
    FigureMap,
    draw_cells,
    draw_legend,
    draw_map,
    largest_sizes,
    pool_size,
    pooling_note,
)
from attncli.draw.figures.drawing import Drawing
from attncli.draw.view import View

SMALL, LEAST, SLIM = 44.0, 12.0, 3.0
"""Points along a map where there is room, along the smallest, and from one to the next."""
EDGE, HEAD = 18.0, 12.0
"""Points of the heads' names at the left, and of the layers' above."""
TYPE = 6.5
MANY = 12
"""Maps from which on they may stand as a table."""
WIDE = 16
"""Heads of a layer that still stand beside each other."""
MOST_LAYERS = 40
"""Layers beside each other on paper of any width."""
AROUND = 110.0
"""Points of a page that are not a band's: title, legend, margins."""


def layers_and_heads(maps: Sequence[FigureMap]) -> tuple[list[str], list[str]] | None:
    """The layers and the heads of maps that stand better with the layers to the right: those of more
    layers than heads, or of many heads. None for others."""
    head_maps = [figure_map.short for figure_map in maps if all(figure_map.short)]
    layers = list(dict.fromkeys(layer for layer, _ in head_maps))
    heads = sorted({head for _, head in head_maps}, key=int)
    if len(head_maps) <= MANY or len(head_maps) < len(maps) - 1:
        return None
    if len(layers) <= len(heads) <= WIDE:
        return None
    return layers, heads


def draw_head_table(
    drawing: Drawing, maps: Sequence[FigureMap], top: float, view: View, *, scale: str
) -> float:
    """Draw the maps with the layers to the right, then the one that is of no head. Returns where
    they end.

    maps: for which `layers_and_heads` knows the layers and the heads.
    """
    sides = layers_and_heads(maps)
    assert sides is not None
    layers, heads = sides
    drawing.offered.add("columns")
    columns = _columns(drawing, len(layers))
    size = _side(drawing, columns, len(heads))
    cells = max(max(figure_map.values.shape) for figure_map in maps)
    block = pool_size(size * (1 if math.isinf(drawing.room) else 2), cells)
    if block > 1 and scale == "linear":
        scale = ROOTS
    high = largest_sizes(maps)[False]
    place_of = {layer: place for place, layer in enumerate(layers)}
    row_of = {head: row for row, head in enumerate(heads)}
    tall = HEAD + len(heads) * (size + SLIM) + 8
    bands = -(-len(layers) // columns)
    if top > 0:
        drawing.breaks.append(top)
    for band in range(bands):
        begin = top + band * tall
        if band:
            drawing.breaks.append(begin)
        for column, layer in enumerate(layers[band * columns : (band + 1) * columns]):
            middle = EDGE + column * (size + SLIM) + size / 2
            drawing.text(
                middle, begin + 8, f"{maps[0].mark}{layer}", size=TYPE, anchor="middle", quiet=True
            )
        for head, row in row_of.items():
            middle = begin + HEAD + row * (size + SLIM) + size / 2
            drawing.text(EDGE - 4, middle + 2.3, f"H{head}", size=TYPE, anchor="end", quiet=True)
    for figure_map in maps:
        if not all(figure_map.short):
            continue
        band, column = divmod(place_of[figure_map.short[0]], columns)
        x = EDGE + column * (size + SLIM)
        y = top + band * tall + HEAD + row_of[figure_map.short[1]] * (size + SLIM)
        cell = size / max(figure_map.values.shape)
        draw_cells(drawing, figure_map, x, y, cell, scale, high, small=size)
    bottom = top + bands * tall - 8
    for figure_map in maps:
        if not all(figure_map.short):
            drawing.breaks.append(bottom)
            _, bottom = draw_map(
                drawing, figure_map, EDGE, bottom, scale, high, small=max(size, 30.0)
            )
    bottom = draw_legend(drawing, bottom + 16, high, scale, view)
    if block > 1:
        bottom = pooling_note(drawing, bottom, block, scale, view)
    return bottom


def _columns(drawing: Drawing, layers: int) -> int:
    """How many layers stand beside each other: as many as are asked for or fit, evenly over the
    bands that it takes."""
    fitting = MOST_LAYERS
    if not math.isinf(drawing.room):
        fitting = max(int((drawing.room - EDGE + SLIM) / (LEAST + SLIM)), 1)
    if drawing.choice.columns is not None:
        return min(drawing.choice.columns, fitting, layers)
    bands = -(-layers // min(fitting, layers))
    return -(-layers // bands)


def _side(drawing: Drawing, columns: int, heads: int) -> float:
    """Points along a map: what its column has, and what the height of a page has for the heads of a
    layer."""
    wide = (drawing.room - EDGE + SLIM) / columns - SLIM
    tall = (drawing.choice.max_height - AROUND) / heads - SLIM
    return max(min(SMALL, wide, tall), min(LEAST, wide))
