"""Rows of large NumPy arrays in pieces that stay in the processor's cache, on all of its cores.

A chain of operations on whole arrays reads and writes memory for each of them; on pieces it does so once.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from attncli.arrays import threads
from attncli.arrays.backend import Array

PIECE = 2**16
"""Numbers in a piece: 256 kB of float32."""
LARGE_ARRAY = 2**19
"""Fewer numbers than this are done before a thread would have begun."""


def by_rows(work: Callable[..., Array], first: Array, *others: Array) -> Array:
    """work(first, *others), where each row of the result depends on that row of the arrays alone.

    All of them are [..., row, width], of one shape and type, and so is the result. Large ones are worked on piece by
    piece, [row, width].
    """
    if not isinstance(first, np.ndarray) or first.size < LARGE_ARRAY or first.dtype.itemsize < 4:
        return work(first, *others)
    arrays = [np.asarray(array) for array in (first, *others)]
    if not all(array.flags.c_contiguous for array in arrays):
        return work(first, *others)
    count, width = prod(first.shape[:-1]), first.shape[-1]
    flat = [array.reshape(count, width) for array in arrays]
    result = np.empty_like(flat[0])
    step = max(PIECE // width, 1)
    starts = iter(range(0, count, step))

    def take() -> None:
        for start in starts:  # a step of a range's iterator is one operation, whichever thread asks
            part = slice(start, start + step)
            result[part] = work(*(array[part] for array in flat))

    threads.at_once([take] * threads.cores())
    return result.reshape(first.shape)
