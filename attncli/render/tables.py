"""Plain tables: named columns, rows of texts, fitted to the view. No markup is ever read from a cell."""

from __future__ import annotations

from collections.abc import Sequence

from attncli.render.glyphs import spell
from attncli.render.headings import FAINT, heading
from attncli.render.lines import Lines, Piece, finished, stack
from attncli.render.safe import cells, cut, pad, safe
from attncli.render.view import View

GAP = 2
LEAST = 4
"""No column is cut below this many cells while a wider one can give way."""


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    view: View,
    *,
    align: Sequence[str] = (),
    title: str = "",
    note: str = "",
    faint: Sequence[int] = (),
) -> Lines:
    """Rows of cells under column names; the widest columns are cut until the table fits.

    rows: texts, made safe here. align: "left" or "right" per column, left where not given.
    faint: numbers of columns that are set back. No columns: no lines.
    """
    head = [spell(name, ascii=view.ascii) for name in columns]
    body = [[safe(text, ascii=view.ascii) for text in row] for row in rows]
    if not head:
        return heading(title, note, view)
    widths = fitted(
        [max(cells(row[at]) for row in [head, *body]) for at in range(len(head))], view.width - GAP * (len(head) - 1)
    )
    sides = [*align, *["left"] * (len(head) - len(align))]

    def line(row: Sequence[str], styles: Sequence[str]) -> tuple[Piece, ...]:
        pieces: list[Piece] = []
        for at, text in enumerate(row):
            shown = pad(cut(text, widths[at], ascii=view.ascii), widths[at], sides[at])
            pieces += [(shown, styles[at]), (" " * GAP, "")]
        return tuple(pieces[:-1])

    styles = [FAINT if at in faint else "" for at in range(len(head))]
    lines = Lines((line(head, [FAINT] * len(head)), *(line(row, styles) for row in body)))
    block = stack((heading(title, note, view), lines))
    return finished(block, view)


def fitted(widths: Sequence[int], room: int) -> list[int]:
    """Widths that together fit `room`: the widest give way first, none below `LEAST` unless all are there."""
    found = list(widths)
    while sum(found) > room and max(found) > 1:
        widest = max(found)
        at = found.index(widest)
        second = max((width for width in found if width < widest), default=1)
        found[at] = max(second, widest - (sum(found) - room), LEAST if widest > LEAST else 1)
        if found[at] == widest:
            found[at] -= 1
    return found


if __name__ == "__main__":
    from attncli.render.lines import show

    show(
        table(
            ["step", "shape", "formula"],
            [["q", "1 × 11 × 64", "Q = X·W_Q"], ["weights", "1 × 11 × 11", "A = softmax(S)"]],
            View(),
        )
    )
