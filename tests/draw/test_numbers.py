"""Numbers as screens write them."""

from __future__ import annotations

import pytest

from attncli.draw.numbers import missed_by_intervals, percent, softmax_percent, writer
from attncli.draw.view import View
from attncli.features.effects.targets import probability_text
from attncli.language import say


def test_a_share_that_intervals_miss_is_never_called_nothing() -> None:
    assert "less than 0.01%" in say(View(), missed_by_intervals(20_000))
    assert "less than 13%" in say(View(), missed_by_intervals(20))


@pytest.mark.parametrize(
    ("share", "text"),
    [
        *((1.0, "100%"), (1 - 1e-7, "100%"), (0.9999, ">99.9%"), (0.9951, "99.5%"), (0.994, "99%")),
        *((0.07, "7.0%"), (0.0004, "<0.1%"), (0.0, "0%"), (-0.0004, ">-0.1%"), (1.2, "120%")),
    ],
)
def test_a_share_is_no_whole_and_no_nothing_by_rounding(share: float, text: str) -> None:
    assert percent(share) == text


def test_a_weight_beside_others_is_never_the_whole() -> None:
    assert softmax_percent(1.0, 3) == softmax_percent(1 - 1e-7, 2) == ">99.9%"
    assert softmax_percent(1.0, 1) == "100%"
    assert softmax_percent(0.42, 3) == percent(0.42)


@pytest.mark.parametrize(
    ("probability", "text"),
    [
        *((1.0, "100%"), (0.9997, "99.9%"), (0.995, "99.5%"), (0.99, "99%"), (0.012, "1.2%")),
        *((3e-6, "0.0003%"), (4e-9, "<0.0001%")),
    ],
)
def test_a_probability_is_no_whole_and_no_power_of_ten(probability: float, text: str) -> None:
    assert probability_text(probability) == text


@pytest.mark.parametrize(("values", "text"), [([-0.0, 2e6], "0.00e+00"), ([-0.0, 2.0], "0.00")])
def test_a_negative_zero_is_a_zero_in_either_notation(values: list[float], text: str) -> None:
    write = writer(values, 2)
    assert write(-0.0) == text
    assert write(-values[1]).startswith("-2")


def test_the_ends_of_an_axis_are_told_apart() -> None:
    """A loss that fell from 2.96 to 2.66 had an axis from 3e+00 to 3e+00."""
    from attncli.draw.lines import as_text
    from attncli.draw.numbers import Series, curves

    view = View(width=60)
    loss = as_text(curves([Series("loss", ((1, 2.96), (2, 2.66)))], view), view)
    assert {"2.96", "2.66"} <= {line.partition("│")[0].strip() for line in loss.splitlines()}
    cost = as_text(curves([Series("cost", ((1, 4e12), (2, 1)))], view), view)
    assert "4e+12│" in cost
