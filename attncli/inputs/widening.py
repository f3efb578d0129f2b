"""Tensor data on its way from a file to the type a run computes in, a cache-sized piece at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

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
