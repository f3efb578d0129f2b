"""A sentence of the reader's own: one of its words is to be said at another."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from attncli.features.learn.architecture import Architecture
from attncli.features.learn.tasks.task import Bools, Score, Task
from attncli.features.learn.training import NO_TARGET, Batch
from attncli.language import message
from attncli.mechanism.mask import Everywhere


class OwnSentence(Task):
    """One head over one sentence, without a residual: what is predicted at the query's word is made
    of what the head moves there alone.

    The only text is the sentence itself, so it can be learned in several ways: whether the head
    looks at the target is for the scores to tell.
    """

    name = "sentence"
    summary = message(
        "a sentence of your own: at the word --query, the word --target is to be said"
    )
    lesson = message("attention is not importance: a seed may solve it while looking elsewhere")
    architecture = Architecture(
        layers=1, heads=1, position="none", mask=Everywhere(), residual=False
    )
    steps = 100
    batch = 1
    rate = 2e-3
    scores = (Score("target", 0.5, message("a head that looks at the target")),)
    takes = "TEXT"
    tested_apart = False

    def __init__(self, tokens: tuple[str, ...], query: int, target: int) -> None:
        self.tokens = tokens
        self.query = query
        self.target = target
        self.words = tuple(dict.fromkeys(tokens))  # each once
        self.length = len(tokens)

    @property
    def chance(self) -> float:
        """The loss of a guess among the different words of the sentence, in nats; that of a guess
        between two where it has only one, since shares of a chance of 0 do not exist."""
        return math.log(max(len(self.words), 2))

    def draw(self, seed: int, stream: str, size: int) -> Batch:
        """A batch of one text, the sentence, whatever the seed and the size."""
        del seed, stream
        sentence = [self.words.index(word) for word in self.tokens]
        ids = np.asarray([sentence] * min(size, 1))  # no text of size 0
        targets = np.full(ids.shape, NO_TARGET)
        targets[:, self.query] = ids[:, self.target]
        return Batch(ids, targets)

    def pairs(self, batch: Batch) -> Mapping[str, Bools]:
        """The pairs of the query with every key that is the target's word, as "target", [text, query,
        key]: which of several such keys is looked at makes no difference to what is said."""
        pairs = np.zeros((*batch.ids.shape, batch.ids.shape[-1]), bool)
        pairs[:, self.query] = batch.ids == batch.ids[:, [self.target]]
        return {"target": pairs}
