"""Whole numbers as people type them."""

from __future__ import annotations

LARGEST = 1_000_000_000
"""The most of anything that can be asked for; memory refuses long before."""


def parse_whole_number(text: str, most: int = LARGEST) -> int | None:
    """The whole number from 0 to `most` that a text writes; None for any other text, however long."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(most)):
        return None
    if (value := int(digits)) <= most:
        return value
    return None
