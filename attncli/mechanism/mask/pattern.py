"""Masks by where a key stands in the text, patterns of long-context models, and masks that are
known by content.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import Any, final

import numpy as np

from attncli.arrays.backend import Array, Backend
from attncli.arrays.numpy_backend import integers, normal
from attncli.errors import InputError, LimitError, UsageError
from attncli.language import Message, listing, message, plural
from attncli.mechanism.mask.kind import (
    Causal,
    DerivedMask,
    Ints,
    Mask,
    Pairs,
    Reach,
    Spelling,
    band,
    everywhere,
    triangle,
)


@final
class Global(Mask, frozen=True):
    """i or j is one of `tokens`: these attend everywhere and are attended everywhere."""

    tokens: tuple[int, ...]

    spelling = Spelling("global", "global:I,J,…", (), 0, "global:0")
    depends_on = "positions"

    @classmethod
    def read(cls, spec: str, numbers: Sequence[int], seed: int) -> Mask:
        """The mask that `global:I,J,…` means: its numbers are the positions of the global tokens."""
        return Global(tuple(numbers))

    def spec(self) -> str:
        """`global:` with the positions of the global tokens."""
        return "global:" + ",".join(map(str, self.tokens))

    def describe(self) -> Message:
        """The sentence with the positions of the global tokens."""
        return plural(
            "position {positions} sees every key and is seen by every query; nothing else is"
            " visible",
            "positions {positions} see every key and are seen by every query; nothing else is"
            " visible",
            count=len(self.tokens),
            positions=listing(self.tokens),
        )

    def sees(self, pairs: Pairs) -> Array:
        """Whether the query or the key is a global token."""
        return self._is_global(pairs.i) | self._is_global(pairs.j)

    def _is_global(self, positions: Array) -> Array:
        """Whether each position is that of a global token, booleans of the same shape."""
        none = positions != positions  # False everywhere, on either backend
        return reduce(or_, (positions == token for token in self.tokens), none)


@final
class Prefix(Mask, frozen=True):
    """j < length or j ≤ i. Also called prefix-LM."""

    length: int

    spelling = Spelling("prefix", "prefix:P", (1,), 0, "prefix:4")
    depends_on = "positions"

    def describe(self) -> Message:
        """The sentence with how many first keys every query sees."""
        if self.length == 0:
            return Causal().describe()
        return plural(
            "the first key is seen by all; the others only from their own position on (j < {count}"
            " or j ≤ i)",
            "the first {count} keys are seen by all; the others only from their own position on (j"
            " < {count} or j ≤ i)",
            count=self.length,
        )

    def sees(self, pairs: Pairs) -> Array:
        """Whether the key is in the prefix or not after the query."""
        return (pairs.j < self.length) | (pairs.j <= pairs.i)

    def reach(self, i: Ints, keys: int) -> Reach:
        """Bounds of the keys that each query sees: from key 0 to the query's own or the end of the
        prefix; all in between are visible."""
        return Reach(np.zeros_like(i), np.maximum(i + 1, self.length), whole=True)

    def pairs(self, n: int) -> int | None:
        """How many (query, key) pairs are visible among n tokens: all within the prefix, and those
        of causal rows after it."""
        first = min(self.length, n)
        return first * first + triangle(n) - triangle(first)


@final
class Chunk(Mask, frozen=True):
    """j ≤ i and both in the same chunk of `size` positions (Llama 4)."""

    size: int

    spelling = Spelling("chunk", "chunk:C", (1,), 1, "chunk:4")
    depends_on = "positions"

    def describe(self) -> Message:
        """The sentence with the size of a chunk."""
        return plural(
            "a query sees itself and the keys before it in its own chunk of {count} position",
            "a query sees itself and the keys before it in its own chunk of {count} positions",
            count=self.size,
        )

    def sees(self, pairs: Pairs) -> Array:
        """Whether the key is in the query's chunk and not after the query."""
        return (pairs.j <= pairs.i) & (pairs.j // self.size == pairs.i // self.size)

    def reach(self, i: Ints, keys: int) -> Reach:
        """Bounds of the keys that each query sees: from the start of the query's chunk to its own
        key; all in between are visible."""
        return Reach(i // self.size * self.size, i + 1, whole=True)

    def pairs(self, n: int) -> int | None:
        """How many (query, key) pairs are visible among n tokens: the triangles of whole chunks and
        of the rest.
        """
        whole, rest = divmod(n, self.size)
        return whole * triangle(self.size) + triangle(rest)


@final
class Blocks(Mask, frozen=True):
    """Both in the same block of `size` positions, looking both ways."""

    size: int

    spelling = Spelling("block", "block:B", (1,), 1, "block:4")
    depends_on = "positions"

    def describe(self) -> Message:
        """The sentence with the size of a block."""
        return plural(
            "a query sees its own block of {count} position, both ways",
            "a query sees its own block of {count} positions, both ways",
            count=self.size,
        )

    def sees(self, pairs: Pairs) -> Array:
        """Whether query and key are in the same block."""
        return pairs.j // self.size == pairs.i // self.size

    def reach(self, i: Ints, keys: int) -> Reach:
        """Bounds of the keys that each query sees: the query's own block; all in between are
        visible.
        """
        first = i // self.size * self.size
        return Reach(first, first + self.size, whole=True)

    def pairs(self, n: int) -> int | None:
        """How many (query, key) pairs are visible among n tokens: the squares of whole blocks and
        of the rest.
        """
        whole, rest = divmod(n, self.size)
        return whole * self.size * self.size + rest * rest


@final
class Documents(Mask, frozen=True):
    """Both carry the same id; `ids` has one entry per position (packed documents)."""

    ids: tuple[int, ...]

    spelling = None
    depends_on = "positions"

    def spec(self) -> str:
        """`documents:` with how many there are, to be read by people."""
        return f"documents:{len(set(self.ids))}"

    def describe(self) -> Message:
        """The sentence with how many documents are packed together."""
        return plural(
            "a query sees its own document ({count} document packed together)",
            "a query sees its own document ({count} documents packed together)",
            count=len(set(self.ids)),
        )

    def sees(self, pairs: Pairs) -> Array:
        """Whether query and key carry the same document id."""
        id_of = pairs.backend.array(np.asarray(self.ids, np.int64))
        # a query's position may lie outside the text, where it sees nothing; 0 stands in as index
        inside = (pairs.i >= 0) & (pairs.i < len(self.ids))
        return inside & (id_of[pairs.backend.where(inside, pairs.i, 0)] == id_of[pairs.j])

    def check_size(self, queries: int, keys: int) -> None:
        """Raise InputError unless there is one id for each key."""
        if len(self.ids) != keys:
            raise InputError(
                "{ids} document ids for {keys} tokens",
                expected="one id per token",
                ids=len(self.ids),
                keys=keys,
            )


@final
class Padding(Mask, frozen=True):
    """The last `count` keys are padding: no query sees them."""

    count: int

    spelling = Spelling("padding", "padding:K", (1,), 0, "padding:3")
    depends_on = "length"

    def describe(self) -> Message:
        """The sentence with how many keys at the end are padding."""
        if self.count == 0:
            return message("no key is padding")
        return plural(
            "the last key is padding and hidden from every query",
            "the last {count} keys are padding and hidden from every query",
            count=self.count,
        )

    def sees(self, pairs: Pairs) -> Array:
        """Whether the key stands before the padding."""
        return (pairs.j < pairs.keys - self.count) & pairs.all

    def reach(self, i: Ints, keys: int) -> Reach:
        """Bounds of the keys that each query sees: all keys before the padding; all in between are
        visible.
        """
        return everywhere(i, keys - self.count, whole=True)

    def pairs(self, n: int) -> int | None:
        """How many (query, key) pairs are visible among n tokens: every query with the keys before
        the padding.
        """
        return n * max(n - self.count, 0)


@final
class Streaming(Mask, frozen=True):
    """j ≤ i and (j < sinks or i − j < recent); `recent` counts the query's own token
    (StreamingLLM).
    """

    sinks: int
    recent: int

    spelling = Spelling("sinks", "sinks:S,R", (2,), 0, "sinks:1,3")
    depends_on = "positions"

    @classmethod
    def read(cls, spec: str, numbers: Sequence[int], seed: int) -> Mask:
        """The mask that `sinks:S,R` means: S first keys and R last ones. Raises UsageError for an R
        of 0."""
        sinks, recent = numbers
        if recent == 0:
            raise UsageError(
                "mask {spec} has a 0 where none may be",
                expected="sinks:S,R, with R from 1",
                spec=repr(spec),
            )
        return Streaming(sinks, recent)

    def describe(self) -> Message:
        """The sentence with how many first keys and how many last ones a query sees."""
        recent = self.recent
        if recent == 1:
            last = message("its own key")
        else:
            last = message("the last {recent}, its own included", recent=recent)
        if self.sinks == 0:
            return message("a query sees {last}; never a later one", last=last)
        return plural(
            "a query sees the first key and {last}; never a later one",
            "a query sees the first {count} keys and {last}; never a later one",
            count=self.sinks,
            last=last,
        )

    def sees(self, pairs: Pairs) -> Array:
        """Whether the key is not after the query, and a sink or one of the `recent` last."""
        i = pairs.i
        j = pairs.j
        return (j <= i) & ((j < self.sinks) | (i - j < self.recent))

    def reach(self, i: Ints, keys: int) -> Reach:
        """Bounds of the keys that each query sees: from key 0 to the query's own; not all in
        between are visible.
        """
        return Reach(np.zeros_like(i), i + 1, whole=False)

    def pairs(self, n: int) -> int | None:
        """How many (query, key) pairs are visible among n tokens: at most sinks + recent keys for
        each query.
        """
        # as many as in a window of sinks + recent keys: a query sees all keys until there are more
        # than that, and exactly that many from then on
        return band(n, self.sinks + self.recent - 1, 0)


@final
class BigBird(Mask, frozen=True):
    """Blocks of `size`: each sees its neighbours, itself, the first, the last and `random` seeded
    others.

    Everything is visible when the text is no longer than `longest`; None for (5 + 2·random)·size.
    """

    size: int = 64
    random: int = 3
    seed: int = 0
    longest: int | None = None

    spelling = Spelling(
        "bigbird",
        "bigbird, bigbird:BLOCK, bigbird:BLOCK,RANDOM or bigbird:BLOCK,RANDOM,SEED",
        (0, 1, 2, 3),
        0,
        "bigbird:1,1",
    )
    depends_on = "length"

    @classmethod
    def read(cls, spec: str, numbers: Sequence[int], seed: int) -> Mask:
        """The mask that `bigbird:BLOCK,RANDOM,SEED` means, from its numbers, any of which may be
        left out from the end. Raises UsageError for a block size of 0."""
        if list(numbers[:1]) == [0]:
            form = BigBird.spelling.form
            what = message("mask {spec} has a 0 where none may be", spec=repr(spec))
            raise UsageError(what, expected=message("{form}, with BLOCK from 1", form=form))
        usual = (64, 3, seed)  # for the numbers that are left out
        size, random, block_seed = (*numbers, *usual[len(numbers) :])
        return BigBird(size, random, block_seed)

    def spec(self) -> str:
        """`bigbird:` with block size, random blocks and seed; with the longest dense text, to be
        read by people.
        """
        text = f"bigbird:{self.size},{self.random},{self.seed}"
        if self.longest is None:
            return text
        return f"{text} beyond {self.longest}"

    def describe(self) -> Message:
        """The sentence with the size of a block and how many random blocks each one sees."""
        if self.random == 0:
            return message(
                "blocks of {size}: a query's block sees itself, its neighbours, the first and the"
                " last; everything up to {whole} tokens",
                size=self.size,
                whole=self._dense_length,
            )
        return plural(
            "blocks of {size}: a query's block sees itself, its neighbours, the first, the last and"
            " {count} seeded random block; everything up to {whole} tokens",
            "blocks of {size}: a query's block sees itself, its neighbours, the first, the last and"
            " {count} seeded random blocks; everything up to {whole} tokens",
            count=self.random,
            size=self.size,
            whole=self._dense_length,
        )

    @property
    def _dense_length(self) -> int:
        """The longest text of which everything is visible."""
        if self.longest is None:
            return (5 + 2 * self.random) * self.size
        return self.longest

    def sees(self, pairs: Pairs) -> Array:
        """Whether the query's block sees the key's; True for every pair of a short text."""
        if pairs.keys <= self._dense_length:
            return pairs.all
        blocks = block_visibility(-(-pairs.keys // self.size), self.random, self.seed)
        # a query's position may lie outside the text, where it sees nothing; 0 stands in as index
        inside = (pairs.i >= 0) & (pairs.i < pairs.keys)
        query_block = pairs.backend.where(inside, pairs.i, 0) // self.size
        return inside & pairs.backend.array(blocks)[query_block, pairs.j // self.size]

    def reach(self, i: Ints, keys: int) -> Reach:
        """All keys, without gaps only in a short text."""
        return everywhere(i, keys, whole=keys <= self._dense_length)

    def pairs(self, n: int) -> int | None:
        """How many (query, key) pairs are visible among n tokens: all n² in a short text; None for
        a longer one.
        """
        if n <= self._dense_length:
            return n * n
        return None


# BigBird's pattern of blocks: which block of positions sees which.

MOST_BLOCKS = 4096
"""Blocks at most: the table holds their square."""


@lru_cache(maxsize=4)
def block_visibility(count: int, random: int, seed: int) -> np.ndarray[Any, Any]:
    """Which blocks see which, [query block, key block] booleans, for `count` blocks; not to be
    written to.

    The first and last block see all and are seen by all; the others see their neighbours and
    `random` further blocks drawn without replacement from the seeded stream.
    Raises LimitError above `MOST_BLOCKS`. Source: Zaheer et al., Big Bird, 2020.
    """
    if count > MOST_BLOCKS:
        expected = message("at most {most_blocks:,}", most_blocks=MOST_BLOCKS)
        raise LimitError(
            "a bigbird mask of {count:,} blocks",
            expected=expected,
            hint="--mask bigbird:64",
            count=count,
        )
    table = np.zeros((count, count), bool)
    table[[0, -1], :] = True
    table[:, [0, -1]] = True
    for block in range(1, count - 1):
        table[block, block - 1 : block + 2] = True
        candidates = [place for place in range(1, count - 1) if abs(place - block) > 1]
        # a block that was drawn is no candidate any more
        for draw in integers(seed, f"bigbird\0{block}", min(random, len(candidates))):
            table[block, candidates.pop(int(draw) % len(candidates))] = True
    return table


@final
class Hashed(Mask, frozen=True):
    """A query sees the keys in its LSH bucket in any round, as in Reformer; must be bound to
    queries and keys before use.

    buckets: how many there are in each round.
    rounds: how often vectors are hashed.
    seed: of the random directions that hash.
    """

    buckets: int
    rounds: int = 1
    seed: int = 0

    spelling = Spelling("lsh", "lsh:BUCKETS or lsh:BUCKETS,ROUNDS", (1, 2), 1, "lsh:4")
    depends_on = "vectors"

    @classmethod
    def read(cls, spec: str, numbers: Sequence[int], seed: int) -> Mask:
        """The mask that `lsh:BUCKETS` or `lsh:BUCKETS,ROUNDS` means, from its numbers; one round
        where that is left out. Raises UsageError for an odd number of buckets."""
        buckets = numbers[0]
        if buckets % 2:
            what = message("lsh needs an even number of buckets, not {number}", number=buckets)
            raise UsageError(what, expected=message("lsh:{number_2}", number_2=buckets + 1))
        rounds = numbers[1] if len(numbers) > 1 else 1
        return Hashed(buckets, rounds, seed)

    def spec(self) -> str:
        """`lsh:` with the numbers of buckets and rounds."""
        return f"lsh:{self.buckets},{self.rounds}"

    def describe(self) -> Message:
        """The sentence with how many buckets and rounds there are."""
        if self.rounds == 1:
            return message(
                "a query sees the keys that hash into its own of {buckets} buckets in the one round",
                buckets=self.buckets,
            )
        return message(
            "a query sees the keys that hash into its own of {buckets} buckets in any of {count}"
            " rounds",
            count=self.rounds,
            buckets=self.buckets,
        )

    def sees(self, pairs: Pairs) -> Array:
        """Raise TypeError: buckets are known only after `bind`."""
        raise TypeError("a Hashed mask must be bound to queries and keys before use")

    def bind(
        self, backend: Backend, q: Array, k: Array, scale: float, softcap: float | None
    ) -> Mask:
        """The mask by the hash buckets of queries [head, query, dim] and keys [kv, key, dim] of one
        text, without batch axes.

        scale, softcap: not used, as buckets do not depend on scores.
        """
        group_size = q.shape[0] // k.shape[0]
        if group_size > 1:
            keys = backend.repeat(k, group_size, 0)
        else:
            keys = k
        rotations = backend.array_as_is(
            directions(self.seed, q.shape[0], q.shape[-1], self.rounds, self.buckets)
        )
        return SameBucket(
            self, buckets_of(backend, q, rotations), buckets_of(backend, keys, rotations)
        )


@final
class SameBucket(DerivedMask, frozen=True, eq=False):
    """A `Hashed` mask once its buckets are known: `query` is [head, round, row], `key` [head,
    round, key].
    """

    query: Array
    key: Array

    spelling = None

    def sees(self, pairs: Pairs) -> Array:
        """Whether query and key share a bucket in any round, booleans [head, rows, columns]."""
        # buckets of queries, [head, round, rows, 1], against those of keys, [head, round, 1,
        # columns]; the axis of rounds stays with size 1
        rows = pairs.row.reshape((-1,))
        columns = pairs.j.reshape((-1,))
        same = self.query[:, :, rows][..., None] == self.key[:, :, columns][:, :, None, :]
        return pairs.backend.any(same, 1)[:, 0]

    def of_heads(self, heads: slice) -> Mask:
        """The mask with the buckets of some of the heads."""
        return SameBucket(self.source, self.query[heads], self.key[heads])


@final
class MatrixMask(Mask, frozen=True, eq=False):
    """Visibility read from a file or an array: `values` is boolean, [key] or [query, key] or [head,
    query, key]. `name` is the file's, for descriptions and errors.
    """

    values: np.ndarray[Any, Any]
    name: str = "given"

    spelling = None
    depends_on = "length"

    def spec(self) -> str:
        """`file` with its name, to be read by people."""
        return f"file {self.name}"

    def describe(self) -> Message:
        """The sentence with the name of the file."""
        return message("as the file {name} says (0 or false = hidden)", name=self.name)

    def sees(self, pairs: Pairs) -> Array:
        """The entry of the matrix for query and key, or for the key alone."""
        values = pairs.backend.array(self.values)
        if values.ndim == 1:  # one entry for each key, the same for every query
            return values[pairs.j] & pairs.all
        return values[..., pairs.row, pairs.j]

    def by_head(self) -> bool:
        """Whether the matrix has an axis of heads."""
        return self.values.ndim > 2

    def of_heads(self, heads: slice) -> Mask:
        """The mask of some of the heads' matrices; itself where heads share one."""
        if self.by_head() and len(self.values) > 1:
            return MatrixMask(self.values[heads], self.name)
        return self

    def check_size(self, queries: int, keys: int) -> None:
        """Raise InputError unless the matrix has these numbers of queries and keys, or is of keys
        alone."""
        values = self.values
        if values.shape[-1] != keys or (values.ndim > 1 and values.shape[-2] != queries):
            expected = message(
                "[{queries}, {keys}] (queries × keys), or [{keys}]", queries=queries, keys=keys
            )
            raise InputError(
                "the mask has shape {shape}",
                where=self.name,
                expected=expected,
                shape=list(values.shape),
            )


# Locality-sensitive hashing: which bucket a query or key falls into.
#
# Source: Kitaev, Kaiser and Levskaya, Reformer, 2020; angular hashing of Andoni et al., 2015.

MOST_DRAWS = 2**24
"""Random numbers that hashing may draw: some seconds and 64 MB."""


def directions(
    seed: int, heads: int, width: int, rounds: int, buckets: int
) -> np.ndarray[Any, Any]:
    """Random directions R ~ N(0, 1), [head, width, round, buckets/2], float32, the same for a seed
    everywhere.

    Raises LimitError for more than `MOST_DRAWS` numbers.
    """
    if heads * width * rounds * (buckets // 2) > MOST_DRAWS:
        raise LimitError(
            "{buckets:,} buckets and {rounds:,} rounds for {heads} heads of width {width}",
            expected="at most {most:,} random numbers",
            buckets=buckets,
            rounds=rounds,
            heads=heads,
            width=width,
            most=MOST_DRAWS,
        )
    return normal(seed, "lsh", (heads, width, rounds, buckets // 2))


def buckets_of(backend: Backend, vectors: Array, rotations: Array) -> Array:
    """The bucket of each vector, argmax of [xR; −xR], integers [head, round, token].

    vectors: [head, token, dim].
    rotations: [head, dim, round, buckets/2].
    """
    projections = projections_of(backend, vectors, rotations)
    return backend.concat([projections, -projections], -1).argmax(-1)


def projections_of(backend: Backend, vectors: Array, rotations: Array) -> Array:
    """xR of each vector, [head, round, token, buckets/2]: the numbers that decide its bucket.

    vectors: [head, token, dim].
    rotations: [head, dim, round, buckets/2].
    """
    # xR for all rounds in one product
    heads, width, rounds, half = rotations.shape
    projections = backend.matmul(
        vectors,
        backend.cast(rotations, backend.dtype_of(vectors)).reshape((heads, width, rounds * half)),
    )
    return backend.permute(
        projections.reshape((heads, vectors.shape[-2], rounds, half)), (0, 2, 1, 3)
    )
