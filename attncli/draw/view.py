"""`View`: all that a screen needs to know of who reads it, and the names of the parts that `--show` takes."""

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
    colors: how many colours it has, "truecolor", "256" or "16".
    claims: whether sentences mark the texts that lead to what they name (see `token_names.claim`).
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
    colors: str = "truecolor"
    claims: bool = False
    brief: bool = False
    few: bool = False
    code: str = ""


# The names that the texts on attention have for what screens show: `--show` takes these too.

TAUGHT = {
    "E": ("embedding",),
    "P": ("positions",),
    "X": ("input", "matrices"),
    "Q": ("q", "projections"),
    "K": ("k", "projections"),
    "V": ("v", "projections"),
    "S": ("raw", "similarity"),
    "A": ("weights", "softmax"),
    "O": ("output",),
    "X+O": ("sum", "residual"),
    "concat": ("concat", "residual"),
}
"""By each name, the parts that it means, of which a screen has one."""


def part_of_name(name: str, parts: tuple[str, ...]) -> str:
    """The part of a screen that a name means; the name itself where it means none of them."""
    if name in parts:
        return name
    return next((part for part in TAUGHT.get(name, ()) if part in parts), name)
