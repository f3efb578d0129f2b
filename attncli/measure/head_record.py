"""Records of one layer's heads: what rows leave behind as they go by, and recipes by which weights
are made again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import Backend
from attncli.inputs.token import Token
from attncli.measure.labels import NEEDED, label_text, labels_of
from attncli.measure.metric import DEFAULT, Tally
from attncli.measure.rest import is_separator
from attncli.measure.row_facts import Bools, Ints, TokenFacts, TokenPairs, is_punctuation
from attncli.measure.row_stream import LinkCollector, PooledMaps, RowFeeder, kinds_left_out

# Vectors as whole numbers of at most 16 bits, on a scale of their own in every dimension.

Floats = np.ndarray[Any, np.dtype[np.float32]]
Codes = np.ndarray[Any, np.dtype[np.uint16]]

STEPS = 65535
"""The largest code of 16 bits."""


class FixedPoint(Struct, frozen=True, eq=False):
    """A matrix [row, dim] in 16-bit codes: an entry is low + step · code.

    low, step: float32 [dim].
    codes: integers from 0 to 65,535.
    """

    codes: Codes
    low: Floats
    step: Floats

    def numbers(self) -> Floats:
        """The matrix again, float32 [row, dim], within half a step of what it was made from."""
        return self.low + self.step * self.codes.astype(np.float32)


def to_fixed_point(values: Floats, steps: int = STEPS) -> FixedPoint:
    """A matrix [row, dim] of finite numbers as codes, in `steps` even steps from the least to the
    greatest number of each dimension."""
    low = values.min(0)
    step = ((values.max(0) - low) / steps).astype(np.float32)
    # a dimension in which all numbers are equal has step 0 and codes 0
    codes = np.rint((values - low) / np.where(step > 0, step, 1))
    return FixedPoint(np.clip(codes, 0, steps).astype(np.uint16), low, step)


class QueryKeyRecipe(Struct, frozen=True, eq=False):
    """A head's weights kept as the queries and keys they follow from: they are exp(score − lse), 0
    where hidden.

    q: [query, dim], k: [key, dim], 16-bit or float32.
    group: which key head k is, for heads that share one.
    lse: log Σ exp of each row's visible scores and its sink, [query]; −inf for a row that sees
        nothing.
    bias: what is added to the score of query i and key j, at j − i + queries − 1; None for nothing.
    """

    q: FixedPoint | Floats
    k: FixedPoint | Floats
    group: int
    lse: Floats
    bias: Floats | None
    scale: float
    softcap: float | None

    @property
    def width(self) -> int:
        """How many dimensions a query has."""
        return int(numbers(self.q).shape[-1])


class Exact(Struct, frozen=True, eq=False):
    """A head's weights kept as they are, float32 [query, key]."""

    weights: Floats


class Roots(Struct, frozen=True, eq=False):
    """A head's weights kept as 16-bit square roots times 65,535, [query, key]: small weights keep
    more digits so.
    """

    codes: Codes


class Absent(Struct, frozen=True):
    """Says that a head's weights are not kept; its record has the pooled map, the metrics and the
    strongest links alone."""


Recipe: TypeAlias = QueryKeyRecipe | Exact | Roots | Absent


def roots(weights: Floats) -> Roots:
    """Weights from 0 to 1, [query, key], kept as 16-bit square roots; NaN becomes 0."""
    return Roots(np.rint(np.sqrt(np.clip(np.nan_to_num(weights), 0, 1)) * STEPS).astype(np.uint16))


def numbers(matrix: FixedPoint | Floats) -> Floats:
    """A matrix, kept as codes or as it is, as float32 [row, dim]."""
    if isinstance(matrix, FixedPoint):
        return matrix.numbers()
    return matrix


def decode_weights(recipe: QueryKeyRecipe, rows: Ints, visibility: Bools | None) -> Floats:
    """The weights of these query rows computed from kept queries and keys, float32 [row, key].

    visibility: booleans [row, key], None where nothing is hidden.

    Source: the softmax written with its row's log-sum-exp, as in Dao et al., FlashAttention, 2022.
    """
    scores = numbers(recipe.q)[rows] @ numbers(recipe.k).T * np.float32(recipe.scale)
    if recipe.softcap is not None:
        scores = np.float32(recipe.softcap) * np.tanh(scores / np.float32(recipe.softcap))
    if recipe.bias is not None:
        # the bias of query i and key j stands at j − i + queries − 1
        queries = len(recipe.lse)
        keys = scores.shape[-1]
        scores = scores + recipe.bias[np.arange(keys) - rows[:, None] + queries - 1]
    lse = recipe.lse[rows][:, None]
    # −inf: a row that sees nothing; hidden pairs may overflow, and are set to 0 below
    with np.errstate(invalid="ignore", over="ignore"):
        weights = np.where(np.isneginf(lse), np.float32(0), np.exp(scores - lse))
    if visibility is None:
        return weights
    return np.where(visibility, weights, np.float32(0))


# Gathered: what rows of a layer leave behind as they go by, none of it a number for every pair of a
# long text.

Bits = np.ndarray[Any, np.dtype[np.uint8]]

SAMPLED = 64
"""Rows of each head whose weights are kept to check what is made again."""
STRAIGHT = 1e-3
"""How far two scores' biases at one distance may differ and still be one number: they are
differences of float32 scores."""


class GatheredRows:
    """What the query rows of one layer leave behind: log-sum-exp, visibility, bias by distance, and
    the weights of a sample of rows.

    heads, queries, keys: how many.
    weights: all weights, [head, query, key], where they are kept.
    sampled: the numbers of the sampled rows, evenly spread; `sample`: their weights, [head, sampled
        row, key].
    bias: what is added to scores by distance, [head, queries + keys − 1], NaN at distances that no
        row saw; None while it is 0 everywhere.
    straight: False where a bias depends on more than the distance.
    """

    def __init__(self, heads: int, queries: int, keys: int, *, whole: bool) -> None:
        """Make room for so many heads, queries and keys, with all weights if `whole`, else with
        those of `SAMPLED` rows."""
        self.heads = heads
        self.queries = queries
        self.keys = keys
        self.lse: Floats = np.full((heads, queries), -np.inf, np.float32)
        if whole:
            self.weights: Floats | None = np.zeros((heads, queries, keys), np.float32)
        else:
            self.weights = None
        self.sampled: Ints = np.unique(
            np.linspace(0, queries - 1, min(SAMPLED, queries)).round().astype(np.int64)
        )
        self.sample: Floats = np.zeros((heads, len(self.sampled), keys), np.float32)
        self.bias: Floats | None = None
        self.straight = True
        # visible keys as bits: those given for all heads at once, and those given head by head
        self._common_bits: Bits | None = None
        self._bits_by_head: dict[int, Bits] = {}

    def add(
        self,
        start: int,
        low: int,
        weights: Floats,
        lse: Floats,
        visibility: Bools | None,
        bias: Floats | None = None,
        *,
        first: int = 0,
    ) -> None:
        """Add rows start, start + 1, … of heads first, first + 1, … over the keys from `low` on;
        keys outside these are hidden from the rows.

        weights: [head, row, key].
        lse: [head, row].
        visibility: booleans that broadcast to the weights, None where nothing is hidden; without a
            head axis they hold for all heads.
        bias: what was added to the scores, [head, row, key].
        """
        rows = slice(start, start + weights.shape[1])
        high = low + weights.shape[2]
        heads = slice(first, first + len(weights))
        self.lse[heads, rows] = lse
        if self.weights is not None:
            self.weights[heads, rows, low:high] = weights

        # the sampled rows that are in this block, by index in the sample
        inside = np.flatnonzero((self.sampled >= rows.start) & (self.sampled < rows.stop))
        for place, head in enumerate(range(*heads.indices(self.heads))):
            self.sample[head, inside, low:high] = weights[place, self.sampled[inside] - start]
        if visibility is not None or low > 0 or high < self.keys:
            self._keep_visibility(heads, rows, low, high, visibility)
        if bias is not None:
            self._keep_bias(heads.start, start, low, bias, visibility)

    def _keep_visibility(
        self, heads: slice, rows: slice, low: int, high: int, visibility: Bools | None
    ) -> None:
        """Keep as bits which of the keys low..high-1 these rows of these heads see.

        visibility: booleans that broadcast to [head, row, key], None where nothing is hidden;
            without a head axis they hold for all heads.
        """
        row_visibility = np.zeros((rows.stop - rows.start, self.keys), bool)
        if visibility is None or visibility.ndim < 3:
            # it holds for all heads: taken from the first heads of these rows, as others repeat it
            if heads.start == 0:
                row_visibility[:, low:high] = True if visibility is None else visibility
                if self._common_bits is None:
                    self._common_bits = self._all_visible()
                self._common_bits[rows] = np.packbits(row_visibility, axis=-1)
            return
        for place, head in enumerate(range(*heads.indices(self.heads))):
            # a head axis of 1 stands for all of these heads
            row_visibility[:, low:high] = visibility[place if len(visibility) > 1 else 0]
            if head not in self._bits_by_head:
                self._bits_by_head[head] = self._all_visible()
            self._bits_by_head[head][rows] = np.packbits(row_visibility, axis=-1)

    def _all_visible(self) -> Bits:
        """Visibility bits, [query, ⌈key/8⌉], with no key hidden."""
        # 255: all eight bits are set
        return np.full((self.queries, -(-self.keys // 8)), 255, np.uint8)

    def _keep_bias(
        self, first: int, start: int, low: int, bias: Floats, visibility: Bools | None
    ) -> None:
        """Keep the biases [head, row, key] that were added to scores, as one number for each
        distance j − i; where a distance has two different ones, `straight` becomes False.

        first, start, low: the head, row and key at which `bias` begins.
        visibility: booleans that broadcast to the biases, None where nothing is hidden; hidden
            pairs are passed over.
        """
        if visibility is None:
            is_known = np.isfinite(bias)
        else:
            is_known = np.isfinite(bias) & visibility
        if self.bias is None:
            # while all are 0 nothing is kept: a distance without a number counts as 0
            if not np.any(bias[is_known]):
                return
            self.bias = np.full((self.heads, self.queries + self.keys - 1), np.nan, np.float32)
        # the index of each pair's distance, [row, key]: j − i + queries − 1, which is 0 or more
        i = start + np.arange(bias.shape[1])
        j = low + np.arange(bias.shape[2])
        distance_index = j - i[:, None] + self.queries - 1
        for head, head_bias in enumerate(self.bias[first : first + len(bias)]):
            # of the pairs whose bias is known, one after another
            distance = distance_index[is_known[head]]
            values = bias[head][is_known[head]]
            # a distance takes the first value that comes (NaN until then); others must equal it
            is_new = np.isnan(head_bias[distance])
            head_bias[distance[is_new]] = values[is_new]
            if (np.abs(values - head_bias[distance]) > STRAIGHT).any():
                self.straight = False

    def visibility_bits(self, head: int) -> Bits | None:
        """A head's visible keys as bits [query, ⌈key/8⌉], the first key the highest bit; None where
        all are visible.
        """
        head_bits = self._bits_by_head.get(head)
        if head_bits is None:
            return self._common_bits
        if self._common_bits is None:
            return head_bits
        # some rows were given for all heads, others head by head; bits that did not get a row have
        # all its keys visible
        return head_bits & self._common_bits


SIDE = 48
"""Cells along each side of a head's small map; a shorter text is kept whole."""
LINKS = 10
"""How many links of each head are kept."""
WORST = 5e-4
"""The largest difference between a weight made again and the true one that is let pass."""
COARSE, GOOD = (8191, 16383, 32767), 2e-4
"""Fewer steps of queries and keys (of 13, 14 and 15 bits), which are taken where they bring no larger
difference than this."""
MOST_WEIGHTS = 1 << 24
"""Weights of a layer that are held until its end, in case q·k does not give them closely enough."""
SMALL = 1 << 14
"""Weights of a head that are kept as they are where q·k does not give them."""
HIDDEN = -1.0
"""Stands for the weight of a link that the mask hides."""
VALUES, LONG_VALUES = (6, STEPS), (3, 1023)
"""Dimensions of values that are kept, and their steps: enough to follow the sum that leaves a head.
Those of a text that is longer than a head is wide take 0.2 MB of a page of 512 tokens and 72 heads,
where q and k take 6."""
METRICS = (*DEFAULT, "special", "normalised_entropy")


class HeadRecord(Struct, frozen=True, eq=False):
    """All that a viewer keeps of one head.

    small: the largest weight in each cell of `pool` × `pool` pairs, [row, column].

    columns: keys and learned keys.
    links: query, key and weight; `HIDDEN` for one that was asked for and is hidden.
    visibility_bits: of the visible keys (see `GatheredRows.visibility_bits`), None where nothing is
        hidden.
    recipe: how its weights are made again.
    terms: queries and keys beside weights that are kept otherwise, None where q·k does not give the
        scores.
    error: the largest difference from the true weights, over `checked_rows` sampled rows.
    values: what is passed on of each key, [key, dim], its first dimensions; None where it is not
        known.
    group: which value head that is, for heads that share one.
    value_width: how many dimensions it has.
    """

    layer: int
    head: int
    columns: int
    small: np.ndarray[Any, Any]
    metrics: Mapping[str, float | None]
    labels: Sequence[str]
    links: Sequence[tuple[int, int, float]]
    visibility_bits: Bits | None
    recipe: Recipe
    terms: QueryKeyRecipe | None
    error: float
    checked_rows: int
    values: FixedPoint | None = None
    group: int = 0
    value_width: int = 0


class Arithmetic(Struct, frozen=True, eq=False):
    """What turns a layer's queries, [head, query, dim], and keys, [key head, key, dim], into
    scores: q·kᵀ with its scale and softcap, for all heads.

    v: its values [kv, key, dim]; None where they were not kept.
    """

    q: Floats
    k: Floats
    scale: float
    softcap: float | None
    v: Floats | None = None


class Sides(Struct, frozen=True, eq=False):
    """The tokens behind an attention's queries and those behind its keys: the same list object in
    self-attention.

    names: what tells whether two tokens are the same token, one per key; None where the sides
        differ.
    """

    queries: Sequence[Token]
    keys: Sequence[Token]
    names: Sequence[Hashable] | None = None

    @property
    def is_one_text(self) -> bool:
        """Whether queries and keys are tokens of the same text (self-attention)."""
        return self.queries is self.keys


class LayerRecords:
    """Takes the query rows of one layer's attention, block by block, and makes a `HeadRecord` for
    each chosen head.

    head_numbers: the chosen heads.
    is_learned: whether the weights are trained, so that some links do not count (see
        `kinds_left_out`).
    exact: whether queries and keys are kept as they are, for a viewer that need not be small.
    """

    def __init__(
        self,
        backend: Backend,
        layer: int,
        sides: Sides,
        head_numbers: Sequence[int],
        *,
        is_learned: bool = False,
        exact: bool = False,
    ) -> None:
        """Make the collectors of metrics, links and maps that the rows are fed to.

        sides: the tokens of the queries and of the keys.
        head_numbers: the heads that get a record.
        is_learned: whether the weights are trained: then links to special tokens and the like do
            not count.
        exact: whether queries and keys are kept as floats, not as 16-bit codes.
        """
        self._exact = exact
        self.layer = layer
        self.head_numbers = list(head_numbers)
        self.keys = len(sides.keys)
        self._sides = sides
        self._rows: GatheredRows | None = None
        # heads that share keys or values share what is kept of them
        self._key_matrices: dict[tuple[int, int | None], FixedPoint | Floats] = {}
        self._value_matrices: dict[int, FixedPoint] = {}

        # what the blocks of rows are handed to: metrics, strongest links, small maps
        keys = sides.keys
        heads = len(self.head_numbers)
        about = TokenFacts(
            None if sides.names is None else TokenPairs(sides.names),
            np.array([token.special for token in keys]),
            np.array([is_punctuation(token) for token in keys]),
            aligned=sides.is_one_text,
            separators=np.array([is_separator(token) for token in keys], bool),
        )
        self._tally = Tally(heads, tuple(dict.fromkeys((*METRICS, *NEEDED))), about)
        leave_out = kinds_left_out((*sides.queries, *keys), is_learned=is_learned)
        links = LinkCollector(
            keys,
            queries=None if sides.is_one_text else sides.queries,
            top=LINKS,
            leave_out=leave_out,
        )
        self._links = links.consumer(layer, self.head_numbers)
        self._maps = PooledMaps(heads, len(sides.queries), len(keys), side=SIDE)
        self.feeder = RowFeeder(
            backend,
            [self._tally, self._links, self._maps],
            about,
            len(keys),
            heads=self.head_numbers,
        )

    def rows(self, high: int) -> GatheredRows:
        """The collector of this layer's rows, made at the first call.

        high: the number of key columns seen in the block at hand (learned keys come after the
            tokens).
        """
        if self._rows is None:
            queries = len(self._sides.queries)
            columns = max(self.keys, high)
            heads = len(self.head_numbers)
            self._rows = GatheredRows(
                heads, queries, columns, whole=heads * queries * columns <= MOST_WEIGHTS
            )
        return self._rows

    def records(self, arithmetic: Arithmetic | None) -> Iterator[HeadRecord]:
        """The records of the chosen heads, once all rows have been added.

        arithmetic: the layer's queries and keys; None where q·kᵀ does not give the scores.
        """
        results = self._tally.result()
        # the collector made when the first rows came: `high` counts in the first call alone
        rows = self.rows(high=0)
        links = self._links.sorted_links()

        for place, head in enumerate(self.head_numbers):
            recipe, terms, error = self._stored_weights(place, arithmetic)
            values = {name: float(results[name].value[place]) for name in METRICS}
            vectors, group, value_width = self._values(head, arithmetic)
            yield HeadRecord(
                layer=self.layer,
                head=head,
                columns=rows.keys,
                small=self._maps.values[place],
                metrics={
                    name: None if np.isnan(value) else value for name, value in values.items()
                },
                labels=[label_text(label) for label in labels_of(results, place)],
                links=links[place],
                visibility_bits=rows.visibility_bits(place),
                recipe=recipe,
                terms=terms,
                error=error,
                checked_rows=len(rows.sampled),
                values=vectors,
                group=group,
                value_width=value_width,
            )

    def _values(
        self, head: int, arithmetic: Arithmetic | None
    ) -> tuple[FixedPoint | None, int, int]:
        """What a record keeps of a head's values: the first dimensions of its value vectors, [key,
        dim]; the number of its value head; how many dimensions values have. The vectors are None
        where they were not kept, one is not finite, or a learned key has none.

        head: its number in the layer.
        arithmetic: the layer's queries, keys and values; None where they are not known.
        """
        if arithmetic is None or arithmetic.v is None:
            return None, 0, 0
        # heads in a row share a value head
        group = head * len(arithmetic.v) // len(arithmetic.q)  # value heads, query heads
        v = arithmetic.v[group]
        width = v.shape[-1]
        # learned keys included, which have no values; the collector is there, so that `high` does
        # not count
        keys = self.rows(high=0).keys
        if len(v) != keys or not np.isfinite(v).all():
            return None, group, width
        if group not in self._value_matrices:
            # of a text with more tokens than a head has dimensions, fewer and coarser numbers are
            # kept, since a record must stay small
            is_long = max(len(v), arithmetic.q.shape[1]) > arithmetic.q.shape[-1]
            dimensions, steps = LONG_VALUES if is_long else VALUES
            self._value_matrices[group] = to_fixed_point(v[:, :dimensions], steps)
        return self._value_matrices[group], group, width

    def _stored_weights(
        self, place: int, arithmetic: Arithmetic | None
    ) -> tuple[Recipe, QueryKeyRecipe | None, float]:
        """Choose how the record stores a head's weights: as the queries and keys that they are
        computed from, where those give them closely enough, else as the weights themselves.

        place: the head's index among the chosen ones.
        arithmetic: the layer's queries and keys; None where q·kᵀ does not give the scores.
        Returns: the recipe; the queries and keys, None where q·kᵀ does not give the scores; the
        largest error of weights computed from the recipe over the sampled rows.
        """
        # the collector made when the first rows came: `high` counts in the first call alone
        rows = self.rows(high=0)
        if rows.weights is None:
            weights = None
        else:
            weights = rows.weights[place]
        # `straight`: each distance has one bias, so that a recipe of queries and keys can have it
        if arithmetic is not None and rows.straight:
            # of a short text, weights take no more than queries and keys
            is_short = weights is not None and max(weights.shape) <= arithmetic.q.shape[-1]
            products, error = self._smallest_products(place, arithmetic, is_short=is_short)
            if products is not None:
                if (
                    weights is not None and is_short
                ):  # short texts have weights, which mypy cannot see
                    return Exact(weights), products, 0.0
                return products, products, error

        # q·kᵀ does not give them: as they are, in 16 bits if there are many, or not at all
        if weights is None:
            return Absent(), None, 0.0
        if weights.size <= SMALL:
            return Exact(weights), None, 0.0
        root_recipe = roots(weights)
        # codes are square roots of weights, in 16 bits
        decoded = (root_recipe.codes[rows.sampled] / np.float32(STEPS)) ** 2
        error = float(np.abs(decoded - np.nan_to_num(rows.sample[place])).max(initial=0.0))
        return root_recipe, None, error

    def _smallest_products(
        self, place: int, arithmetic: Arithmetic, *, is_short: bool
    ) -> tuple[QueryKeyRecipe | None, float]:
        """A head's queries and keys in the coarsest codes that give its weights closely enough, and
        the largest error of those weights; None where not even floats do.

        place: the head's index among the chosen ones.
        is_short: whether the text is no longer than a head is wide.
        """
        # fewer steps deflate better, but keys that heads share are stored once, and a short text
        # takes little anyway
        if is_short or len(arithmetic.k) < len(arithmetic.q):
            coarse: tuple[int, ...] = ()
        else:
            coarse = COARSE
        # the smallest first; None for floats
        choices = (None,) if self._exact else (*coarse, STEPS, None)
        for steps in choices:
            products = self._products(place, arithmetic, steps)
            if products is None:
                continue
            error = self._error(place, products)
            if error <= (GOOD if steps in coarse else WORST):
                return products, error
        return None, np.inf

    def _products(
        self, place: int, arithmetic: Arithmetic, steps: int | None
    ) -> QueryKeyRecipe | None:
        """A recipe to compute a head's weights again: its queries and keys as codes in `steps`
        steps (None: as floats); None where not all are finite.

        place: the head's index among the chosen ones.
        arithmetic: the layer's queries and keys.
        """
        head = self.head_numbers[place]
        q = arithmetic.q[head]
        group = head * len(arithmetic.k) // len(arithmetic.q)
        k = arithmetic.k[group]
        if not (np.isfinite(q).all() and np.isfinite(k).all()):
            return None
        # by key head: heads that share one share its codes
        if (group, steps) not in self._key_matrices:
            self._key_matrices[group, steps] = k if steps is None else to_fixed_point(k, steps)
        # the collector of all rows, which is there by now: `high` counts in the first call alone
        rows = self.rows(high=0)
        biases = rows.bias
        if biases is None:
            bias = None
        else:
            bias = np.nan_to_num(biases[place])  # NaN: distances that no visible pair has
        return QueryKeyRecipe(
            q=q if steps is None else to_fixed_point(q, steps),
            k=self._key_matrices[group, steps],
            group=group,
            lse=rows.lse[place],
            bias=bias,
            scale=arithmetic.scale,
            softcap=arithmetic.softcap,
        )

    def _error(self, place: int, products: QueryKeyRecipe) -> float:
        """The largest difference between weights computed from `products` and the true ones, over
        the sampled rows of a head; infinite where one is NaN.

        place: the head's index among the chosen ones.
        """
        # the collector of all rows, which is there by now: `high` counts in the first call alone
        rows = self.rows(high=0)
        bits = rows.visibility_bits(place)
        if bits is None:
            visibility = None
        else:
            visibility = np.unpackbits(bits[rows.sampled], axis=-1, count=rows.keys).astype(bool)
        decoded = decode_weights(products, rows.sampled, visibility)
        largest = np.abs(decoded - rows.sample[place]).max(initial=0.0)
        if np.isfinite(largest):
            return float(largest)
        return np.inf


def numbered_tokens(count: int) -> list[Token]:
    """`count` tokens without a text of their own: each has its position as text, and no id."""
    return [Token(index, str(index), id=None, start=None, end=None) for index in range(count)]
