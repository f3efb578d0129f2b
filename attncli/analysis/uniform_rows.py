"""The rows of uniform attention in closed form: what every metric is held against."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from attncli.analysis.row_facts import TokenFacts
from attncli.analysis.visible_keys import Bools, Floats, Ints, Sight


class UniformRows:
    """`AttentionRows` of uniform attention over gapless sight, in closed form; a row costs the same at any length."""

    def __init__(self, i: Ints, sight: Sight, about: TokenFacts) -> None:
        if sight.visibility is not None:
            raise ValueError("closed forms need sight without gaps")
        self.i, self.sight, self.about = i, sight, about
        self.share = np.where(sight.empty, 0.0, 1.0 / np.maximum(sight.count, 1))

    @property
    def heads(self) -> int:
        return self.sight.count.shape[0]

    @cached_property
    def total(self) -> Floats:
        return (~self.sight.empty).astype(np.float64)

    @cached_property
    def entropy(self) -> Floats:
        logs: Floats = np.log(np.maximum(self.sight.count, 1).astype(np.float64))
        return logs

    @cached_property
    def peak(self) -> Floats:
        return self.share

    @cached_property
    def peak_beyond_first(self) -> Floats:
        return np.where(self.sight.last >= np.maximum(self.sight.first, 1), self.share, 0.0)

    @cached_property
    def moments(self) -> tuple[Floats, Floats]:
        back, ahead = self.i - self.sight.first, self.sight.last - self.i
        signed_distance = np.where(self.sight.empty, 0.0, (self.sight.first + self.sight.last) / 2 - self.i)
        # sums of 1..n on either side; a range wholly on one side leaves out the part next to i
        sums = np.sign(back) * _triangle(np.abs(back) - (back < 0)) + np.sign(ahead) * _triangle(
            np.abs(ahead) - (ahead < 0)
        )
        return np.where(self.sight.empty, 0.0, sums * self.share), signed_distance

    @cached_property
    def rest(self) -> Floats:
        apart = self.sight.has_key(np.zeros_like(self.i)) & (self.i > 0)
        counts: Floats = (self.sight.count - self.sight.has_key(self.i) - apart).astype(np.float64)
        return counts * self.share

    def at_offset(self, offset: int) -> Floats:
        return np.where(self.sight.has_key(self.i + offset), self.share, 0.0)

    def key(self, k: int) -> Floats:
        return np.where(self.sight.has_key(np.full_like(self.i, k)), self.share, 0.0)

    def mass(self, key_mask: Bools) -> Floats:
        up_to = np.concatenate([[0], np.cumsum(key_mask)])
        return np.where(self.sight.empty, 0, up_to[self.sight.last + 1] - up_to[self.sight.first]) * self.share

    def same(self, after: int) -> Floats:
        assert self.about.pairs is not None
        rows, keys = self.about.pairs.of(self.i, after)
        inside = (keys >= self.sight.first[:, rows]) & (keys <= self.sight.last[:, rows])
        counts: Floats = np.stack([np.bincount(rows[pair_mask], minlength=self.i.size) for pair_mask in inside]).astype(
            np.float64
        )
        return counts * self.share


def _triangle(n: Any) -> Any:
    return n * (n + 1) / 2
