"""Links: two columns of the words, and lines from the chosen one to what it looks at, or from who looks at it."""

from __future__ import annotations

import numpy as np

from attncli.explore.held import LoadedRun
from attncli.explore.painting import accent
from attncli.explore.pane import Pane, Spot, WordSpot, fit_pane
from attncli.explore.state import State
from attncli.explore.words import shares
from attncli.render.bars import bar, bar_pieces
from attncli.render.headings import FAINT
from attncli.render.lines import Line, Piece
from attncli.render.palette import tint
from attncli.render.safe import cut, pad
from attncli.render.sentence import LEAST
from attncli.render.view import View

NAME, LINE, BAR = 14, 9, 24
"""Cells of a word, of the lines between, and of the longest bar."""


def links(state: State, loaded_run: LoadedRun, view: View, width: int, height: int) -> Pane:
    """The words in two columns: on the left those that look, on the right those looked at.

    Of more words than lines, those with the largest shares and the chosen one.
    """
    weights = np.array([0.0 if share is None else share for share in shares(state, loaded_run)])
    mine = state.word
    order = np.argsort(-weights, kind="stable")
    indices = sorted({mine, *order[: max(height - 1, 1)].tolist()} if len(weights) > height else range(len(weights)))
    indices = [index for index in indices if index < len(weights)][:height]
    origin = indices.index(mine) if mine in indices else 0
    linked_rows = [row for row, index in enumerate(indices) if weights[index] >= LEAST]
    words = [loaded_run.names(side, ascii=view.ascii) for side in ("queries", "keys")]
    name = min(
        max(loaded_run.widest(side, ascii=view.ascii) for side in ("queries", "keys")),
        NAME,
        max((width - LINE) // 3, 3),
    )
    room = max(min(width - 2 * name - LINE - 7, BAR), 0)
    rows: list[Line] = []
    for row, index in enumerate(indices):
        share = float(weights[index])
        query_text, key_text = (
            pad(cut(side[index] if index < len(side) else "", name, ascii=view.ascii), name, align)
            for side, align in zip(words, ("right", "left"), strict=True)
        )
        text_style = tint(share, light=view.light) if view.color and share >= LEAST else FAINT if share < LEAST else ""
        chosen_style = accent(view) or "bold"
        line = _between(row, origin, linked_rows, view, is_turned=state.is_turned)
        strong = "bold" if share >= 0.5 else ""
        strip = bar_pieces(bar(share, room, ascii=view.ascii)) if room > 3 else []
        value: list[Piece] = [(f" {share:.2f} ", strong or FAINT), *strip]
        if state.is_turned:
            a, b = (query_text, text_style), (key_text, chosen_style if index == mine else FAINT)
        else:
            a, b = (query_text, chosen_style if index == mine else FAINT), (key_text, text_style)
        rows.append((a, (line, "" if row in linked_rows or row == origin else FAINT), b, *value))

    def spots(x: int, y: int) -> Spot | None:
        if y >= len(indices):
            return None
        return WordSpot(indices[y], "query" if x < name + LINE // 2 else "key")

    return fit_pane(Pane(tuple(rows), spots), width, height, ascii=view.ascii)


def _between(row: int, origin: int, linked_rows: list[int], view: View, *, is_turned: bool) -> str:
    """The lines between the columns in one row: a trunk beside the chosen word, a branch to every linked one."""
    low, high = min([origin, *linked_rows]), max([origin, *linked_rows])
    inside, branch, root = (
        low <= row <= high and bool(linked_rows),
        row in linked_rows,
        row == origin and bool(linked_rows),
    )
    if view.ascii:
        stem = "-" * 3 if root else " " * 3
        arm = "-" * 3 + ">" if branch else " " * 4
        arm = arm if not is_turned else ("<---" if root else " " * 4)
        return f" {stem}{'+' if root or branch else '|' if inside else ' '}{arm}"
    up, down = inside and row > low, inside and row < high
    west, east = (root, branch) if not is_turned else (branch, root)
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
