"""The strongest examples of each head and metric: the texts with the largest values, the same in any order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from attncli.analysis.visible_keys import Ints
from attncli.arrays.backend import Array, Backend

Link = Callable[[Ints, Ints], tuple[Ints, Ints]]
NONE = np.iinfo(np.int64).min
"""The value of a place that no example has taken."""
FIELDS = ("value", "hash", "file", "line", "query", "key")
"""What is kept of an example: its value in multiples of 2⁻²⁴, a hash of text, file and line, which decides between
equal values, where the text stands, and the head's strongest link in it."""


class Examples:
    """The `top` largest values of each column and head, [column, head, place], largest first."""

    def __init__(self, columns: int, heads: int, top: int) -> None:
        self.top = top
        self.fields: dict[str, Ints] = {name: np.full((columns, heads, top), -1, np.int64) for name in FIELDS}
        self.fields["value"][:] = NONE

    def add(self, heads: slice, values: Ints, places: dict[str, Ints], link: Link) -> None:
        """Take values [text, column, head] of the heads in `heads`; `NONE` where there is none.

        places: `hash`, `file` and `line` of each text, [text]. link: a function of (texts, heads), counted from
        `heads.start`, giving the strongest (query, key) of each; asked only for what enters.
        """
        if not self.top:
            return
        kept = {name: array[:, heads] for name, array in self.fields.items()}
        column, head = np.nonzero((values >= kept["value"][None, ..., -1]).any(0))
        if not column.size:
            return
        shape = (column.size, values.shape[0])
        new = {"value": values[:, column, head].T, "text": np.broadcast_to(np.arange(shape[1]), shape)}
        new |= {name: np.broadcast_to(places[name], shape) for name in ("hash", "file", "line")}
        old = {name: kept[name][column, head] for name in FIELDS} | {"text": np.full((column.size, self.top), -1)}
        fresh = np.full(shape, -1)
        every = {name: np.concatenate([old[name], new.get(name, fresh)], -1) for name in (*FIELDS, "text")}
        order = _order(every)[:, : self.top]
        best = {name: np.take_along_axis(array, order, -1) for name, array in every.items()}
        row, place = np.nonzero((best["text"] >= 0) & (best["value"] != NONE))
        best["query"][row, place], best["key"][row, place] = link(best["text"][row, place], head[row])
        for name in FIELDS:
            kept[name][column, head] = best[name]

    def take(self, other: dict[str, Ints]) -> None:
        """Take another shard's examples."""
        every = {name: np.concatenate([self.fields[name], other[name]], -1) for name in FIELDS}
        order = _order(every)
        for name in FIELDS:
            self.fields[name] = np.take_along_axis(every[name], order, -1)[..., : self.top]

    def lines(self) -> set[tuple[int, int]]:
        """Which texts are examples: (file, line)."""
        there = self.fields["value"] != NONE
        return set(zip(self.fields["file"][there].tolist(), self.fields["line"][there].tolist(), strict=True))


def _order(every: dict[str, Ints]) -> Ints:
    """Largest value first, then by hash, along the last axis."""
    return np.lexsort((every["hash"], -every["value"].astype(np.float64)), axis=-1)


def strongest(backend: Backend, weights: Array, texts: Ints, heads: Ints) -> tuple[Ints, Ints]:
    """The (query, key) of the largest weight of each text and head, out of weights [text, head, query, key]."""
    wanted = sorted(set(zip(texts.tolist(), heads.tolist(), strict=True)))
    shown: Any = backend.numpy(weights)
    width = shown.shape[-1]
    best = {pair: divmod(int(shown[pair].argmax()), width) for pair in wanted}
    pairs: Sequence[tuple[int, int]] = [best[pair] for pair in zip(texts.tolist(), heads.tolist(), strict=True)]
    found = np.array(pairs, np.int64).reshape((-1, 2))
    return found[:, 0], found[:, 1]
