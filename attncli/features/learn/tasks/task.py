"""`Task`: what is to be learned: its texts, what can be known in them, and the scores that show how
it is done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from msgspec import Struct

from attncli.features.learn.architecture import Architecture
from attncli.features.learn.training import Batch
from attncli.language import Message

Floats = np.ndarray[Any, Any]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Integers = np.ndarray[Any, Any]

LETTERS = "abcdefghijklmnop"
"""The symbols of tasks that have no text of their own."""
LEARNED = 0.1
"""A loss below this share of chance is learned."""


class Score(Struct, frozen=True):
    """A score of heads: the weight that rows give to certain keys, the mean over the rows that have
    such keys.

    threshold: from where a head is said to do it.
    head: what such a head is called.
    meaning: of which rows and keys the score is, where its name does not say it.
    """

    name: str
    threshold: float
    head: Message
    meaning: Message | None = None


class Reference(Struct, frozen=True):
    """A loss to compare with: that of guessing in a certain way."""

    name: Message
    loss: float


class Task(ABC):
    """One task. A new one is one file in this folder, with a class of its own; its name is the
    file's.

    summary: what its texts are.
    lesson: what it shows.
    architecture, steps, batch, rate: what it is learned with where the options say nothing else.
    thrift: what heads pay for writing, see `Trainer`.
    scores: those that show how it is done.
    forms: the names of those of which some head must do each, for it to be done so; none where any
        way will do.
    tested_apart: whether the stream "test" has texts that are not trained on.
    bottleneck: whether a decoder sees one vector of its encoder's alone.
    """

    name: ClassVar[str]
    summary: ClassVar[Message]
    lesson: ClassVar[Message]
    architecture: ClassVar[Architecture] = Architecture()
    steps: ClassVar[int] = 300
    batch: ClassVar[int] = 32
    rate: ClassVar[float] = 5e-3
    thrift: ClassVar[float] = 0.0
    scores: ClassVar[tuple[Score, ...]] = ()
    forms: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[str] = ""
    by_character: ClassVar[bool] = False
    tested_apart: ClassVar[bool] = True
    bottleneck: bool = False

    words: Sequence[str]
    """Its vocabulary, ids in order; the token for unknown words comes after them."""
    length: int
    """Tokens of each text."""

    @property
    @abstractmethod
    def chance(self) -> float:
        """The loss of guessing without having read the text, in nats."""

    @property
    def goal(self) -> float:
        """The loss below which the task is learned."""
        return LEARNED * self.chance

    @abstractmethod
    def draw(self, seed: int, stream: str, size: int) -> Batch:
        """A batch of `size` texts, drawn at random from the seed and the name of a stream, such as
        "test".
        """

    @abstractmethod
    def pairs(self, batch: Batch) -> Mapping[str, Bools]:
        """By the name of each score, which (query, key) pairs count for it, booleans [text, query,
        key].
        """

    def references(self) -> Sequence[Reference]:
        """Losses to compare with, besides chance."""
        return ()

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of these ids, as the tokenizer of a saved checkpoint reads it."""
        return ("" if self.by_character else " ").join(self.words[number] for number in ids)


def head_scores(weights: Sequence[Floats], pairs: Mapping[str, Bools]) -> dict[str, Floats]:
    """By the name of each score, its value for each head, [layer, head], NaN where no row has keys
    that count.

    weights: of each layer, [text, head, query, key].
    pairs: [text, query, key].
    """
    return {
        name: np.stack([_mean_weight(layer, counted) for layer in weights])
        for name, counted in pairs.items()
    }


def largest_share(weights: Floats, counted: Bools) -> float:
    """The share of the rows with keys that count in which one of them has the largest weight, the
    first of equals.

    weights: of one head, [text, query, key].
    counted: which keys count, booleans [text, query, key].
    """
    has_key = counted.any(-1)
    best = weights.argmax(-1)
    # of each row whether its best key counts, [text, query]
    best_counts = np.take_along_axis(counted, best[..., None], -1)[..., 0]
    return float(best_counts[has_key].mean())


def even_scores(visible: Bools, pairs: Mapping[str, Bools]) -> dict[str, float]:
    """By the name of each score, its value for a head that looks at all visible keys alike.

    visible: [query, key], or of each text, [text, query, key].
    pairs: which count, [text, query, key].
    """
    even = visible / np.maximum(visible.sum(-1, keepdims=True), 1)
    return {
        name: float(_mean_weight(even[..., None, :, :], counted)[0])
        for name, counted in pairs.items()
    }


def _mean_weight(weights: Floats, counted: Bools) -> Floats:
    """The weight of each head on the counted keys, mean over the rows that have such keys, [head];
    NaN where none has.

    weights: [text, head, query, key].
    counted: [text, query, key].
    """
    has_key = counted.any(-1)  # which rows have keys that count, [text, query]
    if not has_key.any():
        return np.full(weights.shape[-3], np.nan)
    # of each row the sum over these keys, [text, head, query]: 0 in rows without any
    sums = np.einsum("...hqk,...qk->...hq", weights, counted.astype(weights.dtype))
    result: Floats = sums.sum((0, -1), dtype=np.float64) / has_key.sum()
    return result


def previous_pairs(ids: Integers) -> Bools:
    """Which key is the token before each query, [text, query, key].

    ids: [text, token].
    """
    count = ids.shape[-1]
    return np.broadcast_to(np.eye(count, k=-1, dtype=bool), (*ids.shape, count))


def after_same_pairs(ids: Integers) -> Bools:
    """Which keys stand right after an earlier token of the same id as the query, [text, query,
    key].

    ids: [text, token].
    """
    count = ids.shape[-1]
    no_token = np.full((len(ids), 1), -1)
    previous_ids = np.concatenate([no_token, ids[:, :-1]], 1)  # of the token before each key
    same: Bools = ids[:, :, None] == previous_ids[:, None, :]
    return same & np.tri(count, dtype=bool)
