"""How a number is written on a screen: one style for a whole array, and as many digits as sums need."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_HALF_EVEN, Decimal, localcontext

import numpy as np

from attncli.documents.declaration import Numbers

Write = Callable[[float], str]


def writer(values: Numbers | Sequence[float | None], precision: int) -> Write:
    """A function that writes each of these values with `precision` digits after the point.

    Fixed notation, or scientific for all when the largest magnitude is 10⁶ or more, or too small
    to show. Never `-0.00`. Not finite: `nan`, `inf`, `-inf`.
    """
    sizes = np.abs(np.asarray(values, np.float64))
    finite = sizes[np.isfinite(sizes)]
    largest = float(finite.max()) if finite.size else 0.0
    scientific = largest >= 1e6 or 0 < largest < 0.5 * 10.0**-precision

    def write(value: float) -> str:
        text = f"{value:.{precision}{'e' if scientific else 'f'}}"
        return text[1:] if text.startswith("-") and not text.strip("-0.") else text

    return write


def without_zero(write: Write) -> Write:
    """The same without the zero before the point: `.105`, `-.02`."""

    def bare(value: float) -> str:
        text = write(value)
        return f"-{text[2:]}" if text.startswith("-0.") else text[text.startswith("0.") :]

    return bare


def format_fixed(value: float | None, digits: int) -> str:
    """One number with so many digits after the point, scientific from 10⁹ on; never `-0.00`; "" for None."""
    if value is None:
        return ""
    text = f"{value:.{digits}f}" if abs(value) < 1e9 else f"{value:.{digits}e}"
    return text[1:] if text.startswith("-") and not text.strip("-0.") else text


def brief(value: float | None) -> str:
    """One number for a header: at most 6 significant digits, no trailing zeros; `none` for None."""
    return "none" if value is None else f"{value:.6g}"


LEAST_SHARE = 0.001
"""Shares below this are written as less than it: `<0.1%` says more than `0.0%`."""
TENTH = 0.1
"""Shares below this have a digit after the point."""


def percent(value: float, digits: int = 0) -> str:
    """A share in percents, such as `89%`: the only way that screens write one, in every language. digits: after the
    point; one for shares below a tenth, also where none are asked for."""
    if 0 < value < LEAST_SHARE:
        return f"<{LEAST_SHARE:.1%}"
    return f"{value:.{digits if digits or abs(value) >= TENTH or value == 0 else 1}%}"


def root_of(scale: float, d_k: int, d_model: int) -> str:
    """How a scale comes from a size, such as `1/√64`; "" when it does not."""
    for size in (d_k, d_model):
        if size > 0 and math.isclose(scale, size**-0.5, rel_tol=1e-6):
            return f"1/√{size}"
    return ""


def size_words(count: int) -> str:
    """Bytes in words, such as `90.9 MB`."""
    for unit, size in (("PB", 10**15), ("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} bytes"


# How many digits printed terms need, so that they add up to the total that is printed.

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
