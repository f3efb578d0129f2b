"""Palettes are readable and even; values are brought to [0, 1] as the docstring says."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from attncli.draw.shaded_matrix import (
    DIVERGING,
    DIVERGING_LIGHT,
    LEVELS,
    RAMP,
    RAMP_ASCII,
    SEQUENTIAL,
    SEQUENTIAL_LIGHT,
    TINT,
    TINT_LIGHT,
    diverging,
    ink,
    luminance,
    normalise,
    sequential,
    shade,
    sign,
)

NAN = float("nan")


@pytest.mark.parametrize("palette", [SEQUENTIAL, SEQUENTIAL_LIGHT, DIVERGING, DIVERGING_LIGHT, TINT, TINT_LIGHT])
def test_numbers_stay_readable_on_every_level(palette) -> None:
    for level in range(LEVELS):
        behind = palette.rgb(level / (LEVELS - 1))
        light = luminance(behind)
        front = 1.0 if ink(behind) == "#ffffff" else 0.0
        contrast = (max(light, front) + 0.05) / (min(light, front) + 0.05)
        assert contrast >= 4.5


def test_the_sequential_palette_only_grows_lighter() -> None:
    lights = [luminance(SEQUENTIAL.rgb(at / (LEVELS - 1))) for at in range(LEVELS)]
    assert lights == sorted(lights)
    assert SEQUENTIAL.colour(0) == "#440154"
    assert SEQUENTIAL.colour(1) == "#fde725"
    assert SEQUENTIAL.colour(-3) == SEQUENTIAL.colour(0)
    assert SEQUENTIAL.style(1.0) == "#000000 on #fde725"


def test_what_is_near_0_recedes_into_the_terminal() -> None:
    dark, light = diverging(light=False), diverging(light=True)
    assert luminance(dark.rgb(0.5)) < min(luminance(dark.rgb(0)), luminance(dark.rgb(1)))
    assert luminance(light.rgb(0.5)) > max(luminance(light.rgb(0)), luminance(light.rgb(1)))
    assert luminance(sequential(light=True).rgb(0)) > luminance(sequential(light=True).rgb(1))


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
    np.testing.assert_allclose(normalise(np.array(values), how), np.array(expected, dtype=float), atol=1e-12)


def test_a_given_range_is_used() -> None:
    np.testing.assert_allclose(normalise(np.array([[1.0, 9.0]]), "linear", low=0.0, high=4.0), [[0.25, 1.0]])


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
