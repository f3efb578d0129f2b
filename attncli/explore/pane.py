"""Panes: blocks of styled lines that know what lies under each of their cells, set beside and below each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from attncli.render.lines import Line, Lines, clip_lines, line_width


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
