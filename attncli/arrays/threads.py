"""One large product by several threads, where BLAS keeps to one.

Small products are faster on one thread, so the command line tells BLAS to use one; the large ones are cut here. A
thread takes some columns of the result, so that no number is summed in another order than alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

LARGE = 50_000_000
"""Multiply-adds from which a product repays a second thread: about two milliseconds of one."""


def cores() -> int:
    """How many threads large products are cut for: the cores there are; 1 where BLAS has threads of its own."""
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_parts(count: int, work: Callable[[slice], None]) -> None:
    """Do `work` for slices that cover 0..count-1, one a core, at the same time. Raises what it raises."""
    parts = cores()
    ends = [count * part // parts for part in range(parts + 1)]
    slices = [slice(*pair) for pair in pairwise(ends)]
    others = [_pool(parts).submit(work, part) for part in slices[1:]]
    try:
        work(slices[0])
    finally:
        for other in others:
            other.result()


@cache
def _pool(parts: int) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(parts - 1, "attn-product")
