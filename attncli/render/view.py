"""`View`: all that a screen needs to know of the one who asked for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """How to show a document.

    width: terminal cells, at least 20. height: terminal lines, None if unknown or endless.
    color: whether styles may be used; without it, shades are drawn with characters.
    ascii: only ASCII leaves the program. precision: digits after the point.
    scale_colors: "linear", "log" or "row" (see `palette.normalise`). top: how many links or rows of a ranking.
    show: the parts of a screen, None for its defaults. full: nothing is windowed or shortened.
    lang: language of explanations, "en" or "zh". light: whether the terminal is dark on light.
    code: the library that steps are also written in, "numpy" or "torch"; "" for none.
    brief: the answer alone. few: nobody asked for so many, so a ranking below a grid may show fewer than `top`.
    """

    width: int = 80
    color: bool = False
    ascii: bool = False
    precision: int = 2
    scale_colors: str = "linear"
    top: int = 10
    show: frozenset[str] | None = None
    full: bool = False
    lang: str = "en"
    height: int | None = None
    light: bool = False
    brief: bool = False
    few: bool = False
    code: str = ""
