"""Numbers on a screen: one style for a whole array, as many digits as sums need; and as bars and
curves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from itertools import pairwise

import numpy as np
from msgspec import Struct

from attncli.documents import Numbers
from attncli.draw.lines import FAINT, Line, Lines, Piece, flow, stack, strip_styles
from attncli.draw.safe import pad, spell
from attncli.draw.view import View
from attncli.language import Message, message

Write = Callable[[float], str]


def writer(values: Numbers | Sequence[float | None], precision: int) -> Write:
    """A function that writes each of these values with `precision` digits after the point.

    Fixed notation, or scientific for all when the largest magnitude is 10⁶ or more, or too small
    to show. Never `-0.00`. Not finite: `nan`, `inf`, `-inf`.
    """
    sizes = np.abs(np.asarray(values, np.float64))
    finite = sizes[np.isfinite(sizes)]
    if finite.size:
        largest = float(finite.max())
    else:
        largest = 0.0
    notation = "f"
    if largest >= 1e6 or 0 < largest < 0.5 * 10.0**-precision:
        notation = "e"

    def write(value: float) -> str:
        """A value as text, in the notation chosen for all values."""
        text = f"{value:.{precision}{notation}}"
        digits, _, _ = text.partition("e")
        is_negative_zero = text.startswith("-") and not digits.strip("-0.")
        if is_negative_zero:
            return text[1:]
        return text

    return write


def without_zero(write: Write) -> Write:
    """A function that writes as this one does, without the zero before the point: `.105`, `-.02`."""

    def write_without_zero(value: float) -> str:
        """The value without the zero before its point."""
        text = write(value)
        if text.startswith("-0."):
            return f"-{text[2:]}"
        if text.startswith("0."):
            return text[1:]
        return text

    return write_without_zero


def format_fixed(value: float | None, digits: int) -> str:
    """One number with so many digits after the point, scientific from 10⁹ on; never `-0.00`; "" for
    None.
    """
    if value is None:
        return ""
    if abs(value) < 1e9:
        text = f"{value:.{digits}f}"
    else:
        text = f"{value:.{digits}e}"
    is_negative_zero = text.startswith("-") and not text.strip("-0.")
    if is_negative_zero:
        return text[1:]
    return text


def format_signed(value: float, digits: int) -> str:
    """A number with its sign and `digits` digits after the point; `0.00`, without a sign, if it
    rounds to 0."""
    text = f"{value:+.{digits}f}"
    is_zero = not text.strip("+-0.")
    if is_zero:
        return text[1:]
    return text


def format_small_signed(value: float, digits: int) -> str:
    """A number with its sign, as `format_signed` writes it; one that would show fewer than two
    significant digits, such as 0.0041, is written with two: `+0.0041`."""
    if 0 < abs(value) < 10.0 ** (1 - digits):
        return f"{value:+.2g}"
    return format_signed(value, digits)


def format_period(tokens: float) -> str:
    """The period of a rotary pair of dimensions, in tokens, as text: three digits, or all of those
    before the point.
    """
    if tokens >= 100:
        return f"{tokens:,.0f}"
    return f"{tokens:.3g}"


def brief(value: float | None) -> str:
    """One number for a header: at most 6 significant digits, no trailing zeros; `none` for None."""
    if value is None:
        return "none"
    return f"{value:.6g}"


LEAST_SHARE = 0.001
"""Shares below this are written as less than it: `<0.1%` says more than `0.0%`."""
TENTH = 0.1
"""Shares below this have a digit after the point."""
ROUNDING = 1e-6
"""What shares in float32 lack of 1 by rounding alone; more than this is not written as `100%`."""


def times_words(ratio: float, digits: int) -> str:
    """A ratio as text, for "3.2 times": `digits` significant digits; of a larger number all digits
    before the point, never a power of ten."""
    if round(ratio) >= 10**digits:
        return f"{ratio:,.0f}"
    return f"{ratio:.{digits}g}"


def percent(value: float, digits: int = 0) -> str:
    """A share in percents, such as `89%`: the only way that screens write one, in every language.

    A share of less than 0.1% that is not 0 is `<0.1%`, of the same size below 0 `>-0.1%`; one that
    lacks less than that of 1, but more than rounding errors, is `>99.9%`.
    digits: after the point. Where it is 0, there is one digit still for shares below a tenth, and
        for those that would else round up to 100%.
    """
    if 0 < value < LEAST_SHARE:
        return f"<{LEAST_SHARE:.1%}"
    if -LEAST_SHARE < value < 0:
        return f">{-LEAST_SHARE:.1%}"
    lacking = 1 - value
    if ROUNDING < lacking < LEAST_SHARE:
        return f">{1 - LEAST_SHARE:.1%}"
    text = f"{value:.{digits}%}"
    is_rounded_to_all = lacking > ROUNDING and text == f"{1:.{digits}%}"
    if digits == 0 and value != 0 and (abs(value) < TENTH or is_rounded_to_all):
        return f"{value:.1%}"
    return text


def softmax_percent(weight: float, keys: int) -> str:
    """A weight of a softmax in percent: over several finite scores it nears 100% and never is it,
    though it may be 1 as computed.

    keys: how many scores are finite.
    """
    text = percent(weight)
    if keys > 1 and text == percent(1.0):
        return f">{1 - LEAST_SHARE:.1%}"
    return text


def percent_below(value: float, bound: float) -> str:
    """A share below a bound, in percent, with enough digits not to round up to the bound: 49.9% for
    0.4997 below a half.
    """
    text = percent(value)
    if value < bound and text == percent(bound):
        return f"{math.floor(value * 1000) / 10:.1f}%"
    return text


def missed_by_intervals(count: int) -> Message:
    """The sentence that an interval over `count` pairs says nothing about kinds of pairs that are
    too rare to be drawn. The share it names is rounded down, so that the sentence stays true."""
    from attncli.measure.mean_intervals import rarest_seen

    share = rarest_seen(count)  # rarer kinds are missing in more than one case of 20
    if share >= TENTH:
        digits = 2  # of the share: whole percents
    else:  # enough that the share is not rounded down to 0
        digits = max(3, math.ceil(-math.log10(share)))
    floored = math.floor(share * 10**digits) / 10**digits
    share_text = percent(floored)
    if digits > 3:  # below what `percent` writes as a number
        share_text = f"{100 * floored:g}%"
    return message(
        "Intervals know nothing of pairs unlike these: a kind that makes up less than {share} of all"
        " is missing from {count} in more than one case of 20.",
        share=share_text,
        count=count,
    )


def root_of(scale: float, d_k: int, d_model: int) -> str:
    """The factor of the scores as one over the root of `d_k` or `d_model`, such as `1/√64`; "" when
    it is neither.
    """
    for size in (d_k, d_model):
        if size > 0 and math.isclose(scale, size**-0.5, rel_tol=1e-6):
            return f"1/√{size}"
    return ""


def size_words(count: int) -> str:
    """Bytes in words, such as `90.9 MB`."""
    for unit, size in (("PB", 10**15), ("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} bytes"


# How many digits printed terms need, so that they add up to the total that is printed.

MORE = 4
"""Digits beyond the asked precision that are tried."""
DIGITS = 400
"""Enough for the largest float, which has 309 before the point."""


def adding_digits(sums: Iterable[tuple[Sequence[float], float]], precision: int) -> int:
    """The fewest digits after the point, at least `precision`, with which every sum holds as printed.

    A sum holds if its terms as printed, added up and rounded to `precision`, are the total as
    printed with `precision`. At most `precision` + `MORE`, where a total on the edge between
    two roundings may still be off by one in its last digit.

    sums: the terms and the total of each.
    """
    pairs = [(list(terms), total) for terms, total in sums]
    for digits in range(precision, precision + MORE):
        if all(adds_up(terms, total, digits, precision) for terms, total in pairs):
            return digits
    return precision + MORE


def adding_column(
    terms: Sequence[float | None], total: float | None, precision: int
) -> tuple[list[str], str]:
    """The texts of a sum's terms, and that of its total, for a right-aligned column in which the
    decimal points stand in line. The total has `precision` digits after the point; the terms have as
    many more as they need to add up to it as printed, and blanks stand for these behind the total.
    None, a number too large for a float, is written `inf`."""
    numbers = [term for term in terms if term is not None]
    digits = precision
    if total is not None and len(numbers) == len(terms):
        digits = adding_digits([(numbers, total)], precision)
    texts = ["inf" if term is None else format_fixed(term, digits) for term in terms]
    if total is None:
        return texts, "inf"
    return texts, format_fixed(total, precision) + " " * (digits - precision)


def adds_up(terms: Sequence[float], total: float, digits: int, precision: int) -> bool:
    """Whether terms printed with `digits` add up to the total printed with `precision`."""
    last_digit = Decimal(1).scaleb(-precision)  # 0.01 for a precision of 2
    with localcontext() as exact:
        exact.prec = DIGITS
        sum_of_terms = sum((Decimal(f"{term:.{digits}f}") for term in terms), Decimal(0))
        rounded = sum_of_terms.quantize(last_digit, ROUND_HALF_EVEN)  # as Python prints floats
    return rounded == Decimal(f"{total:.{precision}f}")


# Bars: a number between 0 and 1 as a length on its track. Rich has progress bars, in halves of a
# cell; these have eighths.

FULL, TRACK, EIGHTHS = "▇", "╌", " ▏▎▍▌▋▊▉"
FULL_ASCII, TRACK_ASCII = "#", "."


def bar(fraction: float, width: int, *, ascii: bool) -> str:
    """`fraction` (clipped to [0, 1]) of `width` cells, to an eighth of a cell, then the track; `#`
    and `.` in ASCII.

    "" for a width of 0 or less. Anything above 0 shows at least an eighth.
    """
    if width <= 0:
        return ""
    share = min(max(fraction, 0.0), 1.0)
    if ascii:
        size = round(share * width)
        return FULL_ASCII * size + TRACK_ASCII * (width - size)
    eighths = round(share * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    whole, part = divmod(eighths, 8)
    cells_filled = whole
    if part > 0:
        cells_filled += 1
    # EIGHTHS[0] is a blank: no part of a cell
    return FULL * whole + EIGHTHS[part].strip() + TRACK * (width - cells_filled)


def bar_pieces(text: str, style: str) -> list[Piece]:
    """A bar, as `bar` writes it, in two pieces: its length in a style, the track behind it in faint
    type.
    """
    length = len(text.rstrip(TRACK + TRACK_ASCII))
    return [(text[:length], style), (text[length:], FAINT)]


BAR = re.compile(f"{FULL}{{2,}}|{FULL}(?=[{EIGHTHS.strip()}{TRACK}])")
"""Full cells of a bar: several, or one before a part of a cell or the track; a single one by itself may
be a word of the text."""


def even_bars(lines: Lines) -> Lines:
    """A screen for a browser, in which the full cells of bars become `█`: the sign for them in a
    terminal, `▇`, is an eighth lower than a bar's partial last cell, and a browser shows the step."""
    rows = [
        [(BAR.sub(lambda run: "█" * len(run[0]), text), style) for text, style in row]
        for row in lines.rows
    ]
    return Lines(tuple(map(tuple, rows)))


MARKS = "●▲■◆○△□◇"
MARKS_ASCII = "oxs*+#@%"
STYLES = ("bright_blue", "yellow", "green", "magenta", "cyan", "red", "white", "bright_black")
AXIS = 8
"""Cells of the numbers at the left."""
WIDEST_PLOT = 72
"""Cells of a plot on a screen of any width: a wider one would be flat, as its height is fixed."""


class Series(Struct, frozen=True):
    """A named curve: points (x, y), both above 0; others are left out."""

    name: str
    points: tuple[tuple[float, float], ...]


def curves(
    series: Sequence[Series],
    view: View,
    *,
    height: int = 16,
    x_name: str = "",
    marked_x: float | None = None,
) -> Lines:
    """Plot the series on logarithmic axes in the view's width, with a legend below; no lines where
    there are no points.

    Between two points a curve is drawn straight. Where curves meet, the first named is on top.

    height: lines of the plot, without its axis and legend.
    x_name: the name of the x axis.
    marked_x: an x at which a vertical line is drawn; None for none.
    """
    # the logarithm of a point needs x and y above 0
    drawn = [[point for point in line_series.points if min(point) > 0] for line_series in series]
    points = [point for points_of_series in drawn for point in points_of_series]
    if not points:
        return Lines()
    width = max(min(view.width - AXIS - 2, WIDEST_PLOT), 10)  # cells of the plot, ten at least
    x_low, x_high = _log_range([x for x, _ in points])
    y_low, y_high = _log_range([y for _, y in points])
    grid: list[list[Piece]] = [[(" ", "")] * width for _ in range(height)]

    def column(x: float) -> int:
        """The column of the plot for an x."""
        return round((math.log(x) - x_low) / (x_high - x_low) * (width - 1))

    if marked_x is not None and x_low <= math.log(marked_x) <= x_high:
        for row in grid:
            row[column(marked_x)] = (":" if view.ascii else "┊", FAINT)
    dot = "." if view.ascii else "·"
    # the last curve first, so that the first one is on top
    for index in reversed(range(len(series))):
        mark, style = _mark(index, view)
        for (x0, y0), (x1, y1) in _pieces_of(drawn[index]):
            first = column(x0)
            last = column(x1)
            rise = math.log(y1) - math.log(y0)
            # in every column between the points, the row of the straight line; row 0 is the top
            for place in range(first, last + 1):
                log_y = math.log(y0) + (place - first) / max(last - first, 1) * rise
                row_index = height - 1 - round((log_y - y_low) / (y_high - y_low) * (height - 1))
                grid[row_index][place] = (mark if place in (first, last) else dot, style)
    x_axis = _x_axis((x_low, x_high), width, x_name, view)
    legend = _legend(series, view)
    block = stack(_frame(grid, (y_low, y_high), view), x_axis, legend)
    if view.color:
        return block
    return strip_styles(block)


def _pieces_of(
    points: Sequence[tuple[float, float]],
) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Each two points of a curve that follow each other; a point alone with itself, so that it has
    its mark."""
    if len(points) == 1:
        return [(points[0], points[0])]
    return list(pairwise(points))


def _mark(index: int, view: View) -> Piece:
    """The character and the style of a curve's points."""
    if view.ascii:
        marks = MARKS_ASCII
    else:
        marks = MARKS
    return marks[index % len(marks)], STYLES[index % len(STYLES)]


def _log_range(values: Sequence[float]) -> tuple[float, float]:
    """The logarithms of the least and the largest value, the ends of an axis; where these are the
    same, the axis reaches 1 beyond on both sides."""
    low = math.log(min(values))
    high = math.log(max(values))
    if high > low:
        return (low, high)
    return (low - 1, high + 1)


def _frame(grid: list[list[Piece]], y: tuple[float, float], view: View) -> Lines:
    """The rows of a plot with the y axis at its left: a number at every fifth row and the last.

    y: logarithms of the least and the largest value.
    """
    side = "|" if view.ascii else "│"
    low, high = y
    rows: list[Line] = []
    for index, row in enumerate(grid):
        number = ""
        if index % 5 == 0 or index == len(grid) - 1:
            value = math.exp(high - (high - low) * index / (len(grid) - 1))
            number = _axis_number(value)
        rows.append(((pad(number, AXIS, "right"), FAINT), (side, FAINT), *row))
    return Lines(tuple(rows))


def _axis_number(value: float) -> str:
    """A number of an axis: three digits of one that a reader has at a glance, else a power of ten."""
    if 0.001 <= value < 1000:
        return f"{value:.3g}"
    return f"{value:.0e}"


def _x_axis(x: tuple[float, float], width: int, name: str, view: View) -> Lines:
    """The x axis below a plot of `width` cells: a line, and below it the numbers at its ends with
    the axis's name between them.

    x: logarithms of the least and the largest value.
    """
    corner, dash = ("+", "-") if view.ascii else ("└", "─")
    low, high = (f"{math.exp(end):,.0f}" for end in x)
    gap = max(width - len(low) - len(high), 1)
    middle = pad(spell(name, ascii=view.ascii), gap, "center")
    axis = " " * AXIS + corner + dash * width
    numbers = " " * (AXIS + 1) + low + middle + high
    return Lines((((axis, FAINT),), ((numbers, FAINT),)))


def _legend(series: Sequence[Series], view: View) -> Lines:
    """The mark and the name of each curve."""
    marks = [(*_mark(index, view), line_series.name) for index, line_series in enumerate(series)]
    pieces = [(f"{mark} {spell(name, ascii=view.ascii)}", style) for mark, style, name in marks]
    return flow(pieces, width=view.width, indent=AXIS + 1, gap="   ")
