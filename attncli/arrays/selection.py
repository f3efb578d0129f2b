"""Which layers or heads are meant: some by number, or every one there is."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Final, Literal, TypeAlias


class Every(Enum):
    """All there are, however many that be."""

    EVERY = "every"


EVERY: Final = Every.EVERY
"""All of them, where a selection is asked for."""
Selection: TypeAlias = Collection[int] | Literal[Every.EVERY]
"""Numbers from 0, or `EVERY`."""


def numbers_of(selection: Selection, count: int) -> list[int]:
    """The numbers of a selection among so many, in its order; of `EVERY` 0 to count − 1."""
    return list(range(count) if selection is EVERY else selection)


def is_selected(selection: Selection, number: int) -> bool:
    """Whether a selection has this number."""
    return selection is EVERY or number in selection
