"""Which rows or columns are shown when not all fit, and how that is said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

ShownPositions = list[int | None]
"""Positions to show, in order; None where some are left out."""


def ends(count: int, room: int) -> ShownPositions:
    """All of `count` positions, or the first `room` - 1, a gap, and the last. room: at least 2."""
    if count <= max(room, 2):
        return list(range(count))
    return [*range(max(room, 2) - 1), None, count - 1]


def both_ends(count: int, room: int) -> ShownPositions:
    """All of `count` positions, or as many from either end as `room` allows with a gap between. room: at least 2."""
    if count <= max(room, 2):
        return list(range(count))
    tail = max(room, 2) // 2
    return [*range(max(room, 2) - tail), None, *range(count - tail, count)]


def strongest(values: np.ndarray[Any, Any], count: int) -> list[int]:
    """The `count` rows of [row, column] with the largest entries, in their order; of rows that are equal the first
    comes before all others' repetitions. NaN is no entry. All, if there are no more."""
    comparable = np.where(np.isnan(values), -np.inf, values)
    largest = comparable.max(axis=1, initial=-np.inf)
    is_repeated = np.ones(len(comparable), bool)
    is_repeated[np.unique(comparable, axis=0, return_index=True)[1]] = False
    return sorted(np.lexsort((-largest, is_repeated))[: max(count, 1)].tolist())


def panels(widths: Sequence[int], room: int) -> list[list[int]]:
    """Consecutive columns in as few groups as fit `room`, about equally wide; at least one column in each."""
    groups = _fill_groups(widths, room)
    least = -(-sum(widths) // max(len(groups), 1))
    return next(
        (even for limit in range(least, room) if len(even := _fill_groups(widths, limit)) == len(groups)), groups
    )


def _fill_groups(widths: Sequence[int], room: int) -> list[list[int]]:
    """Consecutive columns in groups, each as full as `room` allows."""
    groups: list[list[int]] = []
    group_width = 0
    for index, width in enumerate(widths):
        if not groups or group_width + width > room:
            groups.append([])
            group_width = 0
        groups[-1].append(index)
        group_width += width
    return groups


def window_text(positions: ShownPositions, numbers: Sequence[int], what: str) -> str:
    """Such as `columns 0–6, 39 of 40`; "" when nothing is left out."""
    if None not in positions:
        return ""
    gap = positions.index(None)
    parts = [part for part in (positions[:gap], positions[gap + 1 :]) if part]
    spans = []
    for part in parts:
        first, last = (numbers[index] for index in (part[0], part[-1]) if index is not None)
        spans.append(f"{first}" if first == last else f"{first}–{last}")
    return f"{what} {', '.join(spans)} of {len(numbers)}"


def strongest_text(rows: tuple[int, int], columns: tuple[int, int]) -> str:
    """How many of how many were chosen for their largest entries; "" where all are shown."""
    parts = [f"{shown_count} of {count} {what}" for (shown_count, count), what in ((rows, "rows"), (columns, "columns"))
             if shown_count < count]  # fmt: skip
    return f"{', '.join(parts)} shown, those with the largest values; --full shows all" if parts else ""
