"""Random repeats: a seeded sequence of ordinary tokens twice over, on which duplicate and induction heads show.

Nothing but the repetition tells what comes next, so a head that looks at what followed the same
token earlier can only be doing induction. Source: Olsson et al., In-context learning and induction heads, 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from msgspec.structs import replace

from attncli.arrays.backend import Selection
from attncli.errors import InputError, UsageError
from attncli.inputs.token import Token
from attncli.mechanism.random_streams import integers
from attncli.models.model import Model

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


# Random repeats of a model's own vocabulary, run through the model.

CANDIDATES = 4096
"""Ids that are looked at for ordinary tokens."""


def repeat_scores(model: Model, layers: Selection, *, seed: int = 0) -> RepeatScores:
    """Duplicate and induction scores of every head of these layers, on seeded random repeats.

    The tokens are words of the vocabulary, letters only; for weights without a vocabulary, made-up words. Special
    tokens stand around them as around any text. Texts are shortened to what the model's positions allow.
    """
    around = model.tokenizer.encode("a")
    first = next((index for index, token in enumerate(around) if not token.special), len(around))
    before, after = around[:first], [token for token in around[first:] if token.special]
    limit = model.spec.max_positions
    length = LENGTH if limit is None else max(min(LENGTH, (limit - len(before) - len(after)) // 2), 2)

    def run_tokens(tokens: list[Token]) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
        for trace in model.trace(tokens, layers=layers, keep=("weights",)):
            yield trace.layer, model.backend.numpy(trace.stages["weights"])

    return scores(run_tokens, ordinary(model, seed), before=before, after=after, length=length, seed=seed)


def _tokens(model: Model, ids: Sequence[int]) -> list[Token]:
    """The tokens that these ids name; an embedding may have rows that the tokenizer has no token for."""
    tokens = []
    for number in ids:
        with suppress(InputError):
            tokens += model.tokenizer.ids_to_tokens([number])
    return tokens


def ordinary(model: Model, seed: int = 0) -> list[Token]:
    """Tokens of ordinary words: letters only, two or more, no special tokens."""
    made_up = [Token(index, f"word{index}", None, None, None) for index in range(4 * LENGTH)]
    if not model.spec.vocabulary:
        return made_up
    ids = sorted({int(number) % model.spec.vocabulary for number in integers(seed, "vocabulary", CANDIDATES)})
    try:
        tokens = _tokens(model, ids)
    except UsageError:  # a tokenizer without ids: embeddings are made from the words themselves
        return made_up
    words = [
        token
        for token in tokens
        if not token.special and token.text.strip("Ġ▁ ").isalpha() and len(token.text.strip("Ġ▁ ")) > 1
    ]
    return words or [token for token in tokens if not token.special]
