"""Numbers as coloured cells, and panes: blocks of styled lines that know what lies under each cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from attncli.draw.lines import Line, Lines, Piece, clip_lines, line_width
from attncli.draw.shaded_matrix import Palette, diverging, sequential, shade, sign
from attncli.draw.view import View

NDArray = np.ndarray[Any, Any]
SHADES = 25
"""Colours of a map, an odd number so that no difference has one of its own; neighbours that share one are one piece."""
BLANK = -1
"""The level of a hidden cell."""


def accent(view: View) -> str:
    """The style of what is chosen."""
    return "" if not view.color else "bold #c2185b" if view.light else "bold #ff6ea8"


def cursor_style(view: View) -> str:
    """The style of what is chosen, on a ground of its own."""
    if not view.color:
        return "bold reverse"
    return "bold #ffffff on #c2185b" if view.light else "bold #1a0810 on #ff6ea8"


def pooled(values: NDArray, block: int, *, signed: bool) -> NDArray:
    """The largest value (signed: of largest magnitude) of every block × block cells, float64; NaN where all are
    hidden."""
    if block == 1:
        return values.astype(np.float64)
    high = _reduce_blocks(np.fmax, values, block)
    if not signed:
        return high
    low = _reduce_blocks(np.fmin, values, block)
    return np.where(np.abs(low) > np.abs(high), low, high)


def _reduce_blocks(by: np.ufunc, values: NDArray, block: int) -> NDArray:
    down, across = (np.arange(0, size, block) for size in values.shape)
    values_by_block: NDArray = by.reduceat(by.reduceat(values, down, axis=0), across, axis=1).astype(np.float64)
    return values_by_block


def levels(fractions: NDArray) -> NDArray:
    """Fractions [0, 1] as levels 0 … SHADES − 1; NaN as BLANK."""
    rounded_levels = np.nan_to_num(np.rint(fractions * (SHADES - 1)), nan=BLANK)
    return rounded_levels.astype(np.int16)


@cache
def style(palette: Palette, level: int) -> str:
    """The style of a level: the colour behind, a readable one in front."""
    return "" if level == BLANK else palette.style(level / (SHADES - 1))


@cache
def _halves(palette: Palette, upper: int, lower: int) -> Piece:
    """A cell of two levels, one above the other."""
    above, below = (palette.colour(level / (SHADES - 1)) if level != BLANK else "" for level in (upper, lower))
    if above and below:
        return "▀", f"{above} on {below}"
    return ("▀", above) if above else ("▄", below) if below else (" ", "")


def palette_of(view: View, *, signed: bool) -> Palette:
    """The palette of weights, or of differences."""
    return diverging(light=view.light) if signed else sequential(light=view.light)


def wholes(level_map: NDArray, across: int, view: View, *, signed: bool = False) -> list[list[Piece]]:
    """Levels [row, column] as pieces, each `across` cells wide, one for each run of one level."""
    palette, mark = palette_of(view, signed=signed), sign if signed else shade
    out = []
    for row in level_map:
        pieces: list[Piece] = []
        for start, stop, level in _runs(row):
            size = (stop - start) * across
            if level == BLANK or (view.color and not view.ascii):
                pieces.append((" " * size, style(palette, level) if view.color else ""))
            else:
                char = mark(level / (SHADES - 1), ascii=view.ascii)
                pieces.append((char * size, style(palette, level) if view.color else ""))
        out.append(pieces)
    return out


def halves(level_map: NDArray, view: View, *, signed: bool = False) -> list[list[Piece]]:
    """Levels [row, column] as pieces, a cell wide and half a line high."""
    palette = palette_of(view, signed=signed)
    if len(level_map) % 2:
        level_map = np.vstack([level_map, np.full((1, level_map.shape[1]), BLANK, level_map.dtype)])
    out = []
    for first_row in range(0, len(level_map), 2):
        pair = (level_map[first_row].astype(np.int32) + 1) * 64 + level_map[first_row + 1] + 1
        pieces: list[Piece] = []
        for start, stop, both in _runs(pair):
            char, cell_style = _halves(palette, both // 64 - 1, both % 64 - 1)
            pieces.append((char * (stop - start), cell_style))
        out.append(pieces)
    return out


def _runs(row: NDArray) -> list[tuple[int, int, int]]:
    """Where a row's values change: (start, stop, value)."""
    if not row.size:
        return []
    cuts = [0, *(np.flatnonzero(np.diff(row)) + 1).tolist(), len(row)]
    return [(start, stop, int(row[start])) for start, stop in pairwise(cuts)]


def over(pieces: list[Piece], start: int, text: str, text_style: str) -> Line:
    """The pieces with `text` laid over them from cell `start` on; all cells one column wide."""
    out: list[Piece] = []
    column, stop = 0, start + len(text)
    for piece, style_of in pieces:
        end = column + len(piece)
        if column < start:
            out.append((piece[: start - column], style_of))
        if column <= start < end:
            out.append((text, text_style))
        if end > stop:
            out.append((piece[max(stop - column, 0) :], style_of))
        column = end
    return tuple(part for part in out if part[0])


# Panes: blocks of styled lines that know what lies under each of their cells, set beside and below each other.


@dataclass(frozen=True)
class HeadSpot:
    """A head in the grid."""

    layer: int
    head: int


@dataclass(frozen=True)
class PairSpot:
    """A pair of words in a matrix."""

    query: int
    key: int


@dataclass(frozen=True)
class WordSpot:
    """A word; side: whether it looks or is looked at, or is of the sentence, which is about the chosen one."""

    index: int
    side: str = "sentence"


@dataclass(frozen=True)
class RowSpot:
    """A row of a list."""

    row: int


@dataclass(frozen=True)
class KeySpot:
    """A key in the footer: it does what pressing it does."""

    key: str


Spot: TypeAlias = HeadSpot | PairSpot | WordSpot | RowSpot | KeySpot
Spots: TypeAlias = Callable[[int, int], "Spot | None"]


def nowhere(x: int, y: int) -> Spot | None:
    """Nothing lies anywhere."""
    del x, y
    return None


@dataclass(frozen=True)
class Pane:
    """Lines, and what lies at column x of line y. width: cells of every line, None where they differ."""

    rows: tuple[Line, ...] = ()
    spots: Spots = nowhere
    width: int | None = None

    @classmethod
    def of(cls, block: Lines) -> Pane:
        """A block as it is."""
        return cls(block.rows)

    @property
    def height(self) -> int:
        """How many lines it has."""
        return len(self.rows)


def blank(width: int, height: int) -> Pane:
    """Nothing, this large."""
    return Pane((((" " * width, ""),),) * height, width=width)


def stack_panes(panes: Sequence[Pane]) -> Pane:
    """One below the other."""
    starts: list[int] = []
    rows: list[Line] = []
    for pane in panes:
        starts.append(len(rows))
        rows += pane.rows
    widths = {pane.width for pane in panes if pane.height}

    def spots(x: int, y: int) -> Spot | None:
        for start, pane in zip(reversed(starts), reversed(panes), strict=True):
            if y >= start:
                return pane.spots(x, y - start) if y - start < pane.height else None
        return None

    return Pane(tuple(rows), spots, widths.pop() if len(widths) == 1 else None)


def fit_pane(pane: Pane, width: int, height: int, *, ascii: bool = False) -> Pane:
    """Exactly as wide and high: cut, or filled with blanks."""
    rows = list(pane.rows[:height])
    if pane.width != width:  # to measure lines is what takes time
        rows = [_fit_row(row, width, ascii) for row in rows]
    rows += blank(width, height - len(rows)).rows
    return Pane(tuple(rows), pane.spots, width)


def _fit_row(row: Line, width: int, ascii: bool) -> Line:
    rest = width - line_width(row)
    if rest < 0:
        return _fit_row(clip_lines(Lines((row,)), width, ascii=ascii).rows[0], width, ascii)
    return (*row, (" " * rest, "")) if rest else row


def beside(left: Pane, right: Pane, gap: str = "") -> Pane:
    """Two panes of like height side by side, the left one of a known width. gap: blanks between."""
    assert left.width is not None
    between: Line = ((gap, ""),) if gap else ()
    rows = tuple((*a, *between, *b) for a, b in zip(left.rows, right.rows, strict=True))
    width, start = left.width, left.width + len(gap)

    def spots(x: int, y: int) -> Spot | None:
        if x < width:
            return left.spots(x, y)
        return right.spots(x - start, y) if x >= start else None

    return Pane(rows, spots, None if right.width is None else start + right.width)
