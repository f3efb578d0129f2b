"""The strongest examples of each head and metric: the texts with the largest values, the same in any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from attncli.analysis.visible_keys import Ints
from attncli.arrays.backend import Array, Backend

Link = Callable[[Ints, Ints], tuple[Ints, Ints]]
NONE = np.iinfo(np.int64).min
"""The value of a place that no example has taken."""
FRESH = -2
"""The key of an example whose link is not known yet."""
FIELDS = ("value", "hash", "file", "line", "query", "key")
"""What is kept of an example: its value in multiples of 2⁻²⁴, a hash of the text, where it stands (these decide
between equal values), and the head's strongest link in it."""


class Examples:
    """The `top` largest values of each column and head, largest first: `held` is [field, column, head, place]."""

    def __init__(self, columns: int, heads: int, top: int) -> None:
        self.top = top
        self.held: Ints = np.full((len(FIELDS), columns, heads, top), -1, np.int64)
        self.held[0] = NONE

    @property
    def fields(self) -> dict[str, Ints]:
        """What is kept by name, [column, head, place]."""
        return dict(zip(FIELDS, self.held, strict=True))

    def add(self, heads: slice, values: Ints, places: dict[str, Ints], link: Link) -> None:
        """Take values [text, column, head] of the heads in `heads`; `NONE` where there is none.

        places: `hash`, `file` and `line` of each text, [text]. link: a function of (texts, heads), counted from
        `heads.start`, giving the strongest (query, key) of each; asked only for what enters.
        """
        if not self.top:
            return
        kept = self.held[:, :, heads]
        column, head = np.nonzero((values >= kept[0, ..., -1]).any(0))
        if not column.size:
            return
        old = kept[:, column, head]
        new = np.empty((len(FIELDS), column.size, values.shape[0]), np.int64)
        new[0], new[4] = values[:, column, head].T, np.arange(values.shape[0])  # the text, until its link is known
        new[5] = FRESH
        for at, name in enumerate(("hash", "file", "line"), 1):
            new[at] = places[name]
        best = _best(np.concatenate([old, new], -1), self.top)
        row, place = np.nonzero((best[5] == FRESH) & (best[0] != NONE))
        best[4:, row, place] = link(best[4, row, place], head[row])
        best[4:, best[0] == NONE] = -1
        kept[:, column, head] = best

    def take(self, other: dict[str, Ints]) -> None:
        """Take another shard's examples."""
        every = np.concatenate([self.held, np.stack([other[name] for name in FIELDS])], -1)
        self.held = _best(every, self.top)

    def lines(self) -> set[tuple[int, int]]:
        """Which texts are examples: (file, line)."""
        there = self.held[0] != NONE
        return set(zip(self.held[2][there].tolist(), self.held[3][there].tolist(), strict=True))


def _best(every: Ints, top: int) -> Ints:
    """The first `top` along the last axis: largest value first, then by hash, file and line."""
    keys = every[3], every[2], every[1], -every[0].astype(np.float64)
    order = np.lexsort(keys, axis=-1)[None, ..., :top]
    return np.take_along_axis(every, order, -1)


def strongest(backend: Backend, weights: Array, texts: Ints, heads: Ints) -> tuple[Ints, Ints]:
    """The (query, key) of the largest weight of each text and head, out of weights [text, head, query, key]."""
    shown: Any = backend.numpy(weights)
    pairs, place = np.unique(texts * shown.shape[1] + heads, return_inverse=True)
    flat = shown.reshape((shown.shape[0] * shown.shape[1], -1))
    best = flat[pairs].argmax(-1)[place]
    return best // shown.shape[-1], best % shown.shape[-1]
