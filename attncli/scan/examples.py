"""The strongest examples of each head and metric: the texts with the largest values, the same in any order."""

from __future__ import annotations

from typing import Any

import numpy as np

from attncli.analysis.visible_keys import Ints
from attncli.arrays.backend import Array, Backend

NONE = np.iinfo(np.int64).min
"""The value of a place that no example has taken."""
PIECE = 2048
"""Columns and heads that are sorted at once: a batch of many texts has more numbers than a model has heads."""
FIELDS = ("value", "hash", "file", "line", "query", "key")
"""What is kept of an example: its value in multiples of 2⁻²⁴, a hash of the text, where it stands (these decide
between equal values), and the head's strongest link in it."""


class Examples:
    """The `top` largest values of each column and head, largest first: `table` is [field, column, head, place]."""

    def __init__(self, columns: int, heads: int, top: int) -> None:
        self.top = top
        self.table: Ints = np.full((len(FIELDS), columns, heads, top), -1, np.int64)
        self.table[0] = NONE

    @property
    def fields(self) -> dict[str, Ints]:
        """What is kept by name, [column, head, place]."""
        return dict(zip(FIELDS, self.table, strict=True))

    def add(self, values: Ints, places: dict[str, Ints], links: Ints) -> None:
        """Take texts' values [text, column, head]; `NONE` where there is none.

        places: `hash`, `file` and `line` of each text, [text]. links: the strongest (query, key) of each text and head,
        [2, text, head].
        """
        if not self.top:
            return
        candidates = np.argwhere((values >= self.table[0, ..., -1]).any(0))
        for start in range(0, len(candidates), PIECE):
            column, head = candidates[start : start + PIECE].T
            new = np.empty((len(FIELDS), column.size, values.shape[0]), np.int64)
            new[0] = values[:, column, head].T
            for field_index, name in enumerate(("hash", "file", "line"), 1):
                new[field_index] = places[name]
            new[4:] = links[..., head].transpose(0, 2, 1)
            best = _best(np.concatenate([self.table[:, column, head], new], -1), self.top)
            best[4:, best[0] == NONE] = -1
            self.table[:, column, head] = best

    def take(self, shard_fields: dict[str, Ints]) -> None:
        """Take another shard's examples."""
        every = np.concatenate([self.table, np.stack([shard_fields[name] for name in FIELDS])], -1)
        self.table = _best(every, self.top)

    def lines(self) -> set[tuple[int, int]]:
        """Which texts are examples: (file, line)."""
        there = self.table[0] != NONE
        return set(zip(self.table[2][there].tolist(), self.table[3][there].tolist(), strict=True))


def _best(every: Ints, top: int) -> Ints:
    """The first `top` along the last axis: largest value first, then by hash, file and line."""
    keys = every[3], every[2], every[1], -every[0].astype(np.float64)
    order = np.lexsort(keys, axis=-1)[None, ..., :top]
    return np.take_along_axis(every, order, -1)


def strongest(backend: Backend, weights: Array) -> Ints:
    """The (query, key) of the largest weight of each text and head, [2, text, head], out of weights
    [text, head, query, key]."""
    array: Any = backend.numpy(weights)
    return np.stack(np.divmod(array.reshape((*array.shape[:2], -1)).argmax(-1), array.shape[-1]))
