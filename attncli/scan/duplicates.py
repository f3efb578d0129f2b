"""Texts that occur again, and the draw of a sample: decided by hashes of texts, the same in any order."""

from __future__ import annotations

import hashlib
import heapq
import math
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attncli.errors import InputError
from attncli.inputs.file_opening import open_regular
from attncli.inputs.tensors import read_npy_data, read_npy_header
from attncli.measure.visible_keys import Ints
from attncli.scan.corpus import Record
from attncli.scan.shard_files import PLANNING, synced_writer

MOST = 10**7
"""Texts above which repeated ones are not looked for."""


def find_repeated(records: Iterable[Record]) -> list[tuple[int, int]]:
    """(file, line) of every text that an earlier one equals, ascending; texts are compared stripped and composed
    (NFC)."""
    hashes: set[int] = set()
    places = []
    for record in records:
        if record.text is None:
            continue
        # two seeds: 128 bits, so that different texts are never taken for equal
        key = text_hash(record.text) << 64 | text_hash(record.text, 1)
        if key in hashes:
            places.append((record.file, record.line))
        hashes.add(key)
    return sorted(places)


def sample_threshold(records: Iterable[Record], sample: int, seed: int, left_out: set[tuple[int, int]]) -> int:
    """The largest hash among the `sample` smallest of all texts: those up to it are drawn, whatever their order."""
    smallest: list[int] = []
    for record in records:
        if record.text is None or (record.file, record.line) in left_out:
            continue
        number = -text_hash(record.text, seed)
        if len(smallest) < sample:
            heapq.heappush(smallest, number)
        elif number > smallest[0]:
            heapq.heapreplace(smallest, number)
    return -smallest[0] if smallest else 0


def name_of(digest: str) -> str:
    """The file of a list: another list has another name, so a plan that is refused leaves that of the scan alone."""
    return f"duplicates-{digest[:16]}.npy"


def write_duplicates(folder: Path, places: list[tuple[int, int]]) -> str:
    """Keep the list beside the plan; returns its sha256. Raises AttnError where it cannot be written."""
    array = np.array(places, np.int64).reshape((-1, 2))
    digest = hashlib.sha256(array.tobytes()).hexdigest()
    with synced_writer(folder / name_of(digest), PLANNING) as stream:
        np.save(stream, array, allow_pickle=False)
    return digest


def read_duplicates(folder: Path, digest: str) -> frozenset[tuple[int, int]]:
    """The list that the plan speaks of; empty for "". Raises InputError for another list."""
    if not digest:
        return frozenset()
    path = folder / name_of(digest)
    stream, size = open_regular(path, what="the scan's list of repeated texts")
    with stream:
        array = read_npy_data(stream, read_npy_header(stream, path.name, str(path), size), path.name, str(path))
    if hashlib.sha256(array.tobytes()).hexdigest() != digest:
        raise InputError("the list of repeated texts is not the plan's", where=str(path), expected=f"sha256 {digest}")
    return frozenset(map(tuple, array.tolist()))


# Hashes of texts: which are equal, which are drawn, and how often each counts in a replicate; the same on every
# machine.
#
# Poisson bootstrap: in each replicate a text counts a Poisson(1) number of times, drawn from its own hash.
# Replicates of
# shards add up, in any order. Source: Chamandy et al., Estimating uncertainty for massive data streams, 2012.

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
