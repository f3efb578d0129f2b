"""Named tensors in files: .safetensors, .npz, .npy, and torch's .pt and .pth; and one matrix, also
as .json or .csv.

NumPy's formats are read without trust.
"""

from __future__ import annotations

import csv
import json
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from shlex import quote
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.lib import format as npy_format

from attncli.arrays.backend import torch_is_installed
from attncli.errors import InputError, LimitError, UnsupportedError, UsageError
from attncli.extras import install_command
from attncli.inputs.files import (
    LARGEST_FILE,
    SIZE_LIMIT,
    atomic_writer,
    gguf_error,
    is_file,
    is_folder,
    is_gguf,
    is_there,
    nesting_error,
    open_regular,
    read_exactly,
    read_regular,
)
from attncli.inputs.safetensors_file import (
    CHUNK,
    NATIVE,
    SafetensorsHeader,
    byte_count,
    check_array,
    read_entry,
    read_header,
    read_numbers,
    unsupported_dtype,
    write_safetensors,
)
from attncli.language import Message, listing, message, term

# One array in NumPy's own format, read without trusting it: no pickles, and no memory but for bytes
# that are there.


class NpyHeader(Struct, frozen=True):
    """The parsed header of an .npy array; `size` is the bytes of data that must follow it."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    column_major: bool
    size: int


def read_npy_header(stream: BinaryIO, name: str, where: str, total: int) -> NpyHeader:
    """The header of the array that starts at the stream's position and takes `total` bytes in all.

    Raises InputError for a damaged header, or a shape that does not fit `total`; UnsupportedError
    for a data type that is not numbers (objects, text, complex, records).
    """
    readers = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
    start = stream.tell()
    try:
        with warnings.catch_warnings():
            # NumPy warns of headers written by Python 2, which are read all the same
            warnings.simplefilter("ignore")
            version = npy_format.read_magic(stream)
            if version not in readers:
                what = message(
                    "{name} is in version {version} of the .npy format",
                    name=repr(name),
                    version=version,
                )
                raise UnsupportedError(what, where=where, expected="version 1.0 or 2.0")
            shape, column_major, dtype = readers[version](stream)
    except UnsupportedError:
        raise
    except Exception as error:  # NumPy's parser raises many kinds for damaged bytes
        what = message("the array {name} has a damaged header", name=repr(name))
        raise InputError(what, where=where, expected="an array written by numpy.save") from error
    if dtype.hasobject:
        what = message(
            "the array {name} holds Python objects, which are never loaded", name=repr(name)
        )
        raise InputError(what, where=where, expected="an array of numbers")
    if dtype.newbyteorder("=").name not in NATIVE:
        raise unsupported_dtype(name, _dtype_text(dtype), where)
    size = byte_count(name, dtype, shape, where)
    data_size = total - (stream.tell() - start)
    if size != data_size:
        raise InputError(
            "the array {name} of shape {shape} takes {size:,} bytes, but {data_size:,} are there",
            where=where,
            expected="a whole array file",
            name=repr(name),
            shape=list(shape),
            size=size,
            data_size=data_size,
        )
    return NpyHeader(dtype, shape, column_major, size)


def read_npy_data(
    stream: BinaryIO, header: NpyHeader, name: str, where: str
) -> np.ndarray[Any, Any]:
    """The array that follows a header. Raises InputError where the data end early."""
    about = message("the array {name}", name=repr(name))
    numbers = read_numbers(stream, header.dtype, header.size, about, where)
    return numbers.reshape(header.shape, order="F" if header.column_major else "C")


def _dtype_text(dtype: np.dtype[Any]) -> str:
    """The name of an unsupported data type as errors show it."""
    if dtype.kind == "V" and dtype.names is None:
        return message(
            "{itemsize} raw bytes (NumPy writes bfloat16 like that; save it as .safetensors)",
            itemsize=dtype.itemsize,
        )
    if dtype.names is not None:
        return "records"
    return dtype.name


# NumPy's archives (.npz): zip files of arrays, read without trusting the zip and written with the
# same bytes each time.

METADATA_MEMBER = "__metadata__.json"
"""The member of an archive that holds the texts beside its arrays."""
# The most that one read may ask for: a forged directory of a zip is refused before it fills the
# memory.
READ_LIMIT = 8 * 2**20
# Deflate cannot do better; a member that claims more lies about its size.
DEFLATE_RATIO = 1032
EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The first time that a zip can state: the same for every member of every archive."""
EXPECTED = message("an archive written by numpy.savez")
# zipfile lets through whatever its parts raise on damaged bytes
DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    RuntimeError,
    OSError,
    ValueError,
    OverflowError,
)


class Archive:
    """An open .npz archive of arrays, which are read only when asked for: headers first, data by
    name.
    """

    def __init__(self, zip_file: zipfile.ZipFile, where: str, limit: int) -> None:
        self._zip = zip_file
        self._where = where
        self._members = _check_members(zip_file, where, limit)
        self.names = [name for name in self._members if name != METADATA_MEMBER]

    def header(self, name: str) -> NpyHeader:
        """The header of the array with this name; its data are not read. Raises InputError,
        UnsupportedError.
        """
        with self._open_member(name) as (stream, size):
            return read_npy_header(stream, name, self._where, size)

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """One array, as stored. Raises InputError, UnsupportedError."""
        with self._open_member(name) as (stream, size):
            return read_npy_data(
                stream, read_npy_header(stream, name, self._where, size), name, self._where
            )

    def metadata(self) -> dict[str, str]:
        """The texts that `write_npz` put beside the arrays; {} in an archive of another writer.
        Raises InputError.
        """
        if METADATA_MEMBER not in self._members:
            return {}
        with self._open_member(METADATA_MEMBER) as (stream, _):
            # read until the stream gives no more bytes
            raw = b"".join(iter(lambda: stream.read(CHUNK), b""))
        try:
            metadata = json.loads(raw.decode("utf-8"))
        except (ValueError, RecursionError):
            metadata = None
        if not isinstance(metadata, dict) or not all(
            isinstance(value, str) for value in metadata.values()
        ):
            what = message(
                "{metadata_member} is not texts by name", metadata_member=METADATA_MEMBER
            )
            raise InputError(what, where=self._where, expected=EXPECTED)
        return metadata

    @contextmanager
    def _open_member(self, name: str) -> Iterator[tuple[BinaryIO, int]]:
        """A context manager that gives the uncompressed stream of the array with this name and its
        size in bytes.
        """
        member = self._members[name]
        with _archive_errors(self._where), self._zip.open(member) as stream:
            yield stream, member.file_size  # type: ignore[misc]


@contextmanager
def open_archive(stream: BinaryIO, where: str, limit: int) -> Iterator[Archive]:
    """Open the .npz archive in a stream; a context manager. Raises InputError for a file that is
    not a zip of arrays (repeated names, encryption, unknown compression, impossible sizes),
    LimitError for one with more than `limit` bytes uncompressed."""
    with _archive_errors(where), zipfile.ZipFile(_BoundedStream(stream, where)) as zip_file:
        yield Archive(zip_file, where, limit)


DEFLATE_LEVEL = 1
"""How hard arrays are compressed: the usual level takes four times as long for files that are 6%
smaller, measured on a shard of a scan."""


def write_npz(
    stream: BinaryIO,
    tensors: Mapping[str, np.ndarray[Any, Any]],
    metadata: Mapping[str, str],
    *,
    deflate: bool = False,
) -> None:
    """Write arrays and metadata as an .npz, in order of name and without times, so that the same
    content gives the same bytes.

    deflate: whether to compress.

    bfloat16, which the format cannot name, is widened to float32, exactly. Metadata become the
    member `__metadata__.json`. Raises UnsupportedError for data types without numbers.
    """
    if deflate:
        kind = zipfile.ZIP_DEFLATED
    else:
        kind = zipfile.ZIP_STORED
    with zipfile.ZipFile(stream, "w", kind) as zip_file:
        if metadata:
            zip_file.writestr(
                zipfile.ZipInfo(METADATA_MEMBER, EARLIEST),
                json.dumps(dict(metadata), sort_keys=True),
            )
        for name in sorted(tensors):
            array = tensors[name]
            if array.dtype.name == "bfloat16":
                array = array.astype(np.float32)
            array = np.asarray(array, order="C")
            if array.dtype.name not in NATIVE:
                raise unsupported_dtype(name, array.dtype.name, EXPECTED)
            entry = zipfile.ZipInfo(f"{name}.npy", EARLIEST)
            entry.compress_type = kind
            if deflate:
                # zipfile takes a level of compression only for an entry written in one piece
                whole = BytesIO()
                npy_format.write_array(whole, array, version=(1, 0), allow_pickle=False)
                zip_file.writestr(entry, whole.getbuffer(), compresslevel=DEFLATE_LEVEL)
                continue
            # with room for a size above 4 GiB, as zipfile does not know it before
            with zip_file.open(entry, "w", force_zip64=True) as member:
                npy_format.write_array(member, array, version=(1, 0), allow_pickle=False)


def check_torch_zip(stream: BinaryIO, where: str, limit: int) -> None:
    """Raises InputError for a torch file (a zip) with compressed members, which torch never writes,
    and LimitError for one that holds more than `limit` bytes; a file of torch's older format, which
    is no zip, passes.
    """
    if not zipfile.is_zipfile(stream):
        return
    with _archive_errors(where), zipfile.ZipFile(_BoundedStream(stream, where)) as zip_file:
        members = zip_file.infolist()
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise InputError(
            "this torch file is compressed", where=where, expected="a file written by torch.save"
        )
    total = sum(member.file_size for member in members)
    if total > limit:
        expected = message("at most {limit:,} bytes", limit=limit)
        raise LimitError(
            "the file holds {total:,} bytes of tensors", where=where, expected=expected, total=total
        )


class _BoundedStream:
    """A stream that raises LimitError for a read of more than READ_LIMIT bytes, and else behaves as
    the one that it wraps."""

    def __init__(self, stream: BinaryIO, where: str) -> None:
        self._stream = stream
        self._where = where

    def __getattr__(self, name: str) -> Any:
        """Every other attribute, such as `seek`, is the wrapped stream's."""
        return getattr(self._stream, name)

    def read(self, size: int = -1) -> bytes:
        """The next bytes of the archive, all of them for a negative size. Raises LimitError beyond
        READ_LIMIT.
        """
        if size < 0:
            chunk = self._stream.read(READ_LIMIT + 1)
        else:
            chunk = self._stream.read(min(size, READ_LIMIT + 1))
        if len(chunk) > READ_LIMIT:
            expected = message("at most {read_limit:,} bytes", read_limit=READ_LIMIT)
            raise LimitError(
                "the archive's directory is too large", where=self._where, expected=expected
            )
        return chunk


def _check_members(zip_file: zipfile.ZipFile, where: str, limit: int) -> dict[str, zipfile.ZipInfo]:
    """The members of a zip by name, without ".npy". Raises InputError for one that is no plausible
    array, LimitError for more than `limit` bytes in all.
    """
    # how many bytes each compressed byte can become at most, by kind of compression
    ratios = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: DEFLATE_RATIO}
    members: dict[str, zipfile.ZipInfo] = {}
    for member in zip_file.infolist():
        if member.filename == METADATA_MEMBER:
            name = member.filename
        else:
            name = member.filename.removesuffix(".npy")
        fault = ""
        if name in members:
            fault = message("the archive holds {name} twice", name=repr(name))
        elif name == member.filename != METADATA_MEMBER:  # a name that does not end in .npy
            fault = message("the archive holds {name}, which is no array", name=repr(name))
        elif member.flag_bits & 1:  # the zip format's bit for it
            fault = message("{name} is encrypted", name=repr(name))
        elif member.compress_type not in ratios:
            fault = message(
                "{name} is compressed in a way that NumPy never writes", name=repr(name)
            )
        elif member.file_size > member.compress_size * ratios[member.compress_type]:
            size = member.file_size
            fault = message(
                "{name} cannot have the {file_size:,} bytes that it claims",
                name=repr(name),
                file_size=size,
            )
        if fault:
            raise InputError(fault, where=where, expected=EXPECTED)
        members[name] = member
    total = sum(member.file_size for member in members.values())
    if total > limit:
        expected = message("at most {limit:,} bytes", limit=limit)
        raise LimitError(
            "the archive holds {total:,} bytes of arrays",
            where=where,
            expected=expected,
            total=total,
        )
    return members


@contextmanager
def _archive_errors(where: str) -> Iterator[None]:
    """A context manager that turns what zipfile raises in its block into an InputError."""
    try:
        yield
    except DAMAGE as error:
        raise InputError("this archive is damaged", where=where, expected=EXPECTED) from error


FORMATS = (".safetensors", ".npz", ".npy", ".pt", ".pth")
WRITABLE_FORMATS = (".safetensors", ".npz")
WHAT = message("a tensor file: .safetensors, .npz, .npy, .pt or .pth")


class TensorSummary(NamedTuple):
    """One tensor of a file by its header: name, data type and shape. dtype is NumPy's name
    ("bfloat16"), the format's own where NumPy has none."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class TensorFile(Struct, frozen=True, eq=False):
    """A tensor file whose headers were read once.

    summaries: one for each tensor in file order.
    metadata: the file's texts by name.

    header: of a .safetensors.
    arrays: the arrays of a kind that tells nothing before it is read whole.
    """

    path: Path
    summaries: tuple[TensorSummary, ...]
    metadata: dict[str, str]
    header: SafetensorsHeader | None = None
    arrays: dict[str, np.ndarray[Any, Any]] | None = None

    def tensors(self, *, allow_nonfinite: bool = False) -> dict[str, np.ndarray[Any, Any]]:
        """All tensors by name, in the machine's byte order and row-major. Raises InputError for a
        file that is damaged and, unless `allow_nonfinite`, for NaN or Inf; UnsupportedError for
        data types that are not plain numbers."""
        where = str(self.path)
        if self.arrays is None:
            arrays = _stored_arrays(self.path, self.header)
        else:
            arrays = self.arrays
        return {
            name: check_array(name, array, where, allow_nonfinite=allow_nonfinite)
            for name, array in arrays.items()
        }


def tensor_file(path: Path) -> TensorFile:
    """A tensor file, by its headers alone (but for .pt and .pth, which are read whole).

    Raises InputError for a file that is missing, damaged or of an unknown kind, UnsupportedError
    for data types that are not plain numbers, LimitError for a file that is too large. Of a
    .safetensors the size is not limited before its tensors are asked for, and data types that
    cannot be computed with are listed as they are.
    """
    where = str(path)
    match _known_format(path):
        case ".safetensors":
            # no file is that large: only the headers are read
            stream, size = open_regular(path, what=WHAT, limit=2**62)
            with stream:
                header = read_header(stream, size, where)
            summaries = [
                TensorSummary(entry.name, entry.dtype_name, entry.shape)
                for entry in header.entries.values()
            ]
            return TensorFile(path, tuple(summaries), header.metadata, header)
        case ".npz":
            stream, _ = open_regular(path, what=WHAT, limit=SIZE_LIMIT)
            with stream, open_archive(stream, where, SIZE_LIMIT) as archive:
                summaries = [_npy_summary(name, archive.header(name)) for name in archive.names]
                return TensorFile(path, tuple(summaries), archive.metadata())
        case ".npy":
            stream, size = open_regular(path, what=WHAT, limit=SIZE_LIMIT)
            with stream:
                return TensorFile(
                    path,
                    (_npy_summary(path.stem, read_npy_header(stream, path.stem, where, size)),),
                    {},
                )
        case _:
            arrays = _torch_arrays(path)
            summaries = [
                TensorSummary(name, array.dtype.name, array.shape) for name, array in arrays.items()
            ]
            return TensorFile(path, tuple(summaries), {}, arrays=arrays)


def read_tensors(path: Path, *, allow_nonfinite: bool = False) -> dict[str, np.ndarray[Any, Any]]:
    """All tensors of a file by name, in the machine's byte order and row-major; the data type stays
    as stored (bfloat16 of a .pt is widened to float32). An .npy holds one, named after the file
    without its ending.

    Raises InputError for a file that is missing, damaged, hostile or of an unknown kind, for
    pickled objects and, unless `allow_nonfinite`, for NaN or Inf (naming tensor and position);
    UnsupportedError for data types that are not plain numbers (complex, text, float8); LimitError
    for a file, or what it unpacks to, above `SIZE_LIMIT`.
    """
    return tensor_file(path).tensors(allow_nonfinite=allow_nonfinite)


def write_tensors(
    path: Path, tensors: Mapping[str, np.ndarray[Any, Any]], metadata: Mapping[str, str]
) -> None:
    """Writes tensors and metadata to a .safetensors or .npz file, whole or not at all; the same
    content gives the same bytes.

    Raises UsageError for another ending, UnsupportedError for data types that are not plain
    numbers, AttnError where the file cannot be written.
    """
    check_writable_format(path)
    if path.suffix.lower() == ".safetensors":
        write = write_safetensors
    else:
        write = write_npz
    with atomic_writer(path) as stream:
        write(stream, tensors, metadata)


def check_writable_format(path: Path) -> None:
    """Check that `write_tensors` knows the file's ending; a command does so before it starts its
    work. Raises UsageError."""
    if path.suffix.lower() not in WRITABLE_FORMATS:
        what = message(
            "tensors cannot be saved as {suffix}",
            suffix=path.suffix or term("a file without an ending"),
        )
        raise UsageError(what, where=str(path), expected=listing(WRITABLE_FORMATS, " or "))


def _stored_arrays(path: Path, header: SafetensorsHeader | None) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a tensor file by name, unchecked for NaN.

    path: of a .safetensors, .npz or .npy.
    header: that of a .safetensors; None for the other two.
    """
    where = str(path)
    stream, size = open_regular(path, what=WHAT, limit=SIZE_LIMIT)
    with stream:
        if header is not None:
            return {
                entry.name: read_entry(stream, entry, where) for entry in header.entries.values()
            }
        if path.suffix.lower() == ".npz":
            with open_archive(stream, where, SIZE_LIMIT) as archive:
                return {name: archive.array(name) for name in archive.names}
        npy = read_npy_header(stream, path.stem, where, size)
        return {path.stem: read_npy_data(stream, npy, path.stem, where)}


def _npy_summary(name: str, header: NpyHeader) -> TensorSummary:
    """A summary of the array with this name and .npy header."""
    return TensorSummary(name, header.dtype.newbyteorder("=").name, header.shape)


def _torch_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors of a .pt or .pth file, a state_dict, by name. Raises InputError for any other
    content, LimitError for a file that is too large, UnsupportedError without torch and for data
    types that are not plain numbers."""
    where = str(path)
    stream, _ = open_regular(path, what=WHAT, limit=SIZE_LIMIT)
    with stream:
        check_torch_zip(stream, where, SIZE_LIMIT)
    if not torch_is_installed():
        raise UnsupportedError(
            "torch files are read with torch, which is not installed",
            where=where,
            hint=install_command("torch"),
        )
    from attncli.arrays.torch_backend import read_state_dict

    return dict(read_state_dict(where, SIZE_LIMIT))


def _holds_gguf(path: Path) -> bool:
    """Whether a file is a GGUF, by its first bytes; False where nothing can be read."""
    try:
        stream, size = open_regular(path, what=WHAT, limit=LARGEST_FILE)
    except (InputError, LimitError):
        return False
    with stream:
        return is_gguf(read_exactly(stream, min(size, 8), str(path)))


def _known_format(path: Path) -> str:
    """The file's ending in small letters, such as ".npz". Raises InputError for one that is not in
    `FORMATS`.
    """
    kind = path.suffix.lower()
    if kind not in FORMATS:
        fault = _unknown_ending(kind, "tensor")
        raise _other_kind_error(path, fault, WHAT)
    return kind


def _unknown_ending(kind: str, what: str) -> Message:
    """The message for a file whose name ends in no known way.

    kind: its ending, such as ".txt"; "" for none.
    what: what the file should hold, in a word.
    """
    if not kind:
        return message(
            "the name has no ending, so the kind of {what} file is not known", what=term(what)
        )
    return message("{kind} is not a known kind of {what} file", kind=kind, what=term(what))


def _other_kind_error(path: Path, fault: str, expected: str) -> InputError:
    """The InputError (returned, not raised) for a path whose ending is not read here. It says what
    the path is: missing, a folder, a GGUF file, weights, or else what `fault` says; and which
    option takes it.

    expected: the kinds of files that are read here.
    """
    where = str(path)
    if not is_there(path):
        return InputError("there is no such file", where=where, expected=expected)
    if is_folder(path):
        hint = ""
        if is_file(path / "config.json"):
            hint = f"attn run TEXT --model {quote(where)}"
        elif is_file(path / "adapter_config.json"):
            hint = f"attn run TEXT --model MODEL --adapter {quote(where)}"
        return InputError("this is a folder", where=where, expected=expected, hint=hint)
    if _holds_gguf(path):
        return gguf_error(where, expected)
    hint = ""
    if path.suffix.lower() in FORMATS:
        hint = f"attn run TEXT --weights {quote(where)}"
    return InputError(fault, where=where, expected=expected, hint=hint)


# Numbers written out take many times their bytes in memory.
TEXT_LIMIT = 256 * 2**20
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
"""A number in a cell; Python's float would also take nan, inf and 1_000."""
TRUTH = {"true": True, "false": False}
MATRIX_FORMATS = (".npy", ".npz", ".safetensors", ".json", ".csv", ".tsv")


def read_matrix(path: Path, what: str) -> np.ndarray[Any, Any]:
    """A matrix [row, column] with at least one row and column.

    what: what the matrix is, in a word ("mask"); also the name of the array to take from an .npz or
        .safetensors that holds several.

    A first axis of one entry, as of a batch, is taken off. Numbers of .npy, .npz and .safetensors
    keep their data type; .json (a list of rows) and .csv (comma, semicolon or tab; no header) give
    float64, or bool where every value is true or false.

    Raises InputError for a file that is missing, damaged or of another kind, another number of
    axes, no values, rows of different length, and values that are no finite numbers (naming row and
    column, 0-based); UnsupportedError for data types that are not plain numbers, LimitError for a
    file that is too large.
    """
    where = str(path)
    match path.suffix.lower():
        case ".npy" | ".npz" | ".safetensors":
            matrix = _single_tensor(read_tensors(path, allow_nonfinite=True), what, where)
        case ".json" | ".csv" | ".tsv" as kind:
            raw = read_regular(
                path, what=message("a {what} file", what=term(what)), limit=TEXT_LIMIT
            )
            if kind == ".json":
                rows = _json_rows(raw, what, where)
            else:
                rows = _csv_rows(raw, where)
            matrix = _matrix_of_rows(rows, what, where)
        case kind:
            fault = _unknown_ending(kind, what)
            raise _other_kind_error(path, fault, " ".join(MATRIX_FORMATS))
    if matrix.ndim == 3 and len(matrix) == 1:  # a batch of one
        matrix = matrix[0]
    if matrix.ndim != 2 or 0 in matrix.shape:
        fault = message(
            "the {what} has the shape {shape}", what=term(what), shape=list(matrix.shape)
        )
        raise InputError(fault, where=where, expected="a matrix: rows and columns")
    finite = np.isfinite(matrix)
    if not finite.all():
        first_bad = int(np.argmin(finite))  # the first False
        row, column = np.unravel_index(first_bad, matrix.shape)
        raise InputError(
            "row {row}, column {column} of the {what} is {value}",
            where=where,
            expected="finite numbers",
            row=row,
            column=column,
            what=term(what),
            value=float(matrix[row, column]),
        )
    return matrix


def _single_tensor(
    tensors: dict[str, np.ndarray[Any, Any]], what: str, where: str
) -> np.ndarray[Any, Any]:
    """The only tensor of a file, or the one that is called `what`. Raises InputError."""
    if len(tensors) == 1:
        return next(iter(tensors.values()))
    if what in tensors:
        return tensors[what]
    names = listing(tensors) or message("none")
    fault = message(
        "the archive holds {tensors} arrays: {names}", tensors=len(tensors), names=names
    )
    path = Path(where)
    if is_file(path.parent / "config.json"):  # the arrays are the weights of the model there
        hint = f"attn run TEXT --model {quote(str(path.parent))}"
    else:
        hint = f"attn run TEXT --weights {quote(where)}"
    raise InputError(
        fault, where=where, expected="one array, or one named {what}", hint=hint, what=what
    )


def _json_rows(raw: bytes, what: str, where: str) -> Sequence[Sequence[object]]:
    """The rows of a matrix in JSON, values unchecked. Raises InputError."""
    import orjson

    try:
        rows = orjson.loads(raw.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        # "depth limit exceeded", in older versions "Recursion limit …"
        if error.msg.partition(" ")[0] in ("Recursion", "depth"):
            raise nesting_error(where, message("a list of rows of finite numbers")) from error
        place = message("line {line}, column {column}", line=error.lineno, column=error.colno)
        fault = message("this is not JSON at {place}: {msg}", place=place, msg=error.msg)
        raise InputError(fault, where=where, expected="a list of rows of finite numbers") from error
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise InputError(
            "the {what} is not a list of rows",
            where=where,
            expected="[[1, 0], [1, 1]]",
            what=term(what),
        )
    return rows


def _csv_rows(raw: bytes, where: str) -> Sequence[Sequence[object]]:
    """The rows of a matrix in CSV: numbers, booleans, and the text of any other cell. Raises
    InputError.
    """
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            "this file is not UTF-8 at byte {error_start}",
            where=where,
            expected="UTF-8 text",
            error_start=error.start,
        ) from error
    # what separates cells: the first of these that the first line has
    first_line = text.lstrip().partition("\n")[0]
    delimiter = next((sign for sign in "\t;," if sign in first_line), ",")
    try:
        rows = list(csv.reader(text.splitlines(), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise InputError(
            "this file is not CSV: {error}", where=where, expected="rows of numbers", error=error
        ) from error
    matrix_rows = []
    for row in rows:
        is_blank_line = len(row) == 0 or (len(row) == 1 and not row[0].strip())
        if not is_blank_line:
            matrix_rows.append([_csv_value(cell.strip()) for cell in row])
    return matrix_rows


def _csv_value(cell: str) -> float | bool | str:
    """The number or truth value in a cell; its text where it is neither."""
    if NUMBER.fullmatch(cell):
        return float(cell)
    return TRUTH.get(cell.lower(), cell)


def _matrix_of_rows(
    rows: Sequence[Sequence[object]], what: str, where: str
) -> np.ndarray[Any, Any]:
    """Rows as float64 [row, column], or bool where every value is one. Raises InputError for rows
    of different length and for what is no number."""
    if rows:
        width = len(rows[0])
    else:
        width = 0
    for place, row in enumerate(rows):
        if len(row) != width:
            raise InputError(
                "row {place} of the {what} has {row} values, row 0 has {width}",
                where=where,
                expected="rows of one length",
                place=place,
                what=term(what),
                row=len(row),
                width=width,
            )
        for column, value in enumerate(row):
            if not isinstance(value, bool | int | float):
                raise InputError(
                    "row {place}, column {column} of the {what} is {value}",
                    where=where,
                    expected="a number, no header",
                    place=place,
                    column=column,
                    what=term(what),
                    value=_quoted_cell(value),
                )
    dtype: type[np.generic] = np.float64
    if all(isinstance(value, bool) for row in rows for value in row):
        dtype = np.bool_
    # no rows at all become [0, 0], which has two axes, too
    return np.array(rows, dtype=dtype).reshape(len(rows), width)


def _quoted_cell(value: object) -> str:
    """A cell or value that is no number, quoted or described for an error."""
    match value:
        case None:
            return "null"
        case "":
            return "empty"
        case str():
            return repr(value[:40])
        case _:
            return message("a list or an object")
