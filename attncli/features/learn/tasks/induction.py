"""Texts that begin to repeat, at a distance that differs from text to text: the two-layer circuit
that copies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from attncli.arrays.numpy_backend import integers
from attncli.features.learn.tasks.task import (
    LETTERS,
    Bools,
    Score,
    Task,
    after_same_pairs,
    previous_pairs,
)
from attncli.features.learn.training import NO_TARGET, Batch
from attncli.language import message

SHORTEST, LONGEST = 5, 11
"""Tokens of a cycle."""


class Induction(Task):
    """A random cycle of 5 to 11 different symbols, again and again. Source: Olsson et al.,
    In-context learning and induction heads, 2022."""

    name = "induction"
    summary = message("a random cycle of symbols, repeated; the distance differs from text to text")
    lesson = message(
        "the two-layer circuit that copies: a previous-token head, then an induction head"
    )
    scores = (
        Score("previous", 0.25, message("a previous-token head")),
        Score("induction", 0.4, message("an induction head")),
    )
    forms = ("previous", "induction")

    def __init__(self) -> None:
        self.words = LETTERS
        self.length = 24  # tokens of a text

    @property
    def chance(self) -> float:
        """The loss of a guess among all symbols, in nats."""
        return math.log(len(self.words))

    def draw(self, seed: int, stream: str, size: int) -> Batch:
        """Texts that repeat a cycle of random length; targets from its second time on.

        Of each text a stream gives one random number for each symbol, which sort the symbols, and
        one for the length of the cycle.
        """
        kinds = len(self.words)
        numbers = integers(seed, f"induction\0{stream}", size * (kinds + 1))
        numbers = numbers.reshape(size, kinds + 1)
        order = np.argsort(numbers[:, :kinds], 1, kind="stable")
        period = SHORTEST + (numbers[:, kinds:] % (LONGEST - SHORTEST + 1)).astype(np.int64)
        places = np.arange(self.length + 1)[None]  # one more: each target is the next symbol
        ids = np.take_along_axis(order, places % period, 1)
        # from the second time on, what comes next is known; before, it is not
        targets = np.where(places[:, :-1] >= period, ids[:, 1:], NO_TARGET)
        return Batch(ids[:, :-1], targets)

    def pairs(self, batch: Batch) -> Mapping[str, Bools]:
        """Which keys count for each query, [text, query, key]: "previous", the one before it;
        "induction", those right after an earlier token equal to the query."""
        return {"previous": previous_pairs(batch.ids), "induction": after_same_pairs(batch.ids)}
