"""Bars, curves, links between words and a shaded sentence, with the titles that figures share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from attncli.documents.parts import Header, TokenRow
from attncli.draw.figures.drawing import Drawing, from_right, shorten_to_fit, width
from attncli.draw.safe import label
from attncli.features.cross.document import CrossDocument
from attncli.features.tensors.document import TensorsDocument

LINE = 15.0


@dataclass(frozen=True)
class Bar:
    """One row of a ranking: its name, its number, and its label (the text behind the bar). mark: another number on the same bar."""

    name: str
    value: float
    label: str
    mark: float | None = None


def draw_bars(drawing: Drawing, bars: Sequence[Bar], top: float) -> float:
    """Bars from 0, the largest the longest; below 0 in another colour. Returns where they end."""
    largest = max((abs(bar.value) for bar in bars), default=0.0) or 1.0
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
    """Curves on logarithmic axes with their names at their ends, apart from each other. Returns where they end."""
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
    """Two columns of words, and lines between them as strong as their weights. Returns where they end."""
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

Say: TypeAlias = Callable[..., str]
"""A phrase by its name, in the language that was asked for."""
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


def model_note(document: Header | CrossDocument | TensorsDocument, say: Say) -> str:
    """Which weights ran, and under which conventions; and which side of a map is which."""
    model, attention = document.model, document.attention
    parts = [model.name or model.source]
    parts += [say("seed", model.seed)] if model.source in ("seeded", "random") else []
    conventions = (("mask", attention.mask), ("position", attention.position))
    return "; ".join((*parts, *(say(name, value) for name, value in conventions if value != "none"), say("sides")))


def bar_of(name: str, value: float, *, signed: bool = False, mark: float | None = None, more: str = "") -> Bar:
    """A row of a ranking with its number. mark: another number on the same bar. more: what is told beside it."""
    text = (f"{value:+.3f}" if signed else f"{value:.3f}").replace("-", "−")
    return Bar(name, value, f"{text}  {more}".rstrip(), mark)
