"""Records of one layer's heads, from the rows that went by and the layer's queries and keys."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct

from attncli.analysis.exclusion import is_punctuation
from attncli.analysis.labels import NEEDED, labels_of
from attncli.analysis.links import Links
from attncli.analysis.measure import Tally
from attncli.analysis.metrics import DEFAULT
from attncli.analysis.pairs import Pairs
from attncli.analysis.pooled import PooledMaps
from attncli.analysis.records.gathered_rows import Bits, Gathered
from attncli.analysis.records.recipe import Absent, Exact, Products, Recipe, made_again, roots
from attncli.analysis.records.whole_numbers import STEPS, Fixed, Floats, fixed
from attncli.analysis.row_consumers import Watch
from attncli.analysis.row_facts import About
from attncli.arrays.backend import Backend
from attncli.inputs.token import Token

SIDE = 48
"""Cells along each side of a head's small map; a shorter text is kept whole."""
LINKS = 10
"""How many links of each head are kept."""
WORST = 5e-4
"""The largest difference between a weight made again and the true one that is let pass."""
COARSE, GOOD = (8191, 16383, 32767), 2e-4
"""Fewer steps of queries and keys, which are taken where they bring no larger difference than this."""
HELD = 1 << 24
"""Weights of a layer that are held until its end, in case q·k does not give them closely enough."""
SMALL = 1 << 14
"""Weights of a head that are kept as they are where q·k does not give them."""
METRICS = (*DEFAULT, "special", "normalised_entropy")


Kept: TypeAlias = Fixed | Floats


class HeadRecord(Struct, frozen=True, eq=False):
    """One head. small: largest weight of each cell of `pool` × `pool` pairs, [row, column].

    columns: keys and learned keys.
    seen: bits of the visible keys (see `Gathered.seen`), None where nothing is hidden. recipe: how its weights are
    made again. terms: queries and keys beside weights that are kept otherwise, None where q·k does not give the scores.
    error: the largest difference from the true weights, over `checked` sampled rows.
    """

    layer: int
    head: int
    columns: int
    small: np.ndarray[Any, Any]
    metrics: Mapping[str, float | None]
    labels: Sequence[str]
    links: Sequence[tuple[int, int, float]]
    seen: Bits | None
    recipe: Recipe
    terms: Products | None
    error: float
    checked: int


class Arithmetic(Struct, frozen=True, eq=False):
    """What turns a layer's queries [head, query, dim] and keys [kv, key, dim] into scores; all heads of the layer."""

    q: Floats
    k: Floats
    scale: float
    softcap: float | None


class Sides(Struct, frozen=True, eq=False):
    """The tokens that look, and those that are looked at: the same list where a text looks at itself.

    names: what tells whether two tokens are the same token, one per key; None where the sides differ.
    """

    queries: Sequence[Token]
    keys: Sequence[Token]
    names: Sequence[Hashable] | None = None

    @property
    def same(self) -> bool:
        """Whether a text looks at itself."""
        return self.queries is self.keys


class LayerRecords:
    """Takes the rows of one layer's attention and gives a record for each of its chosen heads.

    chosen: numbers of the heads. leave_out: kinds of link that do not count. exact: whether queries and keys are
    kept as they are, for a viewer that need not be small.
    """

    def __init__(
        self,
        backend: Backend,
        layer: int,
        sides: Sides,
        chosen: Sequence[int],
        *,
        leave_out: Sequence[str],
        exact: bool = False,
    ) -> None:
        self._exact = exact
        self.layer, self.chosen, self.keys = layer, list(chosen), len(sides.keys)
        self._sides = sides
        self._rows: Gathered | None = None
        keys, heads = sides.keys, len(self.chosen)
        about = About(
            None if sides.names is None else Pairs(sides.names),
            np.array([token.special for token in keys]),
            np.array([is_punctuation(token) for token in keys]),
            aligned=sides.same,
        )
        self._tally = Tally(heads, tuple(dict.fromkeys((*METRICS, *NEEDED))), about)
        links = Links(keys, queries=None if sides.same else sides.queries, top=LINKS, leave_out=leave_out)
        self._links = links.consumer(layer, self.chosen)
        self._maps = PooledMaps(heads, len(sides.queries), len(keys), side=SIDE)
        self.watch = Watch(backend, [self._tally, self._links, self._maps], about, len(keys), heads=self.chosen)

    def gathered(self, high: int) -> Gathered:
        """What the rows leave behind. high: the key after the last of the rows at hand; learned keys come after the
        tokens."""
        if self._rows is None:
            queries, columns, heads = len(self._sides.queries), max(self.keys, high), len(self.chosen)
            self._rows = Gathered(heads, queries, columns, whole=heads * queries * columns <= HELD)
        return self._rows

    def records(self, arithmetic: Arithmetic | None) -> Iterator[HeadRecord]:
        """The records, once all rows have gone by. arithmetic: None where q·k does not give the scores."""
        measured = self._tally.result()
        found = self._links.found()
        made: dict[tuple[int, int | None], Kept] = {}
        for place, head in enumerate(self.chosen):
            recipe, terms, error = self._recipe(place, head, arithmetic, made)
            values = {name: float(measured[name].value[place]) for name in METRICS}
            yield HeadRecord(
                self.layer,
                head,
                self.gathered(0).keys,
                self._maps.values[place],
                {name: None if np.isnan(value) else value for name, value in values.items()},
                [f"{one.name} {one.detail}".rstrip() for one in labels_of(measured, head=place, repeats=None)],
                found[place],
                self.gathered(0).seen(place),
                recipe,
                terms,
                error,
                len(self.gathered(0).sampled),
            )

    def _recipe(
        self, place: int, head: int, arithmetic: Arithmetic | None, made: dict[tuple[int, int | None], Kept]
    ) -> tuple[Recipe, Products | None, float]:
        """The head's recipe, what its terms are computed from, and the error of the former.

        16-bit queries and keys; float32 ones where those are not close enough; the weights where they take less, or
        where q·k does not give them.
        """
        rows = self.gathered(0)
        weights = None if rows.weights is None else rows.weights[place]
        if arithmetic is not None and rows.straight:
            short = weights is not None and max(weights.shape) <= arithmetic.q.shape[-1]
            # fewer steps deflate better; what heads share is kept once, and a short text takes little anyway
            coarse = () if short or len(arithmetic.k) < len(arithmetic.q) else COARSE
            for steps in (None,) if self._exact else (*coarse, STEPS, None):
                products = self._products(place, head, arithmetic, made, steps)
                error = np.inf if products is None else self._error(place, products)
                if products is not None and error <= (GOOD if steps in coarse else WORST):
                    if weights is not None and short:
                        return Exact(weights), products, 0.0
                    return products, products, error
        if weights is None:
            return Absent(), None, 0.0
        if weights.size <= SMALL:
            return Exact(weights), None, 0.0
        found = roots(weights)
        again = (found.codes[rows.sampled] / np.float32(65535)) ** 2
        return found, None, float(np.abs(again - np.nan_to_num(rows.sample[place])).max(initial=0.0))

    def _products(
        self, place: int, head: int, arithmetic: Arithmetic, made: dict[tuple[int, int | None], Kept], steps: int | None
    ) -> Products | None:
        q, group = arithmetic.q[head], head * len(arithmetic.k) // len(arithmetic.q)
        k = arithmetic.k[group]
        if not (np.isfinite(q).all() and np.isfinite(k).all()):
            return None
        if (group, steps) not in made:  # heads that share keys share what is kept of them
            made[group, steps] = k if steps is None else fixed(k, steps)
        biases = self.gathered(0).bias
        bias = None if biases is None else np.nan_to_num(biases[place])
        return Products(
            q if steps is None else fixed(q, steps),
            made[group, steps],
            group,
            self.gathered(0).lse[place],
            bias,
            arithmetic.scale,
            arithmetic.softcap,
        )

    def _error(self, place: int, products: Products) -> float:
        """The largest difference of the sampled rows made again; infinite where one is no number."""
        rows, bits = self.gathered(0), self.gathered(0).seen(place)
        seen = None if bits is None else np.unpackbits(bits[rows.sampled], axis=-1, count=rows.keys).astype(bool)
        apart = np.abs(made_again(products, rows.sampled, seen) - rows.sample[place]).max(initial=0.0)
        return float(apart) if np.isfinite(apart) else np.inf
