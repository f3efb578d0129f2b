"""Help: what the screen in view shows, and what its keys do."""

from __future__ import annotations

from dataclasses import replace

from attncli.explore.keys import KEYS, Key
from attncli.explore.painting import accent
from attncli.explore.pane import Pane
from attncli.explore.state import State
from attncli.render.glyphs import spell
from attncli.render.headings import remark
from attncli.render.lines import BLANK, Line, Lines, line, stack
from attncli.render.phrases import say
from attncli.render.safe import cells, pad
from attncli.render.view import View

ARROWS = ("left", "right", "up", "down", "pageup", "pagedown", "home", "end")
COLUMN = 36
"""Cells of a column of keys."""


def help_page(state: State, view: View, width: int, height: int) -> Pane:
    """What is in view, in words; then the keys, in as many columns as fit; scrolled by `state.top`."""
    close = replace(view, width=min(width, 100))
    blocks = [
        line((spell(say(view, f"explore.help.{state.sight}.title"), ascii=view.ascii), "bold")),
        remark(say(view, f"explore.help.{state.sight}"), close, style=""),
        BLANK,
        remark(say(view, "explore.help.grid"), close, style=""),
        remark(say(view, "explore.help.sentence"), close, style=""),
        BLANK,
        _keys(state, view, width),
    ]
    block = stack(blocks)
    top = min(state.top, max(len(block.rows) - height, 0))
    return Pane(block.rows[top : top + height])


def _keys(state: State, view: View, width: int) -> Lines:
    arrows = "arrows" if view.ascii else "← ↑ ↓ →"
    told = [(arrows, say(view, f"explore.key.arrows.{state.focus}"))]
    told += [(_written(key, view), say(view, f"explore.key.{key.does}")) for key in KEYS if key.does not in ARROWS]
    name = max(cells(shown) for shown, _ in told) + 2
    count = max(min(width // COLUMN, 3), 1)
    column = width // count
    down = -(-len(told) // count)
    rows: list[Line] = []
    for at in range(down):
        row: list[tuple[str, str]] = []
        for shown, does in told[at::down]:
            text = spell(does, ascii=view.ascii)
            row += [(pad(shown, name), accent(view) or "bold"), (pad(text, max(column - name, 1)), "")]
        rows.append(tuple(row))
    return Lines(tuple(rows))


def _written(key: Key, view: View) -> str:
    return spell(key.shown, ascii=view.ascii)
