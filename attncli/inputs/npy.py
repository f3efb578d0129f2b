"""One array in NumPy's own format, read without trusting it: no pickles, and no memory but for bytes that are there."""

from __future__ import annotations

import warnings
from typing import Any, BinaryIO

import numpy as np
from msgspec import Struct
from numpy.lib import format as npy_format

from attncli.errors import InputError, UnsupportedError
from attncli.inputs.dtypes import NATIVE, byte_count, unsupported_dtype

CHUNK = 2**22


class NpyHeader(Struct, frozen=True):
    """What the head of an array file says; `size` is the bytes of data that must follow."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    column_major: bool
    size: int


def read_npy_header(stream: BinaryIO, name: str, where: str, total: int) -> NpyHeader:
    """The header of the array that starts at the stream's position and takes `total` bytes in all.

    Raises InputError for a damaged header, or a shape that does not fit `total`; UnsupportedError for a data type
    that is not numbers (objects, text, complex, records).
    """
    readers = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
    start = stream.tell()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about headers of Python 2, which are read all the same
            version = npy_format.read_magic(stream)
            if version not in readers:
                raise UnsupportedError(
                    f"{name!r} is in version {version} of the .npy format", where=where, expected="version 1.0 or 2.0"
                )
            shape, column_major, dtype = readers[version](stream)
    except UnsupportedError:
        raise
    except Exception as error:  # the parser raises whatever its pieces do
        raise InputError(
            f"the array {name!r} has a damaged header", where=where, expected="an array written by numpy.save"
        ) from error
    if dtype.hasobject:
        raise InputError(
            f"the array {name!r} holds Python objects, which are never loaded",
            where=where,
            expected="an array of numbers",
        )
    if dtype.newbyteorder("=").name not in NATIVE:
        raise unsupported_dtype(name, _dtype_text(dtype), where)
    size = byte_count(name, dtype, shape, where)
    data_size = total - (stream.tell() - start)
    if size != data_size:
        raise InputError(
            f"the array {name!r} of shape {list(shape)} takes {size:,} bytes, but {data_size:,} are there",
            where=where,
            expected="a whole array file",
        )
    return NpyHeader(dtype, shape, column_major, size)


def read_npy_data(stream: BinaryIO, header: NpyHeader, name: str, where: str) -> np.ndarray[Any, Any]:
    """The array that follows a header. Raises InputError where the data end early."""
    flat = np.empty(header.size, np.uint8)
    view = flat.data
    position = 0
    while position < header.size:
        part = stream.read(min(CHUNK, header.size - position))
        if not part:
            raise InputError(
                f"the array {name!r} ends after {position:,} of {header.size:,} bytes",
                where=where,
                expected="the whole file",
            )
        view[position : position + len(part)] = part
        position += len(part)
    return flat.view(header.dtype).reshape(header.shape, order="F" if header.column_major else "C")


def _dtype_text(dtype: np.dtype[Any]) -> str:
    if dtype.kind == "V" and dtype.names is None:
        return f"{dtype.itemsize} raw bytes (NumPy writes bfloat16 like that; save it as .safetensors)"
    return "records" if dtype.names is not None else dtype.name
