"""The grid of heads: a cell for each, layers below each other, coloured by one number; below it the chosen head."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attncli.draw.headings import FAINT
from attncli.draw.lines import Line, Piece
from attncli.draw.palette import shade, sign
from attncli.draw.safe import cells, cut, label, pad, spell
from attncli.draw.token_names import word_name
from attncli.draw.view import View
from attncli.explore.loaded_run import LoadedRun, Pair
from attncli.explore.painting import (
    SHADES,
    HeadSpot,
    PairSpot,
    Pane,
    Spot,
    cursor_style,
    fit_pane,
    levels,
    palette_of,
    style,
)
from attncli.explore.state import Extent, State
from attncli.language import say
from attncli.language.head_labels import label_name
from attncli.measure.head_record import METRICS

MEASURES = ("word", *METRICS)
"""What may colour the heads, in the order of the key that goes through them."""
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
    rows: list[Line] = [((say(view, "explore.head", state.layer, state.head), "bold"),)]
    if head.labels:
        labels_text = say(view, "list").join(label_name(head_label, view.lang) for head_label in head.labels)
        rows[0] = (*rows[0], ("  " + cut(label(labels_text, ascii=view.ascii), width, ascii=view.ascii), FAINT))
    numbers = [
        (spell(say(view, f"explore.metric.{name}"), ascii=view.ascii), head.metrics.get(name)) for name in METRICS
    ]
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
        rows.append(((say(view, "explore.links"), FAINT),))
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
