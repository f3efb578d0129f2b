"""A shaded table of numbers with named rows and columns, its colours, its window where it is large;
grids of heads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from msgspec import UNSET, Struct

from attncli.draw.lines import (
    FAINT,
    Line,
    Lines,
    Piece,
    fit_to_view,
    heading,
    localize,
    remark,
    stack,
    stack_spaced,
)
from attncli.draw.numbers import Write, without_zero, writer
from attncli.draw.safe import cells, cut, label, pad
from attncli.draw.view import View
from attncli.language import Message, listing, message

NDArray = np.ndarray[Any, Any]
Rgb = tuple[int, int, int]

LEVELS = 48
"""Distinct colours of a palette; more would only cost time to parse."""

RAMP = "·░▒▓█"
RAMP_ASCII = ".:-=+*#%@"
"""From low to high; a masked cell is blank, so the lowest level is not."""
BAR_STEP = 0.72
"""Where in a palette of weights the colour of bars stands."""
BELOW, AROUND, ABOVE = "-=≡", "·", "░▒█"
BELOW_ASCII, AROUND_ASCII, ABOVE_ASCII = "-=%", ".", "+*#"
"""Below 0, about 0, above 0; from small to large magnitude."""
NEAR = 1 / 8
"""Share of the largest magnitude up to which a value is about 0."""


class Palette(Struct, frozen=True):
    """Colours along [0, 1], interpolated between `anchors` (RRGGBB) in sRGB, or the anchors alone
    if `is_stepped`.
    """

    name: str
    anchors: tuple[str, ...]
    is_stepped: bool = False

    def rgb(self, fraction: float) -> Rgb:
        """The colour at `fraction`, clipped to [0, 1]; NaN counts as 0."""
        clipped = min(max(0.0, fraction), 1.0)  # max() in this order makes NaN 0
        return _rgb_of_level(self, round(clipped * (LEVELS - 1)))

    def colour(self, fraction: float) -> str:
        """The colour as `#rrggbb`."""
        return "#{:02x}{:02x}{:02x}".format(*self.rgb(fraction))

    def style(self, fraction: float) -> str:
        """A Rich style: the colour behind, and black or white in front, whichever reads better
        (contrast at least 4.5)."""
        return f"{ink(self.rgb(fraction))} on {self.colour(fraction)}"


@cache
def _rgb_of_level(palette: Palette, level: int) -> Rgb:
    """The colour of a palette at one of its `LEVELS` levels, 0 to `LEVELS` - 1: an anchor, or a
    mixture of the two anchors around that level."""
    if palette.is_stepped:
        red, green, blue = bytes.fromhex(palette.anchors[level * len(palette.anchors) // LEVELS])
        return red, green, blue
    place = level / (LEVELS - 1) * (len(palette.anchors) - 1)
    index = min(int(place), len(palette.anchors) - 2)
    part = place - index  # how far from the lower anchor to the upper one
    lower = bytes.fromhex(palette.anchors[index])
    upper = bytes.fromhex(palette.anchors[index + 1])
    red, green, blue = (
        round(low + (high - low) * part) for low, high in zip(lower, upper, strict=True)
    )
    return red, green, blue


def luminance(rgb: Rgb) -> float:
    """Relative luminance in [0, 1]. Source: WCAG 2.1."""

    def linear(byte: int) -> float:
        """The light of an sRGB channel, from its byte."""
        channel = byte / 255
        if channel <= 0.04045:
            return channel / 12.92
        return ((channel + 0.055) / 1.055) ** 2.4

    red, green, blue = map(linear, rgb)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def ink(rgb: Rgb) -> str:
    """`#000000` or `#ffffff`, whichever has the higher contrast on `rgb`."""
    light = luminance(rgb)
    # WCAG's contrast ratios with black, of luminance 0, and with white, of luminance 1
    contrast_with_black = (light + 0.05) / 0.05
    contrast_with_white = 1.05 / (light + 0.05)
    if contrast_with_black >= contrast_with_white:
        return "#000000"
    return "#ffffff"


AMBER = {
    "truecolor": Palette(
        "amber", ("17130a", "4d3d17", "80641b", "b8891d", "e8b22c", "ffd95c", "fff3b8")
    ),
    "256": Palette(
        "amber-256", ("000000", "5f5f00", "875f00", "af8700", "d7af00", "ffd700", "ffffaf"), True
    ),
    "16": Palette("amber-16", ("000000", "aa5500", "ffff55", "ffffff"), is_stepped=True),
}
"""Weights, in maps, tables and behind words, on a dark terminal: one hue, lighter for more; 0
recedes into the ground.

By how many colours the terminal has. Where they are few, the steps are colours that it has, set in
order of lightness by hand: the nearest ones to colours between would go down and up again."""

AMBER_LIGHT = {
    "truecolor": Palette(
        "amber-light", ("fffdf8", "ffefc2", "ffdd80", "f7bd3c", "d69112", "9c6200", "5e3800")
    ),
    "256": Palette(
        "amber-light-256",
        ("ffffff", "ffffaf", "ffd787", "ffaf00", "d78700", "af5f00", "875f00", "5f5f00"),
        is_stepped=True,
    ),
    "16": Palette("amber-light-16", ("ffffff", "ffff55", "aa5500", "000000"), is_stepped=True),
}
"""The same on a light terminal, darker for more."""

BLUE_RED = {
    "truecolor": Palette(
        "blue-red", ("67a9ff", "3f78c4", "244a7c", "1c1f26", "7a3226", "c45a3c", "ff8f66")
    ),
    "256": Palette(
        "blue-red-256",
        ("5fafff", "0087d7", "005faf", "000087", "000000", "5f0000", "af0000", "d75f5f", "ff8787"),
        is_stepped=True,
    ),
    "16": Palette(
        "blue-red-16", ("5555ff", "0000aa", "000000", "aa0000", "ff5555"), is_stepped=True
    ),
}
"""Below 0 blue, about 0 dark, above 0 red: on a dark terminal what is near 0 recedes."""

BLUE_RED_LIGHT = {
    "truecolor": Palette(
        "blue-red-light", ("2166ac", "67a9cf", "d1e5f0", "f7f7f7", "fddbc7", "ef8a62", "b2182b")
    ),
    "256": Palette(
        "blue-red-light-256",
        ("005faf", "5f87d7", "87afff", "d7d7ff", "ffffff", "ffd7d7", "ffafaf", "d75f5f", "af0000"),
        is_stepped=True,
    ),
    "16": Palette(
        "blue-red-light-16", ("0000aa", "5555ff", "ffffff", "ff5555", "aa0000"), is_stepped=True
    ),
}
"""Below 0 blue, 0 pale, above 0 red. Source: ColorBrewer RdBu, Brewer and Harrower, 2002."""


def palette_of(view: View, *, signed: bool = False) -> Palette:
    """The palette of weights, or of signed values, for the view's terminal: its ground, and how
    many colours it has.
    """
    if signed:
        return (BLUE_RED_LIGHT if view.light else BLUE_RED)[view.colors]
    return (AMBER_LIGHT if view.light else AMBER)[view.colors]


def tint(fraction: float, view: View) -> str:
    """The Rich style of a word that gets this share of a query's weight, 0 to 1: the colour that the
    weight has in maps and tables."""
    return palette_of(view).style(fraction)


def bar_style(view: View) -> str:
    """The Rich style of bars: a strong colour of the palette of weights, so that weights have one hue
    everywhere; "" for a view without colour.

    A terminal's own "yellow" would be brown on some and pale on others. The contrast with the
    terminal's background is at least 3.
    """
    if not view.color:
        return ""
    return palette_of(view).colour(BAR_STEP)


def shade(fraction: float, *, ascii: bool) -> str:
    """The character that stands for `fraction`, clipped to [0, 1], where there is no colour."""
    ramp = RAMP_ASCII if ascii else RAMP
    return ramp[min(int(max(fraction, 0.0) * len(ramp)), len(ramp) - 1)]


def sign(fraction: float, *, ascii: bool) -> str:
    """The character that stands for a value of a signed scale where there is no colour.

    fraction: 0 for the most negative value, 0.5 for 0, 1 for the most positive; clipped to these.
    """
    size = abs(2 * min(max(fraction, 0.0), 1.0) - 1)  # the magnitude, 0 to 1
    below, around, above = (
        (BELOW_ASCII, AROUND_ASCII, ABOVE_ASCII) if ascii else (BELOW, AROUND, ABOVE)
    )
    if size < NEAR:
        return around
    ramp = above if fraction > 0.5 else below
    return ramp[min(int((size - NEAR) / (1 - NEAR) * len(ramp)), len(ramp) - 1)]


def normalise(
    values: NDArray, scale: str, *, low: float | None = None, high: float | None = None
) -> NDArray:
    """Values [row, column] brought to [0, 1] as float64; anything not finite (masked) is NaN.

    scale: "linear" from 0, or from the least value if that is below 0, to the greatest; "row" the
        same within each row; "log" over the three decades below the greatest, 0 and less at the
        bottom (values with negatives have no logarithm and are treated as "linear"); "signed" puts
        0 at 0.5 and the largest magnitude at 0 or 1.
    low, high: the range to use in place of the values' own; not by "row", where each row has its
        own. A range without extent gives 0 ("signed": 0.5). Empty arrays stay empty.

    Raises ValueError for another name.
    """
    if scale not in ("linear", "log", "row", "signed"):
        raise ValueError(f"no scale named {scale!r}")
    array = np.asarray(values, np.float64)
    array = np.where(np.isfinite(array), array, np.nan)
    if not np.isfinite(array).any():
        return array
    least = np.nanmin(array) if low is None else low
    most = np.nanmax(array) if high is None else high
    if scale == "signed":
        size = max(abs(least), abs(most))
        if size > 0:
            return np.clip(0.5 + array / (2 * size), 0, 1)
        return np.where(np.isnan(array), np.nan, 0.5)
    if scale == "row":
        without_nan = np.where(np.isnan(array), np.inf, array)
        least = np.minimum(without_nan.min(axis=1, keepdims=True), 0.0)
        most = np.where(np.isnan(array), -np.inf, array).max(axis=1, keepdims=True)
    elif scale == "log" and least >= 0:
        if most <= 0:  # nothing but zeros, which have no logarithm
            return _shares_of_range(array, 0.0, 0.0)
        top = np.log10(most)
        bottom = top - 3
        with np.errstate(divide="ignore"):  # of 0: −inf, raised to the bottom
            exponents = np.maximum(np.log10(array), bottom)
        return _shares_of_range(exponents, bottom, top)
    else:
        least = min(least, 0.0)
    return _shares_of_range(array, least, most)


def _shares_of_range(array: NDArray, low: NDArray | float, high: NDArray | float) -> NDArray:
    """Where values lie between low and high, in [0, 1], NaN where they are NaN; 0 in a range
    without extent.
    """
    # in a range without extent, 0 and 1 stand in for its ends, so that nothing is divided by 0
    extent = np.asarray(high - low, np.float64)
    usable = np.isfinite(extent) & (extent > 0)
    scaled = (array - np.where(usable, low, 0.0)) / np.where(usable, extent, 1.0)
    return np.where(np.isnan(array), np.nan, np.clip(np.where(usable, scaled, 0.0), 0, 1))


# Which rows or columns are shown when not all fit, and how that is said.

ShownPositions = list[int | None]
"""Positions to show, in order; None where some are left out."""


def first_and_last(count: int, room: int, *, last: int | None = None) -> ShownPositions:
    """All of `count` positions; where these are more than `room` (at least 2), that many of the first
    and the last ones, with None between them for the gap.

    last: how many of the last ones; half of all that are shown if None.
    """
    shown = max(room, 2)
    if count <= shown:
        return list(range(count))
    if last is None:
        last = shown // 2
    return [*range(shown - last), None, *range(count - last, count)]


def strongest(values: np.ndarray[Any, Any], count: int) -> list[int]:
    """The indices, in ascending order, of the `count` rows of a matrix [row, column] that have the
    largest entries; of equal rows, only one counts before all others are taken. NaN is no entry. All
    rows, where there are no more."""
    comparable = np.where(np.isnan(values), -np.inf, values)
    largest = comparable.max(axis=1, initial=-np.inf)
    _, first_of_equal = np.unique(comparable, axis=0, return_index=True)
    is_repeated = np.ones(len(comparable), bool)
    is_repeated[first_of_equal] = False
    # lexsort's last key counts first
    order = np.lexsort((-largest, is_repeated))
    return sorted(order[: max(count, 1)].tolist())


def panels(widths: Sequence[int], room: int) -> list[list[int]]:
    """Divide the columns of a wide table into consecutive groups that are drawn one below the other:
    as few as possible, about equally wide, with at least one column in each.

    Args:
        widths: Cells of each column.
        room: Cells that a group may take.

    Returns:
        The indices of the columns of each group.
    """
    groups = _fill_groups(widths, room)
    # the narrowest limit that needs no more groups makes them about equally wide
    least = math.ceil(sum(widths) / max(len(groups), 1))
    for limit in range(least, room):
        even_groups = _fill_groups(widths, limit)
        if len(even_groups) == len(groups):
            return even_groups
    return groups


def _fill_groups(widths: Sequence[int], room: int) -> list[list[int]]:
    """The indices of consecutive columns in groups, each filled up to `room` cells; a column wider
    than that has a group of its own."""
    groups: list[list[int]] = []
    group_width = 0
    for index, width in enumerate(widths):
        if not groups or group_width + width > room:
            groups.append([])
            group_width = 0
        groups[-1].append(index)
        group_width += width
    return groups


WINDOWS = {
    "rows": message("rows {spans} of {count}"),
    "dimensions": message("dimensions {spans} of {count}"),
    "pairs": message("pairs {spans} of {count}"),
}
"""Which rows or columns of a table are shown."""


def window_text(positions: ShownPositions, numbers: Sequence[int], what: str) -> str:
    """A text on which rows or columns are shown, such as `rows 0–6, 39 of 40`; "" when nothing is
    left out.

    positions: what is shown, None for a gap.
    numbers: all row or column numbers.
    what: "rows", "dimensions" or "pairs".
    """
    if None not in positions:
        return ""
    gap = positions.index(None)
    before_gap = [index for index in positions[:gap] if index is not None]
    after_gap = [index for index in positions[gap + 1 :] if index is not None]
    spans = []
    for part in (before_gap, after_gap):
        if not part:
            continue
        first = numbers[part[0]]
        last = numbers[part[-1]]
        spans.append(f"{first}" if first == last else f"{first}–{last}")
    # the sentence for what the rows or columns are, with its numbers filled in
    return Message(WINDOWS[what].template, {"spans": listing(spans), "count": len(numbers)})


def strongest_text(rows: tuple[int, int], columns: tuple[int, int], *, by_size: bool) -> str:
    """A text on how many rows and columns are shown, such as `12 of 40 rows shown, those with the
    largest values; …`; "" where all are.

    rows, columns: how many are shown, and how many there are.
    by_size: whether those farthest from 0 were chosen, not those with the largest values.
    """
    parts = []
    shown, count = rows
    if shown < count:
        parts.append(message("{shown} of {count} rows", shown=shown, count=count))
    shown, count = columns
    if shown < count:
        parts.append(message("{shown} of {count} columns", shown=shown, count=count))
    if not parts:
        return ""
    if by_size:
        template = message("{parts} shown, those farthest from 0; --full shows all")
    else:
        template = message("{parts} shown, those with the largest values; --full shows all")
    return Message(template.template, {"parts": listing(parts)})


ROWS = 24
"""Rows that are shown unless the view is full."""
STRONGEST = 12
"""Rows that are shown of more than `ROWS`: those with the largest entries."""
NAME = 14
"""Cells that a name may take."""
LARGEST = "   largest"
"""The name of the column that names each row's largest."""
PEAK_NAME = 6
"""Cells that the name of a row's largest may take beside the row."""


def as_matrix(values: Any) -> NDArray:
    """Nested lists (None where masked) or an array as float64 [row, column]; what is not finite
    becomes NaN. One axis becomes a column, axes after the first become one; without values, there
    are as many empty rows as `values` has.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2:
        if array.size:
            array = array.reshape(len(values), -1)
        else:
            array = np.zeros((len(values), 0))
    return np.where(np.isfinite(array), array, np.nan)


def visible(weights: Any, scores: Any) -> NDArray:
    """Weights [query, key] with NaN where the score is masked, so that a key that is hidden and one
    whose weight is 0 look different.

    scores: [query, key], NaN where masked; None or UNSET where they are not known, and the weights
        are returned as they are.
    """
    matrix = as_matrix(weights)
    if scores is None or scores is UNSET:
        return matrix
    return np.where(np.isnan(as_matrix(scores)), np.nan, matrix)


def matrix(
    values: Any,
    rows: Sequence[str] | None,
    columns: Sequence[str] | None,
    view: View,
    *,
    shade: bool = True,
    mark_max: bool = True,
    limits: tuple[float, float] | None = None,
    signed: bool = False,
    empty: str = "·",
    bare: bool = False,
    by_size: bool = False,
    title: str = "",
    note: str = "",
    row_numbers: Sequence[int] | None = None,
    column_numbers: Sequence[int] | None = None,
) -> Lines:
    """A table of numbers [row, column] under their names, each shaded by its value, each row's
    largest marked: bold and underlined, or `*` without colour.

    Of more than `ROWS` rows those with the largest entries are shown, and of columns that do not fit
    likewise; a line says so, and each row names its largest if there is room. A full view shows all
    of them, in panels. Lines still too long (very many digits) are cut, with `…`. Without rows or
    columns: "(empty)".

    rows, columns: token texts, made safe here; None for what has only a number.
    row_numbers, column_numbers: their positions, 0… if None.
    shade: whether values have colours.
    mark_max: whether each row's largest is marked.
    limits: the values of the weakest and the strongest colour, such as 0 and 1 for weights; the
        values' own if None.
    signed: whether the colours tell below 0 from above, such as for scores.
    by_size: whether the largest number is the one farthest from 0, as it is of effects and
        differences; of scores it is not, since the softmax takes the highest.
    bare: whether numbers below 1 stand without their zero, as `.105`: a cell fewer.
    empty: what masked (NaN, None) cells show.
    """
    array = as_matrix(values)
    top = heading(title, note, view)
    if array.size == 0:
        return stack(top, remark("(empty)", view))
    write = writer(array, view.precision)
    if bare:
        write = without_zero(write)
    fractions = None
    if shade and view.color:
        scale = "signed" if signed else view.scale_colors
        low, high = limits or (None, None)
        fractions = normalise(array, scale, low=low, high=high)
    peaks: list[int | None] = [None] * len(array)
    if mark_max:
        peaks = [_peak(row, by_size=by_size) for row in array]
    # a row whose numbers all read as 0 has no largest
    for number, place in enumerate(peaks):
        if place is not None and _is_written_as_zero(write(float(array[number, place]))):
            peaks[number] = None
    grid = Grid(
        values=array,
        rows=_labels(rows, array.shape[0], view),
        columns=_labels(columns, array.shape[1], view),
        row_numbers=list(range(array.shape[0]) if row_numbers is None else row_numbers),
        column_numbers=list(range(array.shape[1]) if column_numbers is None else column_numbers),
        fractions=fractions,
        palette=palette_of(view, signed=signed),
        by_size=by_size,
        peaks=peaks,
        empty="." if view.ascii else empty,
        write=write,
        view=view,
    )
    return fit_to_view(stack(top, grid.draw()), view)


def _is_written_as_zero(number: str) -> bool:
    """Whether the text of a number reads as 0, such as `-0.00`."""
    return not number.strip("+-0.")


def _labels(texts: Sequence[str] | None, count: int, view: View) -> list[str]:
    """Names of rows or columns: the texts as labels, or `count` empty ones where there are no
    texts.
    """
    if texts is None:
        return [""] * count
    return [label(text, ascii=view.ascii) for text in texts]


def widest_number(values: NDArray, write: Write) -> int:
    """Cells of the widest of finite values as written; 0 where none is finite."""
    if not np.isfinite(values).any():
        return 0
    return max(len(write(float(bound(values)))) for bound in (np.nanmin, np.nanmax))


def _peak(row: NDArray, *, by_size: bool) -> int | None:
    """The column of a row's first largest entry, or of the one farthest from 0; None when all are
    masked or all visible ones are 0 (which is a row that sees nothing)."""
    visible = row[np.isfinite(row)]
    if visible.size and visible.any():
        return int(np.nanargmax(np.abs(row) if by_size else row))
    return None


class Grid(Struct, frozen=True, dict=True):
    """A matrix with its names, format of numbers and shades, from which `draw` chooses the rows and
    columns that fit.

    by_size: whether the largest numbers are those farthest from 0.
    fractions: [row, column], where each value lies in the palette, 0 to 1; None for no colours.
    peaks: the column of each row's largest, None for a row without one.
    empty: what masked cells show.
    """

    values: NDArray
    by_size: bool
    rows: list[str]
    columns: list[str]
    row_numbers: list[int]
    column_numbers: list[int]
    fractions: NDArray | None
    palette: Palette
    peaks: list[int | None]
    empty: str
    write: Write
    view: View

    def draw(self) -> Lines:
        """All rows and columns where they fit, or in a full view; else those with the largest
        values, and a line that says so.
        """
        view = self.view
        room = self.view.width - self.left_width
        all_rows = list(range(len(self.rows)))
        if view.full or len(all_rows) <= ROWS:
            rows_to_draw = all_rows
        else:
            rows_to_draw = strongest(self.sizes, STRONGEST)
        row_counts = (len(rows_to_draw), len(all_rows))
        columns = len(self.columns)

        # all columns fit: with two blanks between numbers, or with as few as possible
        has_marks = any(peak is not None for peak in self.peaks)
        tight = self.number + 1
        if has_marks and not view.color:
            tight += 1  # `*` behind a row's largest takes a cell of its own
        name_slots = self._named_slots(room, self.number + 2) or self._named_slots(room, tight)
        if name_slots is not None:
            body = self.panel(rows_to_draw, list(range(columns)), name_slots)
            counts_text = strongest_text(row_counts, (columns, columns), by_size=self.by_size)
            return stack(body, remark(counts_text, view))

        # a full view: all columns in panels
        slot = max(tight, len(str(max(self.column_numbers))) + 1)
        if view.full:
            slots = [max(slot, min(cells(name), NAME) + 1) for name in self.columns]
            groups = panels(slots, room)
            return stack_spaced(*(self.panel(rows_to_draw, group, slots) for group in groups))

        # the columns with the largest values, and each row's largest beside them if there is room
        has_peaks = has_marks and room - self.peak_slot >= 2 * slot
        if has_peaks:
            room -= self.peak_slot
        strongest_columns = strongest(self.sizes[rows_to_draw].T, room // slot)
        body = self.panel(rows_to_draw, strongest_columns, [slot] * columns, peak=has_peaks)
        column_counts = (len(strongest_columns), columns)
        counts_text = strongest_text(row_counts, column_counts, by_size=self.by_size)
        return stack(body, remark(counts_text, view))

    @cached_property
    def sizes(self) -> NDArray:
        """The numbers [row, column] by which rows and columns are chosen: the values themselves, or
        their distances from 0."""
        if self.by_size:
            return np.abs(self.values)
        return self.values

    @cached_property
    def number(self) -> int:
        """Cells of the widest number; 1, for the sign of a masked cell, where all are masked."""
        return widest_number(self.values, self.write) or 1

    @cached_property
    def index_width(self) -> int:
        """Cells of the largest row number."""
        return len(str(max(self.row_numbers)))

    @cached_property
    def name_width(self) -> int:
        """Cells of a row's name: a fifth of the line at most, or 4 where that is less."""
        return min(max(cells(text) for text in self.rows), NAME, max(self.view.width // 5, 4))

    @property
    def left_width(self) -> int:
        """Cells before the first column: the row number and the name."""
        return self.index_width + 1 + self.name_width + 1

    @property
    def peak_slot(self) -> int:
        """Cells of the column that names each row's largest: three blanks, its column's number, its
        name where columns have names, and the value."""
        place = len(str(max(self.column_numbers))) + 1
        if any(self.columns):
            place += PEAK_NAME + 1
        return max(3 + place + self.number, len(LARGEST))

    def _named_slots(self, room: int, least: int) -> list[int] | None:
        """The width of each column, `least` cells or more, so that all columns fit into `room` cells
        and names are cut as little as possible; None if they do not fit."""
        least = max(least, len(str(max(self.column_numbers))) + 1)
        for longest_name in range(NAME, 0, -1):
            slots = [max(least, min(cells(name), longest_name) + 1) for name in self.columns]
            if sum(slots) <= room:
                return slots
            if longest_name + 1 <= least:  # shorter names make no column narrower
                return None
        return None

    def panel(
        self, rows: list[int], columns: list[int], slots: list[int], *, peak: bool = False
    ) -> Lines:
        """The table of these rows and columns, under a line of the columns' numbers and, where they
        have names, a line of these.

        slots: cells of each column of the matrix.
        peak: whether a last column names each row's largest.
        """
        lines = [self._column_numbers(columns, slots, peak=peak)]
        if any(self.columns):
            lines.append(self._column_names(columns, slots))
        lines += [self._row_line(row, columns, slots, peak=peak) for row in rows]
        return Lines(tuple(lines))

    def _column_numbers(self, columns: list[int], slots: list[int], *, peak: bool) -> Line:
        """The line of the numbers of these columns.

        slots: cells of each column of the matrix. peak: whether a last column names each row's
            largest.
        """
        numbers = [
            pad(str(self.column_numbers[column]), slots[column] - 1, "right") + " "
            for column in columns
        ]
        if peak:
            largest = ["   " + localize(LARGEST.strip(), self.view)]
        else:
            largest = []
        return ((" " * self.left_width, ""), *((text, FAINT) for text in numbers + largest))

    def _column_names(self, columns: list[int], slots: list[int]) -> Line:
        """The line of the names of these columns, each in its slot."""
        names = [
            cut(self.columns[column], slots[column] - 1, ascii=self.view.ascii)
            for column in columns
        ]
        texts = [
            pad(name, slots[column] - 1, "right") + " "
            for name, column in zip(names, columns, strict=True)
        ]
        return ((" " * self.left_width, ""), *((text, "") for text in texts))

    def _row_line(self, row: int, columns: list[int], slots: list[int], *, peak: bool) -> Line:
        """A row's number, its name, its cells in these columns, and its largest where `peak` says that
        there is a column for that.

        slots: cells of each column of the matrix.
        """
        name = pad(cut(self.rows[row], self.name_width, ascii=self.view.ascii), self.name_width + 1)
        pieces: list[Piece] = [
            (pad(str(self.row_numbers[row]), self.index_width, "right") + " ", FAINT),
            (name, ""),
        ]
        pieces += [self._cell(row, column, slots[column]) for column in columns]
        top = self.peaks[row]
        if peak and top is not None:
            place = pad(str(self.column_numbers[top]), len(str(max(self.column_numbers))), "right")
            peak_name = ""
            if any(self.columns):
                short_name = cut(self.columns[top], PEAK_NAME, ascii=self.view.ascii)
                peak_name = pad(short_name, PEAK_NAME) + " "
            value = self.write(float(self.values[row, top]))
            pieces += [(f"   {place} ", FAINT), (f"{peak_name}{value}", "bold")]
        return tuple(pieces)

    def _cell(self, row: int, column: int, slot: int) -> Piece:
        """A number in its slot, with its shade, and marked if it is its row's largest."""
        value = float(self.values[row, column])
        if np.isnan(value):
            return pad(self.empty, slot - 1, "right") + " ", FAINT
        style = ""
        if self.fractions is not None:
            style = self.palette.style(float(self.fractions[row, column]))
        mark = " "
        if self.peaks[row] == column:
            style = f"bold underline {style}".strip()
            if not self.view.color:
                mark = "*"
        return pad(self.write(value), slot - 1, "right") + mark, style


# Layers × heads: one number of every head, as a grid whose rows are layers and whose columns are
# heads.


class HeadGrid(NamedTuple):
    """A number of every head.

    values: [layer, head], NaN where there is none.
    layers, heads: their numbers, ascending.
    """

    values: NDArray
    layers: list[int]
    heads: list[int]


def head_grid(numbers: Iterable[tuple[int, int, float | None]]) -> HeadGrid:
    """Arrange the numbers of heads, (layer, head, number) of each, as a grid [layer, head]; None is a
    head without a number."""
    cells = list(numbers)
    layers = sorted({layer for layer, _, _ in cells})
    heads = sorted({head for _, head, _ in cells})
    values = np.full((len(layers), len(heads)), np.nan)
    for layer, head, value in cells:
        values[layers.index(layer), heads.index(head)] = np.nan if value is None else value
    return HeadGrid(values, layers, heads)


def draw_grid(
    grid: HeadGrid,
    view: View,
    *,
    title: str,
    note: str,
    limits: tuple[float, float] | None = None,
    signed: bool = False,
    bare: bool = False,
) -> Lines:
    """A table with a shaded number per layer (row) and head (column).

    limits: what the palette's two ends stand for; None for those of the numbers.
    signed: whether numbers below 0 have a colour of their own.
    bare: whether numbers below 1 are written without the zero before the point.
    """
    return matrix(
        grid.values,
        rows=None,
        columns=None,
        view=view,
        title=title,
        note=note,
        limits=limits,
        signed=signed,
        bare=bare,
        by_size=signed,
        row_numbers=grid.layers,
        column_numbers=grid.heads,
    )
