"""Numbers as screens write them."""

from __future__ import annotations

from attncli.draw.numbers import missed_by_intervals
from attncli.draw.view import View
from attncli.language import say


def test_a_share_that_intervals_miss_is_never_called_nothing() -> None:
    assert "less than 0.01%" in say(View(), missed_by_intervals(20_000))
    assert "less than 13%" in say(View(), missed_by_intervals(20))
