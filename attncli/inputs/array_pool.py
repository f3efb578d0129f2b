"""Memory that large arrays leave behind, given to the next ones.

Without this, each weight would be new memory that the system must find and clear page by page, which takes longer
than reading it.
"""

from __future__ import annotations

import mmap
import weakref
from math import prod
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
LARGE = 2**20
"""Bytes from which an array is worth its own pages."""


class Pool:
    """Hands out uninitialised arrays; the memory of one comes back when nothing refers to it or to a view of it."""

    def __init__(self) -> None:
        self._free: list[mmap.mmap] = []

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An array of this shape and type, its content arbitrary."""
        size = prod(shape) * dtype.itemsize
        if size < LARGE:
            return np.empty(shape, dtype)
        memory = self._memory(size)
        # the root is what every view refers to in the end: NumPy follows `base` down to the first array
        root = np.frombuffer(memory, dtype, prod(shape))
        weakref.finalize(root, self._free.append, memory).atexit = False
        return root.reshape(shape)

    def _memory(self, size: int) -> mmap.mmap:
        fitting = [memory for memory in self._free if len(memory) >= size]
        if fitting:
            smallest = min(fitting, key=len)
            self._free.remove(smallest)
            return smallest
        # all are too small: they must not add to what is needed now
        self._free.clear()
        memory = mmap.mmap(-1, size)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        return memory
