"""Vectors, one per row, the first and last dimensions or all of them; and vectors that add up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from attncli.documents.declaration import Numbers
from attncli.draw.headings import FAINT, heading, remark
from attncli.draw.lines import Lines, Piece, fit_to_view, stack, stack_spaced
from attncli.draw.numbers import adding_digits, writer
from attncli.draw.safe import cells, cut, label, pad
from attncli.draw.shaded_matrix import NAME, ROWS, ShownPositions, as_matrix, both_ends, ends, panels, window_text
from attncli.draw.text_tables import ledger
from attncli.draw.view import View
from attncli.language import say

GAP = 3
"""Cells in place of the dimensions left out."""


def vectors(
    values: Numbers | Sequence[Numbers],
    rows: Sequence[str],
    view: View,
    *,
    title: str = "",
    note: str = "",
    row_numbers: Sequence[int] | None = None,
) -> Lines:
    """Vectors [row, dim] with their rows' names: as many first and last dimensions as fit, and the Euclidean length
    |x|.

    rows: the rows' names; none for rows that have only numbers. A full view prints every dimension and row, in panels.
    Without rows or dimensions: "(empty)".
    """
    matrix = as_matrix(values)
    top = heading(title, note, view)
    if matrix.size == 0:
        return stack((top, remark("(empty)", view)))
    numbers = list(row_numbers) if row_numbers is not None else list(range(matrix.shape[0]))
    names = [label(text, ascii=view.ascii) for text in rows] or [""] * len(numbers)
    write, lengths = writer(matrix, view.precision), np.sqrt((matrix**2).sum(axis=1))
    write_length = writer(lengths, view.precision)
    index = len(str(max(numbers)))
    name = min(max(cells(text) for text in names), NAME, max(view.width // 5, 4))
    slot = (
        1 + max(len(write(float(bound(matrix)))) for bound in (np.nanmin, np.nanmax))
        if np.isfinite(matrix).any()
        else 4
    )
    slot = max(slot, 1 + len(str(matrix.shape[1] - 1)))
    norm = 2 + max(3, *(len(write_length(float(length))) for length in lengths))
    side_width = index + 1 + name + 1
    room = view.width - side_width - norm
    shown_rows: ShownPositions = list(range(len(names))) if view.full else ends(len(names), ROWS)

    def panel(columns: ShownPositions) -> Lines:
        head: list[Piece] = [(" " * side_width, "")]
        head += [
            (
                pad(".." if view.ascii else "…", GAP, "right") if column is None else pad(str(column), slot, "right"),
                FAINT,
            )
            for column in columns
        ]
        out = [(*head, (pad("|x|", norm, "right"), FAINT))]
        for row in shown_rows:
            if row is None:
                out.append(((pad("⋮" if not view.ascii else ":", index, "right"), FAINT),))
                continue
            pieces: list[Piece] = [(pad(str(numbers[row]), index, "right") + " ", FAINT)]
            pieces.append((pad(cut(names[row], name, ascii=view.ascii), name + 1), ""))
            pieces += [
                (" " * GAP if column is None else pad(write(float(matrix[row, column])), slot, "right"), "")
                for column in columns
            ]
            out.append((*pieces, (pad(write_length(float(lengths[row])), norm, "right"), FAINT)))
        return Lines(tuple(out))

    if view.full:
        body = stack_spaced(panel(list(group)) for group in panels([slot] * matrix.shape[1], room))
        return fit_to_view(stack((top, body)), view)
    columns = both_ends(matrix.shape[1], room // slot if matrix.shape[1] * slot <= room else (room - GAP) // slot)
    notes = [window_text(shown_rows, numbers, "rows"), window_text(columns, range(matrix.shape[1]), "dimensions")]
    note_text = "; ".join(part for part in notes if part)
    return fit_to_view(
        stack((top, panel(columns), remark(note_text + " shown; --full shows all" if note_text else "", view))), view
    )


if __name__ == "__main__":
    from attncli.draw.lines import show

    show(
        vectors(np.sin(np.arange(192.0)).reshape(3, 64), ["The", "animal", "didn't"], View(color=True), title="output")
    )


# Vectors that add up, as a table: a term a row, their sum below, with as many digits as let every column add up.

SIGN = 5
"""Cells of an entry beside its digits: gap, sign, two places, point."""


def vector_sum(
    terms: Sequence[tuple[str, ArrayLike]], total: tuple[str, ArrayLike], view: View, *, title: str = "", note: str = ""
) -> Lines:
    """Named terms [width] and their sum [width]; the first entries that fit, or all of them in a full view."""
    values = [np.asarray(term, np.float64) for _, term in terms]
    total_vector = np.asarray(total[1], np.float64)
    side = max(cells(name) for name, _ in (*terms, total)) + 2
    digits, dims = view.precision, 1
    for _ in range(2):  # more digits take room: settle on both
        dims = (
            len(total_vector) if view.full else max(min(len(total_vector), (view.width - side) // (digits + SIGN)), 1)
        )
        columns = [([float(value[dim]) for value in values], float(total_vector[dim])) for dim in range(dims)]
        digits = adding_digits(columns, view.precision)
    exact, ends = f"{{:.{digits}f}}".format, " " * (digits - view.precision)
    rows = [[name, *map(exact, value[:dims])] for (name, _), value in zip(terms, values, strict=True)]
    last = [total[0], *(f"{value:.{view.precision}f}" + ends for value in total_vector[:dims])]
    more = say(view, "shown.dims", dims - 1, len(total_vector)) if dims < len(total_vector) else ""
    names = ["", *map(str, range(dims))]
    return stack((ledger(names, rows, last, view, title=title, note=note), remark(more, view)))
