"""Two symbols and a question mark: which of the two came first."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from attncli.arrays.numpy_backend import integers
from attncli.features.learn.architecture import Architecture
from attncli.features.learn.tasks.task import LETTERS, Bools, Score, Task
from attncli.features.learn.training import NO_TARGET, Batch
from attncli.language import message

SYMBOLS = LETTERS[:8]
QUESTION = "?"


class WhichFirst(Task):
    """Two symbols and a question mark, at which the first of them is to be predicted: `c f ?` → c.
    One layer: what a query gets from keys does not depend on their order unless positions say
    it."""

    name = "order"
    summary = message("two symbols, then a question mark: which of the two came first")
    lesson = message("without positions attention does not know the order")
    architecture = Architecture(layers=1, heads=2)
    steps = 300
    batch = 64
    scores = (
        Score("first", 0.6, message("a head that looks at the first symbol")),
        Score("second", 0.6, message("a head that looks at the second symbol")),
    )

    def __init__(self) -> None:
        self.words = (*SYMBOLS, QUESTION)
        self.length = 3  # two symbols and the question mark

    @property
    def chance(self) -> float:
        """The loss of knowing the two symbols, and not their order, in nats."""
        return math.log(2)

    def draw(self, seed: int, stream: str, size: int) -> Batch:
        """Texts of two different symbols and a question mark, whose target is the first of them.

        Random numbers of a stream sort all symbols, and the first two of that order are taken.
        """
        numbers = integers(seed, f"order\0{stream}", size * len(SYMBOLS))
        numbers = numbers.reshape(size, len(SYMBOLS))
        ids = np.argsort(numbers, 1, kind="stable")[:, :3]
        first = ids[:, 0].copy()
        ids[:, 2] = len(SYMBOLS)  # the question mark, in place of the third symbol
        targets = np.full(ids.shape, NO_TARGET)
        targets[:, 2] = first
        return Batch(ids, targets)

    def pairs(self, batch: Batch) -> Mapping[str, Bools]:
        """For the question mark as query, which key is the "first" symbol and which the "second",
        [text, query, key]."""
        shape = (*batch.ids.shape, batch.ids.shape[-1])
        first = np.zeros(shape, bool)
        second = np.zeros(shape, bool)
        # the question mark stands at 2, the symbols at 0 and 1
        first[:, 2, 0] = True
        second[:, 2, 1] = True
        return {"first": first, "second": second}
