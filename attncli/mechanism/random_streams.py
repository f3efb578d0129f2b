"""Random numbers that are the same on every machine: named streams from a seed, and seeded embeddings.

They come from SHAKE-256, not from a library's generator, so that a seed printed today names the same
weights for ever. A name keeps streams apart: asking for one more matrix never changes another.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float32]]


def integers(seed: int, name: str, count: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """`count` uniform 32-bit integers of the stream `name`.

    The stream is SHAKE-256 of "attn", the seed and the name: exact everywhere, and the
    numbers of one stream do not depend on how many were drawn from another.

    Source: FIPS 202 (SHA-3, extendable-output functions) for SHAKE-256.
    """
    from hashlib import shake_256  # loads OpenSSL, which runs of trained models do without

    digest = shake_256(f"attn\0{seed}\0{name}".encode("utf-8", "surrogatepass")).digest(4 * count)
    return np.frombuffer(digest, "<u4").astype(np.uint32)


def uniform(seed: int, name: str, shape: tuple[int, ...], scale: float = 1.0) -> Floats:
    """Numbers uniform in ±√3·scale: mean 0, standard deviation `scale`, float32 of this shape.

    Each 32-bit integer u of the stream becomes ((u + ½)/2³¹ − 1)·√3·scale in float64, rounded once to float32:
    only additions and multiplications take part, so every machine gives the same bits. A longer shape begins
    with the numbers of a shorter one; an axis of length 0 gives an empty array.
    """
    raw = integers(seed, name, int(np.prod(shape, dtype=np.int64)))
    wide = (raw.astype(np.float64) + 0.5) * 2.0**-31 - 1.0
    return (wide * (3.0**0.5 * scale)).astype(np.float32).reshape(shape)


def normal(seed: int, name: str, shape: tuple[int, ...]) -> Floats:
    """Standard normal numbers, float32, by the Box–Muller transform of two uniform streams.

    Rounded to float32 from float64, so that the last bits of a machine's logarithm do not show.
    """
    count = int(np.prod(shape, dtype=np.int64))
    raw = integers(seed, name, 2 * count).astype(np.float64)
    radius = np.sqrt(-2.0 * np.log((raw[:count] + 0.5) * 2.0**-32))
    return (radius * np.cos(2.0 * np.pi * (raw[count:] + 0.5) * 2.0**-32)).astype(np.float32).reshape(shape)


# Seeded embeddings: a vector for every text, the same on every machine, backend and version; and seeds themselves.

SEED_BYTES = 4


def embedding(seed: int, texts: Sequence[str], d_model: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """One vector per token text: float32 [token, d_model], mean 0, variance 1.

    A vector depends on the seed, the token's text and d_model's length only: equal texts get equal
    rows, in every sentence. No tokens give [0, d_model].
    """
    rows = {text: uniform(seed, f"embedding\0{text}", (d_model,)) for text in dict.fromkeys(texts)}
    return np.stack([rows[text] for text in texts]) if rows else np.empty((0, d_model), np.float32)


def draw_seed() -> int:
    """A seed from the operating system's randomness, 0 ≤ seed < 2³²; the caller prints it, so that the run can be
    repeated."""
    return int.from_bytes(os.urandom(SEED_BYTES), "little")
