"""A text of the reader's own, character by character: what comes next is to be said, as language
models do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from attncli.arrays.numpy_backend import integers
from attncli.features.learn.architecture import Architecture
from attncli.features.learn.tasks.task import (
    Bools,
    Floats,
    Integers,
    Reference,
    Score,
    Task,
    after_same_pairs,
    previous_pairs,
)
from attncli.features.learn.training import Batch
from attncli.language import message

WINDOW = 32
"""Characters that are read at once."""
APART = 10
"""One of so many parts of a text, the last, is kept apart to be tested on."""
MOST_WORDS = 400
"""Characters of the vocabulary; rarer ones are unknown."""


class OwnText(Task):
    """Pieces of a text of one's own, of which each next character is to be predicted. Its last
    tenth is never trained on: losses are those on it."""

    name = "text"
    summary = message("a text of your own, by character: what comes next is to be said")
    lesson = message("what a language model is trained to do, against counting pairs of characters")
    architecture = Architecture(layers=2, heads=2)
    steps = 300
    rate = 5e-3
    scores = (
        Score("previous", 0.4, message("a previous-token head")),
        Score("same", 0.4, message("a head that looks after the same character")),
    )
    takes = "FILE"
    by_character = True

    def __init__(self, text: str) -> None:
        """Number the characters of the text, and set its last part apart to test on."""
        # ids of characters; rare ones share the last id, that of the unknown character
        counts = Counter(text)
        common = {character for character, _ in counts.most_common(MOST_WORDS)}
        self.words = tuple(sorted(common))
        numbers = {character: number for number, character in enumerate(self.words)}
        self._ids = np.asarray([numbers.get(character, len(self.words)) for character in text])
        self.length = WINDOW
        # where the part begins that is kept apart to test on: a share of the text, and a piece at
        # least
        self._end = len(self._ids) - max(len(self._ids) // APART, WINDOW + 1)

    @property
    def chance(self) -> float:
        """The loss of a guess among the characters of the text, in nats."""
        return math.log(max(len(self.words), 2))

    @property
    def goal(self) -> float:
        """The loss of counting pairs of characters: what needs no attention."""
        return self.references()[-1].loss

    def draw(self, seed: int, stream: str, size: int) -> Batch:
        """Pieces of the part that is trained on; for the stream "test", of the part that is kept
        apart.
        """
        test = stream == "test"
        if test:
            ids = self._ids[self._end :]
        else:
            ids = self._ids[: self._end]
        starts = integers(seed, f"text\0{stream}", size).astype(np.int64) % (len(ids) - WINDOW)
        # one character more than a piece: each target is the next character
        rows = ids[starts[:, None] + np.arange(WINDOW + 1)]
        return Batch(rows[:, :-1], rows[:, 1:])

    def pairs(self, batch: Batch) -> Mapping[str, Bools]:
        """Which keys count for each query, [text, query, key]: "previous", the one before it;
        "same", those right after an earlier character equal to the query."""
        return {"previous": previous_pairs(batch.ids), "same": after_same_pairs(batch.ids)}

    def references(self) -> Sequence[Reference]:
        """The losses, on the part that is kept apart, of predicting each character by how often it
        occurs in the other part, and by how often it follows the one before it. Each count is one
        more, so that nothing has a probability of 0."""
        train_ids = self._ids[: self._end]
        test_ids = self._ids[self._end :]
        kinds = len(self.words) + 1  # and the unknown character
        single = np.bincount(train_ids, minlength=kinds) + 1.0
        pairs = np.ones((kinds, kinds))  # [character, next character]
        np.add.at(pairs, (train_ids[:-1], train_ids[1:]), 1.0)
        next_shares = (pairs / pairs.sum(1, keepdims=True)).reshape(-1)
        pair_entries = test_ids[:-1] * kinds + test_ids[1:]
        single_loss = _mean_surprise(single / single.sum(), test_ids[1:])
        pair_loss = _mean_surprise(next_shares, pair_entries)
        return (
            Reference(message("counting characters"), single_loss),
            Reference(message("counting pairs of characters"), pair_loss),
        )


def _mean_surprise(shares: Floats, entries: Integers) -> float:
    """The mean of −ln p of the entries, in nats.

    shares: p of every entry.
    entries: indices into them.
    """
    return float(-np.log(shares[entries]).mean())
