"""Vectors, one per row: the first and last dimensions, or all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attncli.analysis.documents.declaration import Numbers
from attncli.render.headings import FAINT, heading, remark
from attncli.render.lines import Lines, Piece, fit_to_view, stack, stack_spaced
from attncli.render.matrix import NAME, ROWS, as_matrix
from attncli.render.numbers import writer
from attncli.render.safe import cells, cut, label, pad
from attncli.render.view import View
from attncli.render.window import ShownPositions, both_ends, ends, panels, window_text

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
    from attncli.render.lines import show

    show(
        vectors(np.sin(np.arange(192.0)).reshape(3, 64), ["The", "animal", "didn't"], View(color=True), title="output")
    )
