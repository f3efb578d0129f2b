"""Panes: blocks of styled lines that know what lies under each of their cells, set beside and below each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from attncli.render.lines import Line, Lines, Piece, clipped, line_width


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
    """Lines, and what lies at column x of line y."""

    rows: tuple[Line, ...] = ()
    spots: Spots = nowhere

    @classmethod
    def of(cls, block: Lines, spots: Spots = nowhere) -> Pane:
        """A block as it is."""
        return cls(block.rows, spots)

    @property
    def height(self) -> int:
        """How many lines it has."""
        return len(self.rows)


def stacked(panes: Sequence[Pane]) -> Pane:
    """One below the other."""
    starts: list[int] = []
    rows: list[Line] = []
    for pane in panes:
        starts.append(len(rows))
        rows += pane.rows

    def spots(x: int, y: int) -> Spot | None:
        for start, pane in zip(reversed(starts), reversed(panes), strict=True):
            if y >= start:
                return pane.spots(x, y - start) if y - start < pane.height else None
        return None

    return Pane(tuple(rows), spots)


def sized(pane: Pane, width: int, height: int, *, ascii: bool = False) -> Pane:
    """Exactly as wide and high: cut, or filled with blanks."""
    rows = [filled(row, width) for row in clipped(Lines(pane.rows[:height]), width, ascii=ascii).rows]
    rows += [((" " * width, ""),)] * (height - len(rows))
    return Pane(tuple(rows), pane.spots)


def filled(row: Line, width: int) -> Line:
    """A line with blanks up to this width."""
    rest = width - line_width(row)
    return (*row, (" " * rest, "")) if rest > 0 else row


def beside(left: Pane, right: Pane, width: int, gap: Piece) -> Pane:
    """Two panes of like height side by side. width: of the left one. gap: what stands between them in each line."""
    rows = tuple((*a, gap, *b) for a, b in zip(left.rows, right.rows, strict=True))
    start = width + line_width((gap,))

    def spots(x: int, y: int) -> Spot | None:
        if x < width:
            return left.spots(x, y)
        return right.spots(x - start, y) if x >= start else None

    return Pane(rows, spots)
