"""Maps of matrices: a colour or shade character per cell, pooled where room is short; several side
by side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.documents import Numbers
from attncli.draw.lines import (
    BLANK,
    FAINT,
    Line,
    Lines,
    Piece,
    beside,
    fit_to_view,
    line,
    localize,
    remark,
    stack,
)
from attncli.draw.numbers import writer
from attncli.draw.safe import cells, cut, label, pad, spell
from attncli.draw.shaded_matrix import (
    LEVELS,
    Palette,
    as_matrix,
    normalise,
    palette_of,
    shade,
    sign,
)
from attncli.draw.view import View
from attncli.language import listing, message

NDArray = np.ndarray[Any, Any]

LABEL = 10
"""Cells that a row's name may take beside one map."""


def heatmap(
    values: Any,
    view: View,
    *,
    max_width: int | None = None,
    max_height: int | None = None,
    scale: str = "",
    limits: tuple[float, float] | None = None,
    rows: Sequence[str] = (),
    say_pooled: bool = True,
) -> Lines:
    """Draw a matrix [row, column] as a map of coloured cells, at most `max_width` cells wide and
    `max_height` lines high (by default the view's width, and 24). Masked cells (NaN) are blank.
    Values that do not fit are pooled by their maximum ("signed": by largest magnitude).

    scale: how values become colours, as `normalise` takes it; the view's if "".
    limits: the values of the weakest and the strongest colour, so that several maps can share them.
    rows: names of the rows, written beside them, a line each; left out where rows are pooled.
    say_pooled: whether a last line says how many values are pooled, if any are.
    """
    matrix = as_matrix(values)
    if matrix.size == 0:
        return remark("(empty)", view)
    color_scale = scale or view.scale_colors
    wide = max_width or view.width
    names = [label(text, ascii=view.ascii) for text in rows]
    side = 0  # cells of the names and of a blank behind them
    if names:
        side = min(max(map(cells, names)), LABEL) + 1
    grain = _choose_grain(matrix, wide - side, max_height or 24, view, whole=bool(names))
    low, high = limits or (None, None)
    fractions = normalise(pool(matrix, grain.block, color_scale), color_scale, low=low, high=high)
    if grain.halves:
        rows_of_cells = _half_lines(fractions, view, color_scale)
    else:
        rows_of_cells = _whole_lines(fractions, view, color_scale, grain.across)
    if names and grain.block == 1:
        name_cells = [(pad(cut(name, side - 1, ascii=view.ascii), side), FAINT) for name in names]
        rows_of_cells = [
            (name, *cells_of_row)
            for name, cells_of_row in zip(name_cells, rows_of_cells, strict=True)
        ]
    note = Lines()
    if grain.block > 1 and say_pooled:
        pooled = spell(f"pooled {grain.block}×{grain.block}, max", ascii=view.ascii)
        note = line((cut(pooled, wide, ascii=view.ascii), FAINT))
    return fit_to_view(stack(Lines(tuple(rows_of_cells)), note), view)


class Grain(Struct, frozen=True):
    """How fine a map is drawn.

    across: cells of a line per value: 2, which makes it square, or 1.
    halves: whether two rows of the matrix share a line.
    block: how many rows and columns are pooled into one; 1 for none.
    """

    across: int
    halves: bool
    block: int


def _choose_grain(matrix: NDArray, wide: int, tall: int, view: View, *, whole: bool) -> Grain:
    """How fine a matrix is drawn in `wide` cells and `tall` lines: square cells if they fit, else
    one cell a value (and, in colour, two rows a line), pooled where these do not fit either.

    whole: whether every row has its own line.
    """
    rows, columns = matrix.shape
    if 2 * columns <= wide and rows <= tall:
        return Grain(across=2, halves=False, block=1)
    halves = view.color and not view.ascii and not whole
    rows_shown = tall
    if halves:
        rows_shown = 2 * tall
    # names may take all cells of a narrow window; at least one is left to the map
    block = max(math.ceil(columns / max(wide, 1)), math.ceil(rows / max(rows_shown, 1)))
    return Grain(across=1, halves=halves, block=block)


def pool(values: NDArray, block: int, color_scale: str = "linear") -> NDArray:
    """Shrink a matrix [row, column]: each `block` × `block` cells become their largest value
    ("signed": the one of largest magnitude, with its sign); NaN where all are masked.
    """
    if block == 1:
        return values
    # pad with NaN to whole blocks, then gather each block's cells along a last axis
    rows, columns = values.shape
    down = math.ceil(rows / block)
    across = math.ceil(columns / block)
    padded = np.full((down * block, across * block), np.nan)
    padded[:rows, :columns] = values
    blocks = (
        padded.reshape(down, block, across, block)
        .transpose(0, 2, 1, 3)
        .reshape(down, across, block * block)
    )
    if color_scale == "signed":
        sizes = np.abs(blocks)
    else:
        sizes = blocks
    largest_index = np.where(np.isnan(blocks), -np.inf, sizes).argmax(axis=2)  # within its block
    return np.take_along_axis(blocks, largest_index[..., None], axis=2)[..., 0]


def _whole_lines(fractions: NDArray, view: View, color_scale: str, across: int) -> list[Line]:
    """Lines of fractions [row, column] in [0, 1], NaN where masked: each `across` cells wide and
    one line high.
    """
    palette = palette_of(view, signed=color_scale == "signed")
    if color_scale == "signed":
        mark = sign
    else:
        mark = shade

    def piece(fraction: float) -> Piece:
        """The cells of one fraction, tinted."""
        if math.isnan(fraction):
            return " " * across, ""
        if view.color and not view.ascii:
            return " " * across, f"on {palette.colour(fraction)}"
        return mark(fraction, ascii=view.ascii) * across, palette.style(fraction)

    return [tuple(map(piece, row)) for row in fractions.tolist()]


def _half_lines(fractions: NDArray, view: View, color_scale: str) -> list[Line]:
    """Lines of fractions [row, column] in [0, 1], NaN where masked: two rows of the matrix in each,
    the upper one as the colour in front of a half block, the lower one as the colour behind it."""
    palette = palette_of(view, signed=color_scale == "signed")
    masked_row = [math.nan] * fractions.shape[1]
    pairs = zip_longest(fractions[::2].tolist(), fractions[1::2].tolist(), fillvalue=masked_row)
    return [
        tuple(_half_cell(above, below, palette) for above, below in zip(upper, lower, strict=True))
        for upper, lower in pairs
    ]


def _half_cell(above: float, below: float, palette: Palette) -> Piece:
    """The cell of two fractions, one above the other; NaN where masked."""
    match math.isnan(above), math.isnan(below):
        case True, True:
            return " ", ""
        case False, True:
            return "▀", palette.colour(above)
        case True, False:
            return "▄", palette.colour(below)
        case _:
            return "▀", f"{palette.colour(above)} on {palette.colour(below)}"


# Several maps side by side on one scale, with a legend.

LINES = 30
"""Lines that the rows of maps may take together before maps are drawn finer."""
SMALL = 24
"""Cells across a map that has to be pooled."""
GAP = 3
LABEL_WIDTH = 9
"""Cells of a token's name beside maps."""


class Map(Struct, frozen=True):
    """One of several maps.

    caption, remarks: the program's own texts, above and below.
    values: [row, column], NaN or null where masked.
    """

    caption: str
    values: Numbers
    remarks: tuple[str, ...] = ()


def side_by_side(
    maps: Sequence[Map],
    view: View,
    *,
    shared_scale: bool = True,
    scale: str = "",
    limits: tuple[float, float] | None = None,
    names: Sequence[str] = (),
    in_a_row: int | None = None,
) -> Lines:
    """Draw maps side by side, row after row within the view's width, with their captions and a
    legend. Maps that are too large are pooled, which one line below them says. Where there are no
    maps, or none has a visible value, the only line is "(empty)".

    shared_scale: one scale for all, from the lowest to the largest value of any, so that maps can
        be compared; otherwise each has its own and there is no legend.
    limits: the ends of the shared scale, such as 0 and 1 for weights; those of the values if None.
    names: token texts beside the first map of each row and their numbers below every map, where
        every token has a line of its own.
    in_a_row: at most so many maps in a row, such as a layer's heads; None for as many as fit.
    """
    matrices = [as_matrix(weight_map.values) for weight_map in maps]
    visible_matrices = [values for values in matrices if np.isfinite(values).any()]
    if not visible_matrices:
        return remark("(empty)", view)
    color_scale = scale or view.scale_colors
    low, high = limits or _value_range(visible_matrices)
    if color_scale == "signed":  # 0 in the middle of the colours
        high = max(-low, high)
        low = -high

    # each map with its caption, and the tokens' numbers below it where its cells are square
    axis = Lines()
    if names and all(values.shape[0] == len(names) for values in matrices):
        axis = row_names(names, view)
    width, height, caption_width = _map_sizes(matrices, maps, view, axis.width)
    ends = None
    if shared_scale:
        ends = (low, high)
    blocks = []
    for weight_map, values in zip(maps, matrices, strict=True):
        picture = heatmap(
            values,
            view,
            max_width=width,
            max_height=height,
            scale=color_scale,
            limits=ends,
            say_pooled=False,
        )
        ticks = Lines()
        if axis.rows and width == 2 * values.shape[1]:
            ticks = _ticks(values.shape[1], view)
        blocks.append(_captioned_map(weight_map, picture, ticks, caption_width, view))

    # all together; the tokens' names only where each has a line of its own, judged by the first map
    side = Lines()
    rows, columns = matrices[0].shape
    if axis.rows and width == 2 * columns and height >= rows:
        side = axis
    parts: list[Lines] = [beside(blocks, width=view.width, gap=GAP, side=side, most=in_a_row)]
    if shared_scale:
        parts += [BLANK, legend(view, low, high, scale=color_scale)]
    parts.append(_pooled_note(matrices, width, height, view))
    return fit_to_view(stack(*parts), view)


def _value_range(matrices: Sequence[NDArray]) -> tuple[float, float]:
    """The ends of a scale for matrices: the lowest value of any, or 0 where that is lower, and the
    largest one. NaN (masked) does not count.
    """
    low = min(0.0, *(float(np.nanmin(values)) for values in matrices))
    return low, max(float(np.nanmax(values)) for values in matrices)


def _captioned_map(weight_map: Map, picture: Lines, ticks: Lines, room: int, view: View) -> Lines:
    """A map below its caption and above its remarks, each cut to `room` cells."""
    words = [localize(text, view) for text in (weight_map.caption, *weight_map.remarks)]
    caption, *remarks = [cut(text, room, ascii=view.ascii) for text in words]
    return stack(
        line((caption, "bold")), picture, ticks, *(line((text, FAINT)) for text in remarks)
    )


def _pooled_note(matrices: Sequence[NDArray], width: int, height: int, view: View) -> Lines:
    """A line that says how many cells of these maps are pooled into one; empty where none are.

    width, height: cells and lines of each map.
    """
    # as `heatmap` chose them for maps without names of rows
    blocks = {_choose_grain(values, width, height, view, whole=False).block for values in matrices}
    block_sizes = listing(f"{block}×{block}" for block in sorted(blocks - {1}))
    if not block_sizes:
        return Lines()
    note = message(
        "maps are pooled: each cell is the largest of {block_sizes}", block_sizes=block_sizes
    )
    return remark(note, view)


def row_names(names: Sequence[str], view: View) -> Lines:
    """The names of a map's rows as a block to stand beside it; its first line is empty, beside the
    map's caption."""
    labels = [cut(label(text, ascii=view.ascii), LABEL_WIDTH, ascii=view.ascii) for text in names]
    wide = max(cells(text) for text in labels)
    return Lines(((), *(((pad(text, wide, "right"), FAINT),) for text in labels)))


def _ticks(count: int, view: View) -> Lines:
    """The number of every fifth column (0, 5, 10, …), for below a map with two cells a column."""
    # five columns are ten cells
    marks = "".join(str(index).ljust(10) for index in range(0, count, 5)).rstrip()
    if count > 5:  # the last number may pass the map's edge
        marks = cut(marks, 2 * count, ascii=view.ascii)
    return line((marks, FAINT))


def _map_sizes(
    matrices: Sequence[NDArray], maps: Sequence[Map], view: View, side: int
) -> tuple[int, int, int]:
    """The width and the height of each map in cells, and the width of its caption: square cells if
    all rows of maps then fit `LINES`, else finer ones if they fit or the maps are at most `SMALL`
    wide, else maps that have to be pooled.

    matrices: the values of the maps, in the same order.
    side: cells of the names beside the first map of a row; 0 for none.
    """
    down = max(values.shape[0] for values in matrices)
    across = max(values.shape[1] for values in matrices)
    texts = [
        localize(text, view)
        for weight_map in maps
        for text in (weight_map.caption, *weight_map.remarks)
    ]
    caption = min(max(map(cells, texts)), SMALL, view.width)
    halves = view.color and not view.ascii
    if halves:
        fine = (across, math.ceil(down / 2))
    else:
        fine = (across, down)
    square = (2 * across, down)
    widest = view.width - side
    if side:
        widest -= GAP
    for width, height in (square, fine):
        in_a_row = max((view.width - side + GAP) // (max(width, caption) + GAP), 1)
        rows = math.ceil(len(matrices) / in_a_row)
        fits_lines = rows * (height + 2) <= LINES  # with a caption and a blank line each
        is_small = width == across and width <= SMALL  # not larger than a pooled map would be
        if width <= widest and (fits_lines or is_small):
            return width, height, max(width, caption)
    small = min(view.width, SMALL)
    if halves:  # two rows share a line
        return small, small // 2, max(small, caption)
    return small, small, max(small, caption)


def legend(view: View, low: float, high: float, *, scale: str = "") -> Lines:
    """The legend of maps: the colours or characters from `low` to `high` in a row, between these two
    numbers, with the name of the scale unless it is linear."""
    color_scale = scale or view.scale_colors
    if color_scale == "log" and low < 0:  # such maps are drawn linear: see `normalise`
        color_scale = "linear"
    palette = palette_of(view, signed=color_scale == "signed")
    write = writer([low, high], view.precision)
    if view.color and not view.ascii:  # two shades a cell, so that every one is there
        shades = [palette.colour(index / (LEVELS - 1)) for index in range(LEVELS)]
        ramp: list[Piece] = [
            ("▌", f"{left} on {right}")
            for left, right in zip(shades[::2], shades[1::2], strict=True)
        ]
    else:
        if color_scale == "signed":
            mark = sign
        else:
            mark = shade
        # 16 shares from 0 to 1: more than there are characters, so that every one is there
        ramp = [(mark(index / 15, ascii=view.ascii), "") for index in range(16)]
    match color_scale:
        case "row":
            ends = ("0", localize("largest of the row", view))
        case "signed":
            ends = (write(low), f"+{write(high)}")
        case "log":  # the weakest colour is for a thousandth of the largest, and less
            ends = (f"{spell('≤', ascii=view.ascii)} {high / 1000:.1g}", write(high))
        case _:
            ends = (write(low), write(high))
    if color_scale == "linear":
        name = ""
    else:
        name = "  " + localize(f"{color_scale} scale", view)
    weakest, strongest = ends
    return fit_to_view(
        line((f"{weakest} ", FAINT), *ramp, (f" {strongest}", FAINT), (name, FAINT)), view
    )
