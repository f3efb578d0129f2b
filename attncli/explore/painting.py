"""Painting: numbers as coloured cells, in as few pieces of text as there are changes of colour."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from attncli.render.lines import Line, Piece
from attncli.render.palette import Palette, diverging, sequential, shade, sign
from attncli.render.view import View

NDArray = np.ndarray[Any, Any]
SHADES = 25
"""Colours of a map, an odd number so that no difference has one of its own; neighbours that share one are one piece."""
BLANK = -1
"""The level of a hidden cell."""


def accent(view: View) -> str:
    """The style of what is chosen."""
    return "" if not view.color else "bold #c2185b" if view.light else "bold #ff6ea8"


def marked(view: View) -> str:
    """The style of what is chosen, on a ground of its own."""
    if not view.color:
        return "bold reverse"
    return "bold #ffffff on #c2185b" if view.light else "bold #1a0810 on #ff6ea8"


def pooled(values: NDArray, block: int, *, signed: bool) -> NDArray:
    """The largest value (signed: of largest magnitude) of every block × block cells, float64; NaN where all are
    hidden."""
    if block == 1:
        return values.astype(np.float64)
    high = _reduced(np.fmax, values, block)
    if not signed:
        return high
    low = _reduced(np.fmin, values, block)
    return np.where(np.abs(low) > np.abs(high), low, high)


def _reduced(by: np.ufunc, values: NDArray, block: int) -> NDArray:
    down, across = (np.arange(0, size, block) for size in values.shape)
    found: NDArray = by.reduceat(by.reduceat(values, down, axis=0), across, axis=1).astype(np.float64)
    return found


def levels(fractions: NDArray) -> NDArray:
    """Fractions [0, 1] as levels 0 … SHADES − 1; NaN as BLANK."""
    found = np.nan_to_num(np.rint(fractions * (SHADES - 1)), nan=BLANK)
    return found.astype(np.int16)


@cache
def style(palette: Palette, level: int) -> str:
    """The style of a level: the colour behind, a readable one in front."""
    return "" if level == BLANK else palette.style(level / (SHADES - 1))


@cache
def _halves(palette: Palette, upper: int, lower: int) -> Piece:
    """A cell of two levels, one above the other."""
    above, below = (palette.colour(at / (SHADES - 1)) if at != BLANK else "" for at in (upper, lower))
    if above and below:
        return "▀", f"{above} on {below}"
    return ("▀", above) if above else ("▄", below) if below else (" ", "")


def palette_of(view: View, *, signed: bool) -> Palette:
    """The palette of weights, or of differences."""
    return diverging(light=view.light) if signed else sequential(light=view.light)


def wholes(found: NDArray, across: int, view: View, *, signed: bool = False) -> list[list[Piece]]:
    """Levels [row, column] as pieces, each `across` cells wide, one for each run of one level."""
    palette, mark = palette_of(view, signed=signed), sign if signed else shade
    out = []
    for row in found:
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


def halves(found: NDArray, view: View, *, signed: bool = False) -> list[list[Piece]]:
    """Levels [row, column] as pieces, a cell wide and half a line high."""
    palette = palette_of(view, signed=signed)
    if len(found) % 2:
        found = np.vstack([found, np.full((1, found.shape[1]), BLANK, found.dtype)])
    out = []
    for at in range(0, len(found), 2):
        pair = (found[at].astype(np.int32) + 1) * 64 + found[at + 1] + 1
        pieces: list[Piece] = []
        for start, stop, both in _runs(pair):
            char, told = _halves(palette, both // 64 - 1, both % 64 - 1)
            pieces.append((char * (stop - start), told))
        out.append(pieces)
    return out


def _runs(row: NDArray) -> list[tuple[int, int, int]]:
    """Where a row's values change: (start, stop, value)."""
    if not row.size:
        return []
    cuts = [0, *(np.flatnonzero(np.diff(row)) + 1).tolist(), len(row)]
    return [(start, stop, int(row[start])) for start, stop in pairwise(cuts)]


def over(pieces: list[Piece], start: int, text: str, told: str) -> Line:
    """The pieces with `text` laid over them from cell `start` on; all cells one column wide."""
    out: list[Piece] = []
    at, stop = 0, start + len(text)
    for piece, style_of in pieces:
        end = at + len(piece)
        if at < start:
            out.append((piece[: start - at], style_of))
        if at <= start < end:
            out.append((text, told))
        if end > stop:
            out.append((piece[max(stop - at, 0) :], style_of))
        at = end
    return tuple(one for one in out if one[0])
