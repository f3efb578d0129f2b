"""Random repeats: a seeded sequence of ordinary tokens twice over, on which duplicate and induction heads show.

Nothing but the repetition tells what comes next, so a head that looks at what followed the same
token earlier can only be doing induction. Source: Olsson et al., In-context learning and induction heads, 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from attncli.inputs.token import Token
from attncli.mechanism.random_streams import integers

LENGTH = 32
"""Tokens before the repetition."""
DRAWS = 3
"""Sequences that scores are averaged over."""

LayerWeights = Iterable[tuple[int, np.ndarray[Any, Any]]]
RepeatScores = dict[tuple[int, int], dict[str, float]]


def sequence(
    ordinary: Sequence[Token], length: int, seed: int, *, before: Sequence[Token] = (), after: Sequence[Token] = ()
) -> list[Token]:
    """`length` different tokens drawn from `ordinary`, twice, between the special tokens `before` and `after`.

    Fewer ordinary tokens than `length` are drawn with repetition. Draws are equal on every machine.
    """
    numbers = integers(seed, "repeats", length)
    pool = list(range(len(ordinary)))
    repeated_tokens = []
    for number in numbers:
        pool_index = int(number) % len(pool)
        repeated_tokens.append(ordinary[pool[pool_index]])
        if len(ordinary) >= length:
            pool[pool_index] = pool[-1]
            pool.pop()
    every = [*before, *repeated_tokens, *repeated_tokens, *after]
    return [replace(token, index=index, start=None, end=None) for index, token in enumerate(every)]


def scores(
    run_tokens: Callable[[list[Token]], LayerWeights],
    ordinary: Sequence[Token],
    *,
    before: Sequence[Token] = (),
    after: Sequence[Token] = (),
    length: int = LENGTH,
    draws: int = DRAWS,
    seed: int = 0,
) -> RepeatScores:
    """For each (layer, head): mean A[i, i−r] (`repeats_duplicate`) and mean A[i, i−r+1] (`repeats_induction`) over
    the second half, r being `length`, averaged over `draws` sequences.

    run_tokens: gives each layer's number and weights [head, query, key] for some tokens.
    """
    totals: dict[tuple[int, int], np.ndarray[Any, Any]] = {}
    first = len(before) + length
    i = np.arange(first, first + length)
    for draw in range(draws):
        tokens = sequence(ordinary, length, seed + draw, before=before, after=after)
        for layer, weights in run_tokens(tokens):
            duplicate, induction = weights[:, i, i - length].mean(-1), weights[:, i, i - length + 1].mean(-1)
            for head, pair in enumerate(zip(duplicate, induction, strict=True)):
                totals[layer, head] = totals.get((layer, head), np.zeros(2)) + np.array(pair, np.float64) / draws
    return {
        place: {"repeats_duplicate": float(pair[0]), "repeats_induction": float(pair[1])}
        for place, pair in totals.items()
    }
