"""Tensor data on its way from a file to the type a run computes in, a cache-sized piece at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
STEP = 2**17
"""Numbers converted at a time: few enough to stay in the processor's cache between checking and writing."""
EXPONENTS = {"bfloat16": 0x7F80, "float16": 0x7C00}
"""The exponent bits of the 16-bit floats; all set means infinity or NaN."""


def convert(stored: Array, wanted: Array) -> bool:
    """Copy `stored` into `wanted` (both flat, equal length), and say whether every number is finite in both types."""
    with np.errstate(over="ignore", invalid="ignore"):
        for begin in range(0, stored.size, STEP):
            target = wanted[begin : begin + STEP]
            target[:] = stored[begin : begin + STEP]
            # where the source is infinite or NaN the target is too
            if not all_finite(target):
                return False
    return True


def all_finite(array: Array) -> bool:
    """Whether no number is NaN or infinite; true of integers and booleans."""
    bits = EXPONENTS.get(array.dtype.name)
    if bits is not None:
        return not bool(np.any((array.view(np.uint16) & bits) == bits))
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())
