"""A table of numbers with named rows and columns: scores, weights, anything [query, key]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import UNSET

from attncli.render.headings import FAINT, heading, localize, remark
from attncli.render.lines import Line, Lines, Piece, fit_to_view, stack, stack_spaced
from attncli.render.numbers import Write, without_zero, writer
from attncli.render.palette import Palette, diverging, normalise, sequential
from attncli.render.safe import cells, cut, label, pad
from attncli.render.view import View
from attncli.render.window import panels, strongest, strongest_text

NDArray = np.ndarray[Any, Any]

ROWS = 24
"""Rows that are shown unless the view is full."""
STRONGEST = 12
"""Rows that are shown of more than `ROWS`: those with the largest entries."""
NAME = 14
"""Cells that a name may take."""
LARGEST = "   largest"
"""The name of the column that names each row's largest."""
PEAK_NAME = 6
"""Cells that the name of a row's largest may take beside the row."""


def as_matrix(values: Any) -> NDArray:
    """Nested lists (null where masked) or an array as float64 [row, column]; what is not finite becomes NaN."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2:
        array = array.reshape(len(values), -1) if array.size else np.zeros((len(values), 0))
    return np.where(np.isfinite(array), array, np.nan)


def visible(weights: Any, scores: Any) -> NDArray:
    """Weights [query, key] with NaN where the score is masked: hidden and merely small look different. scores: UNSET
    where they are not known."""
    matrix = as_matrix(weights)
    return matrix if scores is None or scores is UNSET else np.where(np.isnan(as_matrix(scores)), np.nan, matrix)


def matrix(
    values: Any,
    rows: Sequence[str] | None,
    columns: Sequence[str] | None,
    view: View,
    *,
    shade: bool = True,
    mark_max: bool = True,
    limits: tuple[float, float] | None = None,
    signed: bool = False,
    empty: str = "·",
    bare: bool = False,
    title: str = "",
    note: str = "",
    row_numbers: Sequence[int] | None = None,
    column_numbers: Sequence[int] | None = None,
) -> Lines:
    """Numbers [row, column] under their names, each row's largest marked: bold and underlined, or `*` without colour.

    rows, columns: token texts, made safe here; None for what has only a number. row_numbers, column_numbers: their
    positions, 0… if None.
    limits: the values of the weakest and the strongest colour, such as 0 and 1 for weights; the values' own if None.
    signed: whether the colours tell below 0 from above, such as for scores.
    bare: numbers below 1 stand without their zero, as `.105`: a cell fewer.
    Masked (NaN, null) cells show `empty`. Of more than `ROWS` rows those with the largest entries are shown, and of
    columns that do not fit likewise; a line says so, and each row names its largest if there is room. A full view
    prints all of them, in panels. Lines still too long (very many digits) are cut, with `…`.
    Without rows or columns: "(empty)".
    """
    array = as_matrix(values)
    top = heading(title, note, view)
    if array.size == 0:
        return stack((top, remark("(empty)", view)))
    grid = Grid(
        values=array,
        rows=_names(rows, array.shape[0], view),
        columns=_names(columns, array.shape[1], view),
        row_numbers=list(row_numbers) if row_numbers is not None else list(range(array.shape[0])),
        column_numbers=list(column_numbers) if column_numbers is not None else list(range(array.shape[1])),
        fractions=_fractions(array, view, limits, signed) if shade and view.color else None,
        palette=diverging(light=view.light) if signed else sequential(light=view.light),
        peaks=[_peak(row) for row in array] if mark_max else [None] * array.shape[0],
        empty="." if view.ascii else empty,
        write=without_zero(writer(array, view.precision)) if bare else writer(array, view.precision),
        view=view,
    )
    return fit_to_view(stack((top, grid.draw())), view)


def _fractions(array: NDArray, view: View, limits: tuple[float, float] | None, signed: bool) -> NDArray:
    low, high = limits or (None, None)
    return normalise(array, "signed" if signed else view.scale_colors, low=low, high=high)


def _names(texts: Sequence[str] | None, count: int, view: View) -> list[str]:
    return [""] * count if texts is None else [label(text, ascii=view.ascii) for text in texts]


def _peak(row: NDArray) -> int | None:
    """The first largest entry; None when all are masked or all visible ones are 0 (a row that sees nothing)."""
    visible = row[np.isfinite(row)]
    return int(np.nanargmax(row)) if visible.size and visible.any() else None


@dataclass(frozen=True)
class Grid:
    """One matrix ready to be drawn: everything decided but the columns that fit."""

    values: NDArray
    rows: list[str]
    columns: list[str]
    row_numbers: list[int]
    column_numbers: list[int]
    fractions: NDArray | None
    palette: Palette
    peaks: list[int | None]
    empty: str
    write: Write
    view: View

    def draw(self) -> Lines:
        view, room = self.view, self.view.width - self.left
        everything = list(range(len(self.rows)))
        rows_to_draw = everything if view.full or len(everything) <= ROWS else strongest(self.values, STRONGEST)
        rows, columns = (len(rows_to_draw), len(everything)), len(self.columns)
        # without colour the mark of a row's largest takes a cell of its own
        tight = self.number + (1 if view.color or all(peak is None for peak in self.peaks) else 2)
        name_slots = self._named_slots(room, self.number + 2) or self._named_slots(room, tight)
        if name_slots is not None:
            note = remark(strongest_text(rows, (columns, columns)), view)
            return stack((self.panel(rows_to_draw, list(range(columns)), name_slots), note))
        slot = max(tight, len(str(max(self.column_numbers))) + 1)
        if view.full:
            slots = [max(slot, min(cells(name), NAME) + 1) for name in self.columns]
            return stack_spaced(self.panel(rows_to_draw, list(group), slots) for group in panels(slots, room))
        has_peaks = any(peak is not None for peak in self.peaks) and room - self.peak_slot >= 2 * slot
        fitting = (room - (self.peak_slot if has_peaks else 0)) // slot
        strongest_columns = strongest(self.values[rows_to_draw].T, fitting)
        body = self.panel(rows_to_draw, strongest_columns, [slot] * columns, peak=has_peaks)
        return stack((body, remark(strongest_text(rows, (len(strongest_columns), columns)), view)))

    @property
    def number(self) -> int:
        """Cells of the widest number."""
        bounds = (
            [self.write(float(bound(self.values))) for bound in (np.nanmin, np.nanmax)]
            if np.isfinite(self.values).any()
            else []
        )
        return max([len(text) for text in bounds], default=1)

    @property
    def index(self) -> int:
        return len(str(max(self.row_numbers)))

    @property
    def name(self) -> int:
        return min(max(cells(text) for text in self.rows), NAME, max(self.view.width // 5, 4))

    @property
    def left(self) -> int:
        """Cells before the first column."""
        return self.index + 1 + self.name + 1

    @property
    def peak_slot(self) -> int:
        """Cells of the column that names each row's largest: position, name, number."""
        place = len(str(max(self.column_numbers))) + 1 + (PEAK_NAME + 1 if any(self.columns) else 0)
        return max(3 + place + self.number, len(LARGEST))

    def _named_slots(self, room: int, least: int) -> list[int] | None:
        """Widths of at least `least` with which all columns fit, with names as long as possible; None if they do
        not."""
        least = max(least, len(str(max(self.column_numbers))) + 1)
        for cap in range(NAME, 0, -1):
            slots = [max(least, min(cells(name), cap) + 1) for name in self.columns]
            if sum(slots) <= room:
                return slots
            if cap + 1 <= least:
                return None
        return None

    def panel(self, rows: list[int], columns: list[int], slots: list[int], *, peak: bool = False) -> Lines:
        """The table of these columns under a line of positions and a line of names."""
        has_names = any(self.columns)
        out = [self._positions(columns, slots, peak), *([self._names(columns, slots)] if has_names else [])]
        return Lines((*out, *(self._row(row, columns, slots, peak) for row in rows)))

    def _positions(self, columns: list[int], slots: list[int], peak: bool) -> Line:
        pieces: list[Piece] = [(" " * self.left, "")]
        pieces += [
            (pad(str(self.column_numbers[column]), slots[column] - 1, "right") + " ", FAINT) for column in columns
        ]
        return (*pieces, ("   " + localize(LARGEST.strip(), self.view), FAINT)) if peak else tuple(pieces)

    def _names(self, columns: list[int], slots: list[int]) -> Line:
        pieces: list[Piece] = [(" " * self.left, "")]
        for column in columns:
            name = cut(self.columns[column], slots[column] - 1, ascii=self.view.ascii)
            pieces.append((pad(name, slots[column] - 1, "right") + " ", ""))
        return tuple(pieces)

    def _row(self, row: int, columns: list[int], slots: list[int], peak: bool) -> Line:
        name = pad(cut(self.rows[row], self.name, ascii=self.view.ascii), self.name + 1)
        pieces: list[Piece] = [(pad(str(self.row_numbers[row]), self.index, "right") + " ", FAINT), (name, "")]
        pieces += [self._cell(row, column, slots[column]) for column in columns]
        top = self.peaks[row]
        if peak and top is not None:
            place = pad(str(self.column_numbers[top]), len(str(max(self.column_numbers))), "right")
            name_text = (
                pad(cut(self.columns[top], PEAK_NAME, ascii=self.view.ascii), PEAK_NAME) + " "
                if any(self.columns)
                else ""
            )
            pieces += [(f"   {place} ", FAINT), (f"{name_text}{self.write(float(self.values[row, top]))}", "bold")]
        return tuple(pieces)

    def _cell(self, row: int, column: int, slot: int) -> Piece:
        value = float(self.values[row, column])
        if np.isnan(value):
            return pad(self.empty, slot - 1, "right") + " ", FAINT
        largest = self.peaks[row] == column
        mark = "*" if largest and not self.view.color else " "
        style = self.palette.style(float(self.fractions[row, column])) if self.fractions is not None else ""
        return pad(self.write(value), slot - 1, "right") + mark, f"bold underline {style}".strip() if largest else style


if __name__ == "__main__":
    from attncli.render.lines import show

    words = ["The", "animal", "didn't", "cross", "the", "street"]
    numbers = np.tril(np.arange(36.0).reshape(6, 6) % 7 + 1)
    weights = numbers / numbers.sum(1, keepdims=True)
    show(
        matrix(np.where(weights > 0, weights, np.nan), words, words, View(color=True), title="weights", note="a sample")
    )
