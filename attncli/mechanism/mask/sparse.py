"""Patterns that long-context models are made for: first and last keys, and seeded blocks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, final

import numpy as np

from attncli.arrays.backend import Array
from attncli.errors import LimitError, UsageError
from attncli.mechanism.mask.kind import Ints, Mask, Pairs, Reach, Spelling, everywhere, many
from attncli.mechanism.mask.relative import band
from attncli.mechanism.random_streams import integers


@final
class Streaming(Mask, frozen=True):
    """j ≤ i and (j < sinks or i − j < recent); `recent` counts the query's own token (StreamingLLM)."""

    sinks: int
    recent: int

    spelling = Spelling("sinks", "sinks:S,R", (2,), 0, "sinks:1,3")

    @classmethod
    def read(cls, spec: str, numbers: Sequence[int], seed: int) -> Mask:
        if numbers[1] == 0:
            raise UsageError(f"mask {spec!r} has a 0 where none may be", expected="sinks:S,R, with R from 1")
        return Streaming(*numbers)

    def spec(self) -> str:
        return f"sinks:{self.sinks},{self.recent}"

    def english(self) -> str:
        first = "" if self.sinks == 0 else f"the first {'key' if self.sinks == 1 else f'{self.sinks} keys'} and "
        last = "its own key" if self.recent == 1 else f"the last {self.recent}, its own included"
        return f"a query sees {first}{last}; never a later one"

    def chinese(self) -> str:
        return f"查询能看到最前 {self.sinks} 个键和最近 {self.recent} 个键（含自身），看不到之后的键"

    def sees(self, pairs: Pairs) -> Array:
        i, j = pairs.i, pairs.j
        return (j <= i) & ((j < self.sinks) | (i - j < self.recent))

    def reach(self, i: Ints, keys: int) -> Reach:
        return Reach(np.zeros_like(i), i + 1, False)

    def pairs(self, n: int) -> int | None:
        # the first keys and the last ones overlap until there are more than both
        return band(n, self.sinks + self.recent - 1, 0)

    def depends_on(self) -> Literal["positions", "length", "vectors"]:
        return "positions"


@final
class BigBird(Mask, frozen=True):
    """Blocks of `size`: each sees its neighbours, itself, the first, the last and `random` seeded others.

    Everything is visible when the text is no longer than `longest`; None for (5 + 2·random)·size.
    """

    size: int = 64
    random: int = 3
    seed: int = 0
    longest: int | None = None

    spelling = Spelling(
        "bigbird", "bigbird, bigbird:BLOCK, bigbird:BLOCK,RANDOM or bigbird:BLOCK,RANDOM,SEED", (0, 1, 2, 3), 0,
        "bigbird:1,1",
    )  # fmt: skip

    @classmethod
    def read(cls, spec: str, numbers: Sequence[int], seed: int) -> Mask:
        if list(numbers[:1]) == [0]:
            form = BigBird.spelling.form
            raise UsageError(f"mask {spec!r} has a 0 where none may be", expected=f"{form}, with BLOCK from 1")
        size, random, block_seed = (*numbers, *(64, 3, seed)[len(numbers) :])
        return BigBird(size, random, block_seed)

    def spec(self) -> str:
        text = f"bigbird:{self.size},{self.random},{self.seed}"
        return text if self.longest is None else f"{text} beyond {self.longest}"

    def english(self) -> str:
        others = many(self.random, "seeded random block")
        far_blocks = f", the first, the last and {others}" if self.random else ", the first and the last"
        return (
            f"blocks of {self.size}: a query's block sees itself, its neighbours{far_blocks}; everything up to "
            f"{self._whole} tokens"
        )

    def chinese(self) -> str:
        return (
            f"每块 {self.size} 个位置：查询所在的块能看到自身、相邻的块、首块、末块和 {self.random} 个"
            f"由种子抽取的随机块；不超过 {self._whole} 个词元时全部可见"
        )

    @property
    def _whole(self) -> int:
        """The longest text of which everything is visible."""
        return (5 + 2 * self.random) * self.size if self.longest is None else self.longest

    def sees(self, pairs: Pairs) -> Array:
        if pairs.keys <= self._whole:
            return pairs.all
        blocks = block_visibility(-(-pairs.keys // self.size), self.random, self.seed)
        inside = (pairs.i >= 0) & (pairs.i < pairs.keys)
        query_block = pairs.backend.where(inside, pairs.i, 0) // self.size
        return inside & pairs.backend.array(blocks)[query_block, pairs.j // self.size]

    def reach(self, i: Ints, keys: int) -> Reach:
        return everywhere(i, keys, whole=keys <= self._whole)

    def pairs(self, n: int) -> int | None:
        return n * n if n <= self._whole else None

    def depends_on(self) -> Literal["positions", "length", "vectors"]:
        return "length"


# BigBird's pattern of blocks: which block of positions sees which.

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
