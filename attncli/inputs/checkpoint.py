"""`Checkpoint`: a folder in Hugging Face layout, its tensors read only when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import numpy as np

from attncli.errors import InputError, UnsupportedError
from attncli.inputs.dtypes import named
from attncli.inputs.positioned import PositionedFile
from attncli.inputs.shards import TensorInfo, find_tensors, guarded, no_tensor
from attncli.inputs.strict_json import read_object

Array = np.ndarray[Any, Any]
PIECE = 2**20
"""Bytes converted at a time: small enough to stay in the processor's cache between reading and converting."""
PACKED = ("quantization_config", "compression_config")


class Checkpoint:
    """A model's files: `config`, the tensors by name, and the tokenizer's. Made by `open`; opening reads no weights.

    folder: with all links followed. config: `config.json` as it stands. bytes_read: bytes of tensor data read so far.
    """

    def __init__(self, folder: Path, config: dict[str, Any], tensors: dict[str, TensorInfo]) -> None:
        self.folder = folder
        self.config = config
        self.bytes_read = 0
        self._tensors = tensors
        self._files: dict[Path, PositionedFile] = {}

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Read `config.json` and the headers of the weight files.

        Raises InputError for missing or malformed files, UnsupportedError for quantised weights and for weights
        that are not safetensors, LimitError for a config above 16 MiB. Remote code (`auto_map`) is never run.
        """
        if not folder.is_dir():
            raise InputError("this is not a folder", where=str(folder), expected="a folder with config.json and model.safetensors")
        real = folder.resolve()
        config = read_object(guarded(real, "config.json"), what="a model's config.json")
        for key in PACKED:
            if config.get(key) is not None:
                raise UnsupportedError(f"these weights are quantised ({_method(config[key])})", where=str(folder), expected="float weights")
        return cls(real, config, find_tensors(real))

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
        return self._read(name, info, info.start, info.shape, dtype)

    def read_slice(self, name: str, start: int, stop: int, dtype: str | None = None) -> Array:
        """Rows start..stop-1 on the first axis; only these are read. Raises as `read`, and InputError outside the tensor."""
        info = self.info(name)
        if not info.shape or not 0 <= start <= stop <= info.shape[0]:
            raise InputError(
                f"tensor {name!r} has no rows {start} to {stop}", where=str(info.file), expected=f"within its shape {info.shape}"
            )
        row = info.bytes // max(info.shape[0], 1)
        return self._read(name, info, info.start + start * row, (stop - start, *info.shape[1:]), dtype)

    def read_rows(self, name: str, rows: Sequence[int], dtype: str | None = None) -> Array:
        """The rows with these numbers on the first axis, in this order, each read once. Raises as `read_slice`."""
        info = self.info(name)
        different = sorted({int(row) for row in rows})
        if not different:
            return self.read_slice(name, 0, 0, dtype)
        found = np.concatenate([self.read_slice(name, row, row + 1, dtype) for row in different])
        return found[np.searchsorted(different, [int(row) for row in rows])] if info.shape else found

    @cached_property
    def tokenizer_path(self) -> Path | None:
        """`tokenizer.json`, None if the folder has none."""
        path = guarded(self.folder, "tokenizer.json")
        return path if path.exists() else None

    @cached_property
    def tokenizer_config(self) -> dict[str, Any]:
        """`tokenizer_config.json`, empty if the folder has none. Raises as `strict_json.read_object`."""
        path = guarded(self.folder, "tokenizer_config.json")
        return read_object(path, what="a tokenizer_config.json") if path.exists() else {}

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _read(self, name: str, info: TensorInfo, start: int, shape: tuple[int, ...], dtype: str | None) -> Array:
        if info.file not in self._files:
            self._files[info.file] = PositionedFile(info.file, what="a .safetensors file")
        file = self._files[info.file]
        stored = named(info.dtype).newbyteorder("<")
        wanted = stored.newbyteorder("=") if dtype is None else named(dtype)
        found = np.empty(shape, wanted)
        about = f"tensor {name!r}"
        flat = found.reshape(-1)
        step = max(PIECE // stored.itemsize, 1)
        scratch = np.empty(min(step, flat.size), stored)
        for begin in range(0, flat.size, step):
            part = flat[begin : begin + step]
            piece = part if stored == wanted else scratch[: part.size]
            file.fill(piece.view(np.uint8).data, start + begin * stored.itemsize, about)
            if piece is not part:
                part[:] = piece
            self.bytes_read += piece.nbytes
        return found


def _method(settings: object) -> str:
    match settings:
        case {"quant_method": str(method)}:
            return method
        case _:
            return "method not named"
