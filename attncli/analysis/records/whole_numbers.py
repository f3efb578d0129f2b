"""Vectors as whole numbers of at most 16 bits, on a scale of their own in every dimension."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

Floats = np.ndarray[Any, np.dtype[np.float32]]
Codes = np.ndarray[Any, np.dtype[np.uint16]]

STEPS = 65535


class FixedPoint(Struct, frozen=True, eq=False):
    """A matrix [row, dim] whose entry is low + step · code. low, step: float32 [dim]. codes: 0 to 65,535."""

    codes: Codes
    low: Floats
    step: Floats

    def numbers(self) -> Floats:
        """The matrix again, float32 [row, dim], within half a step of what it was made from."""
        return self.low + self.step * self.codes.astype(np.float32)


def to_fixed_point(values: Floats, steps: int = STEPS) -> FixedPoint:
    """A matrix [row, dim] of finite numbers on even steps from the least to the greatest of each dimension."""
    low = values.min(0)
    step = ((values.max(0) - low) / steps).astype(np.float32)
    codes = np.rint((values - low) / np.where(step > 0, step, 1))
    return FixedPoint(np.clip(codes, 0, steps).astype(np.uint16), low, step)
