"""The list of models that may be switched to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from attncli.explore.painting import cursor_style
from attncli.explore.pane import Pane, RowSpot, Spot
from attncli.explore.state import State
from attncli.render.glyphs import spell
from attncli.render.headings import FAINT, remark
from attncli.render.lines import Line
from attncli.render.phrases import say
from attncli.render.safe import cut, safe
from attncli.render.view import View


def model_list(state: State, names: Sequence[str], view: View, width: int, height: int) -> Pane:
    """The names, the chosen one marked; those around it where not all fit."""
    if not names:
        return Pane.of(remark(say(view, "explore.models.none"), replace(view, width=width)))
    room = max(height - 3, 1)
    top = min(max(state.row - room // 2, 0), max(len(names) - room, 0))
    rows: list[Line] = [((say(view, "explore.models.title"), "bold"),), ()]
    for number, name in enumerate(names[top : top + room], top):
        text = f" {cut(safe(name, ascii=view.ascii), max(width - 2, 1), ascii=view.ascii)} "
        rows.append(((text, cursor_style(view) if number == state.row else ""),))
    rows.append(((spell(say(view, "explore.models.how"), ascii=view.ascii), FAINT),))

    def spots(x: int, y: int) -> Spot | None:
        number = y - 2 + top
        return RowSpot(number) if y >= 2 and number < min(top + room, len(names)) else None

    return Pane(tuple(rows), spots)
