"""One large product by several threads, where BLAS keeps to one.

Small products are faster on one thread, so the command line tells BLAS to use one; the large ones are cut here. A
thread takes some columns of the result, so that no number is summed in another order than alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from threading import Thread

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
    at_once([partial(work, slice(*pair)) for pair in pairwise(ends)])


def at_once(works: Sequence[Callable[[], None]]) -> None:
    """Do these at the same time, the first of them here. Raises what one of them raises.

    A thread is started in a twentieth of a millisecond; a pool of them would first have to be imported.
    """
    errors: list[BaseException] = []

    def beside(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # raised where the others are waited for
            errors.append(error)

    others = [Thread(target=beside, args=(work,), name="attn-beside", daemon=True) for work in works[1:]]
    for other in others:
        other.start()
    try:
        works[0]()
    finally:
        for other in others:
            other.join()
    if errors:
        raise errors[0]
