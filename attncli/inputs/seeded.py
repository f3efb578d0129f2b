"""Seeded numbers: named streams that are the same on every machine, backend and version.

Numbers come from SHAKE-256, not from a library's generator, so that a seed printed today
names the same weights for ever. A name keeps streams apart: asking for one more matrix never
changes another.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

SEED_BYTES = 4


def stream(seed: int, name: str, shape: tuple[int, ...], scale: float = 1.0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Numbers of one named stream: float32 `shape`, uniform in ±√3·scale (mean 0, standard deviation `scale`).

    SHAKE-256 of "attn\\0seed\\0name" is read as little-endian 32-bit integers u; each becomes
    ((u + ½)/2³²·2 − 1)·√3·scale, computed in float64 and rounded once to float32. A longer shape
    begins with the numbers of a shorter one. An axis of length 0 gives an empty array.

    Source: FIPS 202 (SHA-3, extendable-output functions) for SHAKE-256.
    """
    count = math.prod(shape)
    digest = hashlib.shake_256(f"attn\0{seed}\0{name}".encode("utf-8", "surrogatepass")).digest(4 * count)
    drawn = np.frombuffer(digest, dtype="<u4").astype(np.float64)
    centred = (drawn + 0.5) / 2**32 * 2 - 1
    return (centred * math.sqrt(3) * scale).astype(np.float32).reshape(shape)


def embedding(seed: int, texts: Sequence[str], d_model: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """One vector per token text: float32 [token, d_model], mean 0, variance 1.

    A vector depends on the seed, the token's text and d_model's length only: equal texts get equal
    rows, in every sentence. No tokens give [0, d_model].
    """
    rows = {text: stream(seed, f"embedding\0{text}", (d_model,)) for text in dict.fromkeys(texts)}
    return np.stack([rows[text] for text in texts]) if rows else np.empty((0, d_model), np.float32)


def draw_seed() -> int:
    """A seed from the operating system's randomness, 0 ≤ seed < 2³²; the caller prints it, so that the run can be repeated."""
    return int.from_bytes(os.urandom(SEED_BYTES), "little")
