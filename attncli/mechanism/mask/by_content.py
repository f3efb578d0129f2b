"""Masks that are known once vectors or a file are: visibility that was given, and hash buckets with their hashing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, final

import numpy as np

from attncli.arrays.backend import Array, Backend
from attncli.errors import InputError, LimitError, UsageError
from attncli.mechanism.mask.kind import Ints, Mask, Pairs, Reach, Spelling, everywhere
from attncli.mechanism.random_streams import normal


@final
class Hashed(Mask, frozen=True):
    """Same LSH bucket in some round; a teaching mask, bound to queries and keys before use."""

    buckets: int
    rounds: int = 1
    seed: int = 0

    spelling = Spelling("lsh", "lsh:BUCKETS or lsh:BUCKETS,ROUNDS", (1, 2), 1, "lsh:4")

    @classmethod
    def read(cls, spec: str, numbers: Sequence[int], seed: int) -> Mask:
        if numbers[0] % 2:
            raise UsageError(f"lsh needs an even number of buckets, not {numbers[0]}", expected=f"lsh:{numbers[0] + 1}")
        return Hashed(numbers[0], numbers[1] if len(numbers) > 1 else 1, seed)

    def spec(self) -> str:
        return f"lsh:{self.buckets},{self.rounds}"

    def english(self) -> str:
        times = "in the one round" if self.rounds == 1 else f"in any of {self.rounds} rounds"
        return f"a query sees the keys that hash into its own of {self.buckets} buckets {times}"

    def chinese(self) -> str:
        return f"查询能看到在 {self.rounds} 轮哈希的任一轮中与自身落入同一个桶（共 {self.buckets} 个）的键"

    def sees(self, pairs: Pairs) -> Array:
        raise TypeError("a Hashed mask must be bound to queries and keys before use")

    def reach(self, i: Ints, keys: int) -> Reach:
        return everywhere(i, keys, whole=False)

    def pairs(self, n: int) -> int | None:
        return None

    def depends_on(self) -> Literal["positions", "length", "vectors"]:
        return "vectors"

    def bind(self, backend: Backend, q: Array, k: Array) -> Mask:
        """The buckets that q and k fall into. Leading axes are not supported: buckets belong to one text."""
        group_size = q.shape[0] // k.shape[0]
        keys = backend.repeat(k, group_size, 0) if group_size > 1 else k
        rotations = backend.keep(directions(self.seed, q.shape[0], q.shape[-1], self.rounds, self.buckets))
        return SameBucket(buckets_of(backend, q, rotations), buckets_of(backend, keys, rotations), self)


@final
class SameBucket(Mask, frozen=True, eq=False):
    """A `Hashed` mask once its buckets are known: `query` is [head, round, row], `key` [head, round, key]."""

    query: Array
    key: Array
    source: Hashed

    spelling = None

    def spec(self) -> str:
        return self.source.spec()

    def english(self) -> str:
        return self.source.english()

    def chinese(self) -> str:
        return self.source.chinese()

    def sees(self, pairs: Pairs) -> Array:
        # [head, round, rows, 1] against [head, round, 1, columns], any round
        rows, columns = pairs.row.reshape((-1,)), pairs.j.reshape((-1,))
        same = self.query[:, :, rows][..., None] == self.key[:, :, columns][:, :, None, :]
        return pairs.backend.any(same, 1)[:, 0]

    def reach(self, i: Ints, keys: int) -> Reach:
        return everywhere(i, keys, whole=False)

    def pairs(self, n: int) -> int | None:
        return None

    def depends_on(self) -> Literal["positions", "length", "vectors"]:
        return "vectors"

    def of_heads(self, heads: slice) -> Mask:
        return SameBucket(self.query[heads], self.key[heads], self.source)


@final
class MatrixMask(Mask, frozen=True, eq=False):
    """Visibility read from a file or an array: `values` is boolean, [key] or [query, key] or [head, query, key]."""

    values: np.ndarray[Any, Any]
    name: str = "given"

    spelling = None

    def spec(self) -> str:
        return f"file {self.name}"

    def english(self) -> str:
        return f"as the file {self.name} says (0 or false = hidden)"

    def chinese(self) -> str:
        return f"按文件 {self.name} 所定（0 或 false = 遮住）"

    def sees(self, pairs: Pairs) -> Array:
        values = pairs.backend.array(self.values)
        return values[pairs.j] & pairs.all if values.ndim == 1 else values[..., pairs.row, pairs.j]

    def reach(self, i: Ints, keys: int) -> Reach:
        return everywhere(i, keys, whole=False)

    def pairs(self, n: int) -> int | None:
        return None

    def depends_on(self) -> Literal["positions", "length", "vectors"]:
        return "length"

    def by_head(self) -> bool:
        return self.values.ndim > 2

    def of_heads(self, heads: slice) -> Mask:
        return MatrixMask(self.values[heads], self.name) if self.by_head() and len(self.values) > 1 else self

    def check_size(self, queries: int, keys: int) -> None:
        values = self.values
        if values.shape[-1] != keys or (values.ndim > 1 and values.shape[-2] != queries):
            expected = f"[{queries}, {keys}] (queries × keys), or [{keys}]"
            raise InputError(f"the mask has shape {list(values.shape)}", where=self.name, expected=expected)


# Locality-sensitive hashing: which bucket a query or key falls into.
#
# Source: Kitaev, Kaiser and Levskaya, Reformer, 2020; angular hashing of Andoni et al., 2015.

MOST = 2**24
"""Random numbers that hashing may draw: some seconds and 64 MB."""


def directions(seed: int, heads: int, width: int, rounds: int, buckets: int) -> np.ndarray[Any, Any]:
    """Random directions R ~ N(0, 1), [head, width, round, buckets/2], float32, the same for a seed everywhere.

    Raises LimitError for more than `MOST` numbers.
    """
    if heads * width * rounds * (buckets // 2) > MOST:
        raise LimitError(
            f"{buckets:,} buckets and {rounds:,} rounds for {heads} heads of width {width}",
            expected=f"at most {MOST:,} random numbers",
        )
    return normal(seed, "lsh", (heads, width, rounds, buckets // 2))


def buckets_of(backend: Backend, vectors: Array, rotations: Array) -> Array:
    """The bucket of each vector, argmax of [xR; −xR], integers [head, round, token].

    vectors: [head, token, dim]. rotations: [head, dim, round, buckets/2].
    """
    heads, width, rounds, half = rotations.shape
    projections = backend.matmul(
        vectors, backend.cast(rotations, backend.dtype_of(vectors)).reshape((heads, width, rounds * half))
    )
    projections = backend.permute(projections.reshape((heads, vectors.shape[-2], rounds, half)), (0, 2, 1, 3))
    return backend.concat([projections, -projections], -1).argmax(-1)
