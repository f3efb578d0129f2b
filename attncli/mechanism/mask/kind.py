"""What a kind of mask is: everything that the package needs to know of one, declared in its class and nowhere else.

i is a query's and j a key's absolute position, both 0-based. Every method takes rows of queries at a time, so that
nothing here is n × n unless its caller asks for all rows.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from msgspec import Struct, StructMeta

from attncli.arrays.backend import Array, Backend

Ints = np.ndarray[Any, np.dtype[np.int64]]


class Spelling(Struct, frozen=True):
    """How people write a kind.

    name: before the colon. form: with the numbers that may follow, as a message says it. counts: how many of them there
    may be; empty for any number from 1. least: the least that each may be. example: one of the kind, for the gallery.
    """

    name: str
    form: str
    counts: tuple[int, ...]
    least: int
    example: str


class Pairs(Struct, frozen=True, eq=False):
    """Queries and keys that a mask is asked about.

    i: integers [..., rows, 1]. j: integers [1, columns]. keys: how many keys there are in all. row: integers [rows, 1],
    the queries' numbers, which are not i where positions do not start at 0.
    """

    i: Array
    j: Array
    row: Array
    keys: int
    backend: Backend

    @property
    def all(self) -> Array:
        """True for every pair: keys are never negative, queries before a cache may be."""
        return (self.i >= 0) | (self.j >= 0)


class Reach(NamedTuple):
    """The keys [low, high) outside which a query sees nothing; integers [query], neither of which falls as the query
    rises; not cut to the keys that there are. whole: whether it sees every key between them."""

    low: Ints
    high: Ints
    whole: bool


class KindOfMask(StructMeta, ABCMeta):
    """The class of such classes: frozen records, of which what is abstract must be filled in."""


class Mask(Struct, metaclass=KindOfMask, frozen=True):
    """Which keys a query may see. A kind is a final, frozen record with all that is abstract here.

    spelling: how people write the kind; None for those that only a model, a file or another mask makes.
    """

    spelling: ClassVar[Spelling | None]

    @classmethod
    def read(cls, spec: str, numbers: Sequence[int], seed: int) -> Mask:
        """The mask that `spec` means with these numbers, as many as the spelling allows and none below its least.

        Raises UsageError for numbers that do not go together.
        """
        return cls(*numbers)

    @abstractmethod
    def spec(self) -> str:
        """As `read` would have it; or, where no SPEC can write it, named, to be read by people."""

    @abstractmethod
    def english(self) -> str:
        """One sentence with what the numbers count."""

    @abstractmethod
    def chinese(self) -> str:
        """The same in Chinese."""

    @abstractmethod
    def sees(self, pairs: Pairs) -> Array:
        """Whether query i sees key j: booleans that broadcast to [..., rows, columns], with a leading head axis for
        masks that differ by head."""

    @abstractmethod
    def reach(self, i: Ints, keys: int) -> Reach:
        """Where the queries at the positions i see anything. It may be wider than needed, never narrower."""

    @abstractmethod
    def pairs(self, n: int) -> int | None:
        """How many pairs n queries and n keys have, by a formula; None where they must be looked at."""

    @abstractmethod
    def depends_on(self) -> Literal["positions", "length", "vectors"]:
        """What decides beside i and j: nothing, the number of keys, or the queries and keys themselves."""

    def by_head(self) -> bool:
        """Whether heads may see different keys."""
        return self.depends_on() == "vectors"

    def of_heads(self, heads: slice) -> Mask:
        """The mask for some of the heads, where they see different keys; else the mask itself."""
        return self

    def parts_of(self) -> tuple[Mask, ...]:
        """The masks that an intersection or a union is made of, down to the last; else the mask itself."""
        return (self,)

    def bind(self, backend: Backend, q: Array, k: Array) -> Mask:
        """The mask for queries [head, query, dim] and keys [kv, key, dim], where these decide; else the mask itself."""
        return self

    def check_size(self, queries: int, keys: int) -> None:
        """Raise InputError if the mask lists positions and does not fit so many queries and keys."""
        for part in self.parts_of():
            if part is not self:
                part.check_size(queries, keys)


Lang = Literal["en", "zh"]


def many(count: int, noun: str) -> str:
    """The count with its noun: "1 key", "2 keys"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def triangle(n: int) -> int:
    """1 + 2 + … + n."""
    return n * (n + 1) // 2


def everywhere(i: Ints, keys: int, *, whole: bool) -> Reach:
    """The reach over all keys."""
    return Reach(np.zeros_like(i), np.full_like(i, keys), whole)
