"""Named tensors in files: .safetensors, .npz, .npy, and torch's .pt and .pth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import torch_is_installed
from attncli.errors import InputError, UnsupportedError, UsageError
from attncli.inputs.archive import check_torch_zip, open_archive, write_npz
from attncli.inputs.atomic import atomic_writer
from attncli.inputs.dtypes import check_array
from attncli.inputs.file_opening import SIZE_LIMIT, is_there, open_regular
from attncli.inputs.npy import NpyHeader, read_npy_data, read_npy_header
from attncli.inputs.safetensors_file import SafetensorsHeader, read_entry, read_header, write_safetensors

FORMATS = (".safetensors", ".npz", ".npy", ".pt", ".pth")
WRITTEN = (".safetensors", ".npz")
WHAT = "a tensor file: .safetensors, .npz, .npy, .pt or .pth"


class TensorSummary(NamedTuple):
    """One tensor of a file, without its numbers. dtype in NumPy's words ("bfloat16"); the format's own where NumPy has
    none."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class TensorFile(Struct, frozen=True, eq=False):
    """A file whose headers were read once. summaries: of its tensors in its order. metadata: the texts by name beside
    them.

    header: of a .safetensors. arrays: the arrays of a kind that tells nothing before it is read whole.
    """

    path: Path
    limit: int
    summaries: tuple[TensorSummary, ...]
    metadata: dict[str, str]
    header: SafetensorsHeader | None = None
    arrays: dict[str, np.ndarray[Any, Any]] | None = None

    def tensors(self, *, allow_nonfinite: bool = False) -> dict[str, np.ndarray[Any, Any]]:
        """All tensors by name; as `read_tensors`."""
        where = str(self.path)
        arrays = _arrays(self.path, self.limit, self.header) if self.arrays is None else self.arrays
        return {
            name: check_array(name, array, where, allow_nonfinite=allow_nonfinite) for name, array in arrays.items()
        }


def tensor_file(path: Path, *, limit: int = SIZE_LIMIT) -> TensorFile:
    """A tensor file, by its headers alone (but for .pt and .pth, which are read whole).

    Raises InputError, UnsupportedError, LimitError as `read_tensors`; the size of a .safetensors is not limited before
    its tensors are asked for, and data types that cannot be computed with are listed as they are.
    """
    where = str(path)
    match _format(path):
        case ".safetensors":
            stream, size = open_regular(path, what=WHAT, limit=2**62)
            with stream:
                header = read_header(stream, size, where)
            summaries = [TensorSummary(entry.name, entry.dtype_name, entry.shape) for entry in header.entries.values()]
            return TensorFile(path, limit, tuple(summaries), header.metadata, header)
        case ".npz":
            stream, _ = open_regular(path, what=WHAT, limit=limit)
            with stream, open_archive(stream, where, limit) as archive:
                headers = {name: archive.header(name) for name in archive.names}
                return TensorFile(path, limit, tuple(map(_info, headers, headers.values())), archive.metadata())
        case ".npy":
            stream, size = open_regular(path, what=WHAT, limit=limit)
            with stream:
                return TensorFile(path, limit, (_info(path.stem, read_npy_header(stream, path.stem, where, size)),), {})
        case _:
            arrays = _state_dict(path, limit)
            summaries = [TensorSummary(name, array.dtype.name, array.shape) for name, array in arrays.items()]
            return TensorFile(path, limit, tuple(summaries), {}, arrays=arrays)


def read_tensors(
    path: Path, *, limit: int = SIZE_LIMIT, allow_nonfinite: bool = False
) -> dict[str, np.ndarray[Any, Any]]:
    """All tensors of a file by name, in the machine's byte order and row-major; the data type stays as stored
    (bfloat16 of a .pt is widened to float32). An .npy holds one, named after the file without its ending.

    limit: bytes of the file, and of what it unpacks to.
    Raises InputError for a file that is missing, damaged, hostile or of an unknown kind, for pickled objects and,
    unless `allow_nonfinite`, for NaN or Inf (naming tensor and position); UnsupportedError for data types that are
    not plain numbers (complex, text, float8); LimitError above `limit`.
    """
    return tensor_file(path, limit=limit).tensors(allow_nonfinite=allow_nonfinite)


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray[Any, Any]], metadata: Mapping[str, str]) -> None:
    """Writes tensors and metadata to a .safetensors or .npz file, whole or not at all; the same content gives the same
    bytes.

    Raises UsageError for another ending, UnsupportedError for data types that are not plain numbers, AttnError where
    the file cannot be written.
    """
    check_writable_format(path)
    write = write_safetensors if path.suffix.lower() == ".safetensors" else write_npz
    with atomic_writer(path) as stream:
        write(stream, tensors, metadata)


def check_writable_format(path: Path) -> None:
    """Raises UsageError where `write_tensors` does not know the file's ending: asked before work starts."""
    if path.suffix.lower() not in WRITTEN:
        raise UsageError(
            f"tensors cannot be saved as {path.suffix or 'a file without an ending'}",
            where=str(path),
            expected=" or ".join(WRITTEN),
        )


def _arrays(path: Path, limit: int, header: SafetensorsHeader | None) -> dict[str, np.ndarray[Any, Any]]:
    where = str(path)
    stream, size = open_regular(path, what=WHAT, limit=limit)
    with stream:
        if header is not None:
            return {entry.name: read_entry(stream, entry, where) for entry in header.entries.values()}
        if _format(path) == ".npz":
            with open_archive(stream, where, limit) as archive:
                return {name: archive.array(name) for name in archive.names}
        npy = read_npy_header(stream, path.stem, where, size)
        return {path.stem: read_npy_data(stream, npy, path.stem, where)}


def _info(name: str, header: NpyHeader) -> TensorSummary:
    return TensorSummary(name, header.dtype.newbyteorder("=").name, header.shape)


def _state_dict(path: Path, limit: int) -> dict[str, np.ndarray[Any, Any]]:
    where = str(path)
    stream, _ = open_regular(path, what=WHAT, limit=limit)
    with stream:
        check_torch_zip(stream, where, limit)
    if not torch_is_installed():
        raise UnsupportedError(
            "torch files are read with torch, which is not installed", where=where, hint="pip install torch"
        )
    from attncli.arrays.torch_backend import read_state_dict

    return dict(read_state_dict(where, limit))


def _format(path: Path) -> str:
    kind = path.suffix.lower()
    if kind not in FORMATS:
        if strange := "there is no such file" if not is_there(path) else "this is a folder" if path.is_dir() else "":
            raise InputError(strange, where=str(path), expected=WHAT)
        raise InputError(f"{kind or 'no ending'} is not a known kind of tensor file", where=str(path), expected=WHAT)
    return kind
