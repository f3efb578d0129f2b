"""What a kind of mask is; those that go by the distance from query to key; and intersections and
unions of masks.

Everything that the package needs to know of a kind is declared in its class and nowhere else.
i is a query's and j a key's absolute position, both 0-based. Every method takes rows of queries at
a time, so that nothing here is n × n unless its caller asks for all rows.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from functools import reduce
from operator import and_, or_
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np
from msgspec import Struct, StructMeta

from attncli.arrays.backend import Array, Backend
from attncli.errors import UsageError
from attncli.language import Message, listing, message, plural

Ints = np.ndarray[Any, np.dtype[np.int64]]


class Spelling(Struct, frozen=True):
    """How people write a kind.

    name: before the colon.
    form: with the numbers that may follow, as a message says it.
    counts: how many of them there may be; empty for any number from 1.
    least: the least that each may be.
    example: one of the kind, for the gallery.
    """

    name: str
    form: str
    counts: tuple[int, ...]
    least: int
    example: str


class Pairs(Struct, frozen=True, eq=False):
    """(query, key) pairs for which a mask is asked whether they are visible.

    i: integers [..., rows, 1].
    j: integers [1, columns].
    keys: how many keys there are in all.
    row: integers [rows, 1], the queries' numbers, which are not i where positions do not start at
        0.
    """

    i: Array
    j: Array
    row: Array
    keys: int
    backend: Backend

    @property
    def all(self) -> Array:
        """Booleans, all True, that broadcast to every (query, key) pair."""
        return (self.i >= 0) | (self.j >= 0)


class Reach(NamedTuple):
    """Bounds of what each query sees: no key outside [low, high), integers [query] that never fall
    from query to query and may lie beyond the keys.

    whole: whether it sees every key within.
    """

    low: Ints
    high: Ints
    whole: bool


class KindOfMask(StructMeta, ABCMeta):
    """Metaclass of masks: combines frozen structs with abstract methods."""


class Mask(Struct, metaclass=KindOfMask, frozen=True):
    """Which keys a query may see. A kind is a final, frozen record with all that is abstract here.

    spelling: how people write the kind; None for those that only a model, a file or another mask
    makes.
    """

    spelling: ClassVar[Spelling | None]

    @classmethod
    def read(cls, spec: str, numbers: Sequence[int], seed: int) -> Mask:
        """The mask that `spec` means with these numbers, as many as the spelling allows and none
        below its least.

        Raises UsageError for numbers that do not go together.
        """
        return cls(*numbers)

    @property
    @abstractmethod
    def depends_on(self) -> Literal["positions", "length", "vectors"]:
        """What decides visibility beside the positions i and j: nothing more ("positions"), the
        number of keys ("length"), or queries and keys themselves ("vectors")."""

    def spec(self) -> str:
        """The mask's SPEC, as `read` takes it, such as "window:3"; for a mask that no SPEC can
        write, a name for people."""
        assert self.spelling is not None, "a kind that no SPEC can write says how it is named"
        numbers = ",".join(str(getattr(self, name)) for name in self.__struct_fields__)
        if numbers:
            return f"{self.spelling.name}:{numbers}"
        return self.spelling.name

    @abstractmethod
    def describe(self) -> Message:
        """One sentence with what the numbers count."""

    @abstractmethod
    def sees(self, pairs: Pairs) -> Array:
        """Whether query i sees key j: booleans that broadcast to [..., rows, columns], with a
        leading head axis for masks that differ by head."""

    def reach(self, i: Ints, keys: int) -> Reach:
        """Bounds of the keys that the queries at positions i see; may be wider than needed, never
        narrower.
        """
        return everywhere(i, keys, whole=False)

    def pairs(self, n: int) -> int | None:
        """How many (query, key) pairs are visible among n queries and n keys, by a formula; None
        where they must be counted."""
        return None

    def by_head(self) -> bool:
        """Whether heads may see different keys."""
        return self.depends_on == "vectors"

    def of_heads(self, heads: slice) -> Mask:
        """The mask for some of the heads, where they see different keys; else the mask itself."""
        return self

    def parts_of(self) -> tuple[Mask, ...]:
        """The masks that an intersection or a union is made of, nested ones taken apart; (itself,)
        for any other mask."""
        return (self,)

    def bind(
        self, backend: Backend, q: Array, k: Array, scale: float, softcap: float | None
    ) -> Mask:
        """The mask once queries [head, query, dim] and keys [kv, key, dim] are known, for kinds
        that depend on them; other masks return themselves.

        scale, softcap: those of the scores, for masks that weights decide.
        """
        return self

    def check_size(self, queries: int, keys: int) -> None:
        """Raise InputError where the mask is for a fixed number of queries or keys and these
        numbers differ.
        """
        for part in self.parts_of():
            if part is not self:
                part.check_size(queries, keys)


class DerivedMask(Mask, frozen=True):
    """A mask that queries and keys decided (the result of `bind`): it is named and described as its
    `source`, the mask before."""

    source: Mask

    spelling = None
    depends_on = "vectors"

    def spec(self) -> str:
        """The source's spec."""
        return self.source.spec()

    def describe(self) -> Message:
        """The source's sentence."""
        return self.source.describe()


def triangle(n: int) -> int:
    """1 + 2 + … + n."""
    return n * (n + 1) // 2


def everywhere(i: Ints, keys: int, *, whole: bool) -> Reach:
    """The reach over all keys for each position in i.

    whole: whether all of them are visible.
    """
    return Reach(np.zeros_like(i), np.full_like(i, keys), whole=whole)


@final
class Everywhere(Mask, frozen=True):
    """Every query sees every key."""

    spelling = Spelling("none", "none", (0,), 0, "none")
    depends_on = "positions"

    def describe(self) -> Message:
        """The sentence that a query sees every key."""
        return message("every query sees every key")

    def sees(self, pairs: Pairs) -> Array:
        """True for every pair."""
        return pairs.all

    def reach(self, i: Ints, keys: int) -> Reach:
        """Bounds of the keys that each query sees: all keys, every one visible."""
        return everywhere(i, keys, whole=True)

    def pairs(self, n: int) -> int | None:
        """How many (query, key) pairs are visible among n tokens: all n²."""
        return n * n


@final
class Causal(Mask, frozen=True):
    """j ≤ i. Also called autoregressive or look-ahead mask."""

    spelling = Spelling("causal", "causal", (0,), 0, "causal")
    depends_on = "positions"

    def describe(self) -> Message:
        """The sentence that a query sees itself and the keys before it."""
        return message("a query sees itself and the keys before it (j ≤ i)")

    def sees(self, pairs: Pairs) -> Array:
        """Whether the key is not after the query."""
        return pairs.j <= pairs.i

    def reach(self, i: Ints, keys: int) -> Reach:
        """Bounds of the keys that each query sees: from key 0 to the query's own; all in between
        are visible.
        """
        return Reach(np.zeros_like(i), i + 1, whole=True)

    def pairs(self, n: int) -> int | None:
        """How many (query, key) pairs are visible among n tokens: the diagonal and all below it."""
        return triangle(n)


@final
class Window(Mask, frozen=True):
    """i − left ≤ j ≤ i + right; None is unbounded on that side.

    A decoder's window of W keys, the query's own included, is Window(W − 1, 0).
    """

    left: int | None
    right: int | None

    spelling = Spelling("window", "window:W or window:L,R", (1, 2), 0, "window:3")
    depends_on = "positions"

    @classmethod
    def read(cls, spec: str, numbers: Sequence[int], seed: int) -> Mask:
        """The window that `window:W` means, the last W keys with the query's own, or `window:L,R`,
        L keys before it and R after it. Raises UsageError for window:0.
        """
        if list(numbers) == [0]:
            raise UsageError(
                "window:0 shows nothing",
                expected="window:W with W from 1: the query's own key and the W - 1 before it",
            )
        if len(numbers) == 1:
            return Window(left=numbers[0] - 1, right=0)
        left, right = numbers
        return Window(left, right)

    def spec(self) -> str:
        """The window as users write it, such as `window:3`; `none` or `causal` where it is the same
        as that."""
        match self.left, self.right:
            case None, None:
                return Everywhere().spec()
            case None, 0:
                return Causal().spec()
            case int(left), 0:
                return f"window:{left + 1}"
            case left, right:
                before, after = ("all" if side is None else str(side) for side in (left, right))
                return f"window:{before},{after}"

    def describe(self) -> Message:
        """The sentence with how many keys before and after itself a query sees."""
        left = self.left
        right = self.right
        if left is None and right is None:
            return Everywhere().describe()
        if left is None and right == 0:
            return Causal().describe()
        if left == right == 0:
            return message("a query sees only itself (j = i)")
        if left is not None and right == 0:
            return plural(
                "a query sees itself and the key before it: {number} keys, its own included (i −"
                " {count} ≤ j ≤ i)",
                "a query sees itself and the {count} keys before it: {number} keys, its own"
                " included (i − {count} ≤ j ≤ i)",
                count=left,
                number=left + 1,
            )
        if left == 0 and right is None:
            return message("a query sees itself and all keys after it (i ≤ j)")
        if left == 0 and right is not None:
            return plural(
                "a query sees itself and {count} key after it (i ≤ j ≤ i + {count})",
                "a query sees itself and {count} keys after it (i ≤ j ≤ i + {count})",
                count=right,
            )
        if left is None and right is not None:
            return plural(
                "a query sees itself, all keys before and {count} key after it (j ≤ i + {count})",
                "a query sees itself, all keys before and {count} keys after it (j ≤ i + {count})",
                count=right,
            )
        if left is not None and right is None:
            return plural(
                "a query sees itself, {count} key before and all keys after it (i − {count} ≤ j)",
                "a query sees itself, {count} keys before and all keys after it (i − {count} ≤ j)",
                count=left,
            )
        assert left is not None
        assert right is not None
        return message(
            "a query sees itself, {before} before and {after} after it (i − {left} ≤ j ≤ i +"
            " {right})",
            before=plural("{count} key", "{count} keys", count=left),
            after=plural("{count} key", "{count} keys", count=right),
            left=left,
            right=right,
        )

    def sees(self, pairs: Pairs) -> Array:
        """Whether the key is at most `left` before the query and at most `right` after it."""
        if self.left is None:
            near = pairs.all
        else:
            near = pairs.j >= pairs.i - self.left
        if self.right is None:
            return near
        return near & (pairs.j <= pairs.i + self.right)

    def reach(self, i: Ints, keys: int) -> Reach:
        """Bounds [low, high) of the keys that each query sees: from `left` keys before the query to
        `right` after it, None for all on that side; all in between are visible. They may lie outside
        the text, as `Reach` allows.
        """
        if self.left is None:
            low = np.zeros_like(i)
        else:
            low = i - self.left
        if self.right is None:
            high = np.full_like(i, keys)
        else:
            high = i + self.right + 1
        return Reach(low, high, whole=True)

    def pairs(self, n: int) -> int | None:
        """How many (query, key) pairs are visible among n tokens: the band about the diagonal."""
        return band(n, self.left, self.right)


@final
class Dilated(Mask, frozen=True):
    """i − size < j ≤ i with i − j divisible by `step`."""

    size: int
    step: int

    spelling = Spelling("dilated", "dilated:W,D", (2,), 1, "dilated:6,2")
    depends_on = "positions"

    def describe(self) -> Message:
        """The sentence with how far before it a query sees keys, and in which steps."""
        return message(
            "a query sees itself and the keys less than {size} before it whose distance is"
            " divisible by {step}",
            size=self.size,
            step=self.step,
        )

    def sees(self, pairs: Pairs) -> Array:
        """Whether the key is less than `size` before the query, in steps of `step`."""
        i = pairs.i
        j = pairs.j
        return (j <= i) & (j > i - self.size) & ((i - j) % self.step == 0)

    def reach(self, i: Ints, keys: int) -> Reach:
        """Bounds of the keys that each query sees: the `size` keys up to the query's own; not all
        in between are visible."""
        return Reach(i - self.size + 1, i + 1, whole=False)

    def pairs(self, n: int) -> int | None:
        """How many (query, key) pairs are visible among n tokens: those at the distances 0, step,
        2·step, … below `size`."""
        # query i sees itself and min(i, size − 1) // step keys before it
        furthest = min(self.size - 1, n - 1)
        return n + _floors(furthest, self.step) + max(n - 1 - furthest, 0) * (furthest // self.step)


def band(n: int, left: int | None, right: int | None) -> int:
    """How many (query, key) pairs `Window(left, right)` lets n queries see of n keys."""
    return n + _capped_sum(n, left) + _capped_sum(n, right)


def _capped_sum(n: int, most: int | None) -> int:
    """The sum of min(i, most) over i = 0 … n − 1."""
    if most is None or most >= n - 1:
        return triangle(n - 1)
    return triangle(most) + (n - 1 - most) * most


def _floors(last: int, step: int) -> int:
    """The sum of t // step over t = 0 … last."""
    # the values 0 … whole − 1 come `step` times each, then `whole` for the terms that are left
    whole, rest = divmod(last, step)
    return step * (whole * (whole - 1) // 2) + whole * (rest + 1)


class Combination(Mask, frozen=True):
    """Base of an intersection and a union of masks: what both do alike."""

    parts: tuple[Mask, ...]

    spelling = None

    @property
    def depends_on(self) -> Literal["positions", "length", "vectors"]:
        """What decides any of the parts: vectors, else the length, else positions alone."""
        dependencies = {part.depends_on for part in self.parts}
        if "vectors" in dependencies:
            return "vectors"
        if "length" in dependencies:
            return "length"
        return "positions"

    def by_head(self) -> bool:
        """Whether heads may see different keys under any of the parts."""
        return any(part.by_head() for part in self.parts)

    def parts_of(self) -> tuple[Mask, ...]:
        """The masks that this combination is made of, nested ones taken apart."""
        return tuple(inner for part in self.parts for inner in part.parts_of())

    def bind(
        self, backend: Backend, q: Array, k: Array, scale: float, softcap: float | None
    ) -> Mask:
        """The combination of the parts, each bound to queries [head, query, dim] and keys [kv, key,
        dim].
        """
        return type(self)(tuple(part.bind(backend, q, k, scale, softcap) for part in self.parts))

    def of_heads(self, heads: slice) -> Mask:
        """The combination of the parts for some of the heads."""
        return type(self)(tuple(part.of_heads(heads) for part in self.parts))


@final
class AllOf(Combination, frozen=True):
    """Visible where every part is: the intersection."""

    spelling = None

    def spec(self) -> str:
        """The specs of the parts with " & " between them."""
        return " & ".join(part.spec() for part in self.parts)

    def describe(self) -> Message:
        """The sentences of the parts with "; and " between them."""
        return listing([part.describe() for part in self.parts], "; and ")

    def sees(self, pairs: Pairs) -> Array:
        """Whether the query sees the key under every part."""
        return reduce(and_, (part.sees(pairs) for part in self.parts))

    def reach(self, i: Ints, keys: int) -> Reach:
        """The keys within the reach of every part; without gaps where no part has one."""
        lows, highs, wholes = zip(*(part.reach(i, keys) for part in self.parts), strict=True)
        return Reach(reduce(np.maximum, lows), reduce(np.minimum, highs), whole=all(wholes))

    def pairs(self, n: int) -> int | None:
        """How many (query, key) pairs are visible among n tokens, for causal within a window; None
        for any other intersection."""
        match self.parts:
            case (Causal(), Window(left=left)) | (Window(left=left), Causal()):
                return band(n, left, 0)
            case _:
                return None


@final
class AnyOf(Combination, frozen=True):
    """Visible where some part is: the union."""

    spelling = None

    def spec(self) -> str:
        """The specs of the parts with "|" between them."""
        return "|".join(part.spec() for part in self.parts)

    def describe(self) -> Message:
        """The sentences of the parts with "; or " between them."""
        return listing([part.describe() for part in self.parts], "; or ")

    def sees(self, pairs: Pairs) -> Array:
        """Whether the query sees the key under some part."""
        return reduce(or_, (part.sees(pairs) for part in self.parts))

    def reach(self, i: Ints, keys: int) -> Reach:
        """Bounds of the keys that each query sees: from the first key within the reach of any part
        to the last; not all in between are visible."""
        lows, highs, _ = zip(*(part.reach(i, keys) for part in self.parts), strict=True)
        return Reach(reduce(np.minimum, lows), reduce(np.maximum, highs), whole=False)


def intersection(*masks: Mask) -> Mask:
    """The mask that shows the pairs that all these masks show. `Everywhere` masks are left out and
    equal masks count once, so that a single one left is returned itself, and Everywhere for none.
    """
    parts: list[Mask] = []
    for mask in masks:
        if not isinstance(mask, Everywhere) and mask not in parts:
            parts.append(mask)
    if len(parts) == 1:
        return parts[0]
    if parts:
        return AllOf(tuple(parts))
    return Everywhere()
