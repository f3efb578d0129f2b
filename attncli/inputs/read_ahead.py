"""Reading ahead: weights are read by one thread while others work on them, also in a product with
rows.

A piece is worked on by the processor that has just read it, while it is in that processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from threading import Condition, Lock, Thread
from typing import Any, Protocol

import numpy as np
from msgspec import Struct

from attncli.arrays import numpy_backend
from attncli.arrays.backend import ITEM, Backend
from attncli.arrays.backend import Array as AnyArray
from attncli.errors import InputError
from attncli.inputs.files import PositionedFile
from attncli.inputs.safetensors_file import STEP, all_finite

Array = np.ndarray[Any, Any]
PIECE = 2**21
"""Bytes of a piece of a stored matrix, at most."""
AHEAD = 2**27
"""Bytes that are fetched from the disk before they are taken."""
TOGETHER = 64
"""Products are as fast as they can be with multiples of this many rows of a weight."""
MOST_THREADS = 2
"""Threads that share the pieces of a matrix: one reads while the other multiplies."""
WORTH_A_PLAN = 64 * 2**20
"""Fewer bytes than this are read as fast without."""


class Stretch(Struct, frozen=True, eq=False):
    """A range of bytes, start..stop-1 of a file, all of one tensor.

    row: the size of one of its rows in bytes.
    """

    file: PositionedFile
    tensor: str
    start: int
    stop: int
    row: int = 1

    @property
    def step(self) -> int:
        """How many bytes a piece has: as many whole rows as fit in `PIECE`, of many rows a multiple
        of `TOGETHER`, by which products are fast; or `PIECE` where one row is larger.
        """
        rows = PIECE // self.row
        if rows == 0:
            return PIECE
        if rows >= TOGETHER:
            rows -= rows % TOGETHER
        return rows * self.row


class PieceSource(Protocol):
    """What several threads iterate over together to get a matrix in pieces, each as (first byte,
    bytes).

    count: how many there are.
    """

    count: int

    def __iter__(self) -> Iterator[tuple[int, Array]]: ...


class Pieces:
    """A range of bytes in pieces that several threads iterate over together: each piece goes to one
    thread, as (first byte, bytes).

    free: buffers that nobody uses; each thread takes one and gives it back.
    on_take: called with the size in bytes of each piece that a thread takes.
    count: how many pieces there are.

    A piece is valid until the thread asks for its next one. Iterating raises as `PositionedFile`.
    """

    def __init__(self, stretch: Stretch, free: list[Array], on_take: Callable[[int], None]) -> None:
        """The pieces of one range of a file; none is read yet.

        stretch: the range.
        free: buffers that no thread uses now; a thread takes one, and puts it back at its end.
        on_take: called with the bytes of each piece when a thread takes it.
        """
        self._stretch = stretch
        self._free = free
        self._on_take = on_take
        self._size = stretch.stop - stretch.start
        self._step = stretch.step
        self._position = 0
        self._lock = Lock()
        self.count = -(-self._size // self._step)  # rounded up

    def __iter__(self) -> Iterator[tuple[int, Array]]:
        """Yield the pieces that this thread gets, read into one buffer: (first byte within the
        range, bytes)."""
        if self._free:
            buffer = self._free.pop()
        else:
            buffer = np.empty(PIECE, np.uint8)
        try:
            while (first := self._next_piece()) < self._size:
                piece = buffer[: min(self._step, self._size - first)]
                about = f"tensor {self._stretch.tensor!r}"
                self._stretch.file.fill(piece.data, self._stretch.start + first, about)
                yield first, piece
        finally:
            self._free.append(buffer)

    def _next_piece(self) -> int:
        """Take the next piece and return the index of its first byte; one beyond the last byte
        means that no piece is left.
        """
        with self._lock:
            first = self._position
            self._position += self._step
            if first < self._size:
                self._on_take(min(self._step, self._size - first))
        return first


class ReadAhead:
    """Reads ranges of bytes in a fixed order. A thread brings them from the disk into the system's
    memory, at most 128 MiB before they are taken."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        """Start the thread, which reads these ranges in their order."""
        self._stretches = [stretch for stretch in stretches if stretch.stop > stretch.start]
        self._free: list[Array] = []
        self._taken_bytes = 0  # by those who need them
        self._reached_bytes = 0  # by the thread, which read them or found them cached
        self._is_stopped = False
        self._change = Condition()
        # a daemon, so that a run that ends early does not wait for bytes that nobody wants
        self._thread = Thread(
            target=self._fetch, args=(tuple(self._stretches),), name="attn-read-ahead", daemon=True
        )
        self._thread.start()

    def serves(self, tensor: str, start: int, stop: int) -> bool:
        """Whether the next announced range is exactly these bytes of this tensor."""
        if not self._stretches:
            return False
        following = self._stretches[0]
        return (following.tensor, following.start, following.stop) == (tensor, start, stop)

    def pieces(self) -> Pieces:
        """The pieces of the next announced range, which counts as taken."""
        return Pieces(self._stretches.pop(0), self._free, self._note_taken)

    def close(self) -> None:
        """Stop reading and wait for the thread to end."""
        with self._change:
            self._is_stopped = True
            self._change.notify()
        self._stretches.clear()
        self._thread.join()

    def _note_taken(self, count: int) -> None:
        """Record that `count` bytes more were taken, so that the thread reads further."""
        self._taken_bytes += count
        # wake the thread only once less than half of `AHEAD` is read and not yet taken
        if self._taken_bytes + AHEAD // 2 > self._reached_bytes:
            with self._change:
                self._change.notify()

    def _fetch(self, stretches: Sequence[Stretch]) -> None:
        """Read the ranges from the disk one after the other, in a thread of its own, never more
        than `AHEAD` bytes beyond what was taken. What the system has cached already is skipped;
        what is read only fills that cache."""
        unused = np.empty(0, np.uint8)  # what is read goes here, and nobody looks at it
        for stretch in stretches:
            for start in range(stretch.start, stretch.stop, PIECE):
                with self._change:
                    self._change.wait_for(
                        lambda: self._is_stopped or self._reached_bytes < self._taken_bytes + AHEAD
                    )
                    if self._is_stopped:
                        return
                count = min(PIECE, stretch.stop - start)
                # not where those who need the bytes have overtaken this thread, nor where the last
                # of them is cached, which stands for all
                if self._reached_bytes >= self._taken_bytes and not stretch.file.at_hand(
                    start + count - 1
                ):
                    if not unused.size:
                        unused = np.empty(PIECE, np.uint8)
                    with suppress(InputError):  # the thread that needs these bytes will raise it
                        stretch.file.fill(unused[:count].data, start, about="")
                self._reached_bytes += count


# The product of rows with a stored matrix, made while the matrix is read.
#
# Widened and written to memory, a matrix of 16-bit numbers is moved five times: written, read for
# the product, each at twice its size. A tile that stays in the processor's cache is moved once.

MANY_ROWS_STEP = 2**19
"""Numbers of a matrix multiplied with many rows at once: what is done for each product with the
rows then weighs little."""


class StoredMatrix(Struct, frozen=True, eq=False):
    """The stored layout of a weight W, [out, in].

    in_out: whether the file and `shape` have it as [in, out].
    """

    dtype: np.dtype[Any]
    shape: Sequence[int]
    in_out: bool = False

    def worth_pieces(self, x: AnyArray, backend: Backend) -> bool:
        """Whether x, [row, in], can be multiplied with the stored matrix piece by piece, as floats
        of the backend's type on the CPU."""
        shape = self.shape
        if len(shape) != 2 or x.ndim != 2:
            return False
        if len(x) < 2:  # BLAS multiplies a single row by a routine of its own
            return False
        if self.in_out:
            width = shape[0]
        else:
            width = shape[1]
        if x.shape[1] != width:
            return False
        row_bytes = shape[1] * max(self.dtype.itemsize, ITEM[backend.dtype])
        if backend.device != "cpu" or backend.dtype_of(x) != backend.dtype or row_bytes > PIECE:
            return False
        if backend.name != "numpy":
            return True
        rows = np.asarray(x)
        few = len(rows) <= numpy_backend.FEW_ROWS
        # (an item of at least 4 bytes: NumPy multiplies narrower types in float32, not as they are)
        if self.in_out:
            # a piece adds to every number of the product, whose copies for many rows are too large
            return few and rows.dtype.itemsize >= 4
        # few rows are multiplied by blocks, where there are blocks that are small enough
        can_block = not few or numpy_backend.block_of(rows) is not None
        return rows.dtype.itemsize >= 4 and rows.flags.c_contiguous and can_block

    def multiply_pieces(
        self, pieces: PieceSource, x: AnyArray, backend: Backend, bias: AnyArray | None
    ) -> tuple[AnyArray, bool]:
        """x·Wᵀ + b, [row, out], and whether every number of W is finite, as it is stored and as it
        is multiplied.

        pieces: whole rows of the stored matrix, in its type.
        x: [row, in].
        bias: [out], None for none.

        A weight that is infinite or NaN makes all numbers of its column of the product so. To find
        one, the product's first row is looked at, and the weights only where that holds such a
        number.
        """
        if backend.name != "numpy":
            return self._multiply_by_library(pieces, x, backend, bias)
        if self.in_out:
            product, finite = self._multiply_by_turned_tiles(pieces, np.asarray(x))
        else:
            product, finite = self._multiply_by_tiles(pieces, np.asarray(x))
        if bias is not None:
            product += np.asarray(bias)
        return product, finite

    def _multiply_by_library(
        self, pieces: PieceSource, x: AnyArray, backend: Backend, bias: AnyArray | None
    ) -> tuple[AnyArray, bool]:
        """x·Wᵀ + b, [row, out], and whether every number of W is finite; computed by the backend's
        own product, piece by piece, in several threads.

        pieces: whole rows of the stored matrix, in its type.
        x: [row, in].
        bias: [out], None for none.
        """
        result = backend.full((len(x), self.shape[0]), 0, backend.dtype)
        finite: list[bool] = []

        def multiply_rest() -> None:
            """Multiply x with pieces of the matrix by the backend, into `result`, until none is
            left."""
            for first_row, numbers in self._rows_of(pieces):
                weight = backend.array(numbers)
                part = slice(first_row, first_row + len(weight))
                product = backend.affine(x, weight, None if bias is None else bias[part])
                result[:, part] = product
                # a weight that is not finite makes the first row of the product so
                finite.append(
                    bool(backend.isfinite(product[0]).all())
                    or (all_finite(numbers) and bool(backend.isfinite(weight).all()))
                )

        # as many threads as the backend finds worth having
        with backend.shared_out(numpy_backend.MANY) as thread_count:
            numpy_backend.at_once([multiply_rest] * thread_count)
        return result, all(finite)

    def _multiply_by_tiles(self, pieces: PieceSource, x: Array) -> tuple[Array, bool]:
        """x·Wᵀ, [row, out], without a bias, computed tile by tile in NumPy; and whether every
        number of W is finite.
        """
        rows, width = self.shape
        result = np.empty((len(x), rows), x.dtype)
        finite: list[bool] = []

        # the rows of W in a tile: about `step` numbers, and a multiple of the block in which few
        # rows of x are multiplied best
        has_few_rows = len(x) <= numpy_backend.FEW_ROWS
        if has_few_rows:
            block = numpy_backend.block_of(x) or 1  # None: no block is faster than another
        else:
            block = 1
        as_stored = self.dtype == x.dtype
        step = MANY_ROWS_STEP
        if has_few_rows and not as_stored:
            step = STEP  # between its conversion and its product a tile stays in the cache
        tile_height = max(step // width // block, 1) * block

        # what overflows becomes infinite, which is looked for below
        @np.errstate(over="ignore", invalid="ignore")
        def multiply_rest() -> None:
            """Take pieces of the matrix until none is left: convert each to the type of x tile by
            tile, and write what a tile gives to `result`."""
            if as_stored:
                tile = None
            else:
                tile = np.empty((tile_height, width), x.dtype)
            for first_row, part in self._rows_of(pieces):
                for row in range(0, len(part), tile_height):
                    tile_rows = part[row : row + tile_height]
                    if tile is not None:
                        stored = tile_rows
                        tile_rows = tile[: len(tile_rows)]
                        tile_rows[:] = stored
                    if has_few_rows:
                        product = numpy_backend.product_of_any(x, tile_rows.T, block)
                    else:
                        product = np.matmul(x, tile_rows.T)
                    result[:, first_row + row : first_row + row + len(tile_rows)] = product
                    # a weight that is not finite makes the first row of the product so
                    finite.append(bool(np.isfinite(product[0]).all()) or all_finite(tile_rows))

        numpy_backend.at_once(
            [multiply_rest] * min(numpy_backend.cores(), MOST_THREADS, pieces.count)
        )
        return result, all(finite)

    def _multiply_by_turned_tiles(self, pieces: PieceSource, x: Array) -> tuple[Array, bool]:
        """x·W, [row, out], for a matrix stored as [in, out], without a bias, computed tile by tile
        in NumPy; and whether every number of W is finite.

        Each piece adds to every number of the product. They are added in the order of the file,
        whichever thread made them, so that sums are reproducible.
        """
        width, columns = self.shape
        tile_height = max(STEP // columns, 1)  # rows of a tile, at least one however wide they are
        parts: dict[int, Array] = {}  # what each piece adds, [row, out], by its first row
        finite: list[bool] = []

        @np.errstate(over="ignore", invalid="ignore")
        def multiply_rest() -> None:
            """Take pieces of the matrix until none is left: convert each to the type of x tile by
            tile, and sum what its tiles add to the product."""
            tile = np.empty((min(tile_height, width), columns), x.dtype)
            for first_row, part in self._rows_of(pieces):
                sums = np.zeros((len(x), columns), x.dtype)
                for row in range(0, len(part), tile_height):
                    tile_rows = tile[: min(tile_height, len(part) - row)]
                    tile_rows[:] = part[row : row + tile_height]
                    product = np.matmul(
                        x[:, first_row + row : first_row + row + len(tile_rows)], tile_rows
                    )
                    # a weight that is not finite makes the first row of the product so
                    finite.append(bool(np.isfinite(product[0]).all()) or all_finite(tile_rows))
                    sums += product
                parts[first_row] = sums

        numpy_backend.at_once(
            [multiply_rest] * min(numpy_backend.cores(), MOST_THREADS, pieces.count)
        )
        first, *later = sorted(parts)
        with np.errstate(over="ignore", invalid="ignore"):
            product = sum((parts[row] for row in later), start=parts[first])
        return product, all(finite)

    def _rows_of(self, pieces: PieceSource) -> Iterator[tuple[int, Array]]:
        """Each piece of the stored matrix as (number of its first row, rows of stored numbers)."""
        width = self.shape[1]
        for first_byte, piece in pieces:
            yield (
                first_byte // (width * self.dtype.itemsize),
                piece.view(self.dtype).reshape(-1, width),
            )
