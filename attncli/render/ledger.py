"""Ledgers: tables of worked numbers whose last row is the total of those above."""

from __future__ import annotations

from collections.abc import Sequence

from attncli.render.headings import FAINT
from attncli.render.lines import Lines, line_width
from attncli.render.tables import table
from attncli.render.view import View


def ledger(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    total: Sequence[str],
    view: View,
    *,
    title: str = "",
    note: str = "",
    strong: int | None = None,
    bars: bool = False,
) -> Lines:
    """Rows under column names, all but the first column right-aligned; a rule, then the total in bold. No rule without
    a total.

    strong: a row to set in bold, such as the one with the largest weight. bars: whether the last column holds bars.
    """
    align = ["left", *["right"] * (len(columns) - 1)]
    align[-1] = "left" if bars else align[-1]
    block = table(columns, [*rows, *([total] if total else [])], view, align=align, title=title, note=note)
    if not view.color:
        return Lines(_ruled(block, view)) if total else block
    lines = list(tinted(block, len(rows), view, below=1 if total else 0).rows if bars else block.rows)
    first = len(lines) - len(rows) - (1 if total else 0)
    for at in ([first + strong] if strong is not None else []) + ([len(lines) - 1] if total else []):
        lines[at] = tuple((text, f"bold {style}".strip()) for text, style in lines[at])
    styled = Lines(tuple(lines))
    return Lines(_ruled(styled, view)) if total else styled


def tinted(block: Lines, rows: int, view: View, *, below: int = 0) -> Lines:
    """A table whose last `rows` lines, but for `below` lines after them, end in a bar: the bars coloured."""
    if not view.color:
        return block
    first, last = len(block.rows) - rows - below, len(block.rows) - below
    barred = ((*row[:-1], (row[-1][0], "cyan")) for row in block.rows[first:last])
    return Lines((*block.rows[:first], *barred, *block.rows[last:]))


def _ruled(block: Lines, view: View) -> tuple[tuple[tuple[str, str], ...], ...]:
    width = max(line_width(row) for row in block.rows[-2:])
    rule = (("-" if view.ascii else "─") * width, FAINT if view.color else "")
    return (*block.rows[:-1], (rule,), block.rows[-1])


if __name__ == "__main__":
    from attncli.render.lines import show

    show(
        ledger(
            ["key", "exp", "weight"],
            [["0 on", "1.00", "0.66"], ["1 sat", "0.52", "0.34"]],
            ["sum", "1.52", "1.00"],
            View(color=True),
        )
    )
