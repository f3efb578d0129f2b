"""BigBird's pattern of blocks: which block of positions sees which."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from attncli.errors import LimitError
from attncli.mechanism.random_streams import integers

MOST_BLOCKS = 4096
"""Blocks at most: the table holds their square."""


@lru_cache(maxsize=4)
def block_visibility(count: int, random: int, seed: int) -> np.ndarray[Any, Any]:
    """Which blocks see which, [query block, key block] booleans, for `count` blocks; not to be written to.

    The first and last block see all and are seen by all; the others see their neighbours and
    `random` further blocks drawn without replacement from the seeded stream.
    Raises LimitError above `MOST_BLOCKS`. Source: Zaheer et al., Big Bird, 2020.
    """
    if count > MOST_BLOCKS:
        raise LimitError(
            f"a bigbird mask of {count:,} blocks", expected=f"at most {MOST_BLOCKS:,}", hint="--mask bigbird:64"
        )
    table = np.zeros((count, count), bool)
    table[[0, -1], :] = table[:, [0, -1]] = True
    for block in range(1, count - 1):
        table[block, block - 1 : block + 2] = True
        rest = [candidate for candidate in range(1, count - 1) if abs(candidate - block) > 1]
        for draw in integers(seed, f"bigbird\0{block}", min(random, len(rest))):
            table[block, rest.pop(int(draw) % len(rest))] = True
    return table
