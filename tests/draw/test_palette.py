"""Palettes are readable and even; values are brought to [0, 1] as the docstring says."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from rich._palettes import EIGHT_BIT_PALETTE, STANDARD_PALETTE
from rich.color import Color, ColorSystem

from attncli.draw.lines import COLOR_SYSTEMS
from attncli.draw.shaded_matrix import (
    AMBER,
    AMBER_LIGHT,
    BLUE_RED,
    BLUE_RED_LIGHT,
    LEVELS,
    RAMP,
    RAMP_ASCII,
    Palette,
    ink,
    luminance,
    normalise,
    palette_of,
    shade,
    sign,
    tint,
)
from attncli.draw.view import View

NAN = float("nan")
PALETTES = [
    (colors, each) for each in (AMBER, AMBER_LIGHT, BLUE_RED, BLUE_RED_LIGHT) for colors in each
]


def printed(palette: Palette, colors: str) -> list[float]:
    """The luminance of each level as a terminal of so many colours shows it, after Rich has chosen."""
    system = ColorSystem[
        {"256": "EIGHT_BIT", "standard": "STANDARD", "truecolor": "TRUECOLOR"}[
            COLOR_SYSTEMS[colors]
        ]
    ]
    theme = STANDARD_PALETTE if colors == "16" else EIGHT_BIT_PALETTE
    shown = [
        Color.parse(palette.colour(at / (LEVELS - 1))).downgrade(system) for at in range(LEVELS)
    ]
    return [
        luminance(tuple(theme[each.number] if each.number is not None else each.get_truecolor()))
        for each in shown
    ]


@pytest.mark.parametrize(("colors", "palettes"), PALETTES)
def test_numbers_stay_readable_on_every_level(colors: str, palettes: dict[str, Palette]) -> None:
    for level in range(LEVELS):
        behind = palettes[colors].rgb(level / (LEVELS - 1))
        light = luminance(behind)
        front = 1.0 if ink(behind) == "#ffffff" else 0.0
        contrast = (max(light, front) + 0.05) / (min(light, front) + 0.05)
        assert contrast >= 4.5


@pytest.mark.parametrize("colors", AMBER)
def test_more_is_lighter_on_a_dark_terminal_and_darker_on_a_light_one(colors: str) -> None:
    dark, light = printed(AMBER[colors], colors), printed(AMBER_LIGHT[colors], colors)
    assert dark == sorted(dark)
    assert light == sorted(light, reverse=True)
    least = {"truecolor": LEVELS, "256": 7, "16": 4}[colors]
    assert len(set(dark)) >= least
    assert len(set(light)) >= least


@pytest.mark.parametrize("colors", BLUE_RED)
def test_what_is_further_from_0_stands_out_more(colors: str) -> None:
    for palettes, away in ((BLUE_RED, False), (BLUE_RED_LIGHT, True)):
        shown = printed(palettes[colors], colors)
        below, above = shown[: LEVELS // 2][::-1], shown[LEVELS // 2 :]
        assert below == sorted(below, reverse=away)
        assert above == sorted(above, reverse=away)


@pytest.mark.parametrize("colors", AMBER)
def test_nothing_looks_like_the_ground(colors: str) -> None:
    for palette in (palette_of(View(colors=colors)), palette_of(View(colors=colors), signed=True)):
        assert min(printed(palette, colors)) < 0.02
    for palette in (
        palette_of(View(colors=colors, light=True)),
        palette_of(View(colors=colors, light=True), signed=True),
    ):
        assert max(printed(palette, colors)) > 0.92
    assert palette_of(View(colors=colors)).rgb(0) == palette_of(View(colors=colors)).rgb(-3)


def test_a_word_and_a_cell_of_one_weight_have_one_colour() -> None:
    for view in (View(), View(light=True), View(colors="256"), View(colors="16")):
        assert [tint(at / 9, view) for at in range(10)] == [
            palette_of(view).style(at / 9) for at in range(10)
        ]


def test_ramps() -> None:
    assert [shade(at / 4, ascii=False) for at in range(5)] == list(RAMP)
    assert "".join(dict.fromkeys(shade(at / 100, ascii=True) for at in range(101))) == RAMP_ASCII
    assert shade(2.0, ascii=True) == "@"
    assert shade(-1.0, ascii=True) == "."


@pytest.mark.parametrize(
    ("values", "how", "expected"),
    [
        ([[0.0, 1.0, 2.0]], "linear", [[0, 0.5, 1]]),
        ([[1.0, 2.0]], "linear", [[0.5, 1]]),
        ([[-1.0, 0.0, 1.0]], "linear", [[0, 0.5, 1]]),
        ([[1.0, NAN], [-math.inf, 2.0]], "linear", [[0.5, NAN], [NAN, 1]]),
        ([[1.0, 2.0], [10.0, 5.0]], "row", [[0.5, 1], [1, 0.5]]),
        ([[NAN, NAN], [0.0, 0.0]], "row", [[NAN, NAN], [0, 0]]),
        ([[1.0, 0.1, 0.01, 0.001, 1e-9, 0.0]], "log", [[1, 2 / 3, 1 / 3, 0, 0, 0]]),
        ([[-2.0, 0.0, 1.0]], "log", [[0, 2 / 3, 1]]),
        ([[-2.0, 0.0, 1.0]], "signed", [[0, 0.5, 0.75]]),
        ([[0.0, NAN]], "signed", [[0.5, NAN]]),
        ([[0.0, 0.0]], "linear", [[0, 0]]),
        ([[0.0, 0.0]], "log", [[0, 0]]),
        ([[NAN]], "linear", [[NAN]]),
    ],
)
def test_normalise(values: list[list[float]], how: str, expected: list[list[float]]) -> None:
    np.testing.assert_allclose(
        normalise(np.array(values), how), np.array(expected, dtype=float), atol=1e-12
    )


def test_a_given_range_is_used() -> None:
    np.testing.assert_allclose(
        normalise(np.array([[1.0, 9.0]]), "linear", low=0.0, high=4.0), [[0.25, 1.0]]
    )


def test_an_empty_array_and_an_unknown_scale() -> None:
    assert normalise(np.zeros((0, 3)), "row").shape == (0, 3)
    with pytest.raises(ValueError, match="no scale named 'cubic'"):
        normalise(np.ones((1, 1)), "cubic")


@settings(deadline=None, max_examples=100)
@given(
    hnp.arrays(np.float64, (3, 5), elements=st.floats(allow_nan=True, allow_infinity=True)),
    st.sampled_from(["linear", "row", "log", "signed"]),
)
def test_always_within_bounds_and_masked_stays_masked(values, how: str) -> None:
    with np.errstate(over="ignore"):
        found = normalise(values, how)
    np.testing.assert_array_equal(np.isnan(found), ~np.isfinite(values))
    seen = found[np.isfinite(found)]
    assert ((seen >= 0) & (seen <= 1)).all()


@pytest.mark.parametrize("ascii", [True, False])
def test_signs_are_told_apart_without_colour(ascii: bool) -> None:
    marks = [sign(step / 100, ascii=ascii) for step in range(101)]
    below, around, above = {*marks[:44]}, {*marks[44:57]}, {*marks[57:]}
    assert (len(below), len(around), len(above)) == (3, 1, 3)
    assert not below & above
    assert not around & (below | above)
    assert sign(2.0, ascii=ascii) == marks[-1] != sign(-1.0, ascii=ascii) == marks[0]
    assert all(mark.isascii() for mark in marks) == ascii
