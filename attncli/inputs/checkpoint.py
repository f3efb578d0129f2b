"""`Checkpoint`: a folder in Hugging Face layout, its tensors read when needed, into memory that is used again."""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import numpy as np

from attncli.arrays import backend as arrays
from attncli.arrays import threads
from attncli.errors import InputError, UnsupportedError
from attncli.inputs.dtypes import all_finite, convert, dtype_of_name
from attncli.inputs.file_opening import PositionedFile, is_there, read_object
from attncli.inputs.read_ahead import WORTH_A_PLAN, Pieces, ReadAhead, Stretch, multiply_pieces, worth_it
from attncli.inputs.shards import INDEX, SINGLE, TensorInfo, find_tensors, guarded_path, no_tensor

# Memory that large arrays leave behind, given to the next ones.
#
# Without this, each weight would be new memory that the system must find and clear page by page, which takes longer
# than reading it.

LARGE = 2**20
"""Bytes from which an array is worth its own pages."""


class Pool:
    """Hands out uninitialised arrays; the memory of one comes back when nothing refers to it or to a view of it."""

    def __init__(self) -> None:
        self._free: list[mmap.mmap] = []

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An array of this shape and type, its content arbitrary."""
        size = prod(shape) * dtype.itemsize
        if size < LARGE:
            return np.empty(shape, dtype)
        memory = self._memory(size)
        # the root is what every view refers to in the end: NumPy follows `base` down to the first array
        root = np.frombuffer(memory, dtype, prod(shape))
        weakref.finalize(root, self._free.append, memory).atexit = False
        return root.reshape(shape)

    def _memory(self, size: int) -> mmap.mmap:
        fitting = [memory for memory in self._free if len(memory) >= size]
        if fitting:
            smallest = min(fitting, key=len)
            self._free.remove(smallest)
            return smallest
        # all are too small: they must not add to what is needed now
        self._free.clear()
        memory = mmap.mmap(-1, size)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        return memory


WORTH_HELP = 8 * 2**20
"""Bytes of converted numbers from which a second thread repays waiting for it."""

Array = np.ndarray[Any, Any]
PIECE = 2**20
"""Bytes read at a time: few enough to stay in the processor's cache between reading and converting."""
PACKED = ("quantization_config", "compression_config")


class Checkpoint:
    """A model's files: `config`, the tensors by name, and the tokenizer's. Made by `open`; opening reads no weights.

    folder: with all links followed. config: `config.json` as it stands. bytes_read: bytes of tensor data read so far.
    notes: what a user must know of how the files are read.
    """

    def __init__(self, folder: Path, config: dict[str, Any], tensors: dict[str, TensorInfo]) -> None:
        self.folder = folder
        self.config = config
        self.bytes_read = 0
        self.notes: tuple[str, ...] = ()
        self._tensors = tensors
        self._files: dict[Path, PositionedFile] = {}
        self._plan: ReadAhead | None = None
        self._pool = Pool()

    @classmethod
    def open(cls, folder: Path, tensors: Mapping[str, TensorInfo] | None = None) -> Checkpoint:
        """Read `config.json` and the headers of the weight files.

        tensors: where they lie, where that is known and the files are not there.
        Raises as `describe`, InputError for missing or malformed weights, UnsupportedError for weights that are
        neither safetensors nor torch's own files.
        """
        checkpoint = cls.describe(folder)
        if tensors is None and not any(is_there(guarded_path(checkpoint.folder, name)) for name in (SINGLE, INDEX)):
            from attncli.inputs.torch_checkpoint import is_pickled, open_pickled

            if is_pickled(checkpoint.folder):
                return open_pickled(checkpoint.folder, checkpoint.config)
        checkpoint._tensors = find_tensors(checkpoint.folder) if tensors is None else dict(tensors)
        return checkpoint

    @classmethod
    def describe(cls, folder: Path) -> Checkpoint:
        """Read `config.json` alone: no weights, as if there were none.

        Raises InputError for a missing or malformed config, UnsupportedError for one that speaks of quantised weights,
        LimitError for one above 16 MiB. Remote code (`auto_map`) is never run.
        """
        if not folder.is_dir():
            raise InputError(
                "this is not a folder", where=str(folder), expected="a folder with config.json and model.safetensors"
            )
        real = folder.resolve()
        config = read_object(guarded_path(real, "config.json"), what="a model's config.json", with_tags=True)
        for key in PACKED:
            if config.get(key) is not None:
                raise UnsupportedError(
                    f"these weights are quantised ({_method(config[key])})", where=str(folder), expected="float weights"
                )
        return cls(real, config, {})

    def part(self, names: Mapping[str, str], config: dict[str, Any]) -> Checkpoint:
        """A part of the checkpoint under a config of its own. names: the tensors' new names, each with the one here."""
        return Checkpoint(self.folder, config, {new: self.info(old) for new, old in names.items()})

    def names(self) -> Mapping[str, TensorInfo]:
        """Every tensor by name, in file order."""
        return MappingProxyType(self._tensors)

    def info(self, name: str) -> TensorInfo:
        """Where a tensor lies. Raises InputError, with the nearest names, if there is none of that name."""
        if name not in self._tensors:
            raise no_tensor(name, self._tensors, self.folder)
        return self._tensors[name]

    def read(self, name: str, dtype: str | None = None) -> Array:
        """A whole tensor, as stored or converted to the float type `dtype`.

        Raises InputError for a name that is not there, a file that changed, or numbers that are not finite.
        """
        info = self.info(name)
        return self._fill(name, info, info.start, self._pool.array(info.shape, self._types(info, dtype)[1]))

    def read_rows(self, name: str, rows: Sequence[int], dtype: str | None = None) -> Array:
        """The rows with these numbers on the first axis, in this order, each read once.

        Raises as `read`, and InputError for a row outside the tensor.
        """
        info = self.info(name)
        different, places = np.unique(np.asarray(rows, np.int64), return_inverse=True)
        for row in different[[0, -1]] if different.size else ():
            self._check_rows(name, info, int(row), int(row) + 1)
        different_rows = np.empty((different.size, *info.shape[1:]), self._types(info, dtype)[1])
        begin = 0
        for end in (*(np.flatnonzero(np.diff(different) != 1) + 1).tolist(), different.size):
            if end > begin:
                self._fill(name, info, self._row(info, int(different[begin])), different_rows[begin:end])
            begin = end
        return different_rows[places]

    def product(
        self,
        name: str,
        x: arrays.Array,
        backend: arrays.Backend,
        bias: arrays.Array | None = None,
        *,
        in_out: bool = False,
    ) -> arrays.Array | None:
        """x·Wᵀ + b, [row, out], of rows and a stored matrix W, [out, in], each piece multiplied with as it is read;
        None where the tensor is not the next one that is read ahead. in_out: whether W is stored as [in, out].

        W as a whole is never in memory, and what is of it stays in the processor's cache. Raises as `read`.
        """
        info = self.info(name)
        ahead = self._plan is not None and self._plan.serves(name, info.start, info.stop)
        stored_dtype = self._types(info, None)[0]
        if (
            self._plan is None
            or not ahead
            or not worth_it(x, info.shape, stored_dtype.itemsize, backend, in_out=in_out)
        ):
            return None
        product, finite = multiply_pieces(
            self._plan.pieces(), stored_dtype, info.shape, x, backend, bias, in_out=in_out
        )
        self.bytes_read += info.bytes
        if not finite:
            raise self._not_finite(name, info, dtype_of_name(backend.dtype))
        return product

    @cached_property
    def tokenizer_path(self) -> Path | None:
        """`tokenizer.json`, None if the folder has none."""
        path = guarded_path(self.folder, "tokenizer.json")
        return path if is_there(path) else None

    def ahead(self, names: Sequence[str]) -> None:
        """Announce that these tensors will be read next, whole and in this order.

        A thread then reads them while the caller computes. It changes no result: reading anything else instead is
        allowed and ends the plan. Small tensors and small plans are ignored, as direct reads serve them faster.
        """
        self._stop()
        infos = [(name, info) for name in names if (info := self.info(name)).bytes >= PIECE]
        if sum(info.bytes for _, info in infos) >= WORTH_A_PLAN:
            self._plan = ReadAhead(
                [
                    Stretch(self._file(info), name, info.start, info.stop, self._row(info, 1) - info.start)
                    for name, info in infos
                ]
            )

    def close(self) -> None:
        """Close the files."""
        self._stop()
        for file in self._files.values():
            file.close()
        self._files.clear()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _fill(self, name: str, info: TensorInfo, start: int, target: Array) -> Array:
        """Fill `target` with a tensor's numbers from byte `start` of its file on, converted to its type."""
        stored_dtype, flat = self._types(info, None)[0], target.reshape(-1)
        about = f"tensor {name!r}"
        stop = start + flat.size * stored_dtype.itemsize
        in_plan = self._plan is not None and self._plan.serves(name, start, stop)
        position, finite = 0, True
        if stored_dtype == target.dtype and not in_plan:
            file, step = self._file(info), PIECE // stored_dtype.itemsize
            for position in range(0, flat.size, step):
                part = flat[position : position + step]
                file.fill(part.view(np.uint8).data, start + position * stored_dtype.itemsize, about)
                finite = finite and all_finite(part)
        elif in_plan and self._plan:
            finite = _convert_pieces(self._plan.pieces(), stored_dtype, flat)
        else:
            for piece in self._pieces(info, start, stop, about):
                part = piece.view(stored_dtype)
                finite = finite and convert(part, flat[position : position + part.size])
                position += part.size
        self.bytes_read += stop - start
        if not in_plan and stop - start >= PIECE:
            self._stop()
        if not finite:
            raise self._not_finite(name, info, target.dtype)
        return target

    def _not_finite(self, name: str, info: TensorInfo, dtype: np.dtype[Any]) -> InputError:
        return InputError(
            f"tensor {name!r} holds numbers that are not finite in {dtype.name}",
            where=str(info.file),
            expected="finite weights",
        )

    def _pieces(self, info: TensorInfo, start: int, stop: int, about: str) -> Iterator[Array]:
        file = self._file(info)
        buffer = np.empty(min(PIECE, stop - start), np.uint8)
        for begin in range(start, stop, PIECE):
            piece = buffer[: min(PIECE, stop - begin)]
            file.fill(piece.data, begin, about)
            yield piece

    def _file(self, info: TensorInfo) -> PositionedFile:
        if info.file not in self._files:
            self._files[info.file] = PositionedFile(info.file, what="a .safetensors file")
        return self._files[info.file]

    def _stop(self) -> None:
        if self._plan is not None:
            self._plan.close()
            self._plan = None

    def _check_rows(self, name: str, info: TensorInfo, start: int, stop: int) -> None:
        if not info.shape or not 0 <= start <= stop <= info.shape[0]:
            raise InputError(
                f"tensor {name!r} has no rows {start} to {stop - 1}",
                where=str(info.file),
                expected=f"within its shape {list(info.shape)}",
            )

    def _row(self, info: TensorInfo, row: int) -> int:
        return info.start + row * (info.bytes // max(info.shape[0], 1))

    def _types(self, info: TensorInfo, dtype: str | None) -> tuple[np.dtype[Any], np.dtype[Any]]:
        """How a tensor is stored, and the type to read it as."""
        stored_dtype = dtype_of_name(info.dtype)
        return stored_dtype.newbyteorder("<"), stored_dtype if dtype is None else dtype_of_name(dtype)


def _convert_pieces(pieces: Pieces, stored_dtype: np.dtype[Any], target: Array) -> bool:
    """Convert the pieces into `target`, where that repays it by two threads, and say whether every number is finite.

    Nothing else runs meanwhile but the thread that reads, which is mostly ahead.
    """

    finite: list[bool] = []

    def take() -> None:
        for first, piece in pieces:
            part, start = piece.view(stored_dtype), first // stored_dtype.itemsize
            finite.append(convert(part, target[start : start + part.size]))

    threads.at_once([take] if target.nbytes < WORTH_HELP else [take, take])
    return all(finite)


def _method(settings: object) -> str:
    match settings:
        case {"quant_method": str(method)}:
            return method
        case _:
            return "method not named"
