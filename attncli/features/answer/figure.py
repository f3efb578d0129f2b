"""The figure of `attn answer`: what the answer loses without each region, the attention that it gives
it, and which sentence used which region."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from attncli.draw.figures.charts import (
    LINE,
    RANKED,
    colour_cells,
    draw_legend,
    draw_title,
    model_note,
)
from attncli.draw.figures.drawing import BOLD, Drawing, broken_to_fit, shorten_to_fit, width
from attncli.draw.numbers import format_signed, percent
from attncli.draw.safe import label
from attncli.draw.shaded_matrix import ink
from attncli.draw.token_names import quote_text, short
from attncli.draw.view import View
from attncli.features.answer.answer_words import leaf_name, share_text
from attncli.features.answer.document import AnswerDocument, AnswerEffect
from attncli.language import say

SIZE = 8.5
"""Points of the letters of remarks and titles."""
BARS = 150.0
"""Points of the longest bars."""
APART = 18.0
"""Points between two panels."""
SENTENCES = 40
"""Sentences that a map has at most: each has a line below it."""
LETTERS = 300
"""Characters of the answer in the title."""
SENTENCE_LETTERS = 160
"""Characters of a sentence below the map of all."""
WIDEST = 460.0
"""Points of a line of text."""


def answer_figure(document: AnswerDocument, drawing: Drawing, view: View, scale: str) -> None:
    """Draw a row for each region, with the change without it and the attention on it beside each
    other; then the changes of each sentence, where the answer has several."""
    title = quote_text(short(document.answer.text.strip(), LETTERS, view), view)
    own = share_text(document.answer.logprob)
    if document.cut == "links":
        way = say(
            view,
            "what this answer loses without the links to a region, in all heads; with all regions"
            " a token of it has probability {own} (geometric mean)",
            own=own,
        )
    else:
        way = say(
            view,
            "what this answer loses without the text of a region; with all regions a token of it has"
            " probability {own} (geometric mean)",
            own=own,
        )
    top = draw_title(drawing, title, f"{way}; {model_note(document, view, mapped=False)}")
    effects = document.effects[:RANKED]  # those of the largest loss
    if drawing.shows("bars"):
        top = _draw_effects(drawing, document, effects, top, view) + 24
    if drawing.shows("matrix") and len(document.answer.sentences) > 1:
        _draw_sentences(drawing, document, effects, top, view)


def _draw_effects(
    drawing: Drawing,
    document: AnswerDocument,
    effects: Sequence[AnswerEffect],
    top: float,
    view: View,
) -> float:
    """Draw a row for each region, and below them what the marks among the bars mean. Returns where
    the drawing ends, in points from the top.

    effects: of the regions, in the order of their rows.
    top: where it begins, in points.
    """
    if len(effects) < len(document.effects):
        left_out = say(
            view,
            "{shown} of {count} regions shown, those of the largest loss",
            shown=len(effects),
            count=len(document.effects),
        )
        top = _write_lines(drawing, left_out, top) + 6
    names = [leaf_name(document, effect, view) for effect in effects]
    top = _draw_panels(drawing, names, effects, top, view)
    marks = say(view, "lines: even attention; attention besides where heads rest")
    if any(effect.random for effect in effects):
        marks = say(
            view,
            "lines among the changes: the largest without a random span of as many tokens; among"
            " the attention: even attention; attention besides where heads rest",
        )
    return _write_lines(drawing, marks, top + 4)


def _write_lines(drawing: Drawing, text: str, top: float) -> float:
    """Write a remark from `top` on, broken into as many lines as it needs. Returns where they end,
    in points from the top."""
    for line in broken_to_fit(text, SIZE, min(drawing.room, WIDEST)):
        drawing.text(0, top + 8, line, size=SIZE, quiet=True)
        top += 11
    return top


def _draw_panels(
    drawing: Drawing, names: Sequence[str], effects: Sequence[AnswerEffect], top: float, view: View
) -> float:
    """Draw two panels of bars, what the answer loses and the attention, each with the names of the
    regions: beside each other, or one below the other on narrow paper. Returns where they end.

    effects: of the regions, in the order of their rows.
    top: where it begins, in points.
    """
    # names take at most 170 points, and two fifths of the width; the bars begin 8 points behind
    # them
    edge = min(max(width(name, 9) for name in names), 170.0, 0.4 * drawing.room) + 8
    room = drawing.room - edge
    # beside each other, three fifths of the width are for the changes, which go both ways from 0
    beside = room >= 1.4 * BARS + APART
    if beside:
        wide = min(BARS, (room - APART) * 0.6)
    else:
        wide = min(BARS, room)
    _write_names(drawing, names, edge, top)
    bottom = _draw_changes(drawing, effects, edge, top, wide, view)
    if beside:
        # attention goes one way from 0, and has at most 0.7 of the width of changes
        attention_wide = min(0.7 * BARS, room - APART - wide)
        return _draw_attention(drawing, effects, edge + wide + APART, top, attention_wide, view)
    top = bottom + 14
    _write_names(drawing, names, edge, top)
    return _draw_attention(drawing, effects, edge, top, wide, view)


def _write_names(drawing: Drawing, names: Sequence[str], edge: float, top: float) -> None:
    """Write the names of the regions, a row each, so that they end left of `edge`, where the bars
    begin."""
    for index, name in enumerate(names):
        y = top + HEAD + index * LINE + 9
        drawing.text(edge - 8, y, shorten_to_fit(name, 9, edge - 8), anchor="end")


HEAD = 28.0
"""Points above the rows of a panel: what it shows, and in which unit."""


def _write_head(drawing: Drawing, title: str, unit: str, left: float, top: float) -> None:
    """Write what a panel shows, and below it its unit."""
    drawing.text(left, top + 8, title, size=SIZE, bold=True)
    drawing.text(left, top + 20, unit, size=SIZE, quiet=True)


def _draw_changes(
    drawing: Drawing,
    effects: Sequence[AnswerEffect],
    left: float,
    top: float,
    wide: float,
    view: View,
) -> float:
    """Draw the changes as bars from a line at 0, losses to the left, and a mark at the largest
    change without a random span. Returns where they end.

    left, top, wide: the panel's corner and width in points.
    """
    _write_head(drawing, say(view, "change without it"), say(view, "nats a token"), left, top)
    labels = [format_signed(effect.change, 2).replace("-", "−") for effect in effects]
    # room on either side for the numbers at the ends of the bars
    beside = max(width(text, 9) for text in labels) + 6

    # the axis: whole steps from `low` nats left of 0 to `high` right of it; a last step that would
    # be a tenth full or less is left out
    marks = [_random_mark(effect) for effect in effects]
    ends = [0.0, *(effect.change for effect in effects), *marks]  # of all bars and marks
    step = _axis_step(max(-min(ends), max(ends), 0.01))  # 0.01 where nothing changes
    low = math.ceil(-min(ends) / step) * step
    high = math.ceil(max(ends) / step - 0.1) * step
    per_nat = (wide - 2 * beside) / (low + high or 1.0)  # 1 where nothing changes: no bar is drawn
    zero = left + beside + low * per_nat
    bottom = top + HEAD + len(effects) * LINE
    steps = range(-round(low / step), round(high / step) + 1)
    _draw_axis(
        drawing,
        [(zero + place * step * per_nat, f"{place * step:g}".replace("-", "−")) for place in steps],
        (top + HEAD, bottom),
    )
    # bars are 8 points high, and begin 2 points below the top of their row; the marks of random spans
    # are as high as the row, and the line at 0 ends 2 points above and below the rows
    for index, (effect, text, mark) in enumerate(zip(effects, labels, marks, strict=True)):
        y = top + HEAD + index * LINE
        size = abs(effect.change) * per_nat
        place = zero + mark * per_nat
        if effect.change < 0:
            drawing.rectangle(zero - size, y + 2, size, 8, drawing.theme.series[1])
            drawing.text(min(zero - size, place) - 4, y + 9, text, anchor="end", quiet=True)
        else:
            drawing.rectangle(zero, y + 2, size, 8, drawing.theme.series[0])
            drawing.text(max(zero + size, place) + 4, y + 9, text, quiet=True)
        if effect.random:
            drawing.rectangle(place - 0.6, y, 1.2, 12, drawing.theme.ink)
    drawing.rectangle(zero - 0.4, top + HEAD - 2, 0.8, bottom - top - HEAD + 4, drawing.theme.quiet)
    return bottom + 14


def _random_mark(effect: AnswerEffect) -> float:
    """The change without the random span that changes most, up or down; 0 without random spans."""
    return max(effect.random or [0.0], key=abs)


def _draw_attention(
    drawing: Drawing,
    effects: Sequence[AnswerEffect],
    left: float,
    top: float,
    wide: float,
    view: View,
) -> float:
    """Draw the shares of attention as bars, with a mark at the share of even attention. Returns
    where they end.

    left, top, wide: the panel's corner and width in points.
    """
    unit = say(view, "% of the answer's")
    _write_head(drawing, say(view, "attention on it"), unit, left, top)
    labels = [percent(effect.attention, 1) for effect in effects]
    beside = max(width(text, 9) for text in labels) + 6
    # the axis, in percent: whole steps from 0 on, to a tenth of a percent where no region gets
    # attention
    largest = max(0.001, *(max(effect.attention, effect.even) for effect in effects))
    step = _axis_step(100 * largest)
    high = math.ceil(100 * largest / step) * step
    per_percent = (wide - beside) / high
    bottom = top + HEAD + len(effects) * LINE
    _draw_axis(
        drawing,
        [
            (left + place * step * per_percent, f"{place * step:g}")
            for place in range(round(high / step) + 1)
        ],
        (top + HEAD, bottom),
    )
    # bars are 8 points high, and begin 2 points below the top of their row
    for index, (effect, text) in enumerate(zip(effects, labels, strict=True)):
        y = top + HEAD + index * LINE
        drawing.rectangle(
            left, y + 2, 100 * effect.attention * per_percent, 8, drawing.theme.series[0]
        )
        even = left + 100 * effect.even * per_percent
        drawing.rectangle(even - 0.6, y, 1.2, 12, drawing.theme.ink)
        drawing.text(left + wide, y + 9, text, anchor="end", quiet=True)
    return bottom + 14


def _axis_step(largest: float) -> float:
    """The distance of the numbers along an axis from 0 to `largest`: 1, 2 or 5 times a power of ten,
    the smallest that gives at most four numbers above 0."""
    power = 10.0 ** math.floor(math.log10(largest))
    for part in (0.2, 0.5, 1.0, 2.0):
        if largest / (part * power) <= 4:
            return part * power
    return 5 * power


def _draw_axis(
    drawing: Drawing, ticks: Sequence[tuple[float, str]], rows: tuple[float, float]
) -> None:
    """Draw an axis: a thin line at each tick, and its number below where it does not meet another;
    numbers near 0 are written first.

    ticks: where each lies, in points from the left, and its number.
    rows: where the lines begin and end, in points from the top.
    """
    begin, end = rows
    # from where to where numbers are written, in points; 3 points part two of them
    occupied: list[tuple[float, float]] = []
    for x, text in sorted(ticks, key=lambda tick: abs(float(tick[1].replace("−", "-")))):
        drawing.path([(x, begin), (x, end)], drawing.theme.line, thick=0.5)
        half = width(text, 8) / 2 + 1.5
        if all(x + half < left or right < x - half for left, right in occupied):
            drawing.text(x, end + 10, text, anchor="middle", size=8, quiet=True)
            occupied.append((x - half, x + half))


def _draw_sentences(
    drawing: Drawing,
    document: AnswerDocument,
    effects: Sequence[AnswerEffect],
    top: float,
    view: View,
) -> None:
    """Draw the change of each sentence without each region as coloured cells, and write the sentences
    below them by their numbers."""
    # a line of text is 11 points high
    sentences = document.answer.sentences[:SENTENCES]
    values = np.array([effect.by_sentence[: len(sentences)] for effect in effects], np.float64)
    names = [leaf_name(document, effect, view) for effect in effects]
    # names take at most 170 points, and two fifths of the width; cells begin 8 points behind them
    edge = min(max(width(name, 9) for name in names), 170.0, 0.4 * drawing.room) + 8
    cell = min(CELL, (drawing.room - edge) / len(sentences))
    caption = say(view, "change of each sentence without a region, nats a token")
    # bold letters are wider by the factor `BOLD` than those that are measured
    for line in broken_to_fit(caption, SIZE, min(drawing.room, WIDEST) / BOLD):
        drawing.text(0, top, line, size=SIZE, bold=True)
        top += 11
    # beside the cells, which begin 10 points further down; `_write_names` leaves room for a head
    _write_names(drawing, names, edge, top - HEAD + 11.5)
    # above narrow cells, only every fifth number has room
    for number in range(len(sentences)):
        if cell >= NUMBERED or (number + 1) % 5 == 0:
            middle = edge + (number + 0.5) * cell
            drawing.text(middle, top + 6, str(number + 1), size=8, anchor="middle", quiet=True)
    top += 10
    top = _draw_cells(drawing, values, (edge, top), cell, view)

    # the sentences by their numbers
    left = width(f"{len(sentences)}", SIZE) + 12
    for number, sentence in enumerate(sentences, 1):
        drawing.text(left - 6, top, str(number), size=SIZE, anchor="end")
        words = label(short(sentence.text, SENTENCE_LETTERS, view))
        for line in broken_to_fit(words, SIZE, min(drawing.room, WIDEST) - left):
            drawing.text(left, top, line, size=SIZE, quiet=True)
            top += 11
    if len(sentences) < len(document.answer.sentences):
        more = say(
            view,
            "{shown} of {count} sentences shown",
            shown=len(sentences),
            count=len(document.answer.sentences),
        )
        _write_lines(drawing, more, top - 6)


CELL, NUMBERED, VALUED = 34.0, 13.0, 28.0
"""Points along a cell of the map, those from which each has its number above it, and its value in
it."""


def _draw_cells(
    drawing: Drawing,
    values: np.ndarray[Any, Any],
    corner: tuple[float, float],
    cell: float,
    view: View,
) -> float:
    """Draw changes as coloured cells, a row for each region and a column for each sentence. The
    numbers are written in the cells, or where these are too narrow, a legend of the colours below.

    values: changes in nats, [region, sentence].
    corner: the upper left one, in points.
    cell: the width of a cell in points.

    Returns: where what follows begins, in points from the top.
    """
    # distances are in points
    left, top = corner
    rows, columns = values.shape
    high = float(np.abs(values).max()) or 1.0  # 1 where nothing changes
    palette = drawing.theme.signed
    colours = colour_cells(values, palette, "signed", high)
    wide = columns * cell
    bottom = top + rows * LINE
    drawing.cells(left, top, wide, rows * LINE, colours)
    drawing.rectangle(left, top, wide, rows * LINE, "none", stroke=drawing.theme.line)
    if cell < VALUED:
        return draw_legend(drawing, bottom + 10, high, "signed", view) + 16
    for (row, column), value in np.ndenumerate(values):
        text = format_signed(float(value), 2).replace("-", "−")
        # the palette goes from 0 to 1, for −high to high
        colour = ink(palette.rgb(0.5 + value / high / 2))
        middle = left + (column + 0.5) * cell
        y = top + row * LINE + 10.5
        drawing.text(middle, y, text, size=8, anchor="middle", ink=colour)
    return bottom + 20
