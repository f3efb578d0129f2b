"""Colours and shade characters for numbers between 0 and 1, and how values are brought there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

NDArray = np.ndarray[Any, Any]
Rgb = tuple[int, int, int]

LEVELS = 48
"""Distinct colours of a palette; more would only cost time to parse."""

RAMP = "·░▒▓█"
RAMP_ASCII = ".:-=+*#%@"
"""From low to high; a masked cell is blank, so the lowest level is not."""
BELOW, AROUND, ABOVE = "-=≡", "·", "░▒█"
BELOW_ASCII, AROUND_ASCII, ABOVE_ASCII = "-=%", ".", "+*#"
"""Below 0, about 0, above 0; from small to large magnitude."""
NEAR = 1 / 8
"""Share of the largest magnitude up to which a value is about 0."""


@dataclass(frozen=True)
class Palette:
    """Colours along [0, 1], interpolated between `anchors` (RRGGBB) in sRGB."""

    name: str
    anchors: tuple[str, ...]

    def rgb(self, fraction: float) -> Rgb:
        """The colour at `fraction`, clipped to [0, 1]."""
        return _rgb(self, round(min(max(0.0, fraction), 1.0) * (LEVELS - 1)))  # in this order NaN is 0

    def colour(self, fraction: float) -> str:
        """The colour as `#rrggbb`."""
        return "#{:02x}{:02x}{:02x}".format(*self.rgb(fraction))

    def style(self, fraction: float) -> str:
        """A Rich style: the colour behind, and black or white in front, whichever reads better (contrast at least
        4.5)."""
        return f"{ink(self.rgb(fraction))} on {self.colour(fraction)}"


@cache
def _rgb(palette: Palette, level: int) -> Rgb:
    place = level / (LEVELS - 1) * (len(palette.anchors) - 1)
    low = min(int(place), len(palette.anchors) - 2)
    a, b = (bytes.fromhex(palette.anchors[index]) for index in (low, low + 1))
    red, green, blue = (round(x + (y - x) * (place - low)) for x, y in zip(a, b, strict=True))
    return red, green, blue


def luminance(rgb: Rgb) -> float:
    """Relative luminance in [0, 1]. Source: WCAG 2.1."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in rgb)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def ink(rgb: Rgb) -> str:
    """`#000000` or `#ffffff`, whichever has the higher contrast on `rgb`."""
    light = luminance(rgb)
    return "#000000" if (light + 0.05) ** 2 >= 1.05 * 0.05 else "#ffffff"


SEQUENTIAL = Palette(
    "viridis", ("440154", "482878", "3e4989", "31688e", "26828e", "1f9e89", "35b779", "6ece58", "b5de2b", "fde725")
)
"""Dark to light at even steps of lightness. Source: viridis, Smith and van der Walt, 2015."""

SEQUENTIAL_LIGHT = Palette(
    "yellow-green-blue", ("ffffff", "edf8b1", "c7e9b4", "7fcdbb", "41b6c4", "1d91c0", "225ea8", "0c2c84")
)
"""Light to dark, for terminals that are light. Source: ColorBrewer YlGnBu, Brewer and Harrower, 2002."""

DIVERGING = Palette("blue-red", ("67a9ff", "3f78c4", "244a7c", "1c1f26", "7a3226", "c45a3c", "ff8f66"))
"""Below 0 blue, about 0 dark, above 0 red: on a dark terminal what is near 0 recedes."""

DIVERGING_LIGHT = Palette("blue-red on light", ("2166ac", "67a9cf", "d1e5f0", "f7f7f7", "fddbc7", "ef8a62", "b2182b"))
"""Below 0 blue, 0 pale, above 0 red. Source: ColorBrewer RdBu, Brewer and Harrower, 2002."""

TINT = Palette("amber", ("2a2417", "5c4a1e", "94731d", "cf9f22", "ffcf4a"))
"""Behind the words of a sentence on a dark terminal: one hue, brighter for more."""
TINT_LIGHT = Palette("amber on light", ("fff6dc", "ffe6a3", "ffd05c", "f5b014", "d98f00"))
"""Behind the words of a sentence on a light terminal."""


def sequential(*, light: bool) -> Palette:
    """The palette of weights for a terminal."""
    return SEQUENTIAL_LIGHT if light else SEQUENTIAL


def diverging(*, light: bool) -> Palette:
    """The palette of signed values for a terminal."""
    return DIVERGING_LIGHT if light else DIVERGING


def tint(fraction: float, *, light: bool) -> str:
    """The Rich style of a word that takes this share."""
    return (TINT_LIGHT if light else TINT).style(fraction)


def shade(fraction: float, *, ascii: bool) -> str:
    """The character that stands for `fraction`, clipped to [0, 1], where there is no colour."""
    ramp = RAMP_ASCII if ascii else RAMP
    return ramp[min(int(max(fraction, 0.0) * len(ramp)), len(ramp) - 1)]


def sign(fraction: float, *, ascii: bool) -> str:
    """The character that stands for `fraction` of a signed scale, 0.5 being no difference, where there is no colour."""
    size = abs(2 * min(max(fraction, 0.0), 1.0) - 1)
    below, around, above = (BELOW_ASCII, AROUND_ASCII, ABOVE_ASCII) if ascii else (BELOW, AROUND, ABOVE)
    if size < NEAR:
        return around
    ramp = above if fraction > 0.5 else below
    return ramp[min(int((size - NEAR) / (1 - NEAR) * len(ramp)), len(ramp) - 1)]


def normalise(values: NDArray, scale: str, *, low: float | None = None, high: float | None = None) -> NDArray:
    """Values [row, column] brought to [0, 1] as float64; anything not finite (masked) is NaN.

    scale: "linear" from 0, or from the least value if that is below 0, to the greatest; "row" the
    same within each row; "log" over the three decades below the greatest, 0 and less at the
    bottom (values with negatives have no logarithm and are treated as "linear"); "signed" puts
    0 at 0.5 and the largest magnitude at 0 or 1. low, high: the range to use in place of the values' own.
    A range without extent gives 0 ("signed": 0.5). Empty arrays stay empty. Raises ValueError for another name.
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
        return np.clip(0.5 + array / (2 * size), 0, 1) if size > 0 else np.where(np.isnan(array), np.nan, 0.5)
    if scale == "row":
        without_nan = np.where(np.isnan(array), np.inf, array)
        least = np.minimum(without_nan.min(axis=1, keepdims=True), 0.0)
        most = np.where(np.isnan(array), -np.inf, array).max(axis=1, keepdims=True)
    elif scale == "log" and least >= 0:
        with np.errstate(divide="ignore"):
            array = np.maximum(np.log10(array), np.log10(most) - 3) if most > 0 else array
        least, most = (np.log10(most) - 3, np.log10(most)) if most > 0 else (0.0, 0.0)
    else:
        least = min(least, 0.0)
    return _share_of_range(array, least, most)


def _share_of_range(array: NDArray, low: NDArray | float, high: NDArray | float) -> NDArray:
    extent = np.asarray(high - low, np.float64)
    usable = np.isfinite(extent) & (extent > 0)
    scaled = (array - np.where(usable, low, 0.0)) / np.where(usable, extent, 1.0)
    return np.where(np.isnan(array), np.nan, np.clip(np.where(usable, scaled, 0.0), 0, 1))


if __name__ == "__main__":
    from attncli.draw.lines import line, show

    steps = [index / 60 for index in range(61)]
    for palette in (SEQUENTIAL, SEQUENTIAL_LIGHT, DIVERGING, DIVERGING_LIGHT, TINT, TINT_LIGHT):
        show(line(*((" ", palette.style(step)) for step in steps), f"  {palette.name}"))
    for ascii in (False, True):
        show(line("".join(shade(step, ascii=ascii) for step in steps)))
        show(line("".join(sign(step, ascii=ascii) for step in steps)))
