"""Masks that go by where in the text a key or query stands."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Literal, final

import numpy as np

from attncli.arrays.backend import Array
from attncli.errors import InputError
from attncli.mechanism.mask.kind import Ints, Mask, Pairs, Reach, Spelling, everywhere, many, triangle
from attncli.mechanism.mask.relative import Causal


@final
class Global(Mask, frozen=True):
    """i or j is one of `tokens`: these attend everywhere and are attended everywhere."""

    tokens: tuple[int, ...]

    spelling = Spelling("global", "global:I,J,…", (), 0, "global:0")

    @classmethod
    def read(cls, spec: str, numbers: Sequence[int], seed: int) -> Mask:
        return Global(tuple(numbers))

    def spec(self) -> str:
        return "global:" + ",".join(map(str, self.tokens))

    def english(self) -> str:
        single = len(self.tokens) == 1
        subject = f"position {self.tokens[0]} sees" if single else f"positions {', '.join(map(str, self.tokens))} see"
        return f"{subject} every key and {'is' if single else 'are'} seen by every query; nothing else is visible"

    def chinese(self) -> str:
        return f"位置 {'、'.join(map(str, self.tokens))} 能看到所有键，也被所有查询看到；其余不可见"

    def sees(self, pairs: Pairs) -> Array:
        return self._among(pairs.i) | self._among(pairs.j)

    def _among(self, positions: Array) -> Array:
        return reduce(or_, (positions == token for token in self.tokens), positions != positions)

    def reach(self, i: Ints, keys: int) -> Reach:
        return everywhere(i, keys, whole=False)

    def pairs(self, n: int) -> int | None:
        return None

    def depends_on(self) -> Literal["positions", "length", "vectors"]:
        return "positions"


@final
class Prefix(Mask, frozen=True):
    """j < length or j ≤ i. Also called prefix-LM."""

    length: int

    spelling = Spelling("prefix", "prefix:P", (1,), 0, "prefix:4")

    def spec(self) -> str:
        return f"prefix:{self.length}"

    def english(self) -> str:
        if self.length == 0:
            return Causal().english()
        first = "the first key is" if self.length == 1 else f"the first {self.length} keys are"
        return f"{first} seen by all; the others only from their own position on (j < {self.length} or j ≤ i)"

    def chinese(self) -> str:
        if self.length == 0:
            return Causal().chinese()
        return f"前 {self.length} 个键对所有查询可见，其余的键只从自身位置起可见（j < {self.length} 或 j ≤ i）"

    def sees(self, pairs: Pairs) -> Array:
        return (pairs.j < self.length) | (pairs.j <= pairs.i)

    def reach(self, i: Ints, keys: int) -> Reach:
        return Reach(np.zeros_like(i), np.maximum(i + 1, self.length), True)

    def pairs(self, n: int) -> int | None:
        first = min(self.length, n)
        return first * first + triangle(n) - triangle(first)

    def depends_on(self) -> Literal["positions", "length", "vectors"]:
        return "positions"


@final
class Chunk(Mask, frozen=True):
    """j ≤ i and both in the same chunk of `size` positions (Llama 4)."""

    size: int

    spelling = Spelling("chunk", "chunk:C", (1,), 1, "chunk:4")

    def spec(self) -> str:
        return f"chunk:{self.size}"

    def english(self) -> str:
        return f"a query sees itself and the keys before it in its own chunk of {many(self.size, 'position')}"

    def chinese(self) -> str:
        return f"查询能看到自身，以及同一块（每块 {self.size} 个位置）中之前的键"

    def sees(self, pairs: Pairs) -> Array:
        return (pairs.j <= pairs.i) & (pairs.j // self.size == pairs.i // self.size)

    def reach(self, i: Ints, keys: int) -> Reach:
        return Reach(i // self.size * self.size, i + 1, True)

    def pairs(self, n: int) -> int | None:
        whole, rest = divmod(n, self.size)
        return whole * triangle(self.size) + triangle(rest)

    def depends_on(self) -> Literal["positions", "length", "vectors"]:
        return "positions"


@final
class Blocks(Mask, frozen=True):
    """Both in the same block of `size` positions, looking both ways."""

    size: int

    spelling = Spelling("block", "block:B", (1,), 1, "block:4")

    def spec(self) -> str:
        return f"block:{self.size}"

    def english(self) -> str:
        return f"a query sees its own block of {many(self.size, 'position')}, both ways"

    def chinese(self) -> str:
        return f"查询能看到自身所在的块（每块 {self.size} 个位置），前后都可见"

    def sees(self, pairs: Pairs) -> Array:
        return pairs.j // self.size == pairs.i // self.size

    def reach(self, i: Ints, keys: int) -> Reach:
        first = i // self.size * self.size
        return Reach(first, first + self.size, True)

    def pairs(self, n: int) -> int | None:
        whole, rest = divmod(n, self.size)
        return whole * self.size * self.size + rest * rest

    def depends_on(self) -> Literal["positions", "length", "vectors"]:
        return "positions"


@final
class Documents(Mask, frozen=True):
    """Both carry the same id; `ids` has one entry per position (packed documents)."""

    ids: tuple[int, ...]

    spelling = None

    def spec(self) -> str:
        return f"documents:{len(set(self.ids))}"

    def english(self) -> str:
        return f"a query sees its own document ({many(len(set(self.ids)), 'document')} packed together)"

    def chinese(self) -> str:
        return f"查询只能看到自身所属的文档（共 {len(set(self.ids))} 个文档拼在一起）"

    def sees(self, pairs: Pairs) -> Array:
        id_of = pairs.backend.array(np.asarray(self.ids, np.int64))
        inside = (pairs.i >= 0) & (pairs.i < len(self.ids))
        return inside & (id_of[pairs.backend.where(inside, pairs.i, 0)] == id_of[pairs.j])

    def reach(self, i: Ints, keys: int) -> Reach:
        return everywhere(i, keys, whole=False)

    def pairs(self, n: int) -> int | None:
        return None

    def depends_on(self) -> Literal["positions", "length", "vectors"]:
        return "positions"

    def check_size(self, queries: int, keys: int) -> None:
        if len(self.ids) != keys:
            raise InputError(f"{len(self.ids)} document ids for {keys} tokens", expected="one id per token")


@final
class Padding(Mask, frozen=True):
    """The last `count` keys are padding: no query sees them."""

    count: int

    spelling = Spelling("padding", "padding:K", (1,), 0, "padding:3")

    def spec(self) -> str:
        return f"padding:{self.count}"

    def english(self) -> str:
        if self.count == 0:
            return "no key is padding"
        last = "the last key is" if self.count == 1 else f"the last {self.count} keys are"
        return f"{last} padding and hidden from every query"

    def chinese(self) -> str:
        return f"最后 {self.count} 个键是填充，对所有查询都遮住"

    def sees(self, pairs: Pairs) -> Array:
        return (pairs.j < pairs.keys - self.count) & pairs.all

    def reach(self, i: Ints, keys: int) -> Reach:
        return everywhere(i, keys - self.count, whole=True)

    def pairs(self, n: int) -> int | None:
        return n * max(n - self.count, 0)

    def depends_on(self) -> Literal["positions", "length", "vectors"]:
        return "length"
