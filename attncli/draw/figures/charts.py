"""Bars, curves, links between words, a shaded sentence, heat maps and grids of heads, with the
titles that they share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.documents import SOURCE_NAMES, AttentionPart, Header, ModelPart, TokenRow, mask_name
from attncli.draw.figures.drawing import (
    BOLD,
    Drawing,
    broken_to_fit,
    is_from_right,
    shorten_to_fit,
    width,
)
from attncli.draw.figures.map_edges import (
    Band,
    MapArea,
    bands_width,
    draw_bands,
    lines_width,
    row_names,
    tick_names,
    ticks_width,
    write_ticks,
)
from attncli.draw.heatmap import pool
from attncli.draw.numbers import writer
from attncli.draw.safe import label, last_part, safe
from attncli.draw.shaded_matrix import LEVELS, Palette, head_grid, normalise
from attncli.draw.view import View
from attncli.errors import UsageError
from attncli.language import say

LINE = 15.0
"""Points from one line of bars, words or a title to the next."""
LONGEST_BAR = 180.0
"""Points of the longest bar on paper of any width."""
MOST_OF_NAMES = 180.0
"""Points that the names of bars take at most, unless all of them fit with a little more."""


class Bar(Struct, frozen=True):
    """One row of a ranking: its name, its number, and its label (the text behind the bar).

    mark: another number on the same bar.
    """

    name: str
    value: float
    label: str
    mark: float | None = None


def draw_bars(
    drawing: Drawing,
    bars: Sequence[Bar],
    top: float,
    *,
    most: float | None = None,
    part: str = "bars",
) -> float:
    """Bars from 0, the largest the longest; below 0 in another colour. Returns where they end.

    top: where they begin, in points from the upper edge.
    most: the number of a bar of full length; the largest of them where it is None.
    part: the part of the figure to which they belong; where it is not to be drawn, nothing is.
    """
    if not drawing.shows(part):
        return top
    largest = most
    if largest is None:
        largest = max((abs(bar.value) for bar in bars), default=0.0)
    if largest == 0:  # all bars are: 1, to divide by
        largest = 1.0

    # from left to right: names up to `edge`, bars of at most `long` points, labels; 8 points stand
    # between a name and its bar, and between the bar and its label
    name_width = max((width(bar.name, 9) for bar in bars), default=0)
    # narrow paper gives a fifth of its width to the longest bar, at least, and less than half of it
    # to the names: the labels need the rest
    shortest = min(LONGEST_BAR, 0.2 * drawing.room)
    edge = min(name_width, MOST_OF_NAMES, 0.42 * drawing.room) + 10
    texts = [bar.label for bar in bars]
    label_width = max((width(text, 9) for text in texts), default=0.0)
    if label_width > drawing.room - edge - shortest - 8:
        # too wide: the label's number alone, which two spaces separate from the rest
        texts = [text.partition("  ")[0] for text in texts]
        label_width = max((width(text, 9) for text in texts), default=0.0)
    # what the labels leave free goes to the names, and then to the bars
    room_for_names = drawing.room - shortest - label_width - 8
    edge = max(edge, min(name_width + 10, MOST_OF_NAMES + 10, room_for_names))
    long = max(min(LONGEST_BAR, drawing.room - edge - label_width - 8), shortest)

    for index, (bar, text) in enumerate(zip(bars, texts, strict=True)):
        y = top + index * LINE
        if index:
            drawing.breaks.append(y)
        drawing.text(edge - 8, y + 9, shorten_to_fit(bar.name, 9, edge - 10), anchor="end")
        drawing.rectangle(edge, y + 2, long, 8, drawing.theme.ground)
        colour = drawing.theme.series[0 if bar.value >= 0 else 1]
        drawing.rectangle(edge, y + 2, long * abs(bar.value) / largest, 8, colour)
        if bar.mark is not None:  # a line of 1.2 points across the bar
            middle = edge + long * min(abs(bar.mark) / largest, 1)
            drawing.rectangle(middle - 0.6, y, wide=1.2, tall=12, fill=drawing.theme.ink)
        room = drawing.room - edge - long - 7
        drawing.text(edge + long + 8, y + 9, shorten_to_fit(text, 9, room), quiet=True)
    return top + len(bars) * LINE


DASHES = ("", "7 4", "3 3.5", "9 3.5 0.5 3.5", "0.5 3.5")
"""Dashes and gaps of curves without a colour of their own, in points; the ends are round, so that
0.5 is a dot."""


def draw_curves(
    drawing: Drawing,
    series: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    top: float,
    x_name: str,
    y_name: str,
    *,
    dashed: bool = False,
) -> float:
    """Curves on logarithmic axes with their names at their ends, apart from each other. Returns
    where they end.

    Args:
        series: the name of each curve and its points (x, y); those with an x or y of 0 or less are
            not drawn.
        top: where the curves begin, in points from the upper edge.
        x_name, y_name: what the axes are.
        dashed: whether dashes tell the curves apart, where colours mean something else.
    """
    if not drawing.shows("curve"):
        return top
    # points of a curve's sample before its name; dashes need more to be told apart
    sample = 8.0
    if dashed:
        sample = 24.0
    lines = [(name, [point for point in line if min(point) > 0]) for name, line in series]
    points = [(math.log10(x), math.log10(y)) for _, line in lines for x, y in line]
    if not points:
        return top
    # the logarithms at the ends of the axes
    (x0, x1), (y0, y1) = ((min(axis), max(axis)) for axis in zip(*points, strict=True))
    # the area of the curves in points: numbers stand left of it, the name of y above, those of the
    # curves at the right
    tall = 190.0
    left = 44.0
    begin = top + 18
    names_width = sample + 10 + max(width(name, 9) for name, _ in series)
    wide = max(min(260.0, drawing.room - left - names_width), 90.0)

    def place(point: tuple[float, float]) -> tuple[float, float]:
        """Where a point (x, y) of a curve lies on the paper; at the axis's begin where all points
        have the same number there. On paper, y grows downwards."""
        x, y = (math.log10(number) for number in point)
        across = (x - x0) / ((x1 - x0) or 1)  # the shares of either axis
        up = (y - y0) / ((y1 - y0) or 1)
        return left + wide * across, begin + tall * (1 - up)

    # the axes: thin lines at the ticks, and their names
    drawing.text(left, begin - 8, y_name, quiet=True)
    for value, name in _ticks(y0, y1):
        _, y = place((10**x0, value))
        drawing.path([(left, y), (left + wide, y)], drawing.theme.line, thick=0.5)
        drawing.text(left - 6, y + 3, name, anchor="end", quiet=True, size=8)
    for value, name in _ticks(x0, x1):
        x, _ = place((value, 10**y0))
        drawing.path([(x, begin), (x, begin + tall)], drawing.theme.line, thick=0.5)
        drawing.text(x, begin + tall + 13, name, anchor="middle", quiet=True, size=8)
    drawing.text(left + wide, begin + tall + 27, x_name, anchor="end", quiet=True)

    # the curves; `ends` holds the height at which each ends, its name and its index
    ends = []
    for index, (name, line) in enumerate(lines):
        if line:
            places = [place(point) for point in line]
            if len(places) == 1:  # a point alone: a short piece of a line, so that it is seen
                (x, y) = places[0]
                places = [(x - 2, y), (x + 2, y)]
            if dashed:
                drawing.path(places, drawing.theme.ink, thick=1.3, dash=_dash_of_curve(index))
            else:
                drawing.path(places, _ink_of_curve(drawing, index), thick=1.6)
            _, end_height = places[-1]
            ends.append((end_height, name, index))

    # the names beside the curves' ends, from the top down and at least 11 points apart
    below = -math.inf
    for y, name, index in sorted(ends):
        below = max(y, below + 11)
        begins = left + wide + 6
        if dashed:
            # a piece of the line with its dashes; else a small block of its colour
            ends_of_sample = [(begins, below - 0.5), (begins + sample, below - 0.5)]
            drawing.path(ends_of_sample, drawing.theme.ink, thick=1.3, dash=_dash_of_curve(index))
        else:
            drawing.rectangle(begins, below - 2, sample, 3, _ink_of_curve(drawing, index))
        drawing.text(begins + sample + 4, below + 3, name)
    return begin + tall + 30  # below the ticks' numbers and the name of x


def _dash_of_curve(index: int) -> str:
    """The dashes of a curve by its index; of more curves than there are kinds, they come again."""
    return DASHES[index % len(DASHES)]


def _ink_of_curve(drawing: Drawing, index: int) -> str:
    """The colour of a curve by its index; of more curves than colours, they come again."""
    inks = drawing.theme.series
    return inks[index % len(inks)]


TICKS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
"""Within a power of ten, what an axis of less than two names."""


def _ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Numbers along a logarithmic axis, with their names ("" for one that has a line only): powers
    of ten, about seven of them with names; where fewer than two lie on the axis, numbers between.

    low, high: the logarithms to base 10 of the axis's ends.
    """
    powers = range(math.ceil(low), math.floor(high) + 1)
    if len(powers) > 1:
        step = max(round((high - low) / 7), 1)  # of the powers, every how many have a name
        return [
            (10.0**power, "" if place % step else f"10{_superscript(power)}")
            for place, power in enumerate(powers)
        ]
    values = [
        part * 10.0**power
        for power in range(math.floor(low), math.floor(high) + 1)
        for part in TICKS
    ]
    return [(value, f"{value:g}") for value in values if low <= math.log10(value) <= high]


def _superscript(power: int) -> str:
    """A whole number as an exponent, such as `⁻³`."""
    return str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def draw_links(
    drawing: Drawing,
    links: Sequence[tuple[int, int, float]],
    queries: Sequence[str],
    keys: Sequence[str],
    top: float,
    *,
    left: float = 0.0,
) -> tuple[float, float]:
    """Two columns of words, and lines between them as strong as their weights. Returns where they
    end, on the right and below.

    Args:
        links: query, key and weight, from 0 to 1, of each.
        queries, keys: the words by position.
        top: where the columns begin, in points from the upper edge.
        left: where the left column begins, in points from the left edge.
    """
    # points of a word and between the columns at most; on narrow paper two columns of words and
    # what is between them take all of it: 0.36 + 0.28 + 0.36 = 1
    longest_word = min(120.0, 0.36 * drawing.room)
    between = min(130.0, 0.28 * drawing.room)
    query_width, key_width = (
        max((min(width(word, 9), longest_word) for word in words), default=0.0)
        for words in (queries, keys)
    )
    begin = left + query_width
    end = begin + between
    # in type of 9 points; queries end where the lines begin, keys begin where the lines end
    for words, x, anchor in ((queries, begin, "end"), (keys, end, "start")):
        for index, word in enumerate(words):
            text = shorten_to_fit(word, 9, longest_word)
            drawing.text(x, top + index * LINE + 9, text, anchor=anchor)
    for query, key, weight in links:
        # at the middle of the words' height, and 5 points away from them
        ends = [(begin + 5, top + query * LINE + 6), (end - 5, top + key * LINE + 6)]
        drawing.path(
            ends,
            drawing.theme.series[0],
            thick=0.5 + 4 * weight,
            curved=True,
            faint=0.25 + 0.75 * weight,  # a small weight can still be seen
        )
    return end + key_width, top + max(len(queries), len(keys)) * LINE


LONGEST_LINE = 420.0
"""Points of a line of a sentence on paper of any width."""


def draw_sentence(
    drawing: Drawing,
    words: Sequence[str],
    follows_directly: Sequence[bool],
    shares: Sequence[float],
    chosen_index: int,
    top: float,
) -> float:
    """Draw words one after another, each tinted by its share from 0 to 1, the chosen one
    underlined.

    follows_directly: which words follow the word before without a space. Text that is written from
        right to left is drawn so.
    chosen_index: the index of the chosen word.
    top: where the words begin, in points from the upper edge.

    Returns where they end.
    """
    if not drawing.shows("sentence"):
        return top
    x = 0.0
    y = top
    places: list[tuple[float, float, float]] = []  # of each word: left edge, upper edge, width
    for index, word in enumerate(words):
        wide = width(word, 12)
        if follows_directly[index] and x > 0:
            x -= 5  # 3 of the 8 points between words remain
        if x and x + wide > min(LONGEST_LINE, drawing.room):
            x = 0.0
            y = y + 21  # points from a line to the next
        places.append((x, y, wide))
        x += wide + 8
    if is_from_right("".join(words)):
        # the same lines, mirrored
        edge = max(x + wide for x, _, wide in places)
        places = [(edge - x - wide, y, wide) for x, y, wide in places]
    # a tint of 0.85 at most: the word on it stays readable
    for index, (word, share, (x, y, wide)) in enumerate(zip(words, shares, places, strict=True)):
        drawing.add(
            f'<rect x="{x - 1.5:.2f}" y="{y:.2f}" width="{wide + 3:.2f}" height="17" rx="3"'
            f' fill="{drawing.theme.series[0]}" fill-opacity="{min(max(share, 0), 1) * 0.85:.3f}"/>',
            y,
        )
        drawing.text(
            x + wide / 2, y + 12.5, word, size=12, bold=index == chosen_index, anchor="middle"
        )
        if index == chosen_index:
            drawing.rectangle(x, y + 17, wide, 1.5, drawing.theme.series[0])
    return y + 22


# What the figures of all documents share: their titles and the rows of their rankings.

RANKED = 20
"""Rows of a ranking, at most."""
TITLE_LINES = 6
"""Lines of a title, at most."""


def draw_title(drawing: Drawing, title: str, subtitle: str) -> float:
    """Write the title of a figure and the lines below it, unless no title is chosen. Returns where
    the figure itself begins, in points from the upper edge."""
    if not drawing.choice.title:
        return 0.0
    # on paper of any width, lines of at most 400 points; `width` is that of text that is not bold
    title_lines = broken_to_fit(spelled_breaks(title), 12, min(400.0, drawing.room / BOLD))
    if len(title_lines) > TITLE_LINES:
        # the last line that is shown gives its last letter for a sign that more follows
        last_line = title_lines[TITLE_LINES - 1][:-1].rstrip()
        title_lines = [*title_lines[: TITLE_LINES - 1], f"{last_line}…"]
    for index, line in enumerate(title_lines):
        drawing.text(0, 10 + index * LINE, line, size=12, bold=True)
    below = 10 + LINE * len(title_lines)
    # in smaller type: 12 points from a line to the next
    lines = broken_to_fit(subtitle, 9, min(460.0, drawing.room))
    for index, line in enumerate(lines):
        drawing.text(0, below + index * 12, line, quiet=True)
    return below + 7 + 12 * len(lines)


BREAKS = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})
"""How line breaks and tabs are spelled in figures: few fonts have the signs that screens use."""


def spelled_breaks(text: str) -> str:
    """A text with its line breaks and tabs as `\\n` and `\\t`."""
    return text.translate(BREAKS)


def names_of(tokens: Sequence[TokenRow]) -> list[str]:
    """The texts of tokens as labels, safe to write."""
    return [label(spelled_breaks(token.text)) for token in tokens]


class AttentionRun(Protocol):
    """A document, or a part of one, that says which model ran and by which conventions."""

    @property
    def model(self) -> ModelPart:
        """The model: its name, sizes, and where its weights come from."""

    @property
    def attention(self) -> AttentionPart:
        """The conventions of its attention, such as mask and positions."""


def model_note(
    document: AttentionRun,
    view: View,
    *,
    mapped: bool = True,
) -> str:
    """A line for below a figure's title: which weights ran, with which mask and positions, such as
    "seeded; seed 0, not learned; mask causal".

    mapped: whether it ends in a note that rows of a map are queries and columns keys.
    """
    model = document.model
    attention = document.attention
    # the file of captured tensors is the figure's title already
    if model.name and model.source != "tensors":
        name = last_part(model.name)
    else:
        name = say(view, SOURCE_NAMES[model.source])
    parts = [name]
    if model.source in ("seeded", "random"):
        parts.append(say(view, "seed {seed}, not learned", seed=model.seed))
    if attention.mask != "none":
        parts.append(say(view, mask_name(attention.mask)))
    if attention.position != "none":
        parts.append(say(view, "position {position}", position=attention.position))
    if mapped:
        parts.append(say(view, "rows look, columns are looked at"))
    return "; ".join(parts)


def text_note(document: Header, view: View) -> str:
    """A line with the document's text and which weights ran, for a figure whose title is not the
    text."""
    if isinstance(document.text, str):
        text = document.text
    else:
        text = ""
    # at most 800 points of it, in type of 9
    shown_text = shorten_to_fit(safe(text), 9, 800)
    return "; ".join(filter(None, (shown_text, model_note(document, view, mapped=False))))


def bar_of(
    name: str, value: float, *, signed: bool = False, mark: float | None = None, more: str = ""
) -> Bar:
    """A `Bar` whose label is its number, with a plus sign too if `signed`, and then `more`.

    mark: another number, drawn as a line across the bar.
    """
    write = writer([value], precision=3)
    number = write(value).replace("-", "−")
    if signed and value >= 0:
        number = f"+{number}"
    # two spaces, at which `draw_bars` cuts a label that is too wide
    return Bar(name, value, f"{number}  {more}".rstrip(), mark)


def write_shown_count(
    drawing: Drawing, counts: tuple[int, int], top: float, view: View, *, heads: bool = True
) -> float:
    """Write how many of all heads a ranking shows, if it leaves some out.

    counts: how many it shows, and how many there are.
    top: where the ranking begins, in points from the upper edge.
    heads: whether it ranks heads; else it ranks the parts that add up to a number.

    Returns the new `top`: bars, or another such line, begin 16 points below it.
    """
    shown, count = counts
    if shown >= count or not drawing.shows("bars"):
        return top
    note = say(
        view, "{shown} of {count} parts shown, those furthest from 0", shown=shown, count=count
    )
    if heads:
        note = say(
            view, "{shown} of {count} heads shown, those furthest from 0", shown=shown, count=count
        )
    drawing.text(0, top + 20, note, size=8.5, quiet=True)
    return top + 16


MOST_LABELS, MOST_NAMES = 40, 160
"""Words along the upper edge that are still written, and names along the left one."""
CELL, LOW, SMALL, SIZE = 13.0, 8.5, 58.0, 8.5
"""Points along a cell, one of many rows, and a map among many; and the size of their type."""
LEAST, ROOMY, GAP, SLIM = 12.0, 24.0, 7.0, 3.0
"""Points along the smallest map among many, and along one on narrow paper; between two; between two
of the smallest.
"""
NARROW_MAP = 30.0
"""Points along a map from which on its layer and its head stand above it; below, the head alone."""
ROOTS = "root"
"""The scale of square roots, from 0 to the greatest number."""
LARGE, SMALLEST_CELL = 300.0, 0.3
"""Points along a map by itself whose words are not written, and along the smallest cell of one on paper
of any width."""
TICK_TRIES = 4
"""How often a map is made smaller at most until it and the words at its left edge fit."""


class FigureMap(Struct, frozen=True, eq=False):
    """A matrix [query, key], NaN where hidden, with the words of its rows and columns.

    signed: whether its colours have their middle at 0.
    short: what it is called among many maps, (layer, head) as texts.
    mark: what stands before the layer, "L"; "" where that is the place in a batch.
    row_bands, column_bands: regions along its edges.
    framed: cells, (row, column), with a frame.
    axes: what its rows and its columns are, such as ("query", "key"), in the language shown; written
        at its upper left corner where its words are. ("", "") for none.
    meaning: what its numbers are, in the language shown, written beside the bar of colours; "" for
        nothing.
    row_positions: of the tokens that its rows are; None for one after the other from the first, none
        for rows that are no tokens.
    """

    caption: str
    values: np.ndarray[Any, Any]
    rows: Sequence[str]
    columns: Sequence[str]
    signed: bool = False
    short: tuple[str, str] = ("", "")
    mark: str = "L"
    row_bands: Sequence[Band] = ()
    column_bands: Sequence[Band] = ()
    framed: Sequence[tuple[int, int]] = ()
    axes: tuple[str, str] = ("", "")
    meaning: str = ""
    row_positions: Sequence[int] | None = None

    @property
    def axis_names(self) -> tuple[str, str]:
        """The names of its columns and rows with arrows, "key →" above "query ↓"; ("", "") for a map
        whose axes have no names."""
        rows, columns = self.axes
        if not rows:
            return "", ""
        return f"{columns} →", f"{rows} ↓"

    @property
    def short_name(self) -> str:
        """The head's name where there is little room, such as "L5H11"; "" for a map of no head."""
        layer, head = self.short
        if not layer:
            return head
        if not self.mark:  # `layer` is then the place in a batch of captured arrays
            return f"{layer}.{head}"
        return f"{self.mark}{layer}H{head}"


def draw_maps(
    drawing: Drawing,
    maps: Sequence[FigureMap],
    top: float,
    view: View,
    *,
    scale: str,
    across: int = 8,
    legend: bool = True,
    part: str = "",
) -> float:
    """Draw maps side by side, `across` in a row; returns where they end. Maps with signed numbers
    share one colour scale, the others another. On narrow paper the heads of a layer take several
    rows where these are few.

    Where cells are pooled, a linear scale becomes one of roots: weights of long texts are small.

    top: where they begin, in points from the upper edge.
    scale: how values become colours, as `colour_cells` takes it.
    legend: whether the bar of colours of each scale stands below.
    part: the part of the figure that they are, such as "grid" (small maps of many heads) or
        "matrix" (large ones with words at their edges); "" for whichever of these two, or both,
        suits the number of maps or was asked for.
    """
    if not maps:
        return top
    if not part:
        for kind in map_kinds(drawing, len(maps)):
            top = draw_maps(
                drawing, maps, top, view, scale=scale, across=across, legend=legend, part=kind
            )
        return top
    if not drawing.shows(part):
        return top
    if top > 0:
        drawing.breaks.append(top)
    is_large = part == "matrix" or len(maps) <= FEW_MAPS
    grid = _map_grid(drawing, maps, across, is_large=is_large)
    block = max(_pool_size(grid.paper, figure_map, grid.small) for figure_map in maps)
    if block > 1 and scale == "linear":
        scale = ROOTS
    high = largest_sizes(maps)
    bottom = _draw_rows(drawing, maps, top, grid, scale, high)
    if legend:
        for is_signed in sorted({figure_map.signed for figure_map in maps}):
            legend_scale = "signed" if is_signed else scale
            # the numbers of maps that share a colour scale are of one kind
            meanings = [one_map.meaning for one_map in maps if one_map.signed == is_signed]
            bottom = draw_legend(
                drawing, bottom + 16, high[is_signed], legend_scale, view, meaning=meanings[0]
            )
    if block > 1:
        bottom = pooling_note(drawing, bottom, block, scale, view)
    return bottom


def map_kinds(drawing: Drawing, count: int, *, chosen_heads: bool = False) -> list[str]:
    """In which ways `count` maps of weights are drawn: as a "grid" of small ones, as a large "matrix"
    each, or both where both are asked for; none where only other parts of the figure are.

    chosen_heads: whether the user named the heads: up to 12 of these are large, of others up to 3.

    Raises:
        UsageError: More large ones than anybody looks at are asked for.
    """
    few = FEW_MAPS
    if chosen_heads:
        few = FEW_CHOSEN
    # asked before the choice of parts: it also notes that the figure has these
    chosen = [part for part in ("grid", "matrix") if drawing.is_asked_for(part)]
    if not drawing.choice.parts:
        return ["matrix" if count <= few else "grid"]
    # so few maps are drawn large either way (see `draw_maps`): once is enough
    if count <= FEW_MAPS:
        return chosen[:1]
    if "matrix" in chosen and count > MOST_MATRICES:
        raise UsageError(
            "--figure-parts matrix: {count} heads are too many for a large map of each",
            expected="at most {most}, such as --figure-style heads=L0H0+L0H1, or grid",
            count=count,
            most=MOST_MATRICES,
        )
    return chosen


MOST_MATRICES = 48
"""Large maps of a figure."""


def largest_sizes(maps: Sequence[FigureMap]) -> dict[bool, float]:
    """The greatest number of the scale of maps that are signed (True), and of those that are not."""
    return {
        is_signed: _largest_size(
            [figure_map for figure_map in maps if figure_map.signed == is_signed]
        )
        for is_signed in (False, True)
    }


FEW_MAPS = 3
"""Maps that are drawn large, unless the others are asked for."""
FEW_CHOSEN = 12
"""The same of heads that were named."""


class MapGrid(NamedTuple):
    """How maps stand side by side.

    paper: the drawing, with a `room` as wide as one map may be.
    across: maps in a row.
    small: points along a map of many; None for large ones with words at their edges.
    edge: points left of the first map of a row.
    gap: points between two.
    by_layer: whether each layer begins a row, with its name at the left.
    """

    paper: Drawing
    across: int
    small: float | None
    edge: float
    gap: float
    by_layer: bool


def _map_grid(
    drawing: Drawing, maps: Sequence[FigureMap], across: int, *, is_large: bool
) -> MapGrid:
    """Lay out maps on a drawing's paper, at most `across` in a row, or as many as the user asked
    for. On narrow paper the heads of a layer take several rows where these are few.

    is_large: whether each is a large map with words at its edges, not one of many small ones.
    """
    drawing.offered.add("columns")  # this figure can use the word; where none can, it is refused
    columns = drawing.choice.columns
    if is_large:
        beside = columns or FEW_MAPS
        paper = drawing
        if columns is not None and not math.isinf(drawing.room):
            paper = replace(drawing, room=(drawing.room - LARGE_GAP * (columns - 1)) / columns)
        paper = _with_wider_cells(drawing, paper, maps[:beside])
        return MapGrid(paper, across=beside, small=None, edge=0.0, gap=LARGE_GAP, by_layer=False)
    across = columns or across
    # too narrow for names above the maps: a layer's name stands once, left of its row
    by_layer = columns is None and drawing.room < across * (NARROW_MAP + GAP)
    if by_layer:
        edge = 14.0  # for the layer's name, such as "L5"
        gap = SLIM
    else:
        edge = 0.0
        gap = GAP
    # no more beside each other than leaves the smallest size to each
    across = max(int(min(across, (drawing.room - edge + gap) / (LEAST + gap))), 1)
    if by_layer:
        # larger maps, on several lines a layer, if all layers are then at most 1.5 times as high as
        # the paper is wide; 19: points of a caption and of the gap between lines
        roomy_maps = max(int((drawing.room - edge + gap) / (ROOMY + gap)), 1)  # that fit a line
        lines = math.ceil(across / roomy_maps)
        fewer = math.ceil(across / lines)
        layers = {layer for layer, _ in (figure_map.short for figure_map in maps)}
        rows = lines * len(layers)
        if rows * ((drawing.room - edge) / fewer + 19) <= 1.5 * drawing.room:
            across = fewer
    small = min(SMALL, (drawing.room - edge + gap) / across - gap)
    return MapGrid(drawing, across, small, edge, gap, by_layer)


LARGE_GAP = 16.0
"""Points between two large maps."""
MOST_WIDENED = 1.5
"""How many times as large a map's cells become at most so that a row of maps fills the paper."""


def _with_wider_cells(drawing: Drawing, paper: Drawing, maps: Sequence[FigureMap]) -> Drawing:
    """The paper of one map with larger cells, where that fills the width of the drawing; `paper`
    itself where it has no width, where words do not fit, or where much more would be blank.

    drawing: its `room` is that of a row of maps.
    paper: its `room` is that of one map.
    maps: as many as may stand in a row.
    """
    if math.isinf(drawing.room) or not all(_shows_words(paper, one_map) for one_map in maps):
        return paper
    cells = 0.0  # points of the cells of the maps that fit into the first row
    blank = drawing.room
    for index, one_map in enumerate(maps):
        map_width = _map_width(paper, one_map)
        if index:
            map_width += LARGE_GAP
        if map_width > blank:
            break
        blank -= map_width
        cells += one_map.values.shape[1] * _worded_cell_size(paper, one_map)
    if cells == 0 or blank > cells * (MOST_WIDENED - 1):
        return paper
    return replace(paper, cell=paper.cell * (1 + blank / cells))


def _draw_rows(
    drawing: Drawing,
    maps: Sequence[FigureMap],
    top: float,
    grid: MapGrid,
    scale: str,
    high: Mapping[bool, float],
) -> float:
    """Draw the maps row by row; returns the lower edge of the last row.

    top: the upper edge of the first row, in points.
    scale: how values become colours, as `colour_cells` takes it.
    high: the greatest number of the scale, of maps that are signed and of those that are not.
    """
    left = grid.edge
    begin = top
    bottom = top
    layer = ""
    in_row = 0
    for index, figure_map in enumerate(maps):
        # maps made as wide as the paper allows may pass it by a rounding error
        right_edge = left + _map_width(grid.paper, figure_map) - 0.01
        # as many small maps stand in a row as fit; large ones differ in width
        is_wide = grid.small is None and right_edge > drawing.room
        map_layer, _ = figure_map.short
        is_new = grid.by_layer and map_layer != layer
        if index and (is_wide or is_new or in_row == grid.across):
            in_row = 0
            left = grid.edge
            row_gap = 14 if grid.small is None else 5  # points between two rows of maps
            begin = bottom + row_gap
            drawing.breaks.append(begin)
        if is_new:
            layer = map_layer
            if layer and grid.small is not None:
                name = f"{figure_map.mark}{layer}"
                # at half the height of the maps, which begin 14 points below their names
                drawing.text(0, begin + 14 + grid.small / 2, name, size=SIZE - 1, quiet=True)
        right, end = draw_map(
            grid.paper, figure_map, left, begin, scale, high[figure_map.signed], small=grid.small
        )
        in_row += 1
        left = right + grid.gap
        bottom = max(bottom, end)
    return bottom


def pooling_note(drawing: Drawing, bottom: float, block: int, scale: str, view: View) -> float:
    """Write below maps that a dot stands for several cells; returns where the note ends."""
    remarks = [say(view, "each dot: the largest of {size} × {size} cells", size=block)]
    if scale == ROOTS:
        remarks.append(say(view, "colours by square roots"))
    for line in broken_to_fit("; ".join(remarks), SIZE, drawing.room):
        drawing.text(0, bottom + 12, line, size=SIZE, quiet=True)
        bottom += 12
    return bottom + 2


def _largest_size(maps: Sequence[FigureMap]) -> float:
    """The largest magnitude in any of the maps; 1 where there is none."""
    sizes = [
        float(np.nanmax(np.abs(one_map.values)))
        for one_map in maps
        if np.isfinite(one_map.values).any()
    ]
    return max(sizes, default=1.0) or 1.0  # 1, to divide by, where all are 0


def draw_map(
    drawing: Drawing,
    figure_map: FigureMap,
    left: float,
    top: float,
    scale: str,
    high: float,
    *,
    small: float | None,
) -> tuple[float, float]:
    """Draw one map with its upper left corner at (left, top); returns its right and lower edge.
    Widens the drawing where slanted words stick out on the right.

    scale: how values become colours, as `colour_cells` takes it.
    high: the value of the strongest colour.
    small: the map's side in points among many maps; None for a large one with words at its edges.
    """
    rows, columns = figure_map.values.shape
    cell = _cell_size(drawing, figure_map, small)
    wide = columns * cell
    # points for words or ticks: `edge` left of the cells, `room` above them
    edge = 0.0
    room = 4.0
    words = None
    if small is None and _shows_words(drawing, figure_map):
        edge = _left_words_width(figure_map)
        words = _upper_words(figure_map, cell)
        room = words.height
    elif small is None:
        edge = _ticks_edge(figure_map, rows * cell)
        room = ticks_width(tick_names(figure_map.columns, wide)) + 8
    if small is None and any(figure_map.axes):
        room = max(room, 2 * AXIS_LINE)
    caption_width = _draw_caption(drawing, figure_map, left, top, wide + edge, small=small)
    # the upper left corner of the cells
    x = left + edge
    y = top + 14 + room  # 14: points of the caption's line
    area = MapArea(x, y, wide, rows * cell)
    draw_cells(drawing, figure_map, x, y, cell, scale, high, small=small)
    # bands and words count tokens, of which a pooled map's cell holds several: as many as there are
    # words. A map without words has a cell for each
    counts = len(figure_map.rows) or rows, len(figure_map.columns) or columns
    ticks_end = 0.0
    slant = 0.0  # points by which words or bands stick out on the right
    if words is not None:
        _write_left_words(drawing, figure_map, x, y, cell)
        slant = _write_upper_words(drawing, figure_map, x, y, cell, words)
    elif small is None:
        ticks_end = write_ticks(
            drawing,
            row_names(figure_map.rows, area.height, figure_map.row_positions),
            tick_names(figure_map.columns, wide),
            counts,
            area,
        )
    if small is None:
        for line, name in enumerate(reversed(figure_map.axis_names)):
            below = y - 4 - line * AXIS_LINE
            drawing.text(x - 4, below, name, size=SIZE, anchor="end")
    bottom = y + rows * cell
    if small is None:
        bottom = draw_bands(drawing, figure_map.row_bands, figure_map.column_bands, counts, area)
        bottom = max(bottom, ticks_end)
        slant = max(slant, bands_width(figure_map.row_bands))
    drawing.corner[0] = max(drawing.corner[0], x + wide + slant)
    # the caption begins at `left`, which is `edge` points left of x
    return x + max(wide + slant, caption_width * BOLD - edge), bottom


AXIS_LINE = 11.0
"""Points from one name of an axis to the other, one above the other."""


def draw_cells(
    drawing: Drawing,
    figure_map: FigureMap,
    x: float,
    y: float,
    cell: float,
    scale: str,
    high: float,
    *,
    small: float | None,
) -> None:
    """Draw the coloured cells of a map in a frame, whose upper left corner is (x, y).

    cell: points along one cell.
    scale: how values become colours, as `colour_cells` takes it; a signed map has its own.
    high: the value of the strongest colour.
    small: the map's side in points among many maps; None for a large one.
    """
    rows, columns = figure_map.values.shape
    if figure_map.signed:
        palette = drawing.theme.signed
    else:
        palette = drawing.theme.weights
    # by the largest magnitude, which of weights is the largest weight
    pooled = pool(figure_map.values, _pool_size(drawing, figure_map, small), "signed")
    colours = colour_cells(pooled, palette, "signed" if figure_map.signed else scale, high)
    drawing.cells(x, y, columns * cell, rows * cell, colours)
    drawing.rectangle(x, y, columns * cell, rows * cell, "none", stroke=drawing.theme.line)
    for row, column in figure_map.framed:
        left, upper = x + column * cell, y + row * cell
        ink = drawing.theme.series[1]
        drawing.rectangle(left, upper, cell, cell, "none", stroke=ink, thick=1.2)


def _ticks_edge(figure_map: FigureMap, tall: float) -> float:
    """Points that words take at the left edge of a map which is `tall` points high, and where only
    every n-th row or column has its word. The names of its axes stand above them."""
    rows = figure_map.rows
    longest = ticks_width(row_names(rows, tall, figure_map.row_positions))
    return max(longest + lines_width(len(rows), tall), _axis_names_width(figure_map)) + 6


def _axis_names_width(figure_map: FigureMap) -> float:
    """Points of the longer name of a map's axes; 0 where they have none."""
    return max(width(name, SIZE) for name in figure_map.axis_names)


def _draw_caption(
    drawing: Drawing,
    figure_map: FigureMap,
    left: float,
    top: float,
    room: float,
    *,
    small: float | None,
) -> float:
    """Write a map's caption above it; returns the width of the text in points.

    A large map has its whole caption, one of many its layer and head ("L5H11"), a narrow one its
    head alone ("H11").

    left, top: where the caption begins, in points.
    room: points along the map; a caption may be wider, up to a width that depends on the kind.
    small: the map's side in points among many maps; None for a large one.
    """
    name = figure_map.caption
    layer_and_head = figure_map.short
    is_large = small is None
    # a smaller map has a smaller type, and less of a caption
    allowed_width = 0.0  # points of a caption that may be wider than its map
    if small is None:
        size = 9.0
        # a caption wider than its map moves the next map away
        allowed_width = 300.0
        if math.isinf(drawing.room):
            allowed_width = 200.0
        allowed_width = min(allowed_width, drawing.room / BOLD)
    elif small >= NARROW_MAP:
        size = 7.5
        allowed_width = 60.0
        if any(layer_and_head):
            allowed_width = 0.0
            name = figure_map.short_name
    elif any(layer_and_head):
        size = 6.5
        name = layer_and_head[1]
        if figure_map.mark:
            name = f"H{name}"
    else:  # a map of no head stands last: its caption may reach beyond it
        size = 6.5
        allowed_width = 60.0
    caption = shorten_to_fit(name, size, max(room, allowed_width))
    drawing.text(left, top + 9, caption, size=size, bold=is_large, quiet=not is_large)
    return width(caption, size)


LEANING = 50
"""Degrees by which words above a map lean whose cells are too narrow for them."""
SLANT = 0.65
"""Points to the right that a leaning word takes for each point of its length: its cosine."""
RISE = 0.76
"""Points upwards that it takes for each: its sine."""
LONGEST_LEANING = 90.0
"""Points of a leaning or upright word that count: longer ones are cut."""
LONGEST_WORD = 86.0
"""Points to which a word at an edge is shortened."""


class UpperWords(NamedTuple):
    """How the words above a map stand.

    rotation: degrees, 0 for words that fit above their cells.
    height: points that they take.
    """

    rotation: int
    height: float


def _upper_words(figure_map: FigureMap, cell: float) -> UpperWords:
    """How the words above a map with cells of `cell` points stand: level where all fit over their
    cells, leaning where each has a cell wider than a line is high, else upright.
    """
    # 12 points for a line of words; a word that leans or stands begins 8 points above the cells
    widest = max((width(word, SIZE) for word in figure_map.columns), default=0)
    if widest <= CELL:
        return UpperWords(rotation=0, height=12)
    if cell >= 1.3 * SIZE:
        return UpperWords(LEANING, height=min(widest, LONGEST_LEANING) * RISE + 8)
    return UpperWords(rotation=90, height=min(widest, LONGEST_LEANING) + 8)


def _write_left_words(
    drawing: Drawing, figure_map: FigureMap, x: float, y: float, cell: float
) -> None:
    """Write the words of a map's rows to its left; (x, y) is its upper left corner, and its cells are
    `cell` points high."""
    size = min(SIZE, cell - 0.5)  # so that words of neighbouring rows do not touch
    for index, word in enumerate(figure_map.rows):
        text = shorten_to_fit(word, SIZE, LONGEST_WORD)
        below = y + (index + 0.5) * cell + 3  # 3: half of the letters' height
        drawing.text(x - 4, below, text, size=size, anchor="end", quiet=True)


def _write_upper_words(
    drawing: Drawing, figure_map: FigureMap, x: float, y: float, cell: float, words: UpperWords
) -> float:
    """Write the words of a map's columns above it, standing as `words` says; returns the points by
    which they lean over its right edge. (x, y) is the map's upper left corner, and its cells are
    `cell` points wide.
    """
    size = min(SIZE, cell - 0.5)  # so that words of neighbouring columns do not touch
    slant = 0.0
    for index, word in enumerate(figure_map.columns):
        text = shorten_to_fit(word, SIZE, LONGEST_WORD)
        middle = (index + 0.5) * cell
        if words.rotation == 0:
            drawing.text(x + middle, y - 4, word, size=SIZE, quiet=True, anchor="middle")
        elif words.rotation == 90:
            drawing.text(x + middle + 3, y - 4, text, size=size, quiet=True, rotation=90)
        else:
            drawing.text(x + middle + 2, y - 5, text, size=SIZE, quiet=True, rotation=LEANING)
            end = middle + 2 + width(text, SIZE) * SLANT
            slant = max(slant, end - len(figure_map.columns) * cell)
    return slant


def _shows_words(drawing: Drawing, figure_map: FigureMap) -> bool:
    """Whether a map's words are written at its edges: not of many, nor where their cells are too
    small for them.
    """
    rows, columns = figure_map.values.shape
    return (
        rows <= MOST_NAMES
        and columns <= MOST_LABELS
        # half a point less than cells of many rows have: the words are then written as small
        and _worded_cell_size(drawing, figure_map) >= LOW - 0.5
    )


def _left_words_width(figure_map: FigureMap) -> float:
    """Points of the words at a map's left edge, and of the names of its axes above them."""
    longest = max((width(word, SIZE) for word in figure_map.rows), default=0.0)
    return max(min(longest, 90.0), _axis_names_width(figure_map)) + 6


def _slant_width(figure_map: FigureMap) -> float:
    """Points by which the leaning words above a map may pass its right edge, where its cells are as
    small as cells with words get.
    """
    count = len(figure_map.columns)
    farthest = 0.0
    for index, word in enumerate(figure_map.columns):
        to_the_edge = (count - index - 0.5) * (LOW - 0.5)  # cells as `_shows_words` allows them
        length = min(width(word, SIZE), LONGEST_LEANING)
        # 2: it begins so far right of its cell's middle (see `_write_upper_words`)
        farthest = max(farthest, 2 + length * SLANT - to_the_edge)
    return farthest


def _worded_cell_size(drawing: Drawing, figure_map: FigureMap) -> float:
    """Points along a cell of a map whose words are written at its edges."""
    # as large as suits the number of rows, as a page is high, and as the paper is wide
    rows, columns = figure_map.values.shape
    if rows <= MOST_LABELS:
        natural = drawing.cell
    else:
        natural = LOW
    natural = min(natural, (drawing.choice.max_height - AROUND) / rows)
    beside = max(_slant_width(figure_map), bands_width(figure_map.row_bands))
    return min(natural, (drawing.room - _left_words_width(figure_map) - beside) / columns)


AROUND = 140.0
"""Points of a page that are not a large map's: title, words above it, legend, margins."""


def _cell_size(drawing: Drawing, figure_map: FigureMap, small: float | None) -> float:
    """Points along a cell of a map.

    small: the map's side in points among many maps; None for a large one.
    """
    largest = max(figure_map.values.shape)
    if small is not None:
        return small / largest
    if _shows_words(drawing, figure_map):
        return _worded_cell_size(drawing, figure_map)
    # every n-th word is written, and other words at other heights: a smaller map's may be longer
    large = min(LARGE, max(drawing.choice.max_height - AROUND, SMALL))
    for _ in range(TICK_TRIES):
        tall = large * figure_map.values.shape[0] / largest
        beside = _ticks_edge(figure_map, tall) + bands_width(figure_map.row_bands)
        if large + beside <= drawing.room:
            break
        large = drawing.room - beside
    # where the width is unbounded, a map of a long text is larger rather than illegible
    if math.isinf(drawing.room):
        return max(large / largest, SMALLEST_CELL)
    return large / largest


def _map_width(drawing: Drawing, figure_map: FigureMap) -> float:
    """Points from left to right that a map by itself takes."""
    cell = _cell_size(drawing, figure_map, small=None)
    rows, columns = figure_map.values.shape
    bands = bands_width(figure_map.row_bands)
    if _shows_words(drawing, figure_map):
        beside = _left_words_width(figure_map) + max(_slant_width(figure_map), bands)
    else:
        beside = _ticks_edge(figure_map, rows * cell) + bands
    return columns * cell + beside


def _pool_size(drawing: Drawing, figure_map: FigureMap, small: float | None) -> int:
    """How many cells along either axis of a map are drawn as one, so that none is smaller than a
    point (half a point in a narrow figure, which is for paper): renderers drop smaller cells, and
    thin lines of a map vanish.
    """
    dots = _cell_size(drawing, figure_map, small) * (1 if math.isinf(drawing.room) else 2)
    largest = max(figure_map.values.shape)
    return pool_size(largest * dots, largest)


def pool_size(dots: float, cells: int) -> int:
    """How many of `cells` neighbouring cells are drawn as one dot so that they take at most `dots`
    dots: 250 cells on 100 dots are drawn 3 by 3."""
    return math.ceil(cells / max(round(dots), 1))


def colour_cells(
    values: np.ndarray[Any, Any], palette: Palette, scale: str, high: float
) -> np.ndarray[Any, Any]:
    """RGBA of each cell, uint8 [row, column, 4]; hidden ones are clear.

    Args:
        values: [row, column]; NaN is hidden.
        palette: the colours from the smallest value to the largest.
        scale: "linear", "log", "row", "signed" (from −high) or that of square roots.
        high: the value of the last colour; with "row" each row has its own.
    """
    if scale == "signed":
        low = -high
    elif scale == "row":  # each row has ends of its own
        low = None
    else:
        low = 0.0
    if scale == ROOTS:
        colour_scale = "linear"
    else:
        colour_scale = scale
    shares = normalise(values, colour_scale, low=low, high=None if scale == "row" else high)
    if scale == ROOTS:
        shares = np.sqrt(shares)
    table = _colour_table(palette)
    pixels = np.zeros((*values.shape, 4), np.uint8)
    visible = np.isfinite(shares)
    pixels[visible, :3] = table[np.rint(shares[visible] * (LEVELS - 1)).astype(int)]
    pixels[visible, 3] = 255
    return pixels


@cache
def _colour_table(palette: Palette) -> np.ndarray[Any, Any]:
    """The colours of all levels, uint8 [level, 3]: making them for every small map took half of a
    figure's time.
    """
    return np.array([palette.rgb(level / (LEVELS - 1)) for level in range(LEVELS)], np.uint8)


def draw_legend(
    drawing: Drawing, top: float, high: float, scale: str, view: View, *, meaning: str = ""
) -> float:
    """Draw the bar of colours from the least number to the greatest, on the scale of the maps.
    Returns where it ends.

    top: where it begins, in points from the upper edge.
    high: the greatest number; the least is 0, or −high where the scale is "signed".
    meaning: what the numbers are, written behind the bar, or below it where the paper is narrow;
        "" for nothing.
    """
    is_signed = scale == "signed"
    if is_signed:
        palette = drawing.theme.signed
    else:
        palette = drawing.theme.weights
    least = -high if is_signed else 0.0
    steps = np.linspace(least, high, 64)[None]  # a map of one row whose cells are the colours
    write = writer([high], precision=2)
    largest = write(high)
    if is_signed:
        low = f"−{largest}"
    else:
        low = "0"
    left = width(low, SIZE) + 6
    drawing.text(0, top + 6, low, size=SIZE, quiet=True)
    # the bar: 96 points long, 6 high; 6 points before and behind it, 10 before the meaning
    drawing.cells(left, top, 96, 6, colour_cells(steps, palette, scale, high))
    drawing.rectangle(left, top, 96, 6, "none", stroke=drawing.theme.line)
    if scale == "row":
        end = say(view, "row's largest")
    elif is_signed:
        end = f"+{largest}"
    else:
        end = largest
    drawing.text(left + 102, top + 6, end, size=SIZE, quiet=True)
    if not meaning:
        return top + 8
    behind = left + 102 + width(end, SIZE) + 10
    if behind + width(meaning, SIZE) <= drawing.room:
        drawing.text(behind, top + 6, meaning, size=SIZE, quiet=True)
        return top + 8
    drawing.text(left, top + 17, meaning, size=SIZE, quiet=True)
    return top + 19


# Metrics of heads: bars beside the names of a few heads, a layers × heads grid of each metric for
# many.

FEW = 24
"""Heads that get a row each."""
BAR, COLUMN = 44.0, 96.0
"""Length of the longest bar, and from one metric to the next."""
ACROSS = 3
"""Grids in a row."""
GRID_AROUND, LEAST_CELL, SMALLEST_ROW = 64.0, 2.5, 7.0
"""Points of a page that are not a grid's, along the smallest cell of one, and along the smallest whose
layers all have their number."""


class FigureHead(Struct, frozen=True):
    """A head's metrics by name, None where no row could be used.

    uniform: the same metrics for uniform weights.
    """

    layer: int
    head: int
    name: str
    values: Mapping[str, float | None]
    uniform: Mapping[str, float | None]


def draw_metrics(
    drawing: Drawing,
    heads: Sequence[FigureHead],
    titles: Mapping[str, str],
    top: float,
    *,
    line_note: str,
) -> float:
    """Draw metrics of heads: a row of bars a head where these are few, else a layers × heads grid a
    metric. A metric that no head has a value of is left out.

    titles: the metrics drawn, each with its title.
    top: where they begin, in points from the upper edge.
    line_note: what the line across a bar stands for.

    Returns where they end.
    """
    if not drawing.shows("metrics"):
        return top
    titles = {
        metric: title
        for metric, title in titles.items()
        if any(head.values.get(metric) is not None for head in heads)
    }
    if not titles:
        return top
    if len(heads) <= FEW or len({head.layer for head in heads}) == 1:
        bottom = _metric_rows(drawing, heads, titles, top)
        if any(head.uniform for head in heads):
            drawing.text(0, bottom + 12, line_note, size=SIZE, quiet=True)
        return bottom + 14
    return _metric_grids(drawing, heads, titles, top)


def _metric_rows(
    drawing: Drawing, heads: Sequence[FigureHead], titles: Mapping[str, str], top: float
) -> float:
    """Draw a row for each head with a bar for each metric; metrics that do not fit side by side
    follow below. Returns where they end.

    titles: the metrics drawn, each with its title.
    top: where they begin, in points from the upper edge.
    """
    # names take 180 points at most, and half of narrow paper
    edge = min(max(width(head.name, 9) for head in heads), 180, 0.5 * drawing.room) + 12
    beside = max(int(min(len(titles), (drawing.room - edge) / COLUMN)), 1)
    metrics = list(titles.items())
    # 12 points between two bands, and none below the last
    for start in range(0, len(metrics), beside):
        top = _metric_band(drawing, heads, metrics[start : start + beside], edge, top) + 12
    return top - 12


def _metric_band(
    drawing: Drawing,
    heads: Sequence[FigureHead],
    titles: Sequence[tuple[str, str]],
    edge: float,
    top: float,
) -> float:
    """Draw bars of metrics that stand side by side, a row for each head. Returns where they end.

    titles: (metric, title) of each.
    edge: points of the heads' names on the left.
    top: the upper edge, in points.
    """
    # the titles take 14 points; below each begins a line, with its letters' feet 9 points lower
    for index, head in enumerate(heads):
        name = shorten_to_fit(head.name, 9, edge - 12)
        drawing.text(edge - 10, top + 14 + index * LINE + 9, name, anchor="end")
    for place, (metric, title) in enumerate(titles):
        x = edge + place * COLUMN
        drawing.text(x, top + 6, shorten_to_fit(title, SIZE, COLUMN - 6), size=SIZE, bold=True)
        sizes = [abs(value) for head in heads if (value := head.values.get(metric)) is not None]
        largest = max(sizes, default=0.0) or 1.0  # 1, to divide by, where all are 0
        for index, head in enumerate(heads):
            y = top + 14 + index * LINE
            value = head.values.get(metric)
            drawing.rectangle(x, y + 2, BAR, 8, drawing.theme.ground)
            if value is None:
                drawing.text(x + BAR + 5, y + 9, "–", size=SIZE, quiet=True)
                continue
            series = drawing.theme.series[0 if value >= 0 else 1]
            drawing.rectangle(x, y + 2, BAR * abs(value) / largest, 8, series)
            uniform = head.uniform.get(metric)
            if uniform is not None and abs(uniform) <= largest:  # a line of 1 point across the bar
                middle = x + BAR * abs(uniform) / largest
                drawing.rectangle(middle - 0.5, y, wide=1, tall=12, fill=drawing.theme.ink)
            drawing.text(x + BAR + 5, y + 9, _value_text(value), size=SIZE, quiet=True)
    return top + 14 + len(heads) * LINE


def _ends(grid: np.ndarray[Any, Any]) -> tuple[float, float]:
    """The smallest and the largest number of a grid; 0 and 0 where it has only NaN."""
    visible = grid[np.isfinite(grid)]
    if visible.size:
        return (float(visible.min()), float(visible.max()))
    return (0.0, 0.0)


def _span_text(grid: np.ndarray[Any, Any]) -> str:
    """The smallest and the largest number of a grid as text, such as "0.02 – 0.61"."""
    low, high = _ends(grid)
    return f"{_value_text(low)} – {_value_text(high)}"


def _metric_grids(
    drawing: Drawing, heads: Sequence[FigureHead], titles: Mapping[str, str], top: float
) -> float:
    """Draw a layers × heads grid of each metric, side by side as they fit. Returns where they end.

    titles: the metrics drawn, each with its title.
    top: where they begin, in points from the upper edge.
    """
    layers = sorted({head.layer for head in heads})
    numbers = sorted({head.head for head in heads})
    edge = max(width(str(layer), SIZE) for layer in layers) + 6
    # a grid is at most 200 points wide, and as high as a page
    widest = min(200.0, drawing.room - edge) / len(numbers)
    tallest = (drawing.choice.max_height - GRID_AROUND) / len(layers)
    cell = min(CELL, widest, max(tallest, LEAST_CELL))
    grids = {
        metric: head_grid((row.layer, row.head, row.values.get(metric)) for row in heads).values
        for metric in titles
    }
    spans = {metric: _span_text(grid) for metric, grid in grids.items()}
    # few heads make a narrow grid: its title and its span, 9 points apart, stand above it all the
    # same
    needed = max(
        width(title, SIZE) * BOLD + 9 + width(spans[metric], SIZE)
        for metric, title in titles.items()
    )
    wide = max(edge + len(numbers) * cell, min(needed, drawing.room)) + GRID_GAP
    tall = GRID_TOP + len(layers) * cell + GRID_BELOW
    across = max(int(min(ACROSS, (drawing.room + GRID_GAP) / wide)), 1)
    for place, (metric, title) in enumerate(titles.items()):
        row, column = divmod(place, across)
        x = column * wide
        y = top + row * tall
        if column == 0:
            drawing.breaks.append(y)

        # the title on the left, the span of numbers on the right
        span = spans[metric]
        room = wide - GRID_GAP - width(span, SIZE) - 8
        drawing.text(x, y + 8, shorten_to_fit(title, SIZE, room / BOLD), size=SIZE, bold=True)
        drawing.text(x + wide - GRID_GAP, y + 8, span, size=SIZE, quiet=True, anchor="end")

        grid_area = MapArea(x + edge, y + GRID_TOP, len(numbers) * cell, len(layers) * cell)
        _write_grid_numbers(drawing, layers, numbers, grid_area)
        _draw_grid_cells(drawing, grids[metric], grid_area)
    return top + math.ceil(len(titles) / across) * tall


GRID_TOP, GRID_BELOW, GRID_GAP = 24.0, 16.0, 22.0
"""Points above a grid for its title and the heads' numbers, below it, and between two grids."""
SMALLEST_COLUMN = 11.0
"""Points along the smallest cell of a grid whose heads all have their number."""


def _write_grid_numbers(
    drawing: Drawing, layers: Sequence[int], heads: Sequence[int], area: MapArea
) -> None:
    """Write the numbers of the layers left of a grid and those of the heads above it, only every
    fourth where cells are small.

    area: where the grid's cells lie.
    """
    cell = area.width / len(heads)
    for index, layer in enumerate(layers):
        if cell >= SMALLEST_ROW or index % 4 == 0:
            below = area.top + (index + 0.5) * cell + 3  # 3: half of the letters' height
            drawing.text(area.left - 4, below, str(layer), size=7, quiet=True, anchor="end")
    for index, head in enumerate(heads):
        if cell >= SMALLEST_COLUMN or index % 4 == 0:
            middle = area.left + (index + 0.5) * cell
            drawing.text(middle, area.top - 4, str(head), size=7, quiet=True, anchor="middle")


def _draw_grid_cells(drawing: Drawing, grid: np.ndarray[Any, Any], area: MapArea) -> None:
    """Draw the cells of a grid [layer, head] in a frame, coloured from its least number to its
    greatest; NaN is blank.

    area: where the cells lie.
    """
    low, high = _ends(grid)
    extent = high - low or 1.0  # 1, to divide by, where all numbers are the same
    colours = colour_cells(grid - low, drawing.theme.weights, "linear", extent)
    line = drawing.theme.line
    drawing.rectangle(area.left, area.top, area.width, area.height, "none", stroke=line)
    drawing.cells(area.left, area.top, area.width, area.height, colours)


def _value_text(value: float) -> str:
    """A metric's number with two digits after the point and a true minus sign."""
    return f"{value:.2f}".replace("-", "−")
