"""A list of keys with values, then keys again: the value that stood after each is to be said."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from attncli.arrays.numpy_backend import integers
from attncli.features.learn.architecture import Architecture
from attncli.features.learn.tasks.task import Bools, Integers, Score, Task, previous_pairs
from attncli.features.learn.training import NO_TARGET, Batch
from attncli.language import message

KEYS, VALUES = "abcdefgh", "12345678"
PAIRS = 6
"""Pairs in a text; each key is then asked for once, in another order, and answered."""


class Lookup(Task):
    """A list of letters, each with a digit, then the letters in another order, each followed by its
    digit, which is to be predicted."""

    name = "lookup"
    summary = message("keys with values, then the keys in another order: a 3 c 1 … c → 1")
    lesson = message(
        "queries as search: from a key that is asked for to the value that stood after it"
    )
    architecture = Architecture(heads=4)
    steps = 500
    thrift = 5.0
    """With 0 two to four heads come to look up the same, and none of them is missed; with this,
    that is one head's.
    """
    scores = (
        Score("previous", 0.25, message("a previous-token head")),
        Score("value", 0.4, message("a head that looks up the value")),
        Score("key", 0.4, message("a head that finds the key")),
    )
    forms = ("value",)

    def __init__(self) -> None:
        self.words = (*KEYS, *VALUES)
        self.length = 4 * PAIRS - 1

    @property
    def chance(self) -> float:
        """The loss of a guess among all digits, in nats."""
        return math.log(len(VALUES))

    def draw(self, seed: int, stream: str, size: int) -> Batch:
        """Texts with a list of letters and their digits, then the letters in another order; targets
        are the letters' digits."""
        width = len(KEYS) + 2 * PAIRS
        numbers = integers(seed, f"lookup\0{stream}", size * width).reshape(size, width)
        keys = np.argsort(numbers[:, : len(KEYS)], 1, kind="stable")[:, :PAIRS]
        values = len(KEYS) + (numbers[:, len(KEYS) : len(KEYS) + PAIRS] % len(VALUES)).astype(
            np.int64
        )
        order = np.argsort(numbers[:, len(KEYS) + PAIRS :], 1, kind="stable")
        listed = np.stack([keys, values], -1)
        queries = np.take_along_axis(listed, order[..., None], 1)
        ids = np.concatenate([listed, queries], 1).reshape(size, -1)
        targets = np.full(ids.shape, NO_TARGET)
        targets[:, 2 * PAIRS :: 2] = ids[:, 2 * PAIRS + 1 :: 2]
        return Batch(ids[:, :-1], targets[:, :-1])

    def pairs(self, batch: Batch) -> Mapping[str, Bools]:
        """Which keys of attention count for each query, [text, query, key]: "previous", the one
        before it; "value", the digit to be looked up; "key", its letter in the list."""
        key = _pairs_of_listed_word(batch.ids)
        value = np.zeros_like(key)
        value[..., 1:] = key[..., :-1]
        return {"previous": previous_pairs(batch.ids), "value": value, "key": key}


def _pairs_of_listed_word(ids: Integers) -> Bools:
    """Which pairs join a word asked for (query) to the same word in the list before it (key),
    [text, query, key].

    ids: [text, token].
    """
    places = np.arange(ids.shape[-1])
    asks = (places >= 2 * PAIRS) & (places % 2 == 0)
    listed = (places < 2 * PAIRS) & (places % 2 == 0)
    same: Bools = ids[:, :, None] == ids[:, None, :]
    return same & asks[None, :, None] & listed[None, None, :]
