"""Tables, drawn by Rich: named columns, rows of texts, perhaps a total ruled off below. No cell's markup is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attncli.draw.console import FIXED_BLANK, lay_out
from attncli.draw.headings import FAINT, heading, localize
from attncli.draw.lines import Lines, fit_to_view, stack
from attncli.draw.plot import bar_pieces
from attncli.draw.safe import safe
from attncli.draw.view import View

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

GAP = 2
RULES = "    \n    \n ── \n    \n    \n ── \n    \n    \n"
"""A box of Rich's that is nothing but a rule below the names and one above the total."""


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    view: View,
    *,
    align: Sequence[str] = (),
    title: str = "",
    note: str = "",
    faint: Sequence[int] = (),
    strong: int | None = None,
    bars: int | None = None,
) -> Lines:
    """Rows of cells under column names; where they do not fit, Rich cuts the widest columns.

    rows: texts, made safe here. align: "left" or "right" per column, left where not given. faint: numbers of columns
    that are set back. strong: a row in bold. bars: the column that holds bars. No columns: only the heading.
    """
    return _draw_table(columns, rows, (), view, align, title, note, faint, strong, bars)


def ledger(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    total: Sequence[str],
    view: View,
    *,
    title: str = "",
    note: str = "",
    strong: int | None = None,
    bars: int | None = None,
) -> Lines:
    """A table of worked numbers, all but the first column right-aligned; a rule, then the total in bold. No rules
    without a total.

    strong: a row to set in bold, such as the one with the largest weight. bars: the column that holds bars.
    """
    align = ["left", *["right"] * (len(columns) - 1)]
    if bars is not None:
        align[bars] = "left"
    return _draw_table(columns, rows, total, view, align, title, note, (), strong, bars)


def _draw_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    total: Sequence[str],
    view: View,
    align: Sequence[str],
    title: str,
    note: str,
    faint: Sequence[int],
    strong: int | None,
    bars: int | None,
) -> Lines:
    top = heading(title, note, view)
    if not columns:
        return top
    frame = _frame(columns, total, view, align, faint)
    for place, row in enumerate(rows):
        weight = "bold" if place == strong else ""
        cells = [_bar(text) if column == bars else _cell(text, view, weight) for column, text in enumerate(row)]
        frame.add_row(*cells)
    return fit_to_view(stack((top, lay_out(frame, view))), view)


def _frame(
    columns: Sequence[str], total: Sequence[str], view: View, align: Sequence[str], faint: Sequence[int]
) -> Table:
    from rich.box import Box
    from rich.table import Table

    # a rule is drawn by a box, and a box parts its columns by a cell of its own
    frame = Table(
        box=Box(RULES.replace("─", "-") if view.ascii else RULES, ascii=view.ascii) if total else None,
        padding=(0, GAP - 1 if total else GAP, 0, 0),
        pad_edge=False,
        show_edge=False,
        show_footer=bool(total),
        header_style=FAINT,
        border_style=FAINT,
        footer_style="bold",
    )
    for column, name in enumerate(columns):
        frame.add_column(
            _cell(localize(name, view), view),
            _cell(total[column], view) if column < len(total) else "",
            justify="right" if column < len(align) and align[column] == "right" else "left",
            style=FAINT if column in faint else "",
        )
    return frame


def _bar(bar_text: str) -> Text:
    from rich.text import Text

    return Text.assemble(*bar_pieces(bar_text), no_wrap=True, overflow="crop")


def _cell(text: str, view: View, style: str = "") -> Text:
    from rich.text import Text

    # blanks at the end keep decimal points in line
    safe_text = safe(text.rstrip(" "), ascii=view.ascii) + FIXED_BLANK * (len(text) - len(text.rstrip(" ")))
    return Text(safe_text, style, no_wrap=True, overflow="ellipsis")


if __name__ == "__main__":
    from attncli.draw.lines import show

    show(
        table(
            ["step", "shape", "formula"],
            [["q", "1 × 11 × 64", "Q = X·W_Q"], ["weights", "1 × 11 × 11", "A = softmax(S)"]],
            View(color=True),
        ),
        ledger(
            ["key", "exp", "weight"],
            [["0 on", "1.00", "0.66"], ["1 sat", "0.52", "0.34"]],
            ["sum", "1.52", "1.00"],
            View(color=True),
        ),
    )
