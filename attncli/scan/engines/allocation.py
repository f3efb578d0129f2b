"""What keeps a worker's memory level: it runs for hours, and its arrays are of every size.

Source: the GNU C library's manual, "Malloc Tunable Parameters" and "Replacing malloc"; malloc_trim(3); oneDNN's guide,
"Primitive Cache".
"""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

ALLOCATION = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TRIM_THRESHOLD_": "1073741824",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "16",
}
"""A worker's environment: arrays come from one heap, which `MemoryTrimmer` trims. Mapping the larger ones anew each
time, as would give them back at once, costs a quarter more time. oneDNN compiles an activation for each shape of a
batch, in a millisecond, and would keep a thousand of them, between the arrays."""
SPARE = 64 * 2**20
"""Bytes that a worker may hold beyond what it needs before they are given back. Trimming takes milliseconds."""


class MemoryTrimmer:
    """Gives back what is free between arrays that live on, each time the process has grown by `SPARE` since."""

    def __init__(self) -> None:
        self._least = 0

    def keep(self) -> None:
        """To be called often; nothing where the system does not tell what a process holds."""
        resident = _resident()
        if resident > self._least + SPARE:
            _trim()
            self._least = _resident()
        else:
            self._least = min(self._least, resident)


def _resident() -> int:
    """Bytes of memory that this process holds; 0 where the system has no such file. Source: proc_pid_statm(5)."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


def _trim() -> None:
    """Nothing where the C library has no word for it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
