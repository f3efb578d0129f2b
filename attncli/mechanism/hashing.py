"""Locality-sensitive hashing: which bucket a query or key falls into.

Source: Kitaev, Kaiser and Levskaya, Reformer, 2020; angular hashing of Andoni et al., 2015.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attncli.arrays.backend import Array, Backend
from attncli.errors import LimitError
from attncli.mechanism.random_streams import normal

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
