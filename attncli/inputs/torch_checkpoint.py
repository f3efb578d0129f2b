"""Checkpoints of before safetensors: `pytorch_model.bin`, or its shards, read through torch.

These files are pickles. torch's restricted unpickler (`weights_only=True`) rebuilds tensors and plain containers and
calls nothing that a file names. Files of torch's zip format are mapped into memory and read as their tensors are asked
for; a mapped file that shrinks meanwhile ends the process. Older files are read whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from attncli.arrays.backend import torch_is_installed
from attncli.errors import InputError, UnsupportedError
from attncli.extras import install_command
from attncli.inputs.checkpoint import Checkpoint
from attncli.inputs.dtypes import convert, dtype_of_name
from attncli.inputs.file_opening import LARGEST_FILE, is_there, open_regular
from attncli.inputs.shards import PICKLED_INDEX, PICKLED_SINGLE, TensorInfo, guarded_path, pickled_shards
from attncli.inputs.tensors import check_torch_zip

Array = np.ndarray[Any, Any]
NOTE = (
    "the weights are pickled (pytorch_model.bin): torch reads them with weights_only, which makes tensors and plain "
    "containers and runs nothing that the file names"
)


class TorchCheckpoint(Checkpoint):
    """A `Checkpoint` whose tensors torch has mapped; they are in no order that reading ahead could use."""

    def __init__(
        self, folder: Path, config: dict[str, Any], tensors: dict[str, TensorInfo], arrays: dict[str, Array]
    ) -> None:
        super().__init__(folder, config, tensors)
        self.notes = (NOTE,)
        self._arrays = arrays

    def part(self, names: Mapping[str, str], config: dict[str, Any]) -> Checkpoint:
        """As `Checkpoint.part`."""
        arrays = {new: self._arrays[old] for new, old in names.items()}
        return TorchCheckpoint(self.folder, config, {new: self.info(old) for new, old in names.items()}, arrays)

    def read(self, name: str, dtype: str | None = None) -> Array:
        """As `Checkpoint.read`."""
        return self._copy(name, self.info(name), self._arrays[name], dtype)

    def read_rows(self, name: str, rows: Sequence[int], dtype: str | None = None) -> Array:
        """As `Checkpoint.read_rows`."""
        info = self.info(name)
        for row in rows:
            self._check_rows(name, info, row, row + 1)
        return self._copy(name, info, self._arrays[name][np.asarray(rows, np.int64)], dtype)

    def ahead(self, names: Sequence[str]) -> None:
        """Nothing to prepare: the system reads what is looked at."""

    def _copy(self, name: str, info: TensorInfo, source: Array, dtype: str | None) -> Array:
        copy = np.empty(source.shape, source.dtype if dtype is None else dtype_of_name(dtype))
        if not convert(source.reshape(-1), copy.reshape(-1)):
            raise InputError(
                f"tensor {name!r} holds numbers that are not finite in {copy.dtype.name}",
                where=str(info.file),
                expected="finite weights",
            )
        self.bytes_read += source.nbytes
        return copy


def is_pickled(folder: Path) -> bool:
    """Whether a folder's weights are pickled files of torch."""
    return any(is_there(guarded_path(folder, name)) for name in (PICKLED_SINGLE, PICKLED_INDEX))


def open_pickled(folder: Path, config: dict[str, Any]) -> TorchCheckpoint:
    """The checkpoint of a folder for which `is_pickled` holds; no tensor is read yet, but of files of the older format.

    Raises InputError for a missing shard, a tensor in two, or content that is no plain state_dict; UnsupportedError
    without torch.
    """
    if not torch_is_installed():
        raise UnsupportedError(
            f"{PICKLED_SINGLE} is read with torch, which is not installed",
            where=str(folder),
            hint=install_command("torch"),
        )
    from attncli.arrays.torch_backend import map_state_dict

    tensors: dict[str, TensorInfo] = {}
    arrays: dict[str, Array] = {}
    for path in _files(folder):
        stream, _ = open_regular(path, what="a torch file", limit=LARGEST_FILE)
        with stream:
            check_torch_zip(stream, str(path), LARGEST_FILE)
        file_arrays = map_state_dict(str(path))
        ends = list(accumulate((array.nbytes for array in file_arrays.values()), initial=0))
        for (name, array), start, stop in zip(file_arrays.items(), ends, ends[1:], strict=False):
            if name in tensors:
                raise InputError(f"tensor {name!r} is in two shards", where=str(folder), expected="each tensor once")
            tensors[name] = TensorInfo(array.dtype.name, array.shape, path, start, stop)
            arrays[name] = array
    return TorchCheckpoint(folder, config, tensors, arrays)


def _files(folder: Path) -> Iterator[Path]:
    if is_there(guarded_path(folder, PICKLED_SINGLE)):
        yield guarded_path(folder, PICKLED_SINGLE)
        return
    for name in pickled_shards(guarded_path(folder, PICKLED_INDEX)):
        path = guarded_path(folder, name)
        if not is_there(path):
            raise InputError(
                f"the shard {name!r} is missing", where=str(folder), expected=f"every file of {PICKLED_INDEX}"
            )
        yield path
