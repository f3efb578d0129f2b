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
        Score(
            "value",
            0.4,
            message("a head that looks up the value"),
            message("value: from a letter that is asked for to the digit that stood after it"),
        ),
        Score(
            "key",
            0.4,
            message("a head that looks at the same letter in the list"),
            message("key: from a letter that is asked for to the same letter in the list"),
        ),
    )
    forms = ("value",)

    def __init__(self) -> None:
        self.words = (*KEYS, *VALUES)
        self.length = 4 * PAIRS - 1  # two lists of pairs; the last digit is only predicted

    @property
    def chance(self) -> float:
        """The loss of a guess among all digits, in nats."""
        return math.log(len(VALUES))

    def draw(self, seed: int, stream: str, size: int) -> Batch:
        """Texts with a list of letters and their digits, then the letters in another order; targets
        are the letters' digits.

        Of each text a stream gives random numbers that sort the letters, then those that choose a
        digit for each pair, then those that sort the pairs for the second list.
        """
        width = len(KEYS) + 2 * PAIRS
        numbers = integers(seed, f"lookup\0{stream}", size * width).reshape(size, width)
        for_keys, for_values, for_order = np.split(numbers, [len(KEYS), len(KEYS) + PAIRS], axis=1)
        keys = np.argsort(for_keys, 1, kind="stable")[:, :PAIRS]
        values = len(KEYS) + (for_values % len(VALUES)).astype(np.int64)
        order = np.argsort(for_order, 1, kind="stable")
        listed = np.stack([keys, values], -1)  # [text, pair, 2]
        queries = np.take_along_axis(listed, order[..., None], 1)
        ids = np.concatenate([listed, queries], 1).reshape(size, -1)
        # at each letter of the second list the target is the digit after it
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
    """Which pairs join a letter of the second list (query) to the same letter in the first (key),
    [text, query, key].

    ids: [text, token].
    """
    places = np.arange(ids.shape[-1])
    is_letter = places % 2 == 0  # letters and digits alternate
    is_query = is_letter & (places >= 2 * PAIRS)
    is_listed = is_letter & (places < 2 * PAIRS)
    same: Bools = ids[:, :, None] == ids[:, None, :]
    return same & is_query[None, :, None] & is_listed[None, None, :]
