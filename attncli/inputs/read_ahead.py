"""Reading ahead: each thread reads what it is about to work on, and another one sees to it that it need not wait.

A piece is worked on by the processor that has just read it, while it is in that processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from threading import Condition, Lock, Thread
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.errors import InputError
from attncli.inputs.positioned_file import PositionedFile

Array = np.ndarray[Any, Any]
PIECE = 2**21
AHEAD = 2**27
"""Bytes that are fetched from the disk before they are taken."""
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

    free: buffers that nobody uses. count: how many pieces there are. on_take: told the size of each that is
    taken.
    Iterating gives (first byte, piece), which is valid until the thread asks for its next one; it raises as
    `PositionedFile`.
    """

    def __init__(self, stretch: Stretch, free: list[Array], on_take: Callable[[int], None]) -> None:
        self._stretch, self._free, self._on_take = stretch, free, on_take
        self._size, self._step = stretch.stop - stretch.start, stretch.step
        self._position, self._lock = 0, Lock()
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
            first = self._position
            self._position += self._step
            if first < self._size:
                self._on_take(min(self._step, self._size - first))
        return first


class ReadAhead:
    """Bytes of several stretches, in their order. A thread fetches from the disk those that are not in the system's
    memory yet, at most 128 MiB before they are taken."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self._stretches = [stretch for stretch in stretches if stretch.stop > stretch.start]
        self._free: list[Array] = []
        self._taken_bytes = self._reached_bytes = 0
        self._is_stopped = False
        self._change = Condition()
        # a daemon, so that a run that ends early does not wait for bytes that nobody wants
        self._thread = Thread(target=self._fetch, args=(tuple(self._stretches),), name="attn-read-ahead", daemon=True)
        self._thread.start()

    def serves(self, tensor: str, start: int, stop: int) -> bool:
        """Whether the next bytes in line are just these."""
        return bool(self._stretches) and (
            self._stretches[0].tensor,
            self._stretches[0].start,
            self._stretches[0].stop,
        ) == (
            tensor,
            start,
            stop,
        )

    def pieces(self) -> Pieces:
        """The pieces of the next stretch."""
        return Pieces(self._stretches.pop(0), self._free, self._take)

    def close(self) -> None:
        """Stop reading and wait for the thread."""
        with self._change:
            self._is_stopped = True
            self._change.notify()
        self._stretches.clear()
        self._thread.join()

    def _take(self, count: int) -> None:
        self._taken_bytes += count
        if self._taken_bytes + AHEAD // 2 > self._reached_bytes:
            with self._change:
                self._change.notify()

    def _fetch(self, stretches: Sequence[Stretch]) -> None:
        away = np.empty(0, np.uint8)
        for stretch in stretches:
            for start in range(stretch.start, stretch.stop, PIECE):
                with self._change:
                    self._change.wait_for(lambda: self._is_stopped or self._reached_bytes < self._taken_bytes + AHEAD)
                    if self._is_stopped:
                        return
                count = min(PIECE, stretch.stop - start)
                if self._reached_bytes >= self._taken_bytes and not stretch.file.at_hand(start + count - 1):
                    away = away if away.size else np.empty(PIECE, np.uint8)
                    with suppress(InputError):  # whoever takes these bytes will say it
                        stretch.file.fill(away[:count].data, start, "")
                self._reached_bytes += count
