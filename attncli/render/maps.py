"""Several maps side by side on one scale, with a legend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attncli.analysis.documents.declaration import Numbers
from attncli.render.glyphs import spell
from attncli.render.headings import FAINT, own, remark
from attncli.render.heatmap import heatmap, pooled_by
from attncli.render.lines import BLANK, Lines, Piece, beside, finished, line, stack
from attncli.render.matrix import as_matrix
from attncli.render.numbers import writer
from attncli.render.palette import LEVELS, diverging, sequential, shade, sign
from attncli.render.safe import cells, cut, label, pad
from attncli.render.view import View

NDArray = np.ndarray[Any, Any]

LINES = 30
"""Lines that the rows of maps may take together before maps are drawn finer."""
SMALL = 24
"""Cells across a map that has to be pooled."""
GAP = 3
NAMED = 9
"""Cells of a token's name beside maps."""


@dataclass(frozen=True)
class Map:
    """One of several maps. caption, remarks: our words, above and below. values: [row, column], NaN or null where
    masked."""

    caption: str
    values: Numbers
    remarks: tuple[str, ...] = ()


def side_by_side(
    maps: Sequence[Map],
    view: View,
    *,
    shared: bool = True,
    scale: str = "",
    limits: tuple[float, float] | None = None,
    names: Sequence[str] = (),
    in_a_row: int | None = None,
) -> Lines:
    """Maps in columns, row after row within the view's width, with their captions and a legend.

    shared: one scale for all, from the lowest to the largest value of any, so that maps can be compared; otherwise
    each has its own and there is no legend. limits: the ends of the shared scale, such as 0 and 1 for weights; those
    of the values if None. names: token texts beside the first map of each row and their numbers below every map, where
    every token has a line of its own. in_a_row: at most so many maps in a row, such as a layer's heads; None for as
    many as fit. Maps that are too large are pooled, which is said once. No maps, or nothing
    visible in any: "(empty)".
    """
    found = [as_matrix(each.values) for each in maps]
    held = [values for values in found if np.isfinite(values).any()]
    if not held:
        return remark("(empty)", view)
    how = scale or view.scale_colors
    low, high = limits or (
        min(0.0, *(float(np.nanmin(values)) for values in held)),
        max(float(np.nanmax(values)) for values in held),
    )
    if how == "signed":
        low, high = -max(-low, high), max(-low, high)
    axis = _axis(found, names, view)
    width, height, room = _room(found, maps, view, axis.width)
    blocks, pooled = [], set()
    for each, values in zip(maps, found, strict=True):
        ends = (low, high) if shared else (None, None)
        drawn = heatmap(
            values, view, max_width=width, max_height=height, scale=how, low=ends[0], high=ends[1], say_pooled=False
        )
        pooled.add(pooled_by(values, view, max_width=width, max_height=height))
        texts = [cut(own(text, view), room, ascii=view.ascii) for text in (each.caption, *each.remarks)]
        ticks = _ticks(values.shape[1], view) if axis.rows and width == 2 * values.shape[1] else Lines()
        blocks.append(stack((line((texts[0], "bold")), drawn, ticks, *(line((text, FAINT)) for text in texts[1:]))))
    said = ", ".join(f"{block}×{block}" for block in sorted(pooled - {1}))
    told = remark(f"maps are pooled: each cell is the largest of {said}" if said else "", view)
    square = width == 2 * found[0].shape[1] and height >= found[0].shape[0]
    side = axis if axis.rows and square else Lines()
    body = beside(blocks, width=view.width, gap=GAP, side=side, most=in_a_row)
    block = stack((body, *((BLANK, legend(view, low, high, scale=how)) if shared else ()), told))
    return finished(block, view)


def _axis(found: Sequence[NDArray], names: Sequence[str], view: View) -> Lines:
    """The names of the rows, where all maps have one for each row."""
    return row_names(names, view) if names and all(values.shape[0] == len(names) for values in found) else Lines()


def row_names(names: Sequence[str], view: View) -> Lines:
    """The names of a map's rows, below an empty caption, to stand beside it."""
    shown = [cut(label(text, ascii=view.ascii), NAMED, ascii=view.ascii) for text in names]
    wide = max(cells(text) for text in shown)
    return Lines(((), *(((pad(text, wide, "right"), FAINT),) for text in shown)))


def _ticks(count: int, view: View) -> Lines:
    """The number of every fifth column, below a map with two cells a column."""
    marks = "".join(str(at).ljust(10) for at in range(0, count, 5)).rstrip()
    return line((cut(marks, 2 * count, ascii=view.ascii) if count > 5 else marks, FAINT))


def _room(found: Sequence[NDArray], maps: Sequence[Map], view: View, side: int) -> tuple[int, int, int]:
    """Width and height for each map and the width of its captions: square cells if all rows of maps then fit `LINES`,
    else finer ones."""
    down, across = (max(values.shape[axis] for values in found) for axis in (0, 1))
    caption = min(
        max(cells(own(text, view)) for each in maps for text in (each.caption, *each.remarks)), SMALL, view.width
    )
    halves = view.color and not view.ascii
    fine = (across, -(-down // 2)) if halves else (across, down)
    for width, height in ((2 * across, down), fine):
        rows = -(-len(found) // max((view.width - side + GAP) // (max(width, caption) + GAP), 1))
        if width <= view.width - side - GAP * (side > 0) and (
            rows * (height + 2) <= LINES or (width == fine[0] and width <= SMALL)
        ):
            return width, height, max(width, caption)
    small = min(view.width, SMALL)
    return small, small // 2 if halves else small, max(small, caption)


def legend(view: View, low: float, high: float, *, scale: str = "") -> Lines:
    """The colours or characters from `low` to `high`, with the name of the scale."""
    how = scale or view.scale_colors
    palette = diverging(light=view.light) if how == "signed" else sequential(light=view.light)
    write = writer([low, high], view.precision)
    steps = [at / 15 for at in range(16)]
    if view.color and not view.ascii:  # two shades a cell, so that every one is there
        shades = [palette.colour(at / (LEVELS - 1)) for at in range(LEVELS)]
        ramp: list[Piece] = [("▌", f"{a} on {b}") for a, b in zip(shades[::2], shades[1::2], strict=True)]
    else:
        mark = sign if how == "signed" else shade
        ramp = [(mark(step, ascii=view.ascii), "") for step in steps]
    match how:
        case "row":
            ends = ("0", own("largest of the row", view))
        case "signed":
            ends = (write(low), f"+{write(high)}")
        case "log" if low >= 0:
            ends = (f"{spell('≤', ascii=view.ascii)} {high / 1000:.1g}", write(high))
        case _:
            ends = (write(low), write(high))
    block = line(
        (ends[0] + " ", FAINT),
        *ramp,
        (" " + ends[1], FAINT),
        ("" if how == "linear" else "  " + own(f"{how} scale", view), FAINT),
    )
    return finished(block, view)


if __name__ == "__main__":
    from attncli.render.lines import show

    ramp = np.add.outer(np.arange(11.0), np.arange(11.0))
    show(
        side_by_side(
            [Map(f"head {at}", np.tril(np.cos(ramp * (at + 1) / 9) ** 2)) for at in range(8)], View(color=True)
        )
    )
