"""One head's weights as a map under its axes: words where there is room, else places; the chosen pair stands out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attncli.draw.headings import FAINT, remark
from attncli.draw.lines import Line, Piece
from attncli.draw.palette import normalise
from attncli.draw.safe import cells, clusters, cut, label, pad
from attncli.draw.token_names import word_name
from attncli.draw.view import View
from attncli.explore.loaded_run import LoadedRun, Pair
from attncli.explore.painting import (
    BLANK,
    PairSpot,
    Pane,
    Spot,
    WordSpot,
    accent,
    cursor_style,
    fit_pane,
    halves,
    levels,
    over,
    palette_of,
    pooled,
    style,
    wholes,
)
from attncli.explore.state import State
from attncli.inputs.token import Token
from attncli.language import say

NDArray = np.ndarray[Any, Any]
NAME, SIDEWAYS = 12, 6
"""Cells of a word beside a map, and lines of one above it."""
LETTERS = 3
"""Lines from which on words are written downwards."""
ROOMY, WRITTEN = 4, 0.095
"""Cells of a weight that is written as a number, and the least weight that is."""


@dataclass(frozen=True)
class MatrixArea:
    """How a matrix is cut to a room. rows, columns: the words shown; block: how many make one cell; across, down: its
    cells; halves: whether two rows share a line."""

    rows: range
    columns: range
    block: int = 1
    across: int = 1
    down: int = 1
    halves: bool = False


def matrix_area(state: State, queries: int, keys: int, width: int, height: int, view: View) -> MatrixArea:
    """All words in cells as large as fit; of too many, all pooled, or, near, those around the chosen pair."""
    if 2 * keys <= width and queries <= height:
        across = min(width // max(keys, 1), 6)
        down = max(min(height // max(queries, 1), across // 2, 3), 1)
        return MatrixArea(range(queries), range(keys), 1, across, down)
    if state.near:
        rows, columns = (
            _around(position, many, room)
            for position, many, room in ((state.query, queries, height), (state.key, keys, width // 2))
        )
        return MatrixArea(rows, columns, 1, 2, 1)
    fine = view.color and not view.ascii
    lines = 2 * height if fine else height
    block = max(-(-keys // max(width, 1)), -(-queries // max(lines, 1)), 1)
    return MatrixArea(range(queries), range(keys), block, 1, 1, fine)


def _around(position: int, many: int, room: int) -> range:
    room = max(min(room, many), 1)
    start = min(max(position - room // 2, 0), many - room)
    return range(start, start + room)


def fractions(weights: NDArray, state: State, *, signed: bool) -> NDArray:
    """Weights as fractions of the colours, by the chosen scale."""
    if signed:
        return normalise(weights, "signed")
    if state.scale == "rest":
        rest = weights.copy()
        rest[:, :1] = np.nan
        return normalise(rest, "linear")
    if state.scale == "linear":
        return normalise(weights, "linear", low=0.0, high=1.0)
    return normalise(weights, state.scale)


def weights_of(state: State, loaded_run: LoadedRun, rows: slice) -> NDArray | None:
    """The weights in sight, [query, key]; with another head, this one's less the other's."""
    place: Pair = (state.layer, state.head)
    mine = loaded_run.weights(place, rows)
    if state.sight != "difference" or state.subtracted_head is None or mine is None:
        return mine
    subtracted_weights = loaded_run.weights(state.subtracted_head, rows)
    return None if subtracted_weights is None else mine - subtracted_weights


def matrix(state: State, loaded_run: LoadedRun, view: View, width: int, height: int) -> Pane:
    """The map in this room, under its axes."""
    queries, keys = loaded_run.queries, loaded_run.keys
    names = loaded_run.names("queries", ascii=view.ascii)
    side = min(loaded_run.widest("queries", ascii=view.ascii), NAME, max(width // 4, 4)) + 1
    above = _above(keys, width - side, height, view)
    area = matrix_area(state, len(queries), len(keys), width - side, height - above, view)
    if area.across < 2:
        above = 1
        area = matrix_area(state, len(queries), len(keys), width - side, height - above, view)
    signed = state.sight == "difference" and state.subtracted_head is not None
    body = _body(state, loaded_run, view, area, signed=signed)
    if body is None:
        return fit_pane(_waiting_pane(state, loaded_run, view, width), width, height, ascii=view.ascii)
    rows: list[Line] = [((" " * side, ""), *row) for row in _axis(state, keys, area, above, width - side, view)]
    per = area.block * (2 if area.halves else 1)
    for line_number, pieces in enumerate(body):
        line = line_number // area.down
        first = area.rows.start + line * per
        is_chosen = first <= state.query < first + per
        has_name = line_number % area.down == 0 and (area.across >= 2 or is_chosen or line % 4 == 0)
        word = state.query if is_chosen else first
        text = names[word] if has_name and (area.across >= 2 or is_chosen) else str(first) if has_name else ""
        name = pad(cut(text, side - 1, ascii=view.ascii), side - 1, "right") + " "
        rows.append(((name, accent(view) or "bold" if is_chosen else FAINT), *pieces))

    def spots(x: int, y: int) -> Spot | None:
        column = area.columns.start + (x - side) // area.across * area.block
        row = area.rows.start + (y - above) // area.down * per
        inside = column in area.columns and x >= side
        if y < above:
            return WordSpot(column, "key") if inside else None
        if row not in area.rows:
            return None
        return PairSpot(row, column) if inside else WordSpot(row, "query") if x < side else None

    return fit_pane(Pane(tuple(rows), spots), width, height, ascii=view.ascii)


def _body(
    state: State, loaded_run: LoadedRun, view: View, area: MatrixArea, *, signed: bool
) -> list[list[Piece] | Line] | None:
    """The map's lines with the chosen cell laid over them; None where no weights are kept."""
    if area.block > 1 and len(loaded_run.queries) > 1024:
        return _small(state, loaded_run, view, area)
    weights = weights_of(state, loaded_run, slice(area.rows.start, area.rows.stop))
    if weights is None:
        return None
    weights = weights[:, area.columns.start : area.columns.stop]
    level_map = levels(fractions(pooled(weights, area.block, signed=signed), state, signed=signed))
    lines = _mark_pair(level_map, state, view, area, signed=signed)
    return (
        _write_weights(lines, level_map, weights, state, view, area) if area.across >= ROOMY and not signed else lines
    )


def _write_weights(
    lines: list[list[Piece] | Line], level_map: NDArray, matrix: NDArray, state: State, view: View, area: MatrixArea
) -> list[list[Piece] | Line]:
    """The map with the number of each weight that counts written in its cell, and that of the chosen one."""
    for row, weights in enumerate(matrix.tolist()):
        line = row * area.down + (area.down - 1) // 2
        is_chosen = area.rows.start + row == state.query
        for column, weight in enumerate(weights):
            mine = is_chosen and area.columns.start + column == state.key
            if weight == weight and (weight >= WRITTEN or mine):
                text = (
                    ("1.0" if weight >= 0.995 else f"{weight:.2f}"[1:]).rjust(area.across // 2 + 2).ljust(area.across)
                )
                text_style = (
                    cursor_style(view) if mine else style(palette_of(view, signed=False), int(level_map[row, column]))
                )
                if mine and not view.color:
                    text = f"[{text.strip()}]".center(area.across)[: area.across]
                lines[line] = over(
                    list(lines[line]), column * area.across, text, text_style if view.color or mine else ""
                )
    return lines


def _small(state: State, loaded_run: LoadedRun, view: View, area: MatrixArea) -> list[list[Piece] | Line] | None:
    """A long text's map from what was pooled while it ran."""
    head = loaded_run.heads.get((state.layer, state.head))
    if head is None or head.small.size <= 1 or state.sight == "difference":
        return None
    down, across = (-(-len(side) // area.block) for side in (area.rows, area.columns))
    rows, columns = (
        np.minimum(np.arange(many) * size // many, size - 1)
        for many, size in ((down, head.small.shape[0]), (across, head.small.shape[1]))
    )
    level_map = levels(fractions(head.small[np.ix_(rows, columns)].astype(np.float64), state, signed=False))
    return _mark_pair(level_map, state, view, area, signed=False)


def _mark_pair(
    level_map: NDArray, state: State, view: View, area: MatrixArea, *, signed: bool
) -> list[list[Piece] | Line]:
    row = (state.query - area.rows.start) // area.block
    column = (state.key - area.columns.start) // area.block
    hidden = level_map[row, column] == BLANK
    if area.halves:
        lines: list[list[Piece] | Line] = list(halves(level_map, view, signed=signed))
        lines[row // 2] = over(list(lines[row // 2]), column, "◆", cursor_style(view))
        return lines
    lines = [line for line in wholes(level_map, area.across, view, signed=signed) for _ in range(area.down)]
    inner = "··" if hidden and not view.ascii else "  "
    text = ("[" + inner[:1] * (area.across - 2) + "]") if area.across > 1 else "@"
    for line_number in range(row * area.down, (row + 1) * area.down):
        lines[line_number] = over(list(lines[line_number]), column * area.across, text, cursor_style(view))
    return lines


def _above(keys: Sequence[Token], width: int, height: int, view: View) -> int:
    """Lines that the keys' words take above a map, written downwards."""
    if 2 * len(keys) > width:
        return min(4, max(height // 4, 1))
    longest = max((len(list(clusters(label(word_name(token), ascii=view.ascii)))) for token in keys), default=1)
    return min(longest, SIDEWAYS, max((height - len(keys)), 3))


def _axis(
    state: State, keys: Sequence[Token], area: MatrixArea, above: int, width: int, view: View
) -> list[list[Piece]]:
    """The keys over their columns: words written downwards, or places with the chosen word among them."""
    if area.across < 2 or above < LETTERS:
        return [_places(state, keys, area, width, view)]
    letters = [_letters(keys[column], above, view) for column in area.columns]
    rows: list[list[Piece]] = []
    for line in range(above):
        pieces: list[Piece] = []
        for column, word in zip(area.columns, letters, strict=True):
            letter_style = (accent(view) or "bold") if column == state.key else FAINT
            pieces.append((pad(word[line], area.across, "center" if area.across > 2 else "left"), letter_style))
        rows.append(pieces)
    return rows


def _letters(token: Token, above: int, view: View) -> list[str]:
    """A word's letters from the top down, the last ones right above the map; what does not fit is cut."""
    text = list(clusters(label(word_name(token), ascii=view.ascii)))
    if len(text) > above:
        text = [*text[: above - 1], "~" if view.ascii else "⋮"]
    return [" "] * (above - len(text)) + text


def _places(state: State, keys: Sequence[Token], area: MatrixArea, width: int, view: View) -> list[Piece]:
    """Every tenth or fifth cell's place, and the chosen word over its own cell."""
    offset = (state.key - area.columns.start) // area.block * area.across
    name = cut(label(word_name(keys[state.key]) or "_", ascii=view.ascii), 14, ascii=view.ascii)
    arrow = "v" if view.ascii else "▾"
    start = max(min(offset, width - cells(name) - 2), 0)
    mine = (f"{arrow} {name}", accent(view) or "bold")
    line = ""
    for cell in range(0, -(-len(area.columns) // area.block), 10 if area.across == 1 else 5):
        line = line.ljust(cell * area.across) + str(area.columns.start + cell * area.block) + " "
    line = line.ljust(width)[:width]
    size = cells(mine[0])
    before, after = line[:start], line[start + size :]
    if before and before[-1] != " ":  # a number that the word covers in part
        before = before[: before.rstrip().rfind(" ") + 1].ljust(start)
    if after and after[0] != " ":
        after = " " * (after + " ").find(" ") + after[(after + " ").find(" ") :]
    return [(before, FAINT), mine, (after, FAINT)]


def _waiting_pane(state: State, loaded_run: LoadedRun, view: View, width: int) -> Pane:
    name = "explore.waiting" if loaded_run.share < 1 else "explore.unknown"
    return Pane.of(remark(say(view, name), replace(view, width=width)))
