"""The picture of the guide's page of claims: every share with its interval beside what we
ask for."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import claims
from claims import Figure, Measured, Row

WIDTH, LEFT, RIGHT, LINE, TOP = 860, 500, 830, 22, 46
"""Pixels: the picture, the ends of its axis, a line of it, and where the first line is."""
GOOD, BAD, UNSURE, GREY = "#2a7d4f", "#b3402e", "#9a7400", "#777777"
COLOURS = {True: GOOD, False: BAD, None: UNSURE}
"""Of a number that stands where we ask, that does not, and whose interval does not tell."""
HEAD = (
    "dot: the number; bar: its interval or range; |: what we ask for, < below or > above it",
    "点：数字；横线：区间或范围；|：我们所要求的界限，< 在它之下，> 在它之上",
)


def shares(rows: Sequence[Row], results: dict[str, Any]) -> list[tuple[int, Figure, Measured]]:
    """The judged shares with the number of their row on the page."""
    shown = [row for row in rows if row.name in results]
    return [
        (index, figure, claims.measured_of(results[row.name])[figure.name])
        for index, row in enumerate(shown, 1)
        for figure in row.figures
        if figure.side and figure.unit == "share"
    ]


def picture(rows: Sequence[Row], results: dict[str, Any], lang: str) -> str:
    """The picture as SVG, with words in a language."""
    at = claims.LANGUAGES.index(lang)
    lines = shares(rows, results)
    height = TOP + LINE * len(lines) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        f' viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        written(12, 22, HEAD[at], GREY),
    ]
    end = TOP + LINE * len(lines)
    for percent in (0, 25, 50, 75, 100):
        x = place(percent / 100)
        parts.append(stroke(x, TOP - 12, x, end, "#e4e4e4", 1))
        parts.append(written(x, end + 16, f"{percent}%", GREY, "middle"))
    for line, (index, figure, measured) in enumerate(lines):
        y = TOP + LINE * line
        assert measured.low is not None
        assert measured.high is not None
        colour = COLOURS[claims.stands(figure, measured)]
        bound = place(claims.bound_of(figure, measured))
        sign = {"below": "<", "above": ">"}[str(figure.side)]
        parts.append(written(12, y + 4, f"{index}. {figure.says[at]}", "#222222"))
        parts.append(stroke(bound, y - 8, bound, y + 8, "#222222", 1))
        parts.append(written(bound + (-9 if sign == "<" else 3), y + 4, sign, GREY))
        parts.append(stroke(place(measured.low), y, place(measured.high), y, colour, 3))
        parts.append(f'<circle cx="{place(measured.value):.1f}" cy="{y}" r="4.5" fill="{colour}"/>')
    return "\n".join([*parts, "</svg>", ""])


def place(value: float) -> float:
    """Where a share is on the axis."""
    return LEFT + (RIGHT - LEFT) * min(max(value, 0.0), 1.0)


def written(x: float, y: float, text: str, colour: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">{escape(text)}</text>'


def stroke(x: float, y: float, to_x: float, to_y: float, colour: str, width: int) -> str:
    return (
        f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{colour}"'
        f' stroke-width="{width}"/>'
    )
