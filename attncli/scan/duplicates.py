"""Texts that occur again, and the draw of a sample: decided while the scan is planned, the same in any order."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from attncli.errors import InputError
from attncli.inputs.file_opening import open_regular
from attncli.inputs.npy import read_npy_data, read_npy_header
from attncli.scan.corpus import Record
from attncli.scan.shard_files import PLANNING, synced_writer
from attncli.scan.text_hash import text_hash

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
