"""Random symbols: after each, the one before it is to be said. The simplest head there is."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from attncli.arrays.numpy_backend import integers
from attncli.features.learn.architecture import Architecture
from attncli.features.learn.tasks.task import LETTERS, Bools, Score, Task, previous_pairs
from attncli.features.learn.training import NO_TARGET, Batch
from attncli.language import message


class Previous(Task):
    """Random symbols, at each of which the one before it is to be predicted: `c f a k` → c at f, f
    at a, a at k.
    """

    name = "previous"
    summary = message("random symbols; after each, the one before it is to be said")
    lesson = message("the simplest head, in one layer")
    architecture = Architecture(layers=1, heads=1)
    steps = 200
    scores = (Score("previous", 0.5, message("a previous-token head")),)
    forms = ("previous",)

    def __init__(self) -> None:
        self.words = LETTERS
        self.length = 16  # tokens of a text

    @property
    def chance(self) -> float:
        """The loss of a guess among all symbols, in nats."""
        return math.log(len(self.words))

    def draw(self, seed: int, stream: str, size: int) -> Batch:
        """Texts of random symbols; the target of each is the one before."""
        numbers = integers(seed, f"previous\0{stream}", size * self.length)
        ids = (numbers % len(self.words)).astype(np.int64).reshape(size, self.length)
        targets = np.full(ids.shape, NO_TARGET)
        targets[:, 1:] = ids[:, :-1]
        return Batch(ids, targets)

    def pairs(self, batch: Batch) -> Mapping[str, Bools]:
        """The pairs of each query with the key before it, as "previous", [text, query, key]."""
        return {"previous": previous_pairs(batch.ids)}
