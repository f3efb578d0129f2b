"""Random spans of neighbouring tokens, which a region of as many is compared with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from attncli.arrays.numpy_backend import integers

Bools = np.ndarray[Any, np.dtype[np.bool_]]

DRAWS = 5
"""Random spans that a region is compared with."""


def random_spans(
    count: int,
    compared: Collection[int],
    closed: Collection[int],
    rest: Bools,
    stream: tuple[int, str],
) -> list[tuple[int, ...]]:
    """Draw random spans of `count` neighbouring tokens of a prompt, as controls for the regions
    compared. Spans lie inside one region where enough fit there; else also in the text between
    regions; else they may reach over that text into the next region; and last, they lie anywhere in
    the prompt. Tokens where heads rest are skipped.

    Args:
        count: Tokens of a span.
        compared: The tokens of the regions that are compared.
        closed: Tokens that no span may have.
        rest: Of each token of the prompt, whether heads rest on it.
        stream: The seed, and the name of the draw.

    Returns:
        `DRAWS` spans in order, all different; none where the prompt has not as many.
    """
    seed, name = stream
    for room, joined in _rooms(compared, closed, rest):
        starts = _starts(room, count, rest, joined=joined)
        if len(starts) >= DRAWS:
            order = integers(seed, name, len(starts)).argsort(kind="stable")
            chosen = sorted(starts[place] for place in order[:DRAWS].tolist())
            return [tuple(room[start : start + count]) for start in chosen]
    return []


def _rooms(
    compared: Collection[int], closed: Collection[int], rest: Bools
) -> Iterator[tuple[list[int], bool]]:
    """Yield the tokens that may be drawn, in order, and whether a span may go across others: the
    narrowest choice first."""
    among = sorted(set(compared) - set(closed))
    between = []
    if compared:
        between = sorted(set(range(min(compared), max(compared) + 1)) - set(closed))
    # the last token asks for the answer
    every = sorted(set(range(len(rest) - 1)) - set(closed))
    for room, may_cross in ((among, False), (between, False), (among, True), (every, True)):
        yield [token for token in room if not rest[token]], may_cross


def _starts(room: Sequence[int], count: int, rest: Bools, *, joined: bool) -> list[int]:
    """The positions in `room` where a span of `count` tokens may begin. Its tokens must be
    neighbours, apart from tokens where heads rest, unless `joined`."""
    numbers = np.cumsum(~rest)
    starts = range(len(room) - count + 1)
    if joined:
        return list(starts)
    return [
        start
        for start in starts
        if numbers[room[start + count - 1]] - numbers[room[start]] == count - 1
    ]
