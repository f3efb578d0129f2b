"""Rankings: heads below each other by a number, with its bar; the chosen row stands out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attncli.explore.painting import cursor_style
from attncli.explore.pane import Pane, RowSpot, Spot, fit_pane
from attncli.render.bars import bar, bar_pieces
from attncli.render.headings import FAINT
from attncli.render.lines import Line
from attncli.render.safe import cells, pad
from attncli.render.view import View

BAR = 28
"""Cells of the longest bar."""


@dataclass(frozen=True)
class RankingRow:
    """One head of a ranking. share: of the bar, 0 to 1. value_text: its number as written. more: a remark behind."""

    layer: int
    head: int
    share: float
    value_text: str
    more: str = ""


def ranking(rows: Sequence[RankingRow], chosen_row: int, view: View, width: int, height: int) -> Pane:
    """The rows in this room, those around the chosen one."""
    room = max(height, 1)
    top = min(max(chosen_row - room // 2, 0), max(len(rows) - room, 0))
    visible_rows = rows[top : top + room]
    name = max((len(f"L{row.layer} H{row.head}") for row in visible_rows), default=0)
    number = max((cells(row.value_text) for row in visible_rows), default=0)
    more = max((cells(row.more) for row in visible_rows), default=0)
    length = max(min(width - name - number - more - 6, BAR), 0)
    lines: list[Line] = []
    for index, row in enumerate(visible_rows, top):
        text = (f"L{row.layer} H{row.head}".ljust(name), pad(row.value_text, number, "right"))
        bar_text = bar(row.share, length, ascii=view.ascii) if length > 3 else ""
        if index == chosen_row:
            lines.append(
                (
                    (f" {text[0]}  {text[1]} ", cursor_style(view)),
                    (" ", ""),
                    *bar_pieces(bar_text),
                    (f" {row.more}", ""),
                )
            )
        else:
            lines.append(((f" {text[0]}  {text[1]}  ", ""), *bar_pieces(bar_text), (f" {row.more}", FAINT)))

    def spots(x: int, y: int) -> Spot | None:
        return RowSpot(y + top) if y >= 0 and y + top < len(rows) else None

    return fit_pane(Pane(tuple(lines), spots), width, height, ascii=view.ascii)
