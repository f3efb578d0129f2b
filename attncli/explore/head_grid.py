"""The grid of heads, a cell for each, coloured by one number; and the chosen head's weights as a map under its axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attncli.draw.lines import FAINT, Line, Piece, remark
from attncli.draw.safe import cells, clusters, cut, label, pad, spell
from attncli.draw.shaded_matrix import normalise, shade, sign
from attncli.draw.token_names import word_name
from attncli.draw.view import View
from attncli.explore.loaded_run import LoadedRun, Pair
from attncli.explore.panels import (
    BLANK,
    SHADES,
    HeadSpot,
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
from attncli.explore.state import Extent, State
from attncli.features.heads.document import label_name
from attncli.inputs.token import Token
from attncli.language import contextual, message, say
from attncli.measure.head_record import METRICS

MEASURES = ("word", *METRICS)
MEASURE_NAMES = {
    "word": message("strongest link of {word}"),
    "entropy": message("entropy, nats"),
    "confidence": message("confidence"),
    "distance": message("distance"),
    "previous": message("previous token"),
    "self": message("itself"),
    "next": message("next token"),
    "sink": message("first token"),
    "special": message("special tokens"),
    "normalised_entropy": message("normalised entropy"),
}
"""What the colours of the heads may show, and what that is called."""
METRIC_NAMES = {
    "entropy": message("entropy"),
    "confidence": message("confidence"),
    "distance": message("distance"),
    "previous": message("previous"),
    "self": message("itself"),
    "next": message("next"),
    "sink": message("first token"),
    "special": contextual("metric", "special"),
    "normalised_entropy": message("entropy, 0–1"),
}
"""The same below the grid, where there is little room."""
ROOMY = 4
"""Cells of a head whose number is written in it."""


def head_values(state: State, loaded_run: LoadedRun) -> dict[Pair, float | None]:
    """The number of each head that colours it."""
    if state.measure == "word":
        strongest_links = loaded_run.strongest(state.word, is_turned=state.is_turned)
        return {place: strongest_links.get(place) for place in loaded_run.heads}
    return {place: head.metrics.get(state.measure) for place, head in loaded_run.heads.items()}


def slot(extent: Extent, width: int) -> int:
    """Cells of a head in a grid of this width: 4 with its number, or 2, or 1."""
    return next((wide for wide in (ROOMY, 2) if extent.columns * wide + extent.edge <= width), 1)


def grid(
    state: State,
    loaded_run: LoadedRun,
    view: View,
    width: int,
    height: int,
    *,
    values: dict[Pair, float | None] | None = None,
) -> Pane:
    """The grid in this room; of more layers or heads than fit, those around the chosen one. values: other numbers."""
    extent = loaded_run.extent
    values_by_head = head_values(state, loaded_run) if values is None else values
    wide = slot(extent, width)
    edge, columns = extent.edge, extent.columns
    fitting = max((width - edge) // wide, 1)
    first_column = min(max(state.head - fitting // 2, 0), max(columns - fitting, 0))
    columns_shown = range(first_column, min(first_column + fitting, columns))
    layers = list(extent.heads)
    layer_row = layers.index(state.layer) if state.layer in layers else 0
    room = max(height - 1, 1)
    top = min(max(layer_row - room // 2, 0), max(len(layers) - room, 0))
    rows: list[Line] = [((" " * edge, ""), *_numbers(columns_shown, wide, state))]
    largest = max(
        (abs(value) for value in values_by_head.values() if value is not None and value == value), default=0.0
    )
    highest = 1.0 if state.measure in ("word", "entropy") and values is None and largest <= 1 else largest
    signed = any(value is not None and value < 0 for value in values_by_head.values())
    for layer in layers[top : top + room]:
        is_chosen = layer == state.layer
        rows.append(
            (
                (pad(str(layer), edge - 1, "right") + " ", "bold" if is_chosen else FAINT),
                *(
                    _cell((layer, head), state, extent, values_by_head, highest, view, wide, signed=signed)
                    for head in columns_shown
                ),
            )
        )

    def spots(x: int, y: int) -> Spot | None:
        column, row = (x - edge) // wide + first_column, y - 1 + top
        if y < 1 or x < edge or row >= len(layers) or column >= first_column + len(columns_shown):
            return None
        return HeadSpot(layers[row], column) if extent.has(layers[row], column) else None

    return fit_pane(Pane(tuple(rows), spots), width, height, ascii=view.ascii)


def _numbers(columns_shown: range, wide: int, state: State) -> list[Piece]:
    """The heads' numbers over their columns, as many as leave a blank between."""
    most = len(str(columns_shown.stop - 1)) if len(columns_shown) else 1
    every = next(step for step in (1, 2, 5, 10, 20, 50, 100, 1000) if step * wide > most)
    pieces: list[Piece] = []
    column = 0
    crowd = -(-most // wide)  # heads beside the chosen one whose numbers would touch its own
    for head in columns_shown:
        near = head != state.head and abs(head - state.head) < crowd + (most % wide == 0)
        if (head % every == 0 and not near) or head == state.head:
            text = pad(str(head), wide, "right")
            start = (head - columns_shown.start + 1) * wide - len(text)
            if start >= column + (column > 0 and wide == 1):
                pieces += [(" " * (start - column), ""), (text, "bold" if head == state.head else FAINT)]
                column = start + len(text)
    return pieces


def _cell(
    place: Pair,
    state: State,
    extent: Extent,
    values_by_head: dict[Pair, float | None],
    highest: float,
    view: View,
    wide: int,
    *,
    signed: bool,
) -> Piece:
    """One head: its colour, its number where there is room, brackets around the chosen one."""
    is_chosen = place == (state.layer, state.head)
    if not extent.has(*place):
        return " " * wide, ""
    value = values_by_head.get(place)
    if value is None or value != value:
        text, cell_style = ("··"[:wide] if not view.ascii else ".."[:wide]).rjust(wide), FAINT
    else:
        fraction = min(abs(value) / highest, 1.0) if highest > 0 else 0.0
        fraction = 0.5 + np.sign(value) * fraction / 2 if signed else fraction
        level = int(levels(np.array([fraction]))[0])
        mark = (sign if signed else shade)(level / (SHADES - 1), ascii=view.ascii)
        text = " " * wide if view.color and not view.ascii else mark * min(wide, 2)
        if wide == ROOMY:
            text = " " + _short(value)
        cell_style = style(palette_of(view, signed=signed), level) if view.color else ""
    text = text.rjust(wide)[:wide]
    if place == state.subtracted_head:
        text = "A" if wide == 1 else f"A{text[1:]}"
    if is_chosen:
        if wide == ROOMY:
            return (text, cursor_style(view)) if view.color else (f"[{text[1:]}"[:wide], "bold reverse")
        return ("◆" if not view.ascii else "@") if wide == 1 else "[]", cursor_style(view)
    return text, cell_style


def _short(value: float) -> str:
    """A number in three cells: `.65`, `1.0`, `12`, `-.3`."""
    if abs(value) >= 99.5:
        return "big" if value > 0 else "-99"
    if abs(value) >= 9.95:
        return f"{value:.0f}"
    if value < 0:
        return f"{value:.1f}".replace("-0.", "-.")
    return f"{value:.1f}" if value >= 0.995 else f"{value:.2f}"[1:]


def about(state: State, loaded_run: LoadedRun, view: View, width: int, height: int) -> Pane:
    """The chosen head in a few lines: its labels, its numbers, its strongest links."""
    head = loaded_run.heads.get((state.layer, state.head))
    if head is None or height < 2:
        return fit_pane(Pane(), width, height)
    rows: list[Line] = [((say(view, "layer {layer} head {head}", layer=state.layer, head=state.head), "bold"),)]
    if head.labels:
        labels_text = say(view, contextual("between", ", ")).join(
            label_name(head_label, view.lang) for head_label in head.labels
        )
        rows[0] = (*rows[0], ("  " + cut(label(labels_text, ascii=view.ascii), width, ascii=view.ascii), FAINT))
    numbers = [(spell(say(view, METRIC_NAMES[name]), ascii=view.ascii), head.metrics.get(name)) for name in METRICS]
    metric_rows = [(name, value) for name, value in numbers if value is not None]
    links = [link for link in head.links if link[0] < len(loaded_run.queries) and link[1] < len(loaded_run.keys)]
    room = max(height - 1 - (min(len(links), 3) + 1 if links and height > 4 else 0), 1)
    name_width = max((cells(name) for name, _ in metric_rows), default=0)
    two = width >= 2 * (name_width + 7)
    column = width // 2 if two else width
    lines: list[Line] = []
    for start in range(0, len(metric_rows), 2 if two else 1):
        row: list[Piece] = []
        for name, value in metric_rows[start : start + (2 if two else 1)]:
            text = pad(cut(name, column - 7, ascii=view.ascii), min(name_width, column - 7))
            row += [(text, FAINT), (pad(f" {value:.2f}", 6, "right"), "" if name else FAINT)]
            row.append((" " * max(column - cells(text) - 6, 0), ""))
        lines.append(tuple(row))
    rows += lines[:room]
    lines_left = height - len(rows)
    spots: dict[int, tuple[int, int]] = {}
    if links and lines_left > 1:
        rows.append(((say(view, "strongest links"), FAINT),))
        side = max((width - 8) // 2, 3)
        for query, key, weight in links[: lines_left - 1]:
            a, b = (
                pad(cut(label(word_name(token), ascii=view.ascii), side, ascii=view.ascii), side, align)
                for token, align in ((loaded_run.queries[query], "right"), (loaded_run.keys[key], "left"))
            )
            spots[len(rows)] = (query, key)
            rows.append(((a, ""), (" > " if view.ascii else " → ", FAINT), (b, ""), (f"{weight:.2f}"[-4:], "")))

    def lies(x: int, y: int) -> Spot | None:
        return PairSpot(*spots[y]) if y in spots else None

    return fit_pane(Pane(tuple(rows), lies), width, height, ascii=view.ascii)


def next_measure(state: State) -> State:
    """The next number to colour heads by."""
    return replace(state, measure=MEASURES[(MEASURES.index(state.measure) + 1) % len(MEASURES)])


NDArray = np.ndarray[Any, Any]
NAME, SIDEWAYS = 12, 6
"""Cells of a word beside a map, and lines of one above it."""
LETTERS = 3
"""Lines from which on words are written downwards."""
ROOMY_AREA, TEXT_HEIGHT = 4, 0.095
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
    own_entry = loaded_run.weights(place, rows)
    if state.sight != "difference" or state.subtracted_head is None or own_entry is None:
        return own_entry
    subtracted_weights = loaded_run.weights(state.subtracted_head, rows)
    return None if subtracted_weights is None else own_entry - subtracted_weights


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
        _write_weights(lines, level_map, weights, state, view, area)
        if area.across >= ROOMY_AREA and not signed
        else lines
    )


def _write_weights(
    lines: list[list[Piece] | Line], level_map: NDArray, matrix: NDArray, state: State, view: View, area: MatrixArea
) -> list[list[Piece] | Line]:
    """The map with the number of each weight that counts written in its cell, and that of the chosen one."""
    for row, weights in enumerate(matrix.tolist()):
        line = row * area.down + (area.down - 1) // 2
        is_chosen = area.rows.start + row == state.query
        for column, weight in enumerate(weights):
            own_entry = is_chosen and area.columns.start + column == state.key
            if weight == weight and (weight >= TEXT_HEIGHT or own_entry):
                text = (
                    ("1.0" if weight >= 0.995 else f"{weight:.2f}"[1:]).rjust(area.across // 2 + 2).ljust(area.across)
                )
                text_style = (
                    cursor_style(view)
                    if own_entry
                    else style(palette_of(view, signed=False), int(level_map[row, column]))
                )
                if own_entry and not view.color:
                    text = f"[{text.strip()}]".center(area.across)[: area.across]
                lines[line] = over(
                    list(lines[line]), column * area.across, text, text_style if view.color or own_entry else ""
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
    own_entry = (f"{arrow} {name}", accent(view) or "bold")
    line = ""
    for cell in range(0, -(-len(area.columns) // area.block), 10 if area.across == 1 else 5):
        line = line.ljust(cell * area.across) + str(area.columns.start + cell * area.block) + " "
    line = line.ljust(width)[:width]
    size = cells(own_entry[0])
    before, after = line[:start], line[start + size :]
    if before and before[-1] != " ":  # a number that the word covers in part
        before = before[: before.rstrip().rfind(" ") + 1].ljust(start)
    if after and after[0] != " ":
        after = " " * (after + " ").find(" ") + after[(after + " ").find(" ") :]
    return [(before, FAINT), own_entry, (after, FAINT)]


def _waiting_pane(state: State, loaded_run: LoadedRun, view: View, width: int) -> Pane:
    name = (
        message("the run has not reached this head yet")
        if loaded_run.share < 1
        else message("the weights of this head are not held; its numbers and links are on the left")
    )
    return Pane.of(remark(name, replace(view, width=width)))
