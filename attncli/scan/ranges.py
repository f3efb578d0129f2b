"""Ranges of a corpus: which records of which files each shard holds, cut while the files go by.

How many records there are is known when all have gone by, and decides how many a shard holds. So ranges are cut in
both sizes at once, until it is known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """Records first..first+count-1 of a file: its bytes start..stop-1, or rows of a Parquet file (start = stop = 0).
    sha256: of these bytes; for rows, of the digests of the row groups that hold them."""

    file: int
    first: int
    count: int
    start: int
    stop: int
    sha256: str


@dataclass(frozen=True)
class ShardSize:
    """Records of a shard: `usual`, or `large` in a corpus of `many` records or more."""

    usual: int
    large: int
    many: int


class Ranges:
    """Collects the ranges of a corpus. sizes: in which they are still to be cut; the usual ones are let go of once
    there are many records, so that a corpus of any size takes little memory."""

    def __init__(self, size: ShardSize) -> None:
        self._size, self._records = size, 0
        self._ranges: dict[int, list[Range]] = {size.usual: [], size.large: []}

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(self._ranges)

    def count(self, records: int) -> None:
        """So many records have gone by, or are known to come."""
        self._records += records
        if self._records >= self._size.many and self._size.usual != self._size.large:
            self._ranges.pop(self._size.usual, None)

    def add(self, size: int, additions: Sequence[Range]) -> None:
        """Take ranges that were cut in a size; no matter whether it is still wanted."""
        if size in self._ranges:
            self._ranges[size] += additions

    def shards(self) -> list[tuple[Range, ...]]:
        """The ranges of each shard, when all records have gone by; small ones that follow each other share one."""
        size = self.sizes[0]
        shards: list[tuple[Range, ...]] = []
        shard: list[Range] = []
        records = 0
        for next_range in self._ranges[size]:
            if shard and records + next_range.count > size:
                shards.append(tuple(shard))
                shard, records = [], 0
            shard.append(next_range)
            records += next_range.count
        return [*shards, tuple(shard)] if shard else shards


class LineCutter:
    """Cuts a file into ranges of `size` lines as its bytes go by. lines: how many have gone by whole."""

    def __init__(self, file: int, size: int) -> None:
        self.file, self.size, self.lines = file, size, 0
        self._first = self._start = self._position = 0
        self._part, self._last = hashlib.sha256(), b"\n"

    def feed(self, chunk: bytes) -> list[Range]:
        """The ranges that end in the next bytes of the file."""
        ranges, position = [], 0
        while (end := _nth_newline(chunk, position, self._first + self.size - self.lines)) is not None:
            self._part.update(chunk[position:end])
            stop, self.lines = self._position + end, self._first + self.size
            ranges.append(Range(self.file, self._first, self.size, self._start, stop, self._part.hexdigest()))
            self._first, self._start, self._part, position = self.lines, stop, hashlib.sha256(), end
        self.lines += chunk.count(b"\n", position)
        self._part.update(chunk[position:])
        self._position += len(chunk)
        self._last = chunk[-1:]
        return ranges

    def end(self) -> list[Range]:
        """The range of what is left, whose last line may have no end; none where nothing is."""
        if self._position == self._start:
            return []
        self.lines += self._last != b"\n"
        count = self.lines - self._first
        return [Range(self.file, self._first, count, self._start, self._position, self._part.hexdigest())]


def _nth_newline(chunk: bytes, start: int, count: int) -> int | None:
    """The place after the `count`-th line end from `start` on; None where there are fewer."""
    if chunk.count(b"\n", start) < count:
        return None
    low, high = start, len(chunk)
    while low < high:
        middle = (low + high) // 2
        if chunk.count(b"\n", start, middle) < count:
            low = middle + 1
        else:
            high = middle
    return low
