"""What stands at the edges of a large map of a long text: every n-th word, and bands of regions with
their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from attncli.draw.figures.drawing import Drawing, shorten_to_fit, width

TICK = 7.0
"""Size of the type of every n-th word."""
HALF_LETTER = 2.4
"""Half the height of its letters: what a baseline lies below the middle of its text."""
APART = 8.5
"""Points from one such word to the next, at least."""
STEPS = (1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 5000)
"""Every how many words one is written."""
LONGEST = 60.0
"""Points of such a word."""
FEW_ROWS = 12
"""Rows that all have their words, however flat they are."""
SLANTED = 8.0
"""Points across that the lines from flat rows to their words take besides."""
TICK_START, TICK_END, WORD_GAP = 3.0, 1.0, 5.0
"""Points from the map to where the short line at a word begins and ends, and to the word."""
STRIP, STRIP_GAP, NAME_GAP = 5.0, 3.0, 4.0
"""Points across a band, between it and the map, and between it and its name."""
BELOW = 2.0
"""Points that letters such as g reach below the line on which they stand."""
LINE = 9.0
"""Points from the name of a band to the next."""
LONGEST_NAME = 80.0


class MapArea(Struct, frozen=True):
    """Where the cells of a map lie on the paper, in points: the upper left corner, and how wide and
    tall they are together."""

    left: float
    top: float
    width: float
    height: float


class Band(Struct, frozen=True):
    """A region along an axis of a map: its name, its colour by number, and its tokens.

    runs: (start, stop) of each run of neighbouring tokens, by their places along the axis.
    """

    name: str
    colour: int
    runs: tuple[tuple[int, int], ...]


def bands_of(regions: Sequence[tuple[str, Sequence[int]]], places: Sequence[int]) -> list[Band]:
    """The bands of regions along an axis; a token of several regions is in the first of them.

    Args:
        regions: the name of each, and the positions of its tokens.
        places: the tokens of the axis, by their positions in the text.
    """
    # the number of the region that each token of the axis is in, None for none
    first_region: dict[int, int] = {}
    for number, (_, tokens) in enumerate(regions):
        for token in tokens:
            first_region.setdefault(token, number)
    numbers = [first_region.get(place) for place in places]

    # neighbours of one region are a run
    starts = [
        index for index, number in enumerate(numbers) if index == 0 or number != numbers[index - 1]
    ]
    runs: dict[int, list[tuple[int, int]]] = {}
    for start, stop in pairwise([*starts, len(numbers)]):
        region = numbers[start]
        if region is not None:
            runs.setdefault(region, []).append((start, stop))
    return [
        Band(name, number, tuple(runs.get(number, ()))) for number, (name, _) in enumerate(regions)
    ]


def tick_step(cells: float) -> int:
    """Every how many words along an axis one is written, so that none touches the next.

    cells: points from one word to the next.
    """
    return next((step for step in STEPS if step * cells >= APART), STEPS[-1])


def tick_names(
    words: Sequence[str], long: float, positions: Sequence[int] | None = None
) -> list[tuple[int, str]]:
    """The words that are written along an axis of `long` points, as (place, text). Where some are
    left out, a text begins with its token's position: "20 cat".

    positions: of the tokens that the words are; None for one after the other from the first, none
        for words that are no tokens.
    """
    if not words:
        return []
    step = tick_step(long / len(words))
    if step == 1:
        return [(place, shorten_to_fit(word, TICK, LONGEST)) for place, word in enumerate(words)]
    if positions is None:
        positions = range(len(words))
    names = []
    for place in range(0, len(words), step):
        name = words[place]
        if positions:
            name = f"{positions[place]} {name}"
        names.append((place, shorten_to_fit(name, TICK, LONGEST)))
    return names


def row_names(
    rows: Sequence[str], tall: float, positions: Sequence[int] | None
) -> list[tuple[int, str]]:
    """The words that are written beside the rows of a map `tall` points high, as `tick_names`: of few
    rows all."""
    if len(rows) <= FEW_ROWS:  # as on a map so high that none is left out
        return tick_names(rows, len(rows) * APART)
    return tick_names(rows, tall, positions)


def ticks_width(names: Sequence[tuple[int, str]]) -> float:
    """Points of the longest of the words along an axis."""
    return max((width(name, TICK) for _, name in names), default=0.0)


def lines_width(rows: int, tall: float) -> float:
    """Points that the lines from rows to their words take besides: 0 where these are level with the
    rows, more where few rows are closer to each other than words may be."""
    if 1 < rows <= FEW_ROWS and tall < rows * APART:
        return SLANTED
    return 0.0


def write_ticks(
    drawing: Drawing,
    rows: Sequence[tuple[int, str]],
    columns: Sequence[tuple[int, str]],
    counts: tuple[int, int],
    area: MapArea,
) -> float:
    """Write words at the left and above a map, each beside a short line at the middle of its row or
    column. Returns where those at the left end: few flat rows have words that reach further down.

    rows, columns: the words, as `row_names` and `tick_names` return them.
    counts: how many rows and how many columns the map has, in tokens.
    """
    left = area.left
    top = area.top
    row_count, column_count = counts
    line_start = left - TICK_START - lines_width(row_count, area.height)
    level = top - APART  # the middle of a word
    for place, name in rows:
        middle = top + (place + 0.5) * area.height / row_count
        level = max(middle, level + APART)
        line = [(line_start, level), (left - TICK_END, middle)]
        drawing.path(line, drawing.theme.quiet, thick=0.4)
        word_end = line_start + TICK_START - WORD_GAP
        drawing.text(word_end, level + HALF_LETTER, name, size=TICK, anchor="end", quiet=True)
    for place, name in columns:
        middle = left + (place + 0.5) * area.width / column_count
        line = [(middle, top - TICK_START), (middle, top - TICK_END)]
        drawing.path(line, drawing.theme.quiet, thick=0.4)
        drawing.text(middle + HALF_LETTER, top - WORD_GAP, name, size=TICK, quiet=True, rotation=90)
    return level + HALF_LETTER + BELOW


def bands_width(bands: Sequence[Band]) -> float:
    """Points that bands and their names take at the right of a map."""
    if not bands:
        return 0.0
    names = max(width(band.name, TICK) for band in bands)
    return STRIP_GAP + STRIP + NAME_GAP + min(names, LONGEST_NAME)


def draw_bands(
    drawing: Drawing,
    row_bands: Sequence[Band],
    column_bands: Sequence[Band],
    counts: tuple[int, int],
    area: MapArea,
) -> float:
    """Draw the bands of the rows at the right of a map with their names, apart from each other, and
    those of the columns below it. Returns where they end.

    counts: how many rows and how many columns the map has, in tokens.
    area: where the map's cells lie.
    """
    bottom = area.top + area.height
    if not column_bands:  # rows have bands only where columns have some
        return bottom
    row_count, column_count = counts
    inks = drawing.theme.series

    # below the map: the bands of the columns
    for band in column_bands:
        for start, stop in band.runs:
            left = area.left + start * area.width / column_count
            long = (stop - start) * area.width / column_count
            ink = inks[band.colour % len(inks)]
            drawing.rectangle(left, bottom + STRIP_GAP, long, STRIP, ink)

    # right of the map: the bands of the rows, each with its name beside its uppermost run
    strip = area.left + area.width + STRIP_GAP
    middles: list[tuple[float, Band]] = []
    for band in row_bands:
        ink = inks[band.colour % len(inks)]
        for start, stop in band.runs:
            upper = area.top + start * area.height / row_count
            drawing.rectangle(strip, upper, STRIP, (stop - start) * area.height / row_count, ink)
        # the name of a region without a row stands at the map's lower edge
        middle = min(((start + stop) / 2 for start, stop in band.runs), default=row_count)
        middles.append((area.top + middle * area.height / row_count, band))
    baseline = area.top - LINE
    for middle, band in sorted(middles, key=lambda entry: entry[0]):  # from the top down
        baseline = max(middle + HALF_LETTER, baseline + LINE)
        name = shorten_to_fit(band.name, TICK, LONGEST_NAME)
        ink = inks[band.colour % len(inks)]
        drawing.text(strip + STRIP + NAME_GAP, baseline, name, size=TICK, ink=ink)
    return max(bottom + STRIP_GAP + STRIP, baseline + BELOW)
