"""Seeded embeddings: a vector for every text, the same on every machine, backend and version; and seeds themselves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from attncli.mechanism.random_streams import uniform

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
