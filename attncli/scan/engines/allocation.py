"""What makes glibc give memory back: a worker runs for hours, and its arrays are of every size.

Source: the GNU C library's manual, "Malloc Tunable Parameters" and "Replacing malloc"; malloc_trim(3).
"""

from __future__ import annotations

import ctypes
import sys

ALLOCATION = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "1048576", "MALLOC_TRIM_THRESHOLD_": "131072"}
"""A worker's environment: large arrays are given back as soon as they are done with."""


def give_back() -> None:
    """Give back what is free between small arrays that live on; nothing where the C library has no word for it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
