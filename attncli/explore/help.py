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
MOST, GAP = 3, 2
"""Columns of keys, at most, and cells between them."""


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
    shown = block.rows[top : top + height]
    if (left := len(block.rows) - top - height) > 0 and height > 1:
        shown = (*shown[:-1], *remark(say(view, "explore.why.left", left + 1), close).rows)
    return Pane(shown)


def _keys(state: State, view: View, width: int) -> Lines:
    arrows = "arrows" if view.ascii else "← ↑ ↓ →"
    told = [(arrows, say(view, f"explore.key.arrows.{state.focus}"))]
    told += [(_written(key, view), say(view, f"explore.key.{key.does}")) for key in KEYS if key.does not in ARROWS]
    name = max(cells(shown) for shown, _ in told) + GAP
    texts = [(shown, spell(does, ascii=view.ascii)) for shown, does in told]
    for count in range(MOST, 0, -1):
        down = -(-len(texts) // count)
        columns = [texts[first : first + down] for first in range(0, len(texts), down)]
        widths = [name + max(cells(text) for _, text in column) + GAP for column in columns]
        if sum(widths) - GAP <= width:
            break
    rows: list[Line] = []
    for at in range(down):
        row: list[tuple[str, str]] = []
        for column, wide in zip(columns, widths, strict=True):
            for shown, text in column[at : at + 1]:
                row += [(pad(shown, name), accent(view) or "bold"), (pad(text, wide - name), "")]
        rows.append(tuple(row))
    return Lines(tuple(rows))


def _written(key: Key, view: View) -> str:
    return spell(key.shown, ascii=view.ascii)
