"""How many digits printed terms need, so that they add up to the total that is printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_EVEN, Decimal, localcontext

MORE = 4
"""Digits beyond the asked precision that are tried."""


DIGITS = 400
"""Enough for the largest float, which has 309 before the point."""


def adding_digits(sums: Iterable[tuple[Sequence[float], float]], precision: int) -> int:
    """The fewest digits, at least `precision`, with which every sum holds as printed.

    A sum holds if its terms as printed, added up and rounded to `precision`, are the total as
    printed with `precision`. At most `precision` + `MORE`, where a total on the edge between
    two roundings may still be off by one in its last digit.
    """
    pairs = [(list(terms), total) for terms, total in sums]
    for digits in range(precision, precision + MORE):
        if all(adds_up(terms, total, digits, precision) for terms, total in pairs):
            return digits
    return precision + MORE


def adds_up(terms: Sequence[float], total: float, digits: int, precision: int) -> bool:
    """Whether terms printed with `digits` add up to the total printed with `precision`."""
    last = Decimal(1).scaleb(-precision)
    with localcontext() as exact:
        exact.prec = DIGITS
        total_of_terms = sum((Decimal(f"{term:.{digits}f}") for term in terms), Decimal(0)).quantize(
            last, ROUND_HALF_EVEN
        )
    return total_of_terms == Decimal(f"{total:.{precision}f}")
