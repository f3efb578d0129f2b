"""NumPy's archives (.npz): zip files of arrays, read without trusting the zip and written with the same bytes each
time."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy_format

from attncli.errors import AttnError, InputError, LimitError
from attncli.inputs.dtypes import NATIVE, unsupported_dtype
from attncli.inputs.npy import CHUNK, NpyHeader, read_npy_data, read_npy_header

METADATA_MEMBER = "__metadata__.json"
# The most that one read may ask for: a forged directory of a zip is refused before it fills the memory.
READ_LIMIT = 8 * 2**20
# Deflate cannot do better; a member that claims more lies about its size.
DEFLATE_RATIO = 1032
EARLIEST = (1980, 1, 1, 0, 0, 0)
EXPECTED = "an archive written by numpy.savez"


class Archive:
    """An open .npz file: its members' headers, and their data when asked for."""

    def __init__(self, zip_file: zipfile.ZipFile, where: str, limit: int) -> None:
        self._zip = zip_file
        self._where = where
        self._members = _check_members(zip_file, where, limit)
        self.names = [name for name in self._members if name != METADATA_MEMBER]

    def header(self, name: str) -> NpyHeader:
        """What an array is, without its data. Raises InputError, UnsupportedError."""
        with self._open_member(name) as (stream, size):
            return read_npy_header(stream, name, self._where, size)

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """One array, as stored. Raises InputError, UnsupportedError."""
        with self._open_member(name) as (stream, size):
            return read_npy_data(stream, read_npy_header(stream, name, self._where, size), name, self._where)

    def metadata(self) -> dict[str, str]:
        """The texts that `write_npz` put beside the arrays; {} in an archive of another writer. Raises InputError."""
        if METADATA_MEMBER not in self._members:
            return {}
        with self._open_member(METADATA_MEMBER) as (stream, _):
            raw = b"".join(iter(lambda: stream.read(CHUNK), b""))
        try:
            metadata = json.loads(raw.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{METADATA_MEMBER} is not JSON", where=self._where, expected=EXPECTED) from error
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            raise InputError(f"{METADATA_MEMBER} is not texts by name", where=self._where, expected=EXPECTED)
        return metadata

    @contextmanager
    def _open_member(self, name: str) -> Iterator[tuple[BinaryIO, int]]:
        member = self._members[name]
        with _archive_errors(self._where), self._zip.open(member) as stream:
            yield stream, member.file_size  # type: ignore[misc]


@contextmanager
def open_archive(stream: BinaryIO, where: str, limit: int) -> Iterator[Archive]:
    """The archive in a stream. Raises InputError for what is no zip of arrays (repeated names, encryption, unknown
    compression, sizes that cannot be), LimitError for one that holds more than `limit` bytes uncompressed."""
    with _archive_errors(where), zipfile.ZipFile(_BoundedStream(stream, where)) as zip_file:
        yield Archive(zip_file, where, limit)


def write_npz(
    stream: BinaryIO,
    tensors: Mapping[str, np.ndarray[Any, Any]],
    metadata: Mapping[str, str],
    *,
    deflate: bool = False,
) -> None:
    """Writes an archive in order of name and undated: the same content gives the same bytes. deflate: deflated.

    bfloat16, which the format cannot name, is widened to float32, exactly. Metadata become the member
    `__metadata__.json`. Raises UnsupportedError for data types without numbers.
    """
    kind = zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED
    with zipfile.ZipFile(stream, "w", kind, compresslevel=1) as zip_file:
        if metadata:
            zip_file.writestr(zipfile.ZipInfo(METADATA_MEMBER, EARLIEST), json.dumps(dict(metadata), sort_keys=True))
        for name in sorted(tensors):
            tensor = tensors[name]
            array = np.asarray(tensor.astype(np.float32) if tensor.dtype.name == "bfloat16" else tensor, order="C")
            if array.dtype.name not in NATIVE:
                raise unsupported_dtype(name, array.dtype.name, EXPECTED)
            entry = zipfile.ZipInfo(f"{name}.npy", EARLIEST)
            entry.compress_type = kind
            with zip_file.open(entry, "w", force_zip64=True) as member:
                npy_format.write_array(member, array, version=(1, 0), allow_pickle=False)


def check_torch_zip(stream: BinaryIO, where: str, limit: int) -> None:
    """Raises InputError for a torch file (a zip) with compressed members, which torch never writes, and LimitError for
    one that holds more than `limit` bytes; a file of torch's older format, which is no zip, passes."""
    if not zipfile.is_zipfile(stream):
        return
    with _archive_errors(where), zipfile.ZipFile(_BoundedStream(stream, where)) as zip_file:
        members = zip_file.infolist()
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise InputError("this torch file is compressed", where=where, expected="a file written by torch.save")
    total = sum(member.file_size for member in members)
    if total > limit:
        raise LimitError(f"the file holds {total:,} bytes of tensors", where=where, expected=f"at most {limit:,} bytes")


class _BoundedStream(io.RawIOBase):
    """A stream that refuses to read much at once."""

    def __init__(self, stream: BinaryIO, where: str) -> None:
        self._stream = stream
        self._where = where

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def read(self, size: int = -1) -> bytes:
        chunk = self._stream.read(READ_LIMIT + 1) if size < 0 else self._stream.read(min(size, READ_LIMIT + 1))
        if len(chunk) > READ_LIMIT:
            raise LimitError(
                "the archive's directory is too large", where=self._where, expected=f"at most {READ_LIMIT:,} bytes"
            )
        return chunk


def _check_members(zip_file: zipfile.ZipFile, where: str, limit: int) -> dict[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    for member in zip_file.infolist():
        name = member.filename if member.filename == METADATA_MEMBER else member.filename.removesuffix(".npy")
        if name in members:
            raise InputError(f"the archive holds {name!r} twice", where=where, expected=EXPECTED)
        if name == member.filename != METADATA_MEMBER:
            raise InputError(f"the archive holds {name!r}, which is no array", where=where, expected=EXPECTED)
        if member.flag_bits & 1:
            raise InputError(f"{name!r} is encrypted", where=where, expected=EXPECTED)
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(f"{name!r} is compressed in a way that NumPy never writes", where=where, expected=EXPECTED)
        ratio = 1 if member.compress_type == zipfile.ZIP_STORED else DEFLATE_RATIO
        if member.file_size > member.compress_size * ratio:
            raise InputError(
                f"{name!r} cannot have the {member.file_size:,} bytes that it claims", where=where, expected=EXPECTED
            )
        members[name] = member
    total = sum(member.file_size for member in members.values())
    if total > limit:
        raise LimitError(
            f"the archive holds {total:,} bytes of arrays", where=where, expected=f"at most {limit:,} bytes"
        )
    return members


@contextmanager
def _archive_errors(where: str) -> Iterator[None]:
    try:
        yield
    except AttnError:
        raise
    # zipfile lets through whatever its parts raise on damaged bytes
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        OSError,
        ValueError,
        OverflowError,
    ) as error:
        raise InputError("this archive is damaged", where=where, expected=EXPECTED) from error
