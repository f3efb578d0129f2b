"""Reading ahead: the system is told which bytes come next, and each thread reads what it is about to work on.

A piece is worked on by the processor that has just read it, while it is in that processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.inputs.positioned_file import PositionedFile

Array = np.ndarray[Any, Any]
PIECE = 2**21
AHEAD = 2**25
"""Bytes that the system is asked for before they are read."""
TOGETHER = 64
"""Products are as fast as they can be with multiples of this many rows of a weight."""
WORTH_A_PLAN = 64 * 2**20
"""Fewer bytes than this are read as fast without."""


class Stretch(Struct, frozen=True, eq=False):
    """The bytes start..stop-1 of a file, all of one tensor. row: bytes of one of its rows."""

    file: PositionedFile
    tensor: str
    start: int
    stop: int
    row: int = 1

    @property
    def step(self) -> int:
        """Bytes of a piece: whole rows, as many as are no more than `PIECE`, or `PIECE` where one row is more."""
        rows = PIECE // self.row
        return (rows - rows % TOGETHER if rows >= TOGETHER else rows) * self.row or PIECE


class Pieces:
    """A stretch piece by piece, for several threads: each piece goes to one of them, with its place.

    free: buffers that nobody uses. count: how many pieces there are. passed: told when a piece is taken. Iterating
    gives (first byte, piece), which is valid until the thread asks for its next one; it raises as `PositionedFile`.
    """

    def __init__(self, stretch: Stretch, free: list[Array], passed: Callable[[int], None]) -> None:
        self._stretch, self._free, self._passed = stretch, free, passed
        self._size, self._step = stretch.stop - stretch.start, stretch.step
        self._taken, self._lock = 0, Lock()
        self.count = -(-self._size // self._step)

    def __iter__(self) -> Iterator[tuple[int, Array]]:
        buffer = self._free.pop() if self._free else np.empty(PIECE, np.uint8)
        try:
            while (first := self._next()) < self._size:
                piece = buffer[: min(self._step, self._size - first)]
                about = f"tensor {self._stretch.tensor!r}"
                self._stretch.file.fill(piece.data, self._stretch.start + first, about)
                yield first, piece
        finally:
            self._free.append(buffer)

    def _next(self) -> int:
        with self._lock:
            first = self._taken
            self._taken += self._step
            if first < self._size:
                self._passed(min(self._step, self._size - first))
        return first


class ReadAhead:
    """Bytes of several stretches, in their order, of which the system has the next 32 MiB ready."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self._left = [stretch for stretch in stretches if stretch.stop > stretch.start]
        self._asked = list(reversed(self._left))
        self._free: list[Array] = []
        self._passed = self._told = 0
        self._pass(0)

    def serves(self, tensor: str, start: int, stop: int) -> bool:
        """Whether the next bytes in line are just these."""
        return bool(self._left) and (self._left[0].tensor, self._left[0].start, self._left[0].stop) == (
            tensor,
            start,
            stop,
        )

    def pieces(self) -> Pieces:
        """The pieces of the next stretch."""
        return Pieces(self._left.pop(0), self._free, self._pass)

    def close(self) -> None:
        """Ask for no more."""
        self._left.clear()
        self._asked.clear()

    def _pass(self, count: int) -> None:
        """Note that so many bytes are taken, and ask for what is then less than `AHEAD` away, a stretch at a time."""
        self._passed += count
        while self._asked and self._told < self._passed + AHEAD:
            stretch = self._asked.pop()
            stretch.file.expect(stretch.start, stretch.stop - stretch.start)
            self._told += stretch.stop - stretch.start
