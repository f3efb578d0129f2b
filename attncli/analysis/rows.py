"""Facts of query rows that the metrics are made of, from weights and for uniform attention.

Both kinds of rows answer the same questions, so that a metric is written once and its baseline
is the same formula on `UniformRows`. Answers are float64 [head, row].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from attncli.analysis.pairs import Pairs
from attncli.analysis.sight import Bools, Floats, Ints, Sight
from attncli.arrays.backend import LOW_PRECISION, Array, Backend


@dataclass(frozen=True, eq=False)
class About:
    """What is known of the tokens behind the keys.

    pairs: which earlier keys carry the query's own token, None where tokens are not known.
    special: booleans [key], None where not known. aligned: whether queries and keys are the
    same text, so that i − j is a distance.
    """

    pairs: Pairs | None = None
    special: Bools | None = None
    aligned: bool = True


class Rows(Protocol):
    """Facts of a block of query rows. i: absolute query positions [row]; see: what each row sees."""

    i: Ints
    see: Sight
    about: About

    @property
    def total(self) -> Floats:
        """Σ_j A_ij."""

    @property
    def entropy(self) -> Floats:
        """−Σ_j A_ij ln A_ij in nats."""

    @property
    def peak(self) -> Floats:
        """The largest weight; 0 in a row that sees nothing."""

    @property
    def peak_beyond_first(self) -> Floats:
        """The largest weight on a key other than key 0; 0 where there is none."""

    @property
    def moments(self) -> tuple[Floats, Floats]:
        """Σ_j A_ij |i − j| and Σ_j A_ij (j − i)."""

    def at(self, offset: int) -> Floats:
        """A_{i, i+offset}, 0 where that key is not visible."""

    def key(self, k: int) -> Floats:
        """A_ik, 0 where key k is not visible."""

    def mass(self, chosen: Bools) -> Floats:
        """Σ A_ij over the keys j in `chosen`, booleans [key]."""

    def same(self, after: int) -> Floats:
        """Σ A_ij over the keys j = j' + after < i, where j' < i carries the same token as i; key 0 left out."""


class WeightRows:
    """`Rows` of weights [head, row, low..high-1]. NumPy sums in float64, torch pairwise in float32 or wider."""

    def __init__(self, backend: Backend, weights: Array, i: Ints, low: int, see: Sight, about: About) -> None:
        wide = "float64" if backend.name == "numpy" else "float32"
        narrow = backend.name == "numpy" or backend.dtype_of(weights) in LOW_PRECISION
        self.backend, self.i, self.low, self.see, self.about = backend, i, low, see, about
        self.weights = backend.cast(weights, wide) if narrow else weights

    @cached_property
    def total(self) -> Floats:
        return self.numpy(self.backend.sum(self.weights, -1)[..., 0])

    @cached_property
    def entropy(self) -> Floats:
        return self.numpy(self.backend.entropy(self.weights))

    @cached_property
    def peak(self) -> Floats:
        return self.numpy(self.backend.max(self.weights, -1)[..., 0])

    @cached_property
    def peak_beyond_first(self) -> Floats:
        beyond = self.weights[..., max(1 - self.low, 0) :]
        if beyond.shape[-1] == self.weights.shape[-1]:
            return self.peak
        return self.numpy(self.backend.max(beyond, -1)[..., 0]) if beyond.shape[-1] else np.zeros(self._shape)

    @cached_property
    def _shape(self) -> tuple[int, int]:
        return self.weights.shape[0], self.weights.shape[1]

    @cached_property
    def moments(self) -> tuple[Floats, Floats]:
        # to the left of all rows and to the right of all rows |i − j| is linear in j: two products;
        # positions count from the first row, so that nothing large cancels
        first, stop = int(self.i[0]), int(self.i[-1]) + 1
        split = [min(max(at - self.low, 0), self.weights.shape[-1]) for at in (first, stop)]
        i = (self.i - first).astype(np.float64)
        before = self._ramp(0, split[0], i, first)
        after = self._ramp(split[1], self.weights.shape[-1], i, first)
        j = self.low + np.arange(*split) - first
        near = self.numpy(self.weights[..., split[0] : split[1]])
        steps = j[None, :] - i[:, None]
        return after - before + (near * np.abs(steps)).sum(-1), before + after + (near * steps).sum(-1)

    def _ramp(self, start: int, stop: int, i: Floats, origin: int) -> Floats:
        """Σ A_ij (j − i) over the columns start..stop-1."""
        if start >= stop:
            return np.zeros(self._shape)
        j = self.backend.keep((self.low + np.arange(start, stop) - origin).astype(np.float64))
        piece = self.weights[..., start:stop]
        # a product with one vector runs at the speed of memory, with two columns at a fraction of it
        first = self.numpy(self.backend.matmul(piece, self.backend.cast(j, self.backend.dtype_of(piece))))
        return first - i * self.numpy(self.backend.sum(piece, -1)[..., 0])

    def at(self, offset: int) -> Floats:
        key = self.i + offset
        inside = (key >= self.low) & (key < self.low + self.weights.shape[-1])
        rows, columns = np.flatnonzero(inside), (key - self.low)[inside]
        found = np.zeros(self._shape)
        found[:, inside] = self._pick(rows, columns)
        return found

    def key(self, k: int) -> Floats:
        if not self.low <= k < self.low + self.weights.shape[-1]:
            return np.zeros(self._shape)
        return self.numpy(self.weights[..., k - self.low])

    def mass(self, chosen: Bools) -> Floats:
        columns = np.flatnonzero(chosen[self.low : self.low + self.weights.shape[-1]])
        if not columns.size:
            return np.zeros(self._shape)
        return self.numpy(self.backend.sum(self.backend.take(self.weights, self.backend.keep(columns), -1), -1)[..., 0])

    def same(self, after: int) -> Floats:
        assert self.about.pairs is not None
        rows, keys = self.about.pairs.of(self.i, after)
        columns = keys - self.low
        inside = (columns >= 0) & (columns < self.weights.shape[-1])
        picked = self._pick(rows[inside], columns[inside])
        return np.stack([np.bincount(rows[inside], head, self.i.size) for head in picked])

    def _pick(self, rows: Ints, columns: Ints) -> Floats:
        heads, _, width = self.weights.shape
        flat = self.weights.reshape((heads, -1))
        return self.numpy(self.backend.take(flat, self.backend.keep(rows * width + columns), -1))

    def numpy(self, array: Array) -> Floats:
        """Any array of the rows' backend as float64 NumPy."""
        found: Any = self.backend.numpy(array)
        return found.astype(np.float64)


class UniformRows:
    """`Rows` of uniform attention over gapless sight, in closed form; each row costs the same however long it is."""

    def __init__(self, i: Ints, see: Sight, about: About) -> None:
        if see.seen is not None:
            raise ValueError("closed forms need sight without gaps")
        self.i, self.see, self.about = i, see, about
        self.share = np.where(see.empty, 0.0, 1.0 / np.maximum(see.count, 1))

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
        sums = np.sign(back) * _triangle(np.abs(back) - (back < 0)) + np.sign(ahead) * _triangle(np.abs(ahead) - (ahead < 0))
        return np.where(self.see.empty, 0.0, sums * self.share), signed

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
        return np.stack([np.bincount(rows[each], minlength=self.i.size) for each in inside]) * self.share


def _triangle(n: Any) -> Any:
    return n * (n + 1) / 2
