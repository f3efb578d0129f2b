"""Intersections and unions of masks."""

from __future__ import annotations

from functools import reduce
from operator import and_, or_
from typing import Literal, final

import numpy as np

from attncli.arrays.backend import Array, Backend
from attncli.mechanism.mask.kind import Ints, Mask, Pairs, Reach
from attncli.mechanism.mask.relative import Causal, Everywhere, Window, band


@final
class AllOf(Mask, frozen=True):
    """Visible where every part is: the intersection."""

    parts: tuple[Mask, ...]

    spelling = None

    def spec(self) -> str:
        return " & ".join(part.spec() for part in self.parts)

    def english(self) -> str:
        return "; and ".join(part.english() for part in self.parts)

    def chinese(self) -> str:
        return "；并且".join(part.chinese() for part in self.parts)

    def sees(self, pairs: Pairs) -> Array:
        return reduce(and_, (part.sees(pairs) for part in self.parts))

    def reach(self, i: Ints, keys: int) -> Reach:
        lows, highs, wholes = zip(*(part.reach(i, keys) for part in self.parts), strict=True)
        return Reach(reduce(np.maximum, lows), reduce(np.minimum, highs), all(wholes))

    def pairs(self, n: int) -> int | None:
        match self.parts:
            case (Causal(), Window(left=left)) | (Window(left=left), Causal()):
                return band(n, left, 0)
            case _:
                return None

    def depends_on(self) -> Literal["positions", "length", "vectors"]:
        return _most(self.parts)

    def by_head(self) -> bool:
        return any(part.by_head() for part in self.parts)

    def parts_of(self) -> tuple[Mask, ...]:
        return tuple(inner for part in self.parts for inner in part.parts_of())

    def bind(self, backend: Backend, q: Array, k: Array) -> Mask:
        return AllOf(tuple(part.bind(backend, q, k) for part in self.parts))

    def of_heads(self, heads: slice) -> Mask:
        return AllOf(tuple(part.of_heads(heads) for part in self.parts))


@final
class AnyOf(Mask, frozen=True):
    """Visible where some part is: the union."""

    parts: tuple[Mask, ...]

    spelling = None

    def spec(self) -> str:
        return "|".join(part.spec() for part in self.parts)

    def english(self) -> str:
        return "; or ".join(part.english() for part in self.parts)

    def chinese(self) -> str:
        return "；或者".join(part.chinese() for part in self.parts)

    def sees(self, pairs: Pairs) -> Array:
        return reduce(or_, (part.sees(pairs) for part in self.parts))

    def reach(self, i: Ints, keys: int) -> Reach:
        lows, highs, _ = zip(*(part.reach(i, keys) for part in self.parts), strict=True)
        return Reach(reduce(np.minimum, lows), reduce(np.maximum, highs), False)

    def pairs(self, n: int) -> int | None:
        return None

    def depends_on(self) -> Literal["positions", "length", "vectors"]:
        return _most(self.parts)

    def by_head(self) -> bool:
        return any(part.by_head() for part in self.parts)

    def parts_of(self) -> tuple[Mask, ...]:
        return tuple(inner for part in self.parts for inner in part.parts_of())

    def bind(self, backend: Backend, q: Array, k: Array) -> Mask:
        return AnyOf(tuple(part.bind(backend, q, k) for part in self.parts))

    def of_heads(self, heads: slice) -> Mask:
        return AnyOf(tuple(part.of_heads(heads) for part in self.parts))


def both(*masks: Mask) -> Mask:
    """The intersection of masks, flattened; Everywhere for none."""
    parts = tuple(mask for mask in masks if not isinstance(mask, Everywhere))
    if len(parts) == 1:
        return parts[0]
    return AllOf(parts) if parts else Everywhere()


def _most(parts: tuple[Mask, ...]) -> Literal["positions", "length", "vectors"]:
    dependencies = {part.depends_on() for part in parts}
    return "vectors" if "vectors" in dependencies else "length" if "length" in dependencies else "positions"
