"""Links: two columns of the words, and lines from the chosen one to what it looks at, or from who looks at it."""

from __future__ import annotations

import numpy as np

from attncli.explore.held import Held
from attncli.explore.painting import accent
from attncli.explore.pane import Pane, Spot, WordSpot, sized
from attncli.explore.state import State
from attncli.explore.words import shares
from attncli.render.bars import bar, barred
from attncli.render.headings import FAINT
from attncli.render.lines import Line, Piece
from attncli.render.palette import tint
from attncli.render.safe import cut, pad
from attncli.render.sentence import LEAST
from attncli.render.view import View

NAME, LINE, BAR = 14, 9, 24
"""Cells of a word, of the lines between, and of the longest bar."""


def links(state: State, held: Held, view: View, width: int, height: int) -> Pane:
    """The words in two columns: on the left those that look, on the right those looked at.

    Of more words than lines, those with the largest shares and the chosen one.
    """
    found = np.array([0.0 if share is None else share for share in shares(state, held)])
    mine = state.word
    ranked = np.argsort(-found, kind="stable")
    shown = sorted({mine, *ranked[: max(height - 1, 1)].tolist()} if len(found) > height else range(len(found)))
    shown = [at for at in shown if at < len(found)][:height]
    origin = shown.index(mine) if mine in shown else 0
    linked = [row for row, at in enumerate(shown) if found[at] >= LEAST]
    words = [held.names(side, ascii=view.ascii) for side in ("queries", "keys")]
    name = min(
        max(held.widest(side, ascii=view.ascii) for side in ("queries", "keys")), NAME, max((width - LINE) // 3, 3)
    )
    room = max(min(width - 2 * name - LINE - 7, BAR), 0)
    rows: list[Line] = []
    for row, at in enumerate(shown):
        share = float(found[at])
        left, right = (
            pad(cut(side[at] if at < len(side) else "", name, ascii=view.ascii), name, align)
            for side, align in zip(words, ("right", "left"), strict=True)
        )
        told = tint(share, light=view.light) if view.color and share >= LEAST else FAINT if share < LEAST else ""
        chosen = accent(view) or "bold"
        line = _between(row, origin, linked, view, turned=state.turned)
        strong = "bold" if share >= 0.5 else ""
        drawn = barred(bar(share, room, ascii=view.ascii)) if room > 3 else []
        value: list[Piece] = [(f" {share:.2f} ", strong or FAINT), *drawn]
        if state.turned:
            a, b = (left, told), (right, chosen if at == mine else FAINT)
        else:
            a, b = (left, chosen if at == mine else FAINT), (right, told)
        rows.append((a, (line, "" if row in linked or row == origin else FAINT), b, *value))

    def spots(x: int, y: int) -> Spot | None:
        if y >= len(shown):
            return None
        return WordSpot(shown[y], "query" if x < name + LINE // 2 else "key")

    return sized(Pane(tuple(rows), spots), width, height, ascii=view.ascii)


def _between(row: int, origin: int, linked: list[int], view: View, *, turned: bool) -> str:
    """The lines between the columns in one row: a trunk beside the chosen word, a branch to every linked one."""
    low, high = min([origin, *linked]), max([origin, *linked])
    inside, branch, root = low <= row <= high and bool(linked), row in linked, row == origin and bool(linked)
    if view.ascii:
        stem = "-" * 3 if root else " " * 3
        arm = "-" * 3 + ">" if branch else " " * 4
        arm = arm if not turned else ("<---" if root else " " * 4)
        return f" {stem}{'+' if root or branch else '|' if inside else ' '}{arm}"
    up, down = inside and row > low, inside and row < high
    west, east = (root, branch) if not turned else (branch, root)
    stem = " " + ("───" if west else "   ")
    arm = "──▸ " if east else "    "
    return stem + _JOINTS[up, down, west, east] + arm


_JOINTS = {
    (False, False, False, False): " ", (True, True, False, False): "│", (True, True, True, False): "┤",
    (True, True, False, True): "├", (True, True, True, True): "┼", (False, True, True, False): "┐",
    (False, True, False, True): "┌", (False, True, True, True): "┬", (True, False, True, False): "┘",
    (True, False, False, True): "└", (True, False, True, True): "┴", (False, False, True, True): "─",
    (False, False, True, False): "─", (False, False, False, True): "─", (True, False, False, False): "│",
    (False, True, False, False): "│",
}  # fmt: skip
"""What joins lines upwards, downwards, to the left and to the right."""
