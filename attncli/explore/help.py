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
    lines = block.rows[top : top + height]
    if (lines_left := len(block.rows) - top - height) > 0 and height > 1:
        lines = (*lines[:-1], *remark(say(view, "explore.why.left", lines_left + 1), close).rows)
    return Pane(lines)


def _keys(state: State, view: View, width: int) -> Lines:
    arrows = "arrows" if view.ascii else "← ↑ ↓ →"
    key_texts = [(arrows, say(view, f"explore.key.arrows.{state.focus}"))]
    key_texts += [
        (_key_text(key, view), say(view, f"explore.key.{key.does}")) for key in KEYS if key.does not in ARROWS
    ]
    name = max(cells(key_name) for key_name, _ in key_texts) + GAP
    texts = [(key_name, spell(does, ascii=view.ascii)) for key_name, does in key_texts]
    for count in range(MOST, 0, -1):
        down = -(-len(texts) // count)
        columns = [texts[first : first + down] for first in range(0, len(texts), down)]
        widths = [name + max(cells(text) for _, text in column) + GAP for column in columns]
        if sum(widths) - GAP <= width:
            break
    rows: list[Line] = []
    for line_number in range(down):
        row: list[tuple[str, str]] = []
        for column, wide in zip(columns, widths, strict=True):
            for key_name, text in column[line_number : line_number + 1]:
                row += [(pad(key_name, name), accent(view) or "bold"), (pad(text, wide - name), "")]
        rows.append(tuple(row))
    return Lines(tuple(rows))


def _key_text(key: Key, view: View) -> str:
    return spell(key.symbol, ascii=view.ascii)
