"""What a page is made of, what is kept of it within a budget, and the blocks of data that hold it."""

from __future__ import annotations

import heapq
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from attncli.measure.exclusion import AlignedExclusion
from attncli.measure.head_record import METRICS, HeadRecord
from attncli.measure.recipe import Absent, Exact, FixedPoint, Floats, QueryKeyRecipe, Roots
from attncli.measure.run_record import RunRecord

# Blocks of data in a page: deflated, in base64, each in an element of its own that runs nothing.


def deflate(data: bytes) -> bytes:
    """Raw deflate, as a browser's DecompressionStream reads it."""
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def element(name: str, data: bytes) -> bytes:
    """A block as an element that a script finds by its id."""
    return b'<script type="text/plain" id="%s">%s</script>\n' % (name.encode(), b64encode(data))


def planes(codes: np.ndarray[Any, Any]) -> bytes:
    """16-bit numbers with all high bytes before all low ones: the former repeat, and deflate better by themselves."""
    flat = codes.reshape(-1)
    return (flat >> 8).astype(np.uint8).tobytes() + (flat & 255).astype(np.uint8).tobytes()


def vectors(numbers: FixedPoint | Floats) -> bytes:
    """Vectors [row, dim]: low and step of each dimension before the codes; or float32 as they are."""
    if isinstance(numbers, FixedPoint):
        return little(numbers.low) + little(numbers.step) + planes(numbers.codes)
    return little(numbers)


def queries(products: QueryKeyRecipe) -> bytes:
    """What a head alone has of its scores: log-sum-exp by row, bias by distance, queries."""
    bias = b"" if products.bias is None else little(products.bias)
    return little(products.lse) + bias + vectors(products.q)


def weights(recipe: Exact | Roots) -> bytes:
    """Weights that are kept as such."""
    return little(recipe.weights) if isinstance(recipe, Exact) else planes(recipe.codes)


def little(array: np.ndarray[Any, Any]) -> bytes:
    """float32, least byte first."""
    return np.ascontiguousarray(array, "<f4").tobytes()


BUDGET = 16 * 10**6
"""Bytes of data a page holds at most, unless told otherwise."""
RECIPE_NAMES = {Exact: "exact", Roots: "roots", QueryKeyRecipe: "products", Absent: "absent"}


@dataclass(frozen=True)
class PageEffects:
    """What heads do to one measure. position_text: the word or words it is measured at. by: how, or of what.

    kind: "ablate" for what changes when a head is taken away, "patch" for what it brings back, "logits" for what it adds.
    heads: layer, head, the effect, that of a random change of the same size, and the weight of the link; None where
    there is none.
    """

    measure: str
    by: str
    position_text: str
    heads: Sequence[tuple[int, int, float | None, float | None, float | None]]
    kind: str = "ablate"


@dataclass(frozen=True, eq=False)
class Page:
    """A page to write. runs: one, or two that are compared. pairs: words that correspond, A's and B's positions.

    start: what is shown first: view, head, query, key, from, to, sort. budget: bytes of data at most. partial: whether
    words are left out, so that layers cannot be multiplied. option: what raises the budget; "" where nothing does.
    left_out: pairs of words that are no links to list of two runs; None where every pair is.
    """

    title: str
    runs: Sequence[RunRecord]
    pairs: tuple[Sequence[int], Sequence[int]] | None = None
    effects: Sequence[PageEffects] = ()
    start: Mapping[str, str] = field(default_factory=dict)
    lang: str = "en"
    budget: int = BUDGET
    partial: bool = False
    option: str = ""
    left_out: AlignedExclusion | None = None


class PageHeads:
    """Heads as they come, packed; of those that do not fit the budget, the ones with the weakest links lose their
    weights."""

    def __init__(self, budget: int) -> None:
        self.budget, self.blocks, self.size = budget, dict[str, bytes](), 0
        self.masks = dict[bytes, int]()
        self._users = dict[str, int]()
        self._weakest: list[tuple[float, int, dict[str, Any], tuple[str, ...]]] = []

    def add(self, run_index: int, record: HeadRecord) -> dict[str, Any]:
        """A head as the page's script knows it; its data go to `blocks`."""
        name = f"{run_index}-{record.layer}-{record.head}"
        recipe, terms = record.recipe, record.terms
        entry: dict[str, Any] = {
            "l": record.layer, "h": record.head, "t": list(record.labels), "r": RECIPE_NAMES[type(recipe)], "e": record.error,
            "m": [record.metrics.get(metric) for metric in METRICS], "k": [list(link) for link in record.links],
            "n": record.columns, "s": -1, "c": None, "x": 1.0,
        }  # fmt: skip
        keys: list[str] = []
        if record.visibility_bits is not None:
            entry["s"] = self._mask(record.visibility_bits)
        if not isinstance(recipe, QueryKeyRecipe | Absent):
            keys.append(self._add_block(f"w{name}", weights(recipe)))
            entry["b"] = keys[-1]
        if terms is not None:
            key = f"k{run_index}-{record.layer}-{terms.group}"
            fits = not isinstance(terms.k, np.ndarray)
            key += "" if fits else "f"
            keys.append(self._add_block(f"q{name}", queries(terms)))
            if key not in self.blocks:
                self._add_block(key, vectors(terms.k))
            self._users[key] = self._users.get(key, 0) + 1
            keys.append(key)
            entry |= {"p": [keys[-2], key, int(not fits)], "d": terms.width, "c": terms.softcap, "x": terms.scale}
            entry["a"] = int(terms.bias is not None)
        strongest = record.links[0][2] if record.links else 0.0
        heapq.heappush(self._weakest, (strongest, len(self._weakest), entry, tuple(keys)))
        while self.size > self.budget and self._weakest:
            self._drop()
        return entry

    def _add_block(self, key: str, data: bytes) -> str:
        self.blocks[key] = deflate(data)
        self.size += len(self.blocks[key]) * 4 // 3
        return key

    def _drop(self) -> None:
        """Let the weights of the weakest head go."""
        _, _, entry, keys = heapq.heappop(self._weakest)
        entry["r"] = "none"
        entry.pop("p", None)
        for key in keys:
            self._users[key] = self._users.get(key, 1) - 1
            if self._users[key] <= 0 and key in self.blocks:
                self.size -= len(self.blocks.pop(key)) * 4 // 3

    def _mask(self, visibility: np.ndarray[Any, Any]) -> int:
        """The number of a mask; equal ones are kept once."""
        digest = blake2b(visibility.tobytes() + str(visibility.shape).encode()).digest()
        if digest not in self.masks:
            self.masks[digest] = len(self.masks)
            self._add_block(f"s{self.masks[digest]}", visibility.tobytes())
        return self.masks[digest]
