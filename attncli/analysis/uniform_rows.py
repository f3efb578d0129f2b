"""The rows of uniform attention in closed form: what every metric is held against."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from attncli.analysis.row_facts import About
from attncli.analysis.visible_keys import Bools, Floats, Ints, Sight


class UniformRows:
    """`Rows` of uniform attention over gapless sight, in closed form; each row costs the same however long it is."""

    def __init__(self, i: Ints, see: Sight, about: About) -> None:
        if see.seen is not None:
            raise ValueError("closed forms need sight without gaps")
        self.i, self.see, self.about = i, see, about
        self.share = np.where(see.empty, 0.0, 1.0 / np.maximum(see.count, 1))

    @property
    def heads(self) -> int:
        return self.see.count.shape[0]

    @cached_property
    def total(self) -> Floats:
        return (~self.see.empty).astype(np.float64)

    @cached_property
    def entropy(self) -> Floats:
        logs: Floats = np.log(np.maximum(self.see.count, 1).astype(np.float64))
        return logs

    @cached_property
    def peak(self) -> Floats:
        return self.share

    @cached_property
    def peak_beyond_first(self) -> Floats:
        return np.where(self.see.last >= np.maximum(self.see.first, 1), self.share, 0.0)

    @cached_property
    def moments(self) -> tuple[Floats, Floats]:
        back, ahead = self.i - self.see.first, self.see.last - self.i
        signed = np.where(self.see.empty, 0.0, (self.see.first + self.see.last) / 2 - self.i)
        # sums of 1..n on either side; a range wholly on one side leaves out the part next to i
        sums = np.sign(back) * _triangle(np.abs(back) - (back < 0)) + np.sign(ahead) * _triangle(
            np.abs(ahead) - (ahead < 0)
        )
        return np.where(self.see.empty, 0.0, sums * self.share), signed

    @cached_property
    def rest(self) -> Floats:
        apart = self.see.at(np.zeros_like(self.i)) & (self.i > 0)
        counts: Floats = (self.see.count - self.see.at(self.i) - apart).astype(np.float64)
        return counts * self.share

    def at(self, offset: int) -> Floats:
        return np.where(self.see.at(self.i + offset), self.share, 0.0)

    def key(self, k: int) -> Floats:
        return np.where(self.see.at(np.full_like(self.i, k)), self.share, 0.0)

    def mass(self, chosen: Bools) -> Floats:
        up_to = np.concatenate([[0], np.cumsum(chosen)])
        return np.where(self.see.empty, 0, up_to[self.see.last + 1] - up_to[self.see.first]) * self.share

    def same(self, after: int) -> Floats:
        assert self.about.pairs is not None
        rows, keys = self.about.pairs.of(self.i, after)
        inside = (keys >= self.see.first[:, rows]) & (keys <= self.see.last[:, rows])
        counts: Floats = np.stack([np.bincount(rows[each], minlength=self.i.size) for each in inside]).astype(
            np.float64
        )
        return counts * self.share


def _triangle(n: Any) -> Any:
    return n * (n + 1) / 2
