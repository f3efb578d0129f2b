"""The safetensors format and its data types, read and written by its definition; a header is
checked before its data.

The library of that name maps the file instead, and a mapped file that shrinks while it is read ends
the process; it also takes headers that name a tensor twice.

Source: the format's description, huggingface/safetensors README (2022-2025).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, BinaryIO

import numpy as np
from msgspec import Struct

from attncli.errors import InputError, LimitError, UnsupportedError
from attncli.inputs.files import foreign_file, parse_object, read_exactly
from attncli.language import message

DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
}  # fmt: skip
"""The format's codes of data types, and NumPy's names for them."""
NATIVE = frozenset(DTYPES.values()) - {"bfloat16"}
"""The types that NumPy has itself, by name."""
NATIVE_CODES = frozenset(np.dtype(name).str[1:] for name in NATIVE)
"""The same by code, such as "f4"."""
SUPPORTED = "bool, integers, float16, float32, float64, bfloat16"
MOST_AXES = 32
"""Axes of an array, as NumPy had them before version 2."""


@cache
def dtype_of_name(name: str) -> np.dtype[Any]:
    """The NumPy data type of that name: NumPy's own, bfloat16 of ml_dtypes, or bytes for float8.
    Raises KeyError for any other name."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    if name.startswith("float8"):  # read as bytes; the reader of quantised weights converts them
        return np.dtype(np.uint8)
    if name not in NATIVE:
        raise KeyError(name)
    return np.dtype(name)


def unsupported_dtype(tensor: str, dtype: str, where: str) -> UnsupportedError:
    """The error, returned and not raised, that a tensor's data type is not supported."""
    return UnsupportedError(
        "tensor {tensor} has the data type {dtype}",
        where=where,
        expected=SUPPORTED,
        tensor=repr(tensor),
        dtype=dtype,
    )


def byte_count(tensor: str, dtype: np.dtype[Any], shape: Iterable[object], where: str) -> int:
    """The bytes that an array takes, counted without overflow. Raises InputError for a shape that
    no array can have.
    """
    sizes = list(shape)  # from a file: anything may stand there
    if len(sizes) > MOST_AXES:
        what = message("tensor {tensor} has {sizes} axes", tensor=repr(tensor), sizes=len(sizes))
        raise InputError(what, where=where, expected="at most {most_axes}", most_axes=MOST_AXES)
    count = 1  # of numbers
    not_empty = 1  # the same with axes of length 0 counted as 1, as NumPy counts them
    for size in sizes:
        if type(size) is not int or not 0 <= size < 2**62:
            not_empty = 2**63  # refused below, as a product that is too large
            break
        count *= size
        not_empty *= max(size, 1)
    if not_empty * dtype.itemsize >= 2**63:
        expected = message("whole numbers from 0 up, of a size that exists")
        raise InputError(
            "tensor {tensor} has an impossible shape",
            where=where,
            expected=expected,
            tensor=repr(tensor),
        )
    return count * dtype.itemsize


def check_array(
    tensor: str, array: np.ndarray[Any, Any], where: str, *, allow_nonfinite: bool
) -> np.ndarray[Any, Any]:
    """The array in the machine's byte order and row-major order. Raises where its data type or its
    numbers are not fit to compute with.

    Raises UnsupportedError for a data type that is not numbers, InputError for a bool that is
    neither 0 nor 1 and, unless `allow_nonfinite`, for NaN and Inf, naming the first position.
    """
    if array.dtype.isnative:
        native = array
    else:
        native = array.astype(array.dtype.newbyteorder("="))
    # by code, such as "f4": asking for a type's name takes longer than reading a small array
    is_native = native.dtype.str[1:] in NATIVE_CODES
    if not is_native and native.dtype.name != "bfloat16":
        raise unsupported_dtype(tensor, native.dtype.name, where)
    row_major = np.asarray(native, order="C")
    if row_major.dtype.kind == "b" and row_major.size and int(row_major.view(np.uint8).max()) > 1:
        raise InputError(
            "tensor {tensor} holds truth values other than 0 and 1",
            where=where,
            tensor=repr(tensor),
        )
    is_float = row_major.dtype.kind == "f" or not is_native  # bfloat16 has a kind of its own
    if not is_float or allow_nonfinite:
        return row_major
    finite = np.isfinite(row_major)
    if not finite.all():
        first_bad = int(np.argmin(finite))  # the first False
        place = np.unravel_index(first_bad, row_major.shape)
        raise InputError(
            "tensor {tensor} holds {value} at [{place_text}], the first of {bad:,} that are not"
            " finite",
            where=where,
            expected="finite numbers",
            tensor=repr(tensor),
            value=float(row_major[place]),
            place_text=", ".join(str(int(index)) for index in place),
            bad=row_major.size - int(np.count_nonzero(finite)),
        )
    return row_major


CHUNK = 2**22
"""Bytes that a stream is asked for at a time."""


def read_numbers(
    stream: BinaryIO, dtype: np.dtype[Any], size: int, about: str, where: str
) -> np.ndarray[Any, Any]:
    """The numbers in the next `size` bytes of a stream, one axis.

    about: what they are, for the error.

    Raises InputError where the stream ends early.
    """
    raw = np.empty(size, np.uint8)
    position = 0
    while position < size:
        count = stream.readinto(raw.data[position : position + CHUNK])  # type: ignore[attr-defined]
        if not count:
            what = message(
                "{about} ends after {position:,} of {size:,} bytes",
                about=about,
                position=position,
                size=size,
            )
            raise InputError(what, where=where, expected="the whole file")
        position += count
    return raw.view(dtype)


# Tensor data on its way from a file to the type a run computes in, a cache-sized piece at a time.

Array = np.ndarray[Any, Any]
STEP = 2**17
"""Numbers converted at a time: few enough to stay in the processor's cache between checking and
writing.
"""
WIDER = {(narrow, wide) for narrow in ("bfloat16", "float16") for wide in ("float32", "float64")}
"""Types, stored and wanted, of which the second holds every number of the first."""
EXPONENTS = {"bfloat16": 0x7F80, "float16": 0x7C00}
"""The exponent bits of the 16-bit floats; all set means infinity or NaN."""


def convert(source: Array, target: Array) -> bool:
    """Copy `source` into `target` (both flat, equal length), and say whether every number is finite
    in both types.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        for begin in range(0, source.size, STEP):
            source_part = source[begin : begin + STEP]
            target_part = target[begin : begin + STEP]
            target_part[:] = source_part
            # a number that is not finite in the source is not finite in the target either; and a
            # wider type holds every number of the narrow one, which is faster to check
            checked = target_part
            if (source.dtype.name, target.dtype.name) in WIDER:
                checked = source_part
            if not all_finite(checked):
                return False
    return True


def all_finite(array: Array) -> bool:
    """Whether no number is NaN or infinite; true of integers and booleans."""
    exponent = EXPONENTS.get(array.dtype.name)
    if exponent is not None:
        # the bits of a 16-bit float as a whole number: positive floats are finite below all
        # exponent bits set; negative ones, whose highest bit is set, the same above 0x8000
        return not array.size or bool(
            array.view(np.int16).max() < exponent
            and array.view(np.uint16).max() < 0x8000 + exponent
        )
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


HEADER_LIMIT = 100_000_000
"""Bytes of a header, by the format."""
EXPECTED = message("a .safetensors file")
METADATA = "__metadata__"
MEMBERS = ("dtype", "shape", "data_offsets")
"""What a header says of each tensor."""
CODES = {name: code for code, name in DTYPES.items()}
"""The format's codes by NumPy's names."""


class Entry(Struct, frozen=True):
    """One tensor in a .safetensors header.

    dtype: the format's own code ("BF16").
    start, end: bytes from the beginning of the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def dtype_name(self) -> str:
        """The data type in NumPy's words, or the format's own where NumPy has none."""
        return DTYPES.get(self.dtype, self.dtype)


class SafetensorsHeader(Struct, frozen=True):
    """The header of a .safetensors file: its tensors by name, in file order, and its metadata."""

    entries: dict[str, Entry]
    metadata: dict[str, str]


def read_header(stream: BinaryIO, size: int, where: str) -> SafetensorsHeader:
    """The header of a file of `size` bytes, from the stream's beginning.

    Raises InputError for anything the format does not allow: a header longer than 100 MB or than
    the file, repeated names, offsets that overlap, leave gaps or leave the file, sizes that do not
    fit the shapes. Data types that only `read_entry` refuses may stand in it.
    """
    if size < 8:
        raise InputError(
            "this file has {size} bytes, too few for a header",
            where=where,
            expected=EXPECTED,
            size=size,
        )
    start = read_exactly(stream, 8, where)
    (length,) = struct.unpack("<Q", start)
    if length > HEADER_LIMIT or length > size - 8:
        # no length, so perhaps a file of another kind: 64 bytes are enough to tell
        more = read_exactly(stream, min(size - 8, 64), where)
        if wrong_kind_error := foreign_file(start + more, where, EXPECTED):
            raise wrong_kind_error
        what = message(
            "the header claims {length:,} bytes of a file of {size:,}", length=length, size=size
        )
        expected = message(
            "{wanted_value}, its header at most {header_limit:,} bytes",
            wanted_value=EXPECTED,
            header_limit=HEADER_LIMIT,
        )
        raise InputError(what, where=where, expected=expected)
    fields = parse_object(
        read_exactly(stream, length, where),
        where,
        message("the header of a .safetensors file: a JSON object"),
    )
    metadata = fields.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(
        isinstance(value, str) for value in metadata.values()
    ):
        raise InputError("the metadata are not texts by name", where=where, expected=EXPECTED)
    data_start = 8 + length
    entries = sorted(
        (_parse_entry(name, field, data_start, where) for name, field in fields.items()),
        key=lambda entry: (entry.start, entry.end),
    )
    _check_layout(entries, data_start, size, where)
    return SafetensorsHeader({entry.name: entry for entry in entries}, metadata)


def read_entry(stream: BinaryIO, entry: Entry, where: str) -> np.ndarray[Any, Any]:
    """One tensor, as stored; unchecked for NaN. Raises UnsupportedError for float8, complex and
    other data types that NumPy has no numbers for, InputError where the file has become shorter."""
    if entry.dtype not in DTYPES:
        raise unsupported_dtype(entry.name, entry.dtype, where)
    stream.seek(entry.start)
    dtype = dtype_of_name(entry.dtype_name).newbyteorder("<")
    about = message("tensor {name}", name=repr(entry.name))
    return read_numbers(stream, dtype, entry.end - entry.start, about, where).reshape(entry.shape)


def write_safetensors(
    stream: BinaryIO, tensors: Mapping[str, np.ndarray[Any, Any]], metadata: Mapping[str, str]
) -> None:
    """Write tensors and metadata as .safetensors. Tensors stand in order of falling item size, then
    name, so that all are aligned and the same content gives the same bytes. Raises UnsupportedError
    for a data type that the format or `attn` does not have, LimitError for a header longer than the
    format's 100 MB."""
    # the header: of each tensor its type, shape and bytes [begin, end) within the data
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    if metadata:
        header: dict[str, Any] = {METADATA: {key: metadata[key] for key in sorted(metadata)}}
    else:
        header = {}
    begin = 0
    for name in order:
        array = tensors[name]
        if array.dtype.name not in CODES:
            raise unsupported_dtype(name, array.dtype.name, EXPECTED)
        end = begin + array.nbytes
        header[name] = {
            "dtype": CODES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    raw = json.dumps(header, ensure_ascii=True, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)  # to a multiple of 8, so that the data behind it are aligned
    if len(raw) > HEADER_LIMIT:
        what = message("the header of the file would take {raw:,} bytes", raw=len(raw))
        raise LimitError(
            what,
            expected="at most {header_limit:,}",
            hint="save as .npz",
            header_limit=HEADER_LIMIT,
        )

    # its length, the header, the data in little-endian order
    stream.write(struct.pack("<Q", len(raw)) + raw)
    for name in order:
        array = tensors[name]
        little = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
        stream.write(little.reshape(-1).view(np.uint8).data)


def _parse_entry(name: str, field: Any, origin: int, where: str) -> Entry:
    """The tensor that a field of the header declares.

    name: the tensor's, the key of the field.
    field: any JSON value.
    origin: where the data begin in the file, in bytes.

    Raises InputError for a field that declares no tensor, and for a size that does not fit its
    shape. A type that is not read is let pass, its size unchecked.
    """
    dtype = shape = offsets = None  # refused below
    if type(field) is dict and len(field) == len(MEMBERS):
        dtype, shape, offsets = map(field.get, MEMBERS)
    if (
        type(dtype) is not str
        or type(shape) is not list
        or type(offsets) is not list
        or len(offsets) != 2
    ):
        expected = message("dtype, shape, data_offsets")
        raise InputError(
            "the header entry of {name} is malformed",
            where=where,
            expected=expected,
            name=repr(name),
        )
    start, end = offsets
    if type(start) is not int or type(end) is not int or not 0 <= start <= end:
        what = message(
            "tensor {name} has the offsets {start} to {end}", name=repr(name), start=start, end=end
        )
        raise InputError(what, where=where, expected="a beginning before the end")
    if dtype in DTYPES:
        kind = dtype_of_name(DTYPES[dtype])
    else:  # of a type that is not read the shape alone is checked, as if it were of bytes
        kind = np.dtype(np.uint8)
    size = byte_count(name, kind, shape, where)
    if dtype in DTYPES and size != end - start:
        raise InputError(
            "tensor {name} of shape {shape} takes {size:,} bytes, but {end:,} are there",
            where=where,
            expected=EXPECTED,
            name=repr(name),
            shape=shape,
            size=size,
            end=end - start,
        )
    return Entry(name, dtype, tuple(shape), origin + start, origin + end)


def _check_layout(entries: list[Entry], origin: int, size: int, where: str) -> None:
    """Raise InputError where tensors overlap, leave a gap, or do not fill the file of `size` bytes
    from `origin` on.
    """
    place = origin
    for entry in entries:
        if entry.start != place:
            if entry.start < place:
                fault = message("overlaps the one before")
            else:
                fault = message("leaves a gap before it")
            what = message("tensor {entry} {fault}", entry=repr(entry.name), fault=fault)
            raise InputError(what, where=where, expected="tensors that lie side by side")
        place = entry.end
    if place != size:
        what = message(
            "the tensors end at byte {place:,}, the file at {size:,}", place=place, size=size
        )
        raise InputError(what, where=where, expected="a whole file")
