"""The data types that tensor files may hold, and their conversion to the type that a run computes in."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from attncli.errors import InputError, UnsupportedError

NATIVE = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()  # noqa: SIM905 - a list of words
)
NATIVE_CODES = frozenset(np.dtype(name).str[1:] for name in NATIVE)
SUPPORTED = "bool, integers, float16, float32, float64, bfloat16"
MOST_AXES = 32


@cache
def dtype_of_name(name: str) -> np.dtype[Any]:
    """The NumPy data type of that name; bfloat16 through ml_dtypes. Raises KeyError for any other."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    if name not in NATIVE:
        raise KeyError(name)
    return np.dtype(name)


def unsupported_dtype(tensor: str, dtype: str, where: str) -> UnsupportedError:
    """The refusal of a tensor for its data type."""
    return UnsupportedError(f"tensor {tensor!r} has the data type {dtype}", where=where, expected=SUPPORTED)


def byte_count(tensor: str, dtype: np.dtype[Any], shape: Iterable[object], where: str) -> int:
    """The bytes that an array takes, counted without overflow. Raises InputError for a shape that no array can have."""
    sizes = list(shape)
    if len(sizes) > MOST_AXES:
        raise InputError(f"tensor {tensor!r} has {len(sizes)} axes", where=where, expected=f"at most {MOST_AXES}")
    count = not_empty = 1
    for size in sizes:
        if type(size) is not int or not 0 <= size < 2**62:
            not_empty = 2**63
            break
        count *= size
        # NumPy counts the bytes of an empty array as if its empty axes were of length 1.
        not_empty *= size or 1
    if not_empty * dtype.itemsize >= 2**63:
        raise InputError(
            f"tensor {tensor!r} has an impossible shape",
            where=where,
            expected="whole numbers from 0 up, of a size that exists",
        )
    return count * dtype.itemsize


def check_array(tensor: str, array: np.ndarray[Any, Any], where: str, *, allow_nonfinite: bool) -> np.ndarray[Any, Any]:
    """An array in the machine's byte order and row-major order, found fit to compute with.

    Raises UnsupportedError for a data type that is not numbers, InputError for a bool that is neither 0 nor 1 and,
    unless `allow_nonfinite`, for NaN and Inf, naming the first position.
    """
    native = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    is_native = native.dtype.str[1:] in NATIVE_CODES  # asking for a name takes longer than reading a small array
    if not is_native and native.dtype.name != "bfloat16":
        raise unsupported_dtype(tensor, native.dtype.name, where)
    row_major = np.asarray(native, order="C")
    if row_major.dtype.kind == "b" and row_major.size and int(row_major.view(np.uint8).max()) > 1:
        raise InputError(f"tensor {tensor!r} holds truth values other than 0 and 1", where=where)
    is_float = row_major.dtype.kind == "f" or not is_native
    if is_float and not allow_nonfinite:
        finite = np.isfinite(row_major)
        if not finite.all():
            raise _nonfinite(tensor, row_major, finite, where)
    return row_major


def _nonfinite(tensor: str, array: np.ndarray[Any, Any], finite: np.ndarray[Any, Any], where: str) -> InputError:
    place = np.unravel_index(int(np.argmin(finite)), array.shape)
    place_text = ", ".join(str(int(index)) for index in place)
    value = float(array[place])
    bad = array.size - int(np.count_nonzero(finite))
    return InputError(
        f"tensor {tensor!r} holds {value} at [{place_text}], the first of {bad:,} that are not finite",
        where=where,
        expected="finite numbers",
    )


# Tensor data on its way from a file to the type a run computes in, a cache-sized piece at a time.

Array = np.ndarray[Any, Any]
STEP = 2**17
"""Numbers converted at a time: few enough to stay in the processor's cache between checking and writing."""
WIDER = {(narrow, wide) for narrow in ("bfloat16", "float16") for wide in ("float32", "float64")}
"""Types, stored and wanted, of which the second holds every number of the first."""
EXPONENTS = {"bfloat16": 0x7F80, "float16": 0x7C00}
"""The exponent bits of the 16-bit floats; all set means infinity or NaN."""


def convert(source: Array, target: Array) -> bool:
    """Copy `source` into `target` (both flat, equal length), and say whether every number is finite in both types."""
    with np.errstate(over="ignore", invalid="ignore"):
        for begin in range(0, source.size, STEP):
            source_part, target_part = source[begin : begin + STEP], target[begin : begin + STEP]
            target_part[:] = source_part
            # where the source is infinite or NaN the target is too, and a wider one holds every number
            if not all_finite(source_part if (source.dtype.name, target.dtype.name) in WIDER else target_part):
                return False
    return True


def all_finite(array: Array) -> bool:
    """Whether no number is NaN or infinite; true of integers and booleans."""
    bits = EXPONENTS.get(array.dtype.name)
    if bits is not None:  # as whole numbers: the sign is the highest bit, so each sign has a largest finite one
        return not array.size or bool(array.view(np.int16).max() < bits and array.view(np.uint16).max() < 0x8000 + bits)
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())
