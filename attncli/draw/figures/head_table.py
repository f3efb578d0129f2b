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
BAND_GAP = 8.0
"""Points from one band of layers to the next."""
TYPE = 6.5
"""Size of the type of the names."""
LEAST_AVERAGE = 30.0
"""Points along the map of the average at least: it stands by itself."""
MANY = 12
"""Maps from which on they may stand as a table."""
WIDE = 16
"""Heads of a layer that still stand beside each other."""
MOST_LAYERS = 40
"""Layers beside each other on paper of any width."""
AROUND = 110.0
"""Points of a page that are not a band's: title, legend, margins."""


def layers_and_heads(maps: Sequence[FigureMap]) -> tuple[list[str], list[str]] | None:
    """The layers and the heads of maps that are easier to read as a table with the layers to the
    right: more than 12 maps, of more layers than heads or of more than 16 heads a layer, at most
    one of them of no head (an average). None for others."""
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
    """Draw small maps as a table with a column for each layer and a row for each head; below it the
    map that is of no head (an average), where there is one. Returns where they end.

    maps: such that `layers_and_heads` does not return None for them.
    top: where the table begins, in points from the upper edge.
    scale: how values become colours, as `colour_cells` takes it.
    """
    table_axes = layers_and_heads(maps)
    assert table_axes is not None
    layers, heads = table_axes
    drawing.offered.add("columns")  # this figure can use the word; where none can, it is refused

    # the size of a map, and the colour scale
    columns = _columns(drawing, len(layers))
    size = _side(drawing, columns, len(heads))
    cells = max(max(figure_map.values.shape) for figure_map in maps)
    dots = size
    if not math.isinf(drawing.room):  # on paper, two dots a point
        dots = 2 * size
    block = pool_size(dots, cells)
    if block > 1 and scale == "linear":
        scale = ROOTS
    high = largest_sizes(maps)[False]  # of maps without a sign, as maps of weights are

    # the names of layers and heads; layers that do not fit beside each other follow in a band below
    place_of = {layer: place for place, layer in enumerate(layers)}
    row_of = {head: row for row, head in enumerate(heads)}
    tall = HEAD + len(heads) * (size + SLIM) + BAND_GAP
    bands = math.ceil(len(layers) / columns)
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
            below = middle + 2.3  # half of the letters' height
            drawing.text(EDGE - 4, below, f"H{head}", size=TYPE, anchor="end", quiet=True)

    # the maps, the average, the legend
    for figure_map in maps:
        if not all(figure_map.short):
            continue
        layer, head = figure_map.short
        band, column = divmod(place_of[layer], columns)
        x = EDGE + column * (size + SLIM)
        y = top + band * tall + HEAD + row_of[head] * (size + SLIM)
        cell = size / max(figure_map.values.shape)
        draw_cells(drawing, figure_map, x, y, cell, scale, high, small=size)
    bottom = top + bands * tall - BAND_GAP
    for figure_map in maps:
        if not all(figure_map.short):
            drawing.breaks.append(bottom)
            side = max(size, LEAST_AVERAGE)
            _, bottom = draw_map(drawing, figure_map, EDGE, bottom, scale, high, small=side)
    bottom = draw_legend(drawing, bottom + 16, high, scale, view, meaning=maps[0].meaning)
    if block > 1:
        bottom = pooling_note(drawing, bottom, block, scale, view)
    return bottom


def _columns(drawing: Drawing, layers: int) -> int:
    """How many of `layers` layers stand beside each other: as many as the user asked for, else as
    many as fit, so that all bands are about equally long."""
    fitting = MOST_LAYERS
    if not math.isinf(drawing.room):
        fitting = max(int((drawing.room - EDGE + SLIM) / (LEAST + SLIM)), 1)
    if drawing.choice.columns is not None:
        return min(drawing.choice.columns, fitting, layers)
    bands = math.ceil(layers / min(fitting, layers))
    return math.ceil(layers / bands)


def _side(drawing: Drawing, columns: int, heads: int) -> float:
    """Points along a small map: at most 44, and so that `columns` of them fit the paper's width and
    `heads` of them the page's height, but not below 12 for the height's sake."""
    wide = (drawing.room - EDGE + SLIM) / columns - SLIM
    tall = (drawing.choice.max_height - AROUND) / heads - SLIM
    return max(min(SMALL, wide, tall), min(LEAST, wide))
