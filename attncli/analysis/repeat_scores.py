"""Random repeats of a model's own vocabulary, run through the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from attncli.analysis.random_repeats import LENGTH, RepeatScores, scores
from attncli.arrays.backend import Selection
from attncli.errors import InputError, UsageError
from attncli.inputs.token import Token
from attncli.mechanism.random_streams import integers
from attncli.models.model import Model

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
