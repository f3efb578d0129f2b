"""Bars, curves, links between words, a shaded sentence, heat maps and grids of heads, with the titles that they share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attncli.documents import SOURCE_NAMES, Header, TokenRow
from attncli.draw.figures.drawing import Drawing, from_right, shorten_to_fit, width
from attncli.draw.numbers import writer
from attncli.draw.safe import label
from attncli.draw.shaded_matrix import LEVELS, Palette, head_grid, normalise
from attncli.draw.view import View
from attncli.features.cross.document import CrossDocument
from attncli.features.tensors.document import TensorsDocument
from attncli.language import say

LINE = 15.0


@dataclass(frozen=True)
class Bar:
    """One row of a ranking: its name, its number, and its label (the text behind the bar). mark: another number on the same bar."""

    name: str
    value: float
    label: str
    mark: float | None = None


def draw_bars(drawing: Drawing, bars: Sequence[Bar], top: float, *, most: float | None = None) -> float:
    """Bars from 0, the largest the longest; below 0 in another colour. Returns where they end.

    most: the number of a bar of full length; the largest of them where it is None.
    """
    largest = most or max((abs(bar.value) for bar in bars), default=0.0) or 1.0
    edge = min(max((width(bar.name, 9) for bar in bars), default=0), 180) + 10
    for index, bar in enumerate(bars):
        y = top + index * LINE
        drawing.text(edge - 8, y + 9, shorten_to_fit(bar.name, 9, 176), anchor="end")
        drawing.rectangle(edge, y + 2, 180, 8, drawing.theme.ground)
        drawing.rectangle(
            edge, y + 2, 180 * abs(bar.value) / largest, 8, drawing.theme.series[0 if bar.value >= 0 else 1]
        )
        if bar.mark is not None:
            drawing.rectangle(edge + 180 * min(abs(bar.mark) / largest, 1) - 0.6, y, 1.2, 12, drawing.theme.ink)
        drawing.text(edge + 188, y + 9, bar.label, quiet=True)
    return top + len(bars) * LINE


def draw_curves(
    drawing: Drawing, series: Sequence[tuple[str, Sequence[tuple[float, float]]]], top: float, x_name: str, y_name: str
) -> float:
    """Curves on logarithmic axes with their names at their ends, apart from each other. Returns where they end.

    Args:
        series: the name of each curve and its points (x, y); those with an x or y of 0 or less are not drawn.
        top: where the curves begin, in points from the upper edge.
        x_name, y_name: what the axes are.
    """
    points = [point for _, line in series for point in line if min(point) > 0]
    if not points:
        return top
    (x0, x1), (y0, y1) = (
        (math.log10(min(p[axis] for p in points)), math.log10(max(p[axis] for p in points))) for axis in (0, 1)
    )
    wide, tall, left, begin = 260.0, 190.0, 44.0, top + 18

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x, y = (math.log10(number) for number in point)
        return left + wide * (x - x0) / ((x1 - x0) or 1), begin + tall * (1 - (y - y0) / ((y1 - y0) or 1))

    drawing.text(left, begin - 8, y_name, quiet=True)
    for power in range(math.ceil(y0), math.floor(y1) + 1):
        y = place((10**x0, 10**power))[1]
        drawing.path([(left, y), (left + wide, y)], drawing.theme.line, thick=0.5)
        if (power - math.ceil(y0)) % max(round((y1 - y0) / 7), 1) == 0:
            drawing.text(left - 6, y + 3, f"10{_superscript(power)}", anchor="end", quiet=True, size=8)
    for power in range(math.ceil(x0), math.floor(x1) + 1):
        x = place((10**power, 10**y0))[0]
        drawing.path([(x, begin), (x, begin + tall)], drawing.theme.line, thick=0.5)
        drawing.text(x, begin + tall + 13, f"10{_superscript(power)}", anchor="middle", quiet=True, size=8)
    drawing.text(left + wide, begin + tall + 27, x_name, anchor="end", quiet=True)
    ends = []
    for series_index, (name, line) in enumerate(series):
        places = [place(point) for point in line if min(point) > 0]
        if places:
            drawing.path(places, drawing.theme.series[series_index % len(drawing.theme.series)], thick=1.6)
            ends.append((places[-1][1], name, series_index))
    below = -math.inf
    for y, name, series_index in sorted(ends):
        below = max(y, below + 11)
        drawing.rectangle(
            left + wide + 6, below - 2, 8, 3, drawing.theme.series[series_index % len(drawing.theme.series)]
        )
        drawing.text(left + wide + 18, below + 3, name)
    return begin + tall + 30


def _superscript(power: int) -> str:
    return str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def draw_links(
    drawing: Drawing, links: Sequence[tuple[int, int, float]], queries: Sequence[str], keys: Sequence[str], top: float
) -> float:
    """Two columns of words, and lines between them as strong as their weights. Returns where they end.

    Args:
        links: query, key and weight, from 0 to 1, of each.
        queries, keys: the words by position.
        top: where the columns begin, in points from the upper edge.
    """
    left = min(max((width(word, 9) for word in queries), default=0), 120)
    right = left + 130
    for words, x, anchor in ((queries, left, "end"), (keys, right, "start")):
        for index, word in enumerate(words):
            drawing.text(x, top + index * LINE + 9, shorten_to_fit(word, 9, 120), anchor=anchor)
    for query, key, weight in links:
        ends = [(left + 5, top + query * LINE + 6), (right - 5, top + key * LINE + 6)]
        drawing.path(ends, drawing.theme.series[0], thick=0.5 + 4 * weight, curved=True, faint=0.25 + 0.75 * weight)
    return top + max(len(queries), len(keys)) * LINE


def draw_sentence(
    drawing: Drawing,
    words: Sequence[str],
    follows_directly: Sequence[bool],
    shares: Sequence[float],
    chosen_index: int,
    top: float,
) -> float:
    """Words one after another, each tinted by its share from 0 to 1, the chosen one underlined. follows_directly: which follow
    the one before without a space. What is written from right to left stands so. Returns where they end."""
    x, y = 0.0, top
    places: list[tuple[float, float, float]] = []
    for index, word in enumerate(words):
        wide = width(word, 12)
        x -= 5 * (follows_directly[index] and x > 0)
        if x and x + wide > 420:
            x, y = 0.0, y + 21
        places.append((x, y, wide))
        x += wide + 8
    if from_right("".join(words)):
        edge = max(x + wide for x, _, wide in places)
        places = [(edge - x - wide, y, wide) for x, y, wide in places]
    for index, (word, share, (x, y, wide)) in enumerate(zip(words, shares, places, strict=True)):
        drawing.pieces.append(
            f'<rect x="{x - 1.5:.2f}" y="{y:.2f}" width="{wide + 3:.2f}" height="17" rx="3" fill="{drawing.theme.series[0]}" '
            f'fill-opacity="{min(max(share, 0), 1) * 0.85:.3f}"/>'
        )
        drawing.text(x + wide / 2, y + 12.5, word, size=12, bold=index == chosen_index, anchor="middle")
        if index == chosen_index:
            drawing.rectangle(x, y + 17, wide, 1.5, drawing.theme.series[0])
    return y + 22


# What the figures of all documents share: their titles and the rows of their rankings.

RANKED = 20
"""Rows of a ranking, at most."""


def draw_title(drawing: Drawing, title: str, subtitle: str) -> float:
    """Write the title and what is to be known of it. Returns where the figure begins."""
    drawing.text(0, 10, shorten_to_fit(title, 12, 400), size=12, bold=True)
    drawing.text(0, 25, shorten_to_fit(subtitle, 9, 460), quiet=True)
    return 44


def names_of(tokens: Sequence[TokenRow]) -> list[str]:
    """The texts of tokens, safe to write."""
    return [label(token.text) for token in tokens]


def model_note(document: Header | CrossDocument | TensorsDocument, view: View) -> str:
    """Which weights ran, and under which conventions; and which side of a map is which."""
    model, attention = document.model, document.attention
    parts = [model.name or say(view, SOURCE_NAMES[model.source])]
    parts += [say(view, "seed {seed}, not learned", seed=model.seed)] if model.source in ("seeded", "random") else []
    parts += [say(view, "mask {mask}", mask=attention.mask)] if attention.mask != "none" else []
    parts += [say(view, "position {position}", position=attention.position)] if attention.position != "none" else []
    return "; ".join((*parts, say(view, "rows look, columns are looked at")))


def bar_of(name: str, value: float, *, signed: bool = False, mark: float | None = None, more: str = "") -> Bar:
    """A row of a ranking with its number. mark: another number on the same bar. more: what is told beside it."""
    text = writer([value], 3)(value)
    text = ("+" if signed and value >= 0 else "") + text.replace("-", "−")
    return Bar(name, value, f"{text}  {more}".rstrip(), mark)


MOST_LABELS = 40
"""Words along an edge that are still written."""
CELL, SMALL, SIZE = 13.0, 58.0, 8.5
ROOTS = "root"
"""The scale of square roots, from 0 to the greatest number."""
LARGE = 300.0
"""Points along a map by itself whose words are not written."""


@dataclass(frozen=True, eq=False)
class FigureMap:
    """A matrix [query, key], NaN where hidden, with the words of its edges. signed: whether 0 is its middle."""

    caption: str
    values: np.ndarray[Any, Any]
    rows: Sequence[str]
    columns: Sequence[str]
    signed: bool = False


def draw_maps(
    drawing: Drawing, maps: Sequence[FigureMap], top: float, view: View, *, scale: str, across: int = 8
) -> float:
    """The maps side by side, `across` in a row, each kind on one scale; returns where they end.

    Where cells are pooled, a linear scale becomes one of roots: weights of long texts are small.
    """
    if not maps:
        return top
    are_few = len(maps) <= 3
    pool = max(_block(figure_map.values.shape, _cell(figure_map, with_words=are_few)) for figure_map in maps)
    scale = ROOTS if pool > 1 and scale == "linear" else scale
    high = {kind: _largest([figure_map for figure_map in maps if figure_map.signed == kind]) for kind in (False, True)}
    left, begin = 0.0, top
    bottom = top
    for index, figure_map in enumerate(maps):
        if index and index % (3 if are_few else across) == 0:
            left, begin = 0.0, bottom + (14 if are_few else 5)
        right, end = _draw(drawing, figure_map, left, begin, scale, high[figure_map.signed], with_words=are_few)
        left, bottom = right + (16 if are_few else 7), max(bottom, end)
    kinds = [kind for kind in (False, True) if any(figure_map.signed == kind for figure_map in maps)]
    for kind in kinds:
        bottom = _legend(drawing, bottom + 16, high[kind], "signed" if kind else scale, view)
    if pool > 1:
        remark = "; ".join(
            (
                say(view, "each dot: the largest of {size} × {size} cells", size=pool),
                *([say(view, "colours by square roots")] if scale == ROOTS else []),
            )
        )
        drawing.text(0, bottom + 12, remark, size=SIZE, quiet=True)
        bottom += 14
    return bottom


def _largest(maps: Sequence[FigureMap]) -> float:
    largest = [
        float(np.nanmax(np.abs(figure_map.values))) for figure_map in maps if np.isfinite(figure_map.values).any()
    ]
    return max(largest, default=1.0) or 1.0


def _draw(
    drawing: Drawing, figure_map: FigureMap, left: float, top: float, scale: str, high: float, *, with_words: bool
) -> tuple[float, float]:
    rows, columns = figure_map.values.shape
    words, cell = _shows_words(figure_map, with_words=with_words), _cell(figure_map, with_words=with_words)
    edge = min(max((width(word, SIZE) for word in figure_map.rows), default=0), 90) + 6 if words else 0
    widest = max((width(word, SIZE) for word in figure_map.columns), default=0)
    level = widest <= CELL
    room = 12 if words and level else min(widest, 90) * 0.76 + 8 if words else 4
    size = 9.0 if with_words else 7.5
    caption = shorten_to_fit(
        figure_map.caption if with_words else figure_map.caption.replace("layer ", "").replace(" head ", "."),
        size,
        max(columns * cell + edge, 90 if with_words else 0),
    )
    drawing.text(left, top + 9, caption, size=size, bold=with_words, quiet=not with_words)
    x, y = left + edge, top + 14 + room
    drawing.rectangle(x, y, columns * cell, rows * cell, "none", stroke=drawing.theme.line)
    palette = drawing.theme.signed if figure_map.signed else drawing.theme.weights
    drawing.cells(
        x,
        y,
        columns * cell,
        rows * cell,
        colour_cells(
            pool_cells(figure_map.values, _block(figure_map.values.shape, cell)),
            palette,
            "signed" if figure_map.signed else scale,
            high,
        ),
    )
    slant = 0.0
    if words:
        for index, word in enumerate(figure_map.rows):
            drawing.text(
                x - 4, y + (index + 0.5) * cell + 3, shorten_to_fit(word, SIZE, 86), size=SIZE, anchor="end", quiet=True
            )
        for index, word in enumerate(figure_map.columns):
            if level:
                drawing.text(x + (index + 0.5) * cell, y - 4, word, size=SIZE, quiet=True, anchor="middle")
                continue
            label = shorten_to_fit(word, SIZE, 86)
            drawing.text(x + (index + 0.5) * cell + 2, y - 5, label, size=SIZE, quiet=True, rotation=50)
            slant = max(slant, (index + 0.5) * cell + 2 + width(label, SIZE) * 0.65 - columns * cell)
    drawing.corner[0] = max(drawing.corner[0], x + columns * cell + slant)
    return x + max(columns * cell + slant, width(caption, size) * 1.08 - edge), y + rows * cell


def _shows_words(figure_map: FigureMap, *, with_words: bool) -> bool:
    """Whether a map's words are written at its edges."""
    return with_words and max(figure_map.values.shape) <= MOST_LABELS


def _cell(figure_map: FigureMap, *, with_words: bool) -> float:
    """Points along a cell of a map."""
    if _shows_words(figure_map, with_words=with_words):
        return CELL
    return max(LARGE / max(figure_map.values.shape), 0.3) if with_words else SMALL / max(figure_map.values.shape)


def _block(shape: Sequence[int], cell: float) -> int:
    """How many cells a side are drawn as one: cells smaller than a point are not drawn wherever a picture takes the
    nearest one, and thin lines of a map vanish."""
    return -(-max(shape) // max(round(max(shape) * cell), 1))


def pool_cells(values: np.ndarray[Any, Any], block: int) -> np.ndarray[Any, Any]:
    """A matrix with the number of largest size for each `block` × `block` of its cells."""
    if block <= 1:
        return values
    rows, columns = (-(-size // block) for size in values.shape)
    padded = np.full((rows * block, columns * block), np.nan)
    padded[: values.shape[0], : values.shape[1]] = values
    cells = padded.reshape(rows, block, columns, block).swapaxes(1, 2).reshape(rows, columns, -1)
    sizes = np.where(np.isnan(cells), -1, np.abs(cells))
    return np.take_along_axis(cells, sizes.argmax(-1)[..., None], -1)[..., 0]


def colour_cells(values: np.ndarray[Any, Any], palette: Palette, scale: str, high: float) -> np.ndarray[Any, Any]:
    """RGBA of each cell, uint8 [row, column, 4]; hidden ones are clear.

    Args:
        values: [row, column]; NaN is hidden.
        palette: the colours from the smallest value to the largest.
        scale: "linear", "log", "row", "signed" (from −high) or that of square roots.
        high: the value of the last colour; with "row" each row has its own.
    """
    low = -high if scale == "signed" else None if scale == "row" else 0.0
    colour_scale = "linear" if scale == ROOTS else scale
    shares = normalise(values, colour_scale, low=low, high=None if scale == "row" else high)
    shares = np.sqrt(shares) if scale == ROOTS else shares
    table = np.array([palette.rgb(level / (LEVELS - 1)) for level in range(LEVELS)], np.uint8)
    pixels = np.zeros((*values.shape, 4), np.uint8)
    visible = np.isfinite(shares)
    pixels[visible, :3] = table[np.rint(shares[visible] * (LEVELS - 1)).astype(int)]
    pixels[visible, 3] = 255
    return pixels


def _legend(drawing: Drawing, top: float, high: float, scale: str, view: View) -> float:
    """The colours of even steps from the least number to the greatest, on the scale of the maps."""
    is_signed = scale == "signed"
    palette = drawing.theme.signed if is_signed else drawing.theme.weights
    steps = np.linspace(-high if is_signed else 0.0, high, 64)[None]
    largest = writer([high], 2)(high)
    low = f"−{largest}" if is_signed else "0"
    left = width(low, SIZE) + 6
    drawing.text(0, top + 6, low, size=SIZE, quiet=True)
    drawing.rectangle(left, top, 96, 6, "none", stroke=drawing.theme.line)
    drawing.cells(left, top, 96, 6, colour_cells(steps, palette, scale, high))
    end = say(view, "row's largest") if scale == "row" else f"+{largest}" if is_signed else largest
    drawing.text(left + 102, top + 6, end, size=SIZE, quiet=True)
    return top + 8


# Metrics of heads: bars beside the names of a few heads, a layers × heads grid of each metric for many.

FEW = 24
"""Heads that get a row each."""
BAR, COLUMN = 44.0, 96.0
"""Length of the longest bar, and from one metric to the next."""
ACROSS = 3
"""Grids in a row."""


@dataclass(frozen=True)
class FigureHead:
    """A head's metrics by name, None where no row could be used. uniform: the same of uniform weights."""

    layer: int
    head: int
    name: str
    values: Mapping[str, float | None]
    uniform: Mapping[str, float | None]


def draw_metrics(
    drawing: Drawing, heads: Sequence[FigureHead], titles: Mapping[str, str], top: float, *, line_note: str
) -> float:
    """The metrics that `titles` names, of all heads. line_note: what the line on a bar is. Returns where they end."""
    if len(heads) <= FEW or len({head.layer for head in heads}) == 1:
        bottom = _rows(drawing, heads, titles, top)
        if any(head.uniform for head in heads):
            drawing.text(0, bottom + 12, line_note, size=SIZE, quiet=True)
        return bottom + 14
    return _grids(drawing, heads, titles, top)


def _rows(drawing: Drawing, heads: Sequence[FigureHead], titles: Mapping[str, str], top: float) -> float:
    edge = min(max(width(head.name, 9) for head in heads), 180) + 12
    for index, head in enumerate(heads):
        drawing.text(edge - 10, top + 14 + index * LINE + 9, shorten_to_fit(head.name, 9, 176), anchor="end")
    for place, (metric, title) in enumerate(titles.items()):
        x = edge + place * COLUMN
        drawing.text(x, top + 6, shorten_to_fit(title, SIZE, COLUMN - 6), size=SIZE, bold=True)
        sizes = [abs(value) for head in heads if (value := head.values.get(metric)) is not None]
        largest = max(sizes, default=0.0) or 1.0
        for index, head in enumerate(heads):
            y, value = top + 14 + index * LINE, head.values.get(metric)
            drawing.rectangle(x, y + 2, BAR, 8, drawing.theme.ground)
            if value is None:
                drawing.text(x + BAR + 5, y + 9, "–", size=SIZE, quiet=True)
                continue
            series = drawing.theme.series[0 if value >= 0 else 1]
            drawing.rectangle(x, y + 2, BAR * abs(value) / largest, 8, series)
            uniform = head.uniform.get(metric)
            if uniform is not None and abs(uniform) <= largest:
                drawing.rectangle(x + BAR * abs(uniform) / largest - 0.5, y, 1, 12, drawing.theme.ink)
            drawing.text(x + BAR + 5, y + 9, _value_text(value), size=SIZE, quiet=True)
    return top + 14 + len(heads) * LINE


def _grids(drawing: Drawing, heads: Sequence[FigureHead], titles: Mapping[str, str], top: float) -> float:
    layers, numbers = (
        sorted({figure_head.layer for figure_head in heads}),
        sorted({figure_head.head for figure_head in heads}),
    )
    edge = max(width(str(layer), SIZE) for layer in layers) + 6
    cell = min(CELL, 200 / len(numbers))
    wide, tall = edge + len(numbers) * cell + 22, len(layers) * cell + 40
    for place, (metric, title) in enumerate(titles.items()):
        x, y = place % ACROSS * wide, top + place // ACROSS * tall
        grid = head_grid(
            (figure_head.layer, figure_head.head, figure_head.values.get(metric)) for figure_head in heads
        ).values
        visible = grid[np.isfinite(grid)]
        low, high = (float(visible.min()), float(visible.max())) if visible.size else (0.0, 0.0)
        span = f"{_value_text(low)} – {_value_text(high)}"
        room = wide - 22 - width(span, SIZE) - 8
        drawing.text(x, y + 8, shorten_to_fit(title, SIZE, room / 1.08), size=SIZE, bold=True)
        drawing.text(x + wide - 22, y + 8, span, size=SIZE, quiet=True, anchor="end")
        for index, layer in enumerate(layers):
            drawing.text(x + edge - 4, y + 24 + (index + 0.5) * cell + 3, str(layer), size=7, quiet=True, anchor="end")
        for index, head in enumerate(numbers):
            if cell >= 11 or index % 4 == 0:
                drawing.text(x + edge + (index + 0.5) * cell, y + 20, str(head), size=7, quiet=True, anchor="middle")
        shares = colour_cells(grid - low, drawing.theme.weights, "linear", high - low or 1.0)
        drawing.rectangle(x + edge, y + 24, len(numbers) * cell, len(layers) * cell, "none", stroke=drawing.theme.line)
        drawing.cells(x + edge, y + 24, len(numbers) * cell, len(layers) * cell, shares)
    return top + -(-len(titles) // ACROSS) * tall


def _value_text(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")
