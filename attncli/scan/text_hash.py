"""Hashes of texts: which are equal, which are drawn, and how often each counts in a replicate; the same on every
machine.

Poisson bootstrap: in each replicate a text counts a Poisson(1) number of times, drawn from its own hash. Replicates of
shards add up, in any order. Source: Chamandy et al., Estimating uncertainty for massive data streams, 2012.
"""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from attncli.analysis.visible_keys import Ints

REPLICATES = 200
_MOST = 12
"""A text counts at most so often; more has a chance of 6e-11."""
_EDGES = np.cumsum([math.exp(-1) / math.factorial(times) for times in range(_MOST)])
Words = np.ndarray[Any, np.dtype[np.uint64]]


def text_hash(text: str, seed: int = 0) -> int:
    """64 bits of a text, stripped and in Unicode's composed form (NFC)."""
    data = unicodedata.normalize("NFC", text.strip()).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8, key=seed.to_bytes(8, "little")).digest(), "little")


def counts(hashes: Sequence[int]) -> Ints:
    """How often each text counts in each replicate, integers [text, replicate]."""
    steps = np.arange(1, REPLICATES + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = _splitmix64(np.asarray(hashes, np.uint64)[:, None] + steps[None, :])
    uniforms = (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53
    return np.searchsorted(_EDGES, uniforms, side="right").astype(np.int64)


def _splitmix64(x: Words) -> Words:
    """splitmix64. Source: Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
