"""What keeps a worker's memory level: it runs for hours, and its arrays are of every size.

Source: the GNU C library's manual, "Malloc Tunable Parameters" and "Replacing malloc"; malloc_trim(3); oneDNN's guide,
"Primitive Cache".
"""

from __future__ import annotations

import ctypes
import sys

ALLOCATION = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TRIM_THRESHOLD_": "1073741824",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "16",
}
"""A worker's environment: arrays come from one heap, which `give_back` trims after each batch. Mapping the larger ones
anew each time, as would give them back at once, costs a quarter more time. oneDNN compiles an activation for each shape
of a batch, in a millisecond, and would keep a thousand of them, between the arrays."""


def give_back() -> None:
    """Give back what is free between arrays that live on; nothing where the C library has no word for it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
