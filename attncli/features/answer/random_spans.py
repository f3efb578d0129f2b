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
    """Draw random spans of `count` neighbouring tokens of a prompt, as controls for a region of as
    many tokens. Spans lie inside the other regions where enough fit there; else also in the text
    between regions; else they may reach over that text into the next region; and last, they lie
    anywhere in the prompt. Tokens where heads rest (put weight when they look for nothing) are
    skipped.

    Args:
        count: Tokens of a span.
        compared: The tokens of the regions that are compared.
        closed: Tokens that no span may have.
        rest: Of each token of the prompt, whether heads rest on it.
        stream: The seed, and the name of the draw.

    Returns:
        The token indices of `DRAWS` spans in order, all different; [] where the prompt has fewer.
    """
    seed, name = stream
    for pool, may_leap in _rooms(compared, closed, rest):
        starts = _starts(pool, count, rest, may_leap=may_leap)
        if len(starts) >= DRAWS:
            # a random order of the starts, of which the first are taken
            order = integers(seed, name, len(starts)).argsort(kind="stable")
            first_starts = sorted(starts[place] for place in order[:DRAWS].tolist())
            return [tuple(pool[start : start + count]) for start in first_starts]
    return []


def _rooms(
    compared: Collection[int], closed: Collection[int], rest: Bools
) -> Iterator[tuple[list[int], bool]]:
    """Yield the pools of tokens from which spans may be drawn, the narrowest first: the indices of
    the tokens, ascending, and whether a span may leap over tokens that are not in the pool.

    compared: the tokens of the regions that are compared.
    closed: tokens that no span may have.
    rest: of each token of the prompt, whether heads rest on it (put weight when they look for
        nothing); these are in no pool.
    """
    in_regions = sorted(set(compared) - set(closed))
    with_between = []
    if compared:
        with_between = sorted(set(range(min(compared), max(compared) + 1)) - set(closed))
    # without the last token: its query asks for the answer
    all_tokens = sorted(set(range(len(rest) - 1)) - set(closed))
    pools = (
        (in_regions, False),
        (with_between, False),
        (in_regions, True),
        (all_tokens, True),
    )
    for pool, may_leap in pools:
        yield [token for token in pool if not rest[token]], may_leap


def _starts(pool: Sequence[int], count: int, rest: Bools, *, may_leap: bool) -> list[int]:
    """The positions in `pool` where a span of `count` tokens may begin. Unless it `may_leap`, the
    tokens of a span must be neighbours in the prompt, with nothing but resting tokens between them.

    rest: of each token of the prompt, whether it is a resting one, which no pool has.
    """
    starts = range(len(pool) - count + 1)
    if may_leap:
        return list(starts)
    # numbers the tokens that are not resting, so that neighbours differ by one
    numbers = np.cumsum(~rest)
    return [
        start
        for start in starts
        if numbers[pool[start + count - 1]] - numbers[pool[start]] == count - 1
    ]
