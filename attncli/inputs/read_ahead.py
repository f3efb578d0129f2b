"""Reading ahead: while one layer is computed, a thread reads the bytes that the next ones will need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from threading import Lock, Semaphore, Thread
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.inputs.positioned_file import PositionedFile

Array = np.ndarray[Any, Any]
PIECE = 2**21
DEPTH = 16
"""Pieces read before they are taken: 32 MiB in all."""
TOGETHER = 64
"""Products are as fast as they can be with multiples of this many rows of a weight."""
WORTH_A_THREAD = 64 * 2**20
"""Fewer bytes than this are read faster without handing them from thread to thread."""


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

    size: bytes in all; step: of every piece but the last. count: how many pieces there are. take, give_back: get the
    next piece and let it go. Iterating gives (first byte, piece), which is valid until the thread asks for its next
    one; it raises what reading raised.
    """

    def __init__(self, size: int, step: int, take: Callable[[], Array], give_back: Callable[[Array], None]) -> None:
        self.count = -(-size // step)
        self._size, self._step, self._take, self._give_back = size, step, take, give_back
        self._taken, self._lock = 0, Lock()

    def __iter__(self) -> Iterator[tuple[int, Array]]:
        while True:
            with self._lock:
                first = self._taken
                if first >= self._size:
                    return
                piece = self._take()
                self._taken = first + self._step
            yield first, piece[: min(self._step, self._size - first)]
            self._give_back(piece)


class ReadAhead:
    """Bytes of several stretches, in their order, read by a thread that stays at most 32 MiB ahead of `pieces`."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self._left = [stretch for stretch in stretches if stretch.stop > stretch.start]
        self._ready: SimpleQueue[Array | BaseException] = SimpleQueue()
        self._free: list[Array] = []
        self._room = Semaphore(DEPTH)
        self._stopped = False
        # a daemon, so that a run that ends early does not wait for bytes that nobody wants
        self._thread = Thread(target=self._read, args=(tuple(self._left),), name="attn-read-ahead", daemon=True)
        self._thread.start()

    def serves(self, tensor: str, start: int, stop: int) -> bool:
        """Whether the next bytes in line are just these."""
        return bool(self._left) and (self._left[0].tensor, self._left[0].start, self._left[0].stop) == (
            tensor,
            start,
            stop,
        )

    def pieces(self) -> Pieces:
        """The pieces of the next stretch."""
        stretch = self._left.pop(0)
        return Pieces(stretch.stop - stretch.start, stretch.step, self._take, self._give_back)

    def _take(self) -> Array:
        match self._ready.get():
            case BaseException() as error:
                self._ready.put(error)  # for the other threads that wait for a piece
                raise error
            case piece:
                return piece

    def _give_back(self, piece: Array) -> None:
        self._free.append(piece)
        self._room.release()

    def close(self) -> None:
        """Stop reading and wait for the thread."""
        self._stopped = True
        self._left.clear()
        self._room.release()
        self._thread.join()

    def _read(self, stretches: Sequence[Stretch]) -> None:
        try:
            for stretch in stretches:
                for start in range(stretch.start, stretch.stop, stretch.step):
                    self._room.acquire()
                    if self._stopped:
                        return
                    # the piece given back last is still in the processor's cache
                    piece = self._free.pop() if self._free else np.empty(PIECE, np.uint8)
                    stretch.file.fill(
                        piece[: min(stretch.step, stretch.stop - start)].data, start, f"tensor {stretch.tensor!r}"
                    )
                    self._ready.put(piece)
        except BaseException as error:  # told to whoever takes the next piece
            self._ready.put(error)
