"""One head's weights as a map under its axes: words where there is room, else places; the chosen pair stands out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attncli.explore.held import Held, Pair
from attncli.explore.painting import BLANK, accent, halves, levels, marked, over, palette_of, pooled, style, wholes
from attncli.explore.pane import PairSpot, Pane, Spot, WordSpot, sized
from attncli.explore.state import State
from attncli.inputs.token import Token
from attncli.render.headings import FAINT, remark
from attncli.render.lines import Line, Piece
from attncli.render.palette import normalise
from attncli.render.phrases import say
from attncli.render.safe import cells, clusters, cut, label, pad
from attncli.render.unknown_words import word_name
from attncli.render.view import View

NDArray = np.ndarray[Any, Any]
NAME, SIDEWAYS = 12, 6
"""Cells of a word beside a map, and lines of one above it."""
LETTERS = 3
"""Lines from which on words are written downwards."""
ROOMY, WRITTEN = 4, 0.095
"""Cells of a weight that is written as a number, and the least weight that is."""


@dataclass(frozen=True)
class Window:
    """How a matrix is cut to a room. rows, columns: the words shown; block: how many make one cell; across, down: its
    cells; halves: whether two rows share a line."""

    rows: range
    columns: range
    block: int = 1
    across: int = 1
    down: int = 1
    halves: bool = False


def window(state: State, queries: int, keys: int, width: int, height: int, view: View) -> Window:
    """All words in cells as large as fit; of too many, all pooled, or, near, those around the chosen pair."""
    if 2 * keys <= width and queries <= height:
        across = min(width // max(keys, 1), 6)
        down = max(min(height // max(queries, 1), across // 2, 3), 1)
        return Window(range(queries), range(keys), 1, across, down)
    if state.near:
        rows, columns = (
            _around(at, many, room)
            for at, many, room in ((state.query, queries, height), (state.key, keys, width // 2))
        )
        return Window(rows, columns, 1, 2, 1)
    fine = view.color and not view.ascii
    lines = 2 * height if fine else height
    block = max(-(-keys // max(width, 1)), -(-queries // max(lines, 1)), 1)
    return Window(range(queries), range(keys), block, 1, 1, fine)


def _around(at: int, many: int, room: int) -> range:
    room = max(min(room, many), 1)
    start = min(max(at - room // 2, 0), many - room)
    return range(start, start + room)


def fractions(found: NDArray, state: State, *, signed: bool) -> NDArray:
    """Weights as fractions of the colours, by the chosen scale."""
    if signed:
        return normalise(found, "signed")
    if state.scale == "rest":
        rest = found.copy()
        rest[:, :1] = np.nan
        return normalise(rest, "linear")
    if state.scale == "linear":
        return normalise(found, "linear", low=0.0, high=1.0)
    return normalise(found, state.scale)


def weights_of(state: State, held: Held, rows: slice) -> NDArray | None:
    """The weights in sight, [query, key]; with another head, this one's less the other's."""
    place: Pair = (state.layer, state.head)
    mine = held.weights(place, rows)
    if state.sight != "difference" or state.other is None or mine is None:
        return mine
    other = held.weights(state.other, rows)
    return None if other is None else mine - other


def matrix(state: State, held: Held, view: View, width: int, height: int) -> Pane:
    """The map in this room, under its axes."""
    queries, keys = held.queries, held.keys
    names = held.names("queries", ascii=view.ascii)
    side = min(held.widest("queries", ascii=view.ascii), NAME, max(width // 4, 4)) + 1
    above = _above(keys, width - side, height, view)
    cut_to = window(state, len(queries), len(keys), width - side, height - above, view)
    if cut_to.across < 2:
        above = 1
        cut_to = window(state, len(queries), len(keys), width - side, height - above, view)
    signed = state.sight == "difference" and state.other is not None
    body = _body(state, held, view, cut_to, signed=signed)
    if body is None:
        return sized(_unknown(state, held, view, width), width, height, ascii=view.ascii)
    rows: list[Line] = [((" " * side, ""), *row) for row in _axis(state, keys, cut_to, above, width - side, view)]
    per = cut_to.block * (2 if cut_to.halves else 1)
    for at, pieces in enumerate(body):
        line = at // cut_to.down
        first = cut_to.rows.start + line * per
        chosen = first <= state.query < first + per
        shown = at % cut_to.down == 0 and (cut_to.across >= 2 or chosen or line % 4 == 0)
        word = state.query if chosen else first
        text = names[word] if shown and (cut_to.across >= 2 or chosen) else str(first) if shown else ""
        name = pad(cut(text, side - 1, ascii=view.ascii), side - 1, "right") + " "
        rows.append(((name, accent(view) or "bold" if chosen else FAINT), *pieces))

    def spots(x: int, y: int) -> Spot | None:
        column = cut_to.columns.start + (x - side) // cut_to.across * cut_to.block
        row = cut_to.rows.start + (y - above) // cut_to.down * per
        inside = column in cut_to.columns and x >= side
        if y < above:
            return WordSpot(column, "key") if inside else None
        if row not in cut_to.rows:
            return None
        return PairSpot(row, column) if inside else WordSpot(row, "query") if x < side else None

    return sized(Pane(tuple(rows), spots), width, height, ascii=view.ascii)


def _body(state: State, held: Held, view: View, shown: Window, *, signed: bool) -> list[list[Piece] | Line] | None:
    """The map's lines with the chosen cell laid over them; None where no weights are kept."""
    if shown.block > 1 and len(held.queries) > 1024:
        return _small(state, held, view, shown)
    found = weights_of(state, held, slice(shown.rows.start, shown.rows.stop))
    if found is None:
        return None
    found = found[:, shown.columns.start : shown.columns.stop]
    painted = levels(fractions(pooled(found, shown.block, signed=signed), state, signed=signed))
    drawn = _marked(painted, state, view, shown, signed=signed)
    return _numbered(drawn, painted, found, state, view, shown) if shown.across >= ROOMY and not signed else drawn


def _numbered(
    drawn: list[list[Piece] | Line], painted: NDArray, found: NDArray, state: State, view: View, shown: Window
) -> list[list[Piece] | Line]:
    """The map with the number of each weight that counts written in its cell, and that of the chosen one."""
    for row, weights in enumerate(found.tolist()):
        line = row * shown.down + (shown.down - 1) // 2
        chosen = shown.rows.start + row == state.query
        for column, weight in enumerate(weights):
            mine = chosen and shown.columns.start + column == state.key
            if weight == weight and (weight >= WRITTEN or mine):
                text = (
                    ("1.0" if weight >= 0.995 else f"{weight:.2f}"[1:]).rjust(shown.across // 2 + 2).ljust(shown.across)
                )
                told = marked(view) if mine else style(palette_of(view, signed=False), int(painted[row, column]))
                if mine and not view.color:
                    text = f"[{text.strip()}]".center(shown.across)[: shown.across]
                drawn[line] = over(list(drawn[line]), column * shown.across, text, told if view.color or mine else "")
    return drawn


def _small(state: State, held: Held, view: View, shown: Window) -> list[list[Piece] | Line] | None:
    """A long text's map from what was pooled while it ran."""
    head = held.heads.get((state.layer, state.head))
    if head is None or head.small.size <= 1 or state.sight == "difference":
        return None
    down, across = (-(-len(side) // shown.block) for side in (shown.rows, shown.columns))
    rows, columns = (
        np.minimum(np.arange(many) * size // many, size - 1)
        for many, size in ((down, head.small.shape[0]), (across, head.small.shape[1]))
    )
    painted = levels(fractions(head.small[np.ix_(rows, columns)].astype(np.float64), state, signed=False))
    return _marked(painted, state, view, shown, signed=False)


def _marked(painted: NDArray, state: State, view: View, shown: Window, *, signed: bool) -> list[list[Piece] | Line]:
    row = (state.query - shown.rows.start) // shown.block
    column = (state.key - shown.columns.start) // shown.block
    hidden = painted[row, column] == BLANK
    if shown.halves:
        drawn: list[list[Piece] | Line] = list(halves(painted, view, signed=signed))
        drawn[row // 2] = over(list(drawn[row // 2]), column, "◆", marked(view))
        return drawn
    drawn = [line for line in wholes(painted, shown.across, view, signed=signed) for _ in range(shown.down)]
    inner = "··" if hidden and not view.ascii else "  "
    text = ("[" + inner[:1] * (shown.across - 2) + "]") if shown.across > 1 else "@"
    for at in range(row * shown.down, (row + 1) * shown.down):
        drawn[at] = over(list(drawn[at]), column * shown.across, text, marked(view))
    return drawn


def _above(keys: Sequence[Token], width: int, height: int, view: View) -> int:
    """Lines that the keys' words take above a map, written downwards."""
    if 2 * len(keys) > width:
        return min(4, max(height // 4, 1))
    longest = max((len(list(clusters(label(word_name(token), ascii=view.ascii)))) for token in keys), default=1)
    return min(longest, SIDEWAYS, max((height - len(keys)), 3))


def _axis(state: State, keys: Sequence[Token], shown: Window, above: int, width: int, view: View) -> list[list[Piece]]:
    """The keys over their columns: words written downwards, or places with the chosen word among them."""
    if shown.across < 2 or above < LETTERS:
        return [_places(state, keys, shown, width, view)]
    letters = [_letters(keys[at], above, view) for at in shown.columns]
    rows: list[list[Piece]] = []
    for line in range(above):
        pieces: list[Piece] = []
        for at, word in zip(shown.columns, letters, strict=True):
            told = (accent(view) or "bold") if at == state.key else FAINT
            pieces.append((pad(word[line], shown.across, "center" if shown.across > 2 else "left"), told))
        rows.append(pieces)
    return rows


def _letters(token: Token, above: int, view: View) -> list[str]:
    """A word's letters from the top down, the last ones right above the map; what does not fit is cut."""
    text = list(clusters(label(word_name(token), ascii=view.ascii)))
    if len(text) > above:
        text = [*text[: above - 1], "~" if view.ascii else "⋮"]
    return [" "] * (above - len(text)) + text


def _places(state: State, keys: Sequence[Token], shown: Window, width: int, view: View) -> list[Piece]:
    """Every tenth or fifth cell's place, and the chosen word over its own cell."""
    at = (state.key - shown.columns.start) // shown.block * shown.across
    name = cut(label(word_name(keys[state.key]) or "_", ascii=view.ascii), 14, ascii=view.ascii)
    arrow = "v" if view.ascii else "▾"
    start = max(min(at, width - cells(name) - 2), 0)
    mine = (f"{arrow} {name}", accent(view) or "bold")
    line = ""
    for cell in range(0, -(-len(shown.columns) // shown.block), 10 if shown.across == 1 else 5):
        line = line.ljust(cell * shown.across) + str(shown.columns.start + cell * shown.block) + " "
    line = line.ljust(width)[:width]
    size = cells(mine[0])
    left, right = line[:start], line[start + size :]
    if left and left[-1] != " ":  # a number that the word covers in part
        left = left[: left.rstrip().rfind(" ") + 1].ljust(start)
    if right and right[0] != " ":
        right = " " * (right + " ").find(" ") + right[(right + " ").find(" ") :]
    return [(left, FAINT), mine, (right, FAINT)]


def _unknown(state: State, held: Held, view: View, width: int) -> Pane:
    name = "explore.waiting" if held.share < 1 else "explore.unknown"
    return Pane.of(remark(say(view, name), replace(view, width=width)))
