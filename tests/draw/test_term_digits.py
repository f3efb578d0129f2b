"""Printed terms that add up to the printed total."""

import sys

from attncli.draw.numbers import adding_digits, adds_up


def test_the_fewest_digits_with_which_a_sum_holds() -> None:
    assert adding_digits([([0.5, 0.25], 0.75)], 2) == 2
    assert adding_digits([([0.004, 0.004, 0.004], 0.012)], 2) == 3
    assert not adds_up([0.004, 0.004, 0.004], 0.012, 2, 2)


def test_sums_of_any_size() -> None:
    largest = sys.float_info.max
    for term in (1e25, -1e300, largest / 2):
        assert adds_up([term, term], 2 * term, 6, 2)
        assert not adds_up([term, term], 3 * term if term < 1e300 else term, 6, 2)
