"""Facts of query rows that the metrics are made of, from weights and for uniform attention.

Both kinds of rows answer the same questions, so that a metric is written once and its baseline
is the same formula on `uniform.UniformRows`. Answers are float64 [head, row].
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import LOW_PRECISION, Array, Backend
from attncli.measure.visible_keys import Bools, Floats, Ints, Sight

# Which earlier positions carry the same token as a query: sparse, by rows, nothing n × n.


class TokenPairs:
    """Positions of equal tokens of one text.

    tokens: one name or id per position. Memory is linear in the text; a block of rows costs as many
    entries as it has pairs.
    """

    def __init__(self, tokens: Sequence[Hashable]) -> None:
        numbers: dict[Hashable, int] = {}
        kinds = np.array([numbers.setdefault(token, len(numbers)) for token in tokens], np.int64)
        self._order = np.argsort(kinds, kind="stable")
        places = np.empty_like(self._order)
        places[self._order] = np.arange(kinds.size)
        starts = np.searchsorted(kinds[self._order], kinds)
        self._starts, self._earlier = starts, places - starts
        self._last: dict[int, tuple[Ints, tuple[Ints, Ints]]] = {}

    def of(self, i: Ints, after: int) -> tuple[Ints, Ints]:
        """For query positions i [row]: the pairs (row, key) with key = j + after, j < i of the same token.

        Only 0 < key < i: key 0 and the query itself are left out. after: 0 for the duplicates,
        1 for the tokens that followed them.
        """
        last = self._last.get(after)
        if last is not None and last[0] is i:  # the same block of rows, of another head
            return last[1]
        pairs = self._of(i, after)
        self._last[after] = (i, pairs)
        return pairs

    def _of(self, i: Ints, after: int) -> tuple[Ints, Ints]:
        counts = self._earlier[i]
        rows = np.repeat(np.arange(i.size), counts)
        within = np.arange(rows.size) - np.repeat(np.cumsum(counts) - counts, counts)
        keys = self._order[np.repeat(self._starts[i], counts) + within] + after
        is_earlier = (keys > 0) & (keys < i[rows])
        return rows[is_earlier], keys[is_earlier]


class TokenFacts(Struct, frozen=True, eq=False):
    """What is known of the tokens behind the keys.

    pairs: which earlier keys carry the query's own token, None where tokens are not known.
    special, punctuation: booleans [key], None where not known. aligned: whether queries and keys are the
    same text, so that i − j is a distance.
    """

    pairs: TokenPairs | None = None
    special: Bools | None = None
    punctuation: Bools | None = None
    aligned: bool = True


NEARBY = 2
NEAREST = tuple(range(-NEARBY, NEARBY + 1))
"""Offsets that several metrics look at."""
AT_ONCE = 2**18
"""Weights of whole matrices that are looked at together, so that float64 copies of them stay small."""


def portions(heads: int, rows: int, keys: int) -> Iterator[tuple[slice, slice]]:
    """Slices of heads and of rows that cover [head, row, key] with at most `AT_ONCE` weights each, or one row."""
    many = max(AT_ONCE // max(rows * keys, 1), 1)
    few = max(AT_ONCE // max(keys, 1), 1)
    for head in range(0, heads, many):
        for row in range(0, rows, few):
            yield slice(head, min(head + many, heads)), slice(row, min(row + few, rows))


CLEARLY = 1 - 1e-6
"""Up to this share of the peak, key 0's weight is below it however a division was rounded."""
NO_FACTS: Mapping[str, Array] = {}


class AttentionRows(Protocol):
    """Facts of a block of query rows. i: absolute query positions [row]; sight: what each row sees."""

    i: Ints
    sight: Sight
    about: TokenFacts

    @property
    def heads(self) -> int:
        """How many heads the answers have; 1 where they hold for all."""

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

    @property
    def rest(self) -> Floats:
        """Σ_j A_ij without key 0 and the query itself; summed, not subtracted, as sinks leave little."""

    def at_offset(self, offset: int) -> Floats:
        """A_{i, i+offset}, 0 where that key is not visible."""

    def key(self, k: int) -> Floats:
        """A_ik, 0 where key k is not visible."""

    def mass(self, key_mask: Bools) -> Floats:
        """Σ A_ij over the keys j in `key_mask`, booleans [key]."""

    def same(self, after: int) -> Floats:
        """Σ A_ij over the keys j = j' + after < i, where j' < i carries the same token as i; key 0 left out."""


class WeightRows:
    """`AttentionRows` of weights [head, row, low..high-1]. NumPy sums in float64, torch pairwise in float32 or wider.

    facts: the entropy and the peak of each row [head, row], where the attention step has told them.
    """

    def __init__(
        self,
        backend: Backend,
        weights: Array,
        i: Ints,
        low: int,
        sight: Sight,
        about: TokenFacts,
        facts: Mapping[str, Array] = NO_FACTS,
    ) -> None:
        wide = "float64" if backend.name == "numpy" else "float32"
        narrow = backend.name == "numpy" or backend.dtype_of(weights) in LOW_PRECISION
        self.backend, self.i, self.low, self.sight, self.about = backend, i, low, sight, about
        self.weights = backend.cast(weights, wide) if narrow else weights
        self._facts = facts
        self._by_offset: dict[int, Floats] = {}

    @property
    def heads(self) -> int:
        return self._shape[0]

    @cached_property
    def total(self) -> Floats:
        before, after = self._sides
        return before + self._near.sum(-1) + after + (self.key(0) if self._near_range[0] > 0 else 0.0)

    @cached_property
    def entropy(self) -> Floats:
        entropies = self._facts.get("entropy")
        return self.numpy(self.backend.entropy(self.weights) if entropies is None else entropies)

    @cached_property
    def peak(self) -> Floats:
        peaks = self._facts.get("peak")
        return np.maximum(self.peak_beyond_first, self.key(0)) if peaks is None else self.numpy(peaks)

    @cached_property
    def peak_beyond_first(self) -> Floats:
        # where key 0 is well below the peak, that is the peak beyond it, too
        doubtful = self.key(0) > self.peak * CLEARLY if "peak" in self._facts else np.ones(self._shape, bool)
        if 2 * doubtful.sum() > doubtful.size:
            return self._largest(self.weights)
        peaks = self.peak.copy()
        for head in np.flatnonzero(doubtful.any(-1)):
            rows = np.flatnonzero(doubtful[head])
            peaks[head, rows] = self._largest(self.backend.take(self.weights[head], self.backend.keep(rows), 0))
        return peaks

    def _largest(self, weights: Array) -> Floats:
        """The largest of each row's weights on keys other than key 0; 0 where there is none."""
        beyond = weights[..., max(1 - self.low, 0) :]
        return self.numpy(self.backend.max(beyond, -1)[..., 0]) if beyond.shape[-1] else np.zeros(weights.shape[:-1])

    @cached_property
    def _shape(self) -> tuple[int, int]:
        return self.weights.shape[0], self.weights.shape[1]

    @cached_property
    def moments(self) -> tuple[Floats, Floats]:
        # to the left of all rows and to the right of all rows |i − j| is linear in j: two products;
        # positions count from the first row, so that nothing large cancels
        first, near_range = int(self.i[0]), self._near_range
        i = (self.i - first).astype(np.float64)
        sides = self._sides
        whole = sides[0] + (self.key(0) if near_range[0] > 0 else 0.0)
        before = self._ramp(0, near_range[0], first) - i * whole
        after = self._ramp(near_range[1], self.weights.shape[-1], first) - i * sides[1]
        j = self.low + np.arange(*near_range) - first
        near = self._near
        steps = j[None, :] - i[:, None]
        far, signed_sums = after - before, before + after
        return far + np.einsum("hij,ij->hi", near, np.abs(steps)), signed_sums + np.einsum("hij,ij->hi", near, steps)

    @cached_property
    def _near_range(self) -> tuple[int, int]:
        """The columns from the first row's own position to the last row's."""
        start, stop = (
            min(max(position - self.low, 0), self.weights.shape[-1])
            for position in (int(self.i[0]), int(self.i[-1]) + 1)
        )
        return start, stop

    @cached_property
    def rest(self) -> Floats:
        j = self.low + np.arange(*self._near_range)
        before, after = self._sides
        key_counts = ((j[None, :] != self.i[:, None]) & (j != 0)).astype(np.float64)
        return before + np.einsum("hij,ij->hi", self._near, key_counts) + after

    @cached_property
    def _near(self) -> Floats:
        """The weights on the rows' own positions, [head, row, position]."""
        return self.numpy(self.weights[..., slice(*self._near_range)])

    @cached_property
    def _sides(self) -> tuple[Floats, Floats]:
        """Σ A_ij over the keys before and after the rows' own positions, key 0 left out."""
        start, stop = self._near_range
        beyond = max(1 - self.low, 0)
        before, after = self.weights[..., beyond : max(start, beyond)], self.weights[..., max(stop, beyond) :]
        return self.numpy(self.backend.sum(before, -1)[..., 0]), self.numpy(self.backend.sum(after, -1)[..., 0])

    def _ramp(self, start: int, stop: int, origin: int) -> Floats:
        """Σ A_ij (j − origin) over the columns start..stop-1."""
        if start >= stop:
            return np.zeros(self._shape)
        j = self.backend.keep((self.low + np.arange(start, stop) - origin).astype(np.float64))
        piece = self.weights[..., start:stop]
        return self.numpy(self.backend.matmul(piece, self.backend.cast(j, self.backend.dtype_of(piece))))

    def at_offset(self, offset: int) -> Floats:
        if offset not in self._by_offset:
            # the nearest are asked for together: one look for all of them
            offsets = NEAREST if abs(offset) <= NEARBY else (offset,)
            key = self.i + np.array(offsets)[:, None] - self.low
            inside = (key >= 0) & (key < self.weights.shape[-1])
            weights = np.zeros((len(offsets), *self._shape)).swapaxes(0, 1)
            weights[:, inside] = self._pick(np.nonzero(inside)[1], key[inside])
            self._by_offset.update(zip(offsets, weights.swapaxes(0, 1), strict=True))
        return self._by_offset[offset]

    def key(self, k: int) -> Floats:
        if not self.low <= k < self.low + self.weights.shape[-1]:
            return np.zeros(self._shape)
        return self.numpy(self.weights[..., k - self.low])

    def mass(self, key_mask: Bools) -> Floats:
        columns = np.flatnonzero(key_mask[self.low : self.low + self.weights.shape[-1]])
        if not columns.size:
            return np.zeros(self._shape)
        return self.numpy(self.backend.sum(self.backend.take(self.weights, self.backend.keep(columns), -1), -1)[..., 0])

    def same(self, after: int) -> Floats:
        assert self.about.pairs is not None
        rows, keys = self.about.pairs.of(self.i, after)
        if keys.size and (self.low > 0 or int(keys.max()) >= self.weights.shape[-1]):
            inside = (keys >= self.low) & (keys < self.low + self.weights.shape[-1])
            rows, keys = rows[inside], keys[inside]
        sums = np.zeros(self._shape)
        if rows.size:
            # pairs come row by row: one sum over each run
            starts = np.flatnonzero(np.diff(rows, prepend=-1))
            sums[:, rows[starts]] = np.add.reduceat(self._pick(rows, keys - self.low), starts, axis=-1)
        return sums

    def _pick(self, rows: Ints, columns: Ints) -> Floats:
        heads, _, width = self.weights.shape
        flat = self.weights.reshape((heads, -1))
        return self.numpy(self.backend.take(flat, self.backend.keep(rows * width + columns), -1))

    def numpy(self, array: Array) -> Floats:
        """Any array of the rows' backend as float64 NumPy."""
        return self.backend.numpy(array).astype(np.float64)
