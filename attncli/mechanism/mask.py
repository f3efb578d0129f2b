"""Masks: which keys a query may see, as data, as visibility by rows, and as a range of keys.

i is a query's and j a key's absolute position, both 0-based. Every function takes rows of
queries at a time, so that nothing here is n × n unless its caller asks for all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any, TypeAlias

import numpy as np

from attncli.arrays.backend import Array, Backend
from attncli.errors import InputError
from attncli.mechanism import bigbird


@dataclass(frozen=True)
class Everywhere:
    """Every query sees every key."""


@dataclass(frozen=True)
class Causal:
    """j ≤ i. Also called autoregressive or look-ahead mask."""


@dataclass(frozen=True)
class Window:
    """i − left ≤ j ≤ i + right; None is unbounded on that side.

    A decoder's window of W keys, the query's own included, is Window(W − 1, 0).
    """

    left: int | None
    right: int | None


@dataclass(frozen=True)
class Dilated:
    """i − size < j ≤ i with i − j divisible by `step`."""

    size: int
    step: int


@dataclass(frozen=True)
class Global:
    """i or j is one of `tokens`: these attend everywhere and are attended everywhere."""

    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Prefix:
    """j < length or j ≤ i. Also called prefix-LM."""

    length: int


@dataclass(frozen=True)
class Chunk:
    """j ≤ i and both in the same chunk of `size` positions (Llama 4)."""

    size: int


@dataclass(frozen=True)
class Blocks:
    """Both in the same block of `size` positions, looking both ways."""

    size: int


@dataclass(frozen=True)
class Documents:
    """Both carry the same id; `ids` has one entry per position (packed documents)."""

    ids: tuple[int, ...]


@dataclass(frozen=True)
class Streaming:
    """j ≤ i and (j < sinks or i − j < recent); `recent` counts the query's own token (StreamingLLM)."""

    sinks: int
    recent: int


@dataclass(frozen=True)
class BigBird:
    """Blocks of `size`: each sees its neighbours, itself, the first, the last and `random` seeded others.

    Everything is visible when the text is no longer than (5 + 2·random)·size.
    """

    size: int = 64
    random: int = 3
    seed: int = 0


@dataclass(frozen=True)
class Padding:
    """The last `count` keys are padding: no query sees them."""

    count: int


@dataclass(frozen=True)
class Hashed:
    """Same LSH bucket in some round; a teaching mask, bound to queries and keys by `hashing.bind`."""

    buckets: int
    rounds: int = 1
    seed: int = 0


@dataclass(frozen=True, eq=False)
class SameBucket:
    """A `Hashed` mask once its buckets are known: `query` is [head, round, row], `key` [head, round, key]."""

    query: Array
    key: Array
    source: Hashed


@dataclass(frozen=True, eq=False)
class Given:
    """Visibility read from a file or an array: `values` is boolean, [key] or [query, key] or [head, query, key]."""

    values: np.ndarray[Any, Any]
    name: str = "given"


@dataclass(frozen=True)
class AllOf:
    """Visible where every part is: the intersection."""

    parts: tuple[Mask, ...]


@dataclass(frozen=True)
class AnyOf:
    """Visible where some part is: the union."""

    parts: tuple[Mask, ...]


Mask: TypeAlias = (
    Everywhere | Causal | Window | Dilated | Global | Prefix | Chunk | Blocks | Documents | Streaming | BigBird
    | Padding | Hashed | SameBucket | Given | AllOf | AnyOf
)  # fmt: skip


def both(*masks: Mask) -> Mask:
    """The intersection of masks, flattened; Everywhere for none."""
    parts = tuple(mask for mask in masks if not isinstance(mask, Everywhere))
    match len(parts):
        case 0:
            return Everywhere()
        case 1:
            return parts[0]
        case _:
            return AllOf(parts)


def visible(mask: Mask, i: Array, j: Array, *, keys: int, backend: Backend, row: Array | None = None) -> Array:
    """Whether query i sees key j.

    i: integers [..., rows, 1]. j: integers [1, columns]. keys: how many keys there are in all.
    row: integers [rows, 1], the queries' numbers where their positions do not start at 0, for
    masks that list queries (`Given`, `SameBucket`); None if they are i.
    Returns booleans that broadcast to [..., rows, columns], with a leading head axis for
    masks that differ by head. `Hashed` must have been bound first (TypeError otherwise).
    Raises InputError for a given mask or document ids that do not fit the tokens.
    """
    row = i if row is None else row
    match mask:
        case Everywhere():
            return _all(i, j)
        case Causal():
            return j <= i
        case Window(left, right):
            near = _all(i, j) if left is None else j >= i - left
            return near if right is None else near & (j <= i + right)
        case Dilated(size, step):
            return (j <= i) & (j > i - size) & ((i - j) % step == 0)
        case Global(tokens):
            return _among(i, tokens) | _among(j, tokens)
        case Prefix(length):
            return (j < length) | (j <= i)
        case Chunk(size):
            return (j <= i) & (j // size == i // size)
        case Blocks(size):
            return j // size == i // size
        case Documents(ids):
            id_of = backend.array(np.asarray(ids, np.int64))
            inside = (i >= 0) & (i < len(ids))
            return inside & (id_of[backend.where(inside, i, 0)] == id_of[j])
        case Streaming(sinks, recent):
            return (j <= i) & ((j < sinks) | (i - j < recent))
        case BigBird(size, random, seed):
            if keys <= (5 + 2 * random) * size:
                return _all(i, j)
            table = backend.array(bigbird.blocks(-(-keys // size), random, seed))
            inside = (i >= 0) & (i < keys)
            return inside & table[backend.where(inside, i, 0) // size, j // size]
        case Padding(count):
            return (j < keys - count) & _all(i, j)
        case SameBucket(query, key):
            # [head, round, rows, 1] against [head, round, 1, columns], any round
            rows, columns = row.reshape((-1,)), j.reshape((-1,))
            same = query[:, :, rows][..., None] == key[:, :, columns][:, :, None, :]
            return backend.any(same, 1)[:, 0]
        case Given(values):
            found = backend.array(values)
            return found[j] & _all(i, j) if found.ndim == 1 else found[..., row, j]
        case AllOf(parts):
            return reduce(and_, (visible(part, i, j, keys=keys, backend=backend, row=row) for part in parts))
        case AnyOf(parts):
            return reduce(or_, (visible(part, i, j, keys=keys, backend=backend, row=row) for part in parts))
        case Hashed():
            raise TypeError("a Hashed mask must be bound to queries and keys before use")


def check_size(mask: Mask, queries: int, keys: int) -> None:
    """Raise InputError if a mask that lists positions does not fit so many queries and keys."""
    match mask:
        case Given(values, name):
            if values.shape[-1] != keys or (values.ndim > 1 and values.shape[-2] != queries):
                expected = f"[{queries}, {keys}] (queries × keys), or [{keys}]"
                raise InputError(f"the mask has shape {list(values.shape)}", where=name, expected=expected)
        case Documents(ids):
            if len(ids) != keys:
                raise InputError(f"{len(ids)} document ids for {keys} tokens", expected="one id per token")
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                check_size(part, queries, keys)
        case _:
            pass


def shows_all(mask: Mask) -> bool:
    """Whether the mask hides nothing, known without looking at any position."""
    return isinstance(mask, Everywhere) or mask == Window(None, None)


def _all(i: Array, j: Array) -> Array:
    """True for every pair: keys are never negative, queries before a cache may be."""
    return (i >= 0) | (j >= 0)


def _among(positions: Array, tokens: tuple[int, ...]) -> Array:
    return reduce(or_, (positions == token for token in tokens), positions != positions)
