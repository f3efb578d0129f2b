"""Facts of query rows that the metrics are made of: what each row sees, which pairs are left out,
and its weights.

Rows of weights and rows of uniform attention answer the same questions, so that a metric is written
once and its baseline is the same formula on `UniformRows`. Answers are float64 [head, row]. An
exclusion says which pairs of query and key are left out, so that one can read past sinks and
specials.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import LOW_PRECISION, Array, Backend
from attncli.errors import UsageError
from attncli.inputs.token import Token
from attncli.language import listing, message
from attncli.measure.rest import is_separator
from attncli.mechanism.mask import Mask

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Floats = np.ndarray[Any, np.dtype[np.float64]]


class Sight(Struct, frozen=True, eq=False):
    """Which keys each query row of a block sees.

    count, first, last: integers [head or 1, row]: how many keys a row sees, the first and the last
        of them (absolute positions; first > last where it sees none).
    visibility: booleans [head or 1, row, low..high-1], or None where every row sees all of
        first..last.
    """

    count: Ints
    first: Ints
    last: Ints
    visibility: Bools | None
    low: int

    @property
    def empty(self) -> Bools:
        """Which rows see no key, booleans [head or 1, row]."""
        return self.count == 0

    def sees_any(self, key_mask: Bools, i: Ints) -> Bools:
        """Which rows see a key of `key_mask`, booleans [key], other than the row's own position;
        booleans [head or 1, row].

        i: the rows' positions, [row].
        """
        if self.visibility is not None:
            high = self.low + self.visibility.shape[-1]
            others = np.arange(self.low, high)[None, :] != i[:, None]
            pairs = self.visibility & others & key_mask[self.low : high]
            return np.asarray(pairs.any(-1), bool)
        # each row sees first..last: how many keys of the mask lie there, less the row's own position.
        # `count_before[k]` counts those before key k
        count_before = np.concatenate([[0], np.cumsum(key_mask)])
        counts = np.where(self.empty, 0, count_before[self.last + 1] - count_before[self.first])
        # 1 where the row's own position is a key of the mask; a query may have no key of its own
        is_own_key = np.zeros(i.size, np.int64)
        inside = (i >= 0) & (i < key_mask.size)
        is_own_key[inside] = key_mask[i[inside]]
        own_keys_seen = is_own_key * self.has_key(i)
        return counts > own_keys_seen

    def has_key(self, key: Ints) -> Bools:
        """Whether row r sees key[r].

        key: integers [row], any values.

        Returns [head or 1, row].
        """
        inside = (key >= self.first) & (key <= self.last)
        if self.visibility is None:
            return inside
        column = np.clip(key - self.low, 0, self.visibility.shape[-1] - 1)
        return inside & self.visibility[:, np.arange(key.size), column]

    def visibility_matrix(self, high: int) -> Bools:
        """Which keys each row sees, booleans [head or 1, row, low..high-1]."""
        if self.visibility is not None:
            return self.visibility
        j = np.arange(self.low, high)
        return (j >= self.first[..., None]) & (j <= self.last[..., None])

    def spread(self, high: int) -> Floats:
        """Uniform weights over what each row sees, [head or 1, row, low..high-1]; 0 in empty rows."""
        return self.visibility_matrix(high) / np.maximum(self.count, 1)[..., None]


def find_sight(visibility: Bools | None, rows: int, low: int, high: int) -> Sight:
    """The `Sight` (which keys each row sees) of `rows` rows over the keys low..high-1: how many,
    the first and the last; the matrix itself only where a row sees keys with gaps between them.

    visibility: booleans [row, key] or [head, row, key] that broadcast, or None where all is
        visible.
    """
    if visibility is None:
        shape = (1, rows)
        return Sight(
            count=np.full(shape, high - low),
            first=np.full(shape, low),
            last=np.full(shape, high - 1),
            visibility=None,
            low=low,
        )
    by_head = visibility if visibility.ndim == 3 else visibility[None]
    matrix = np.broadcast_to(by_head, (by_head.shape[0], rows, high - low))
    count = matrix.sum(-1)
    # argmax finds the first True from the left, and from the right; a row that sees nothing has 0
    # as its first key and −1 as its last
    first = np.where(count, low + matrix.argmax(-1), 0)
    last = np.where(count, high - 1 - matrix[..., ::-1].argmax(-1), -1)
    has_no_gaps = bool((count == last - first + 1).all())
    return Sight(count, first, last, None if has_no_gaps else matrix, low)


def sight_of_mask(mask: Mask, i: Ints, keys: int) -> Sight | None:
    """The `Sight` (which keys each row sees) of query positions i [row] under a mask by which each
    query sees a range of keys without gaps, out of `keys` keys; None for other masks.
    """
    # of each query the keys low..high-1, which may lie outside the text; whether it sees all of them
    low, high, is_range = mask.reach(i, keys)
    if not is_range:
        return None
    first = np.maximum(low, 0)
    last = np.minimum(high, keys) - 1
    count = np.maximum(last - first + 1, 0)
    sees_none = count == 0
    return Sight(
        count=count[None],
        first=np.where(sees_none, 0, first)[None],
        last=np.where(sees_none, -1, last)[None],
        visibility=None,
        low=0,
    )


KINDS = ("first", "special", "self", "neighbours", "punctuation", "separators")
"""What can be left out: the first token, punctuation, and line breaks and other separators as keys;
special tokens as keys and as queries; the query itself; the tokens beside it."""


class Exclusion(Struct, frozen=True, eq=False):
    """Query–key pairs that are left out of one text's attention before anything is counted.

    names: out of `KINDS` and "unknown", in their order.
    keys: booleans [key], keys left out for every query.
    queries: booleans [query], rows left out.
    beside: how far from the diagonal pairs are left out: offsets of the key from the query.
    renormalise: whether what is left of a row is scaled to sum to 1.
    """

    names: tuple[str, ...]
    keys: Bools
    queries: Bools
    beside: tuple[int, ...]
    renormalise: bool = False

    def rows(self, i: Ints) -> Bools:
        """Which pairs are left out for the queries i [row], booleans [row, key]."""
        left_out = np.repeat(self.keys[None, :], i.size, axis=0)
        left_out[self.queries[i]] = True
        for offset in self.beside:
            key = i + offset
            inside = (key >= 0) & (key < self.keys.size)
            left_out[np.flatnonzero(inside), key[inside]] = True
        return left_out

    def without(self, weights: Any, i: Ints, low: int = 0) -> np.ndarray[Any, Any]:
        """A copy of weights [head, row, key] with those of left-out pairs set to 0. A row of which
        nothing is left is 0, renormalised or not.

        i: the rows' query positions, [row].
        low: the first key of the weights.
        """
        is_left_out = self.rows(i)[:, low : low + weights.shape[-1]]
        weights_left: np.ndarray[Any, Any] = np.where(is_left_out, 0.0, weights)
        if self.renormalise:
            sums = weights_left.sum(-1, keepdims=True, dtype=np.float64)
            weights_left = weights_left / np.where(sums > 0, sums, 1.0)
        return weights_left


def parse_exclusion(text: str) -> tuple[str, ...]:
    """The names in an `--exclude` value such as "first,special", in the order of `KINDS`. Raises
    UsageError for an unknown name, and for none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in KINDS:
            from difflib import get_close_matches  # only errors need it

            near = get_close_matches(name, KINDS, n=1, cutoff=0.5)
            what = message("--exclude {name} is nothing to leave out", name=repr(name))
            raise UsageError(
                what, expected=listing(KINDS), hint=f"--exclude {near[0]}" if near else ""
            )
    if not names:
        raise UsageError("--exclude names nothing", expected=listing(KINDS))
    return tuple(name for name in KINDS if name in names)


def exclusion(
    names: Sequence[str],
    tokens: Sequence[Token],
    *,
    queries: Sequence[Token] | None = None,
    renormalise: bool = False,
) -> Exclusion:
    """The pairs of query and key that are left out of a text by these names, some of `KINDS`, or
    "unknown" for tokens that the vocabulary does not know, as keys and as queries.

    names: what is left out.
    tokens: of the keys.
    queries: the query tokens if they are another text's; then there is no first token, no self and
        no neighbour to leave out.
    renormalise: whether what is left of a row is scaled to sum to 1.
    """
    if queries is None:
        query_tokens = tokens
    else:
        query_tokens = queries
    # which keys are left out for every query, and which queries with all their keys
    keys = np.zeros(len(tokens), bool)
    rows = np.zeros(len(query_tokens), bool)
    # offsets from a query to the keys that are left out for it
    beside: tuple[int, ...] = ()

    # keys and queries that are left out by what they are
    if "special" in names:
        keys |= [token.special for token in tokens]
        rows |= [token.special for token in query_tokens]
    if "unknown" in names:
        keys |= [token.unknown for token in tokens]
        rows |= [token.unknown for token in query_tokens]
    if "punctuation" in names:
        keys |= [is_punctuation(token) for token in tokens]
    if "separators" in names:
        keys |= [is_separator(token) for token in tokens]
    # within one text: the first token, the query itself, its neighbours
    if queries is None:
        if "first" in names:
            keys[:1] = True
        if "self" in names:
            beside += (0,)
        if "neighbours" in names:
            beside += (-1, 1)

    return Exclusion(
        names=tuple(name for name in (*KINDS, "unknown") if name in names),
        keys=keys,
        queries=rows,
        beside=beside,
        renormalise=renormalise,
    )


class AlignedExclusion(NamedTuple):
    """Pairs of words left out of the comparison of two texts: those left out of either text.

    queries, keys: which words are, as such, [word].
    beside: offsets of the key from the query that are left out.
    places: where the words stand in either text, [text, word].
    """

    queries: Bools
    keys: Bools
    beside: tuple[int, ...]
    places: Ints

    def page_lists(self) -> list[list[Any]]:
        """Queries, keys, beside and places as lists of integers, in the order in which the script of
        a page reads them.
        """
        numbers = (
            self.queries.astype(int),
            self.keys.astype(int),
            np.array(self.beside, int),
            self.places,
        )
        return [array.tolist() for array in numbers]

    def mask(self) -> Bools:
        """Which pairs are left out, [query, key]."""
        left_out = self.queries[:, None] | self.keys[None, :]
        for places in self.places:  # of either text
            offsets = places[None, :] - places[:, None]
            left_out |= np.isin(offsets, self.beside)
        return left_out


def aligned_exclusion(
    names: Sequence[str], texts: Sequence[Sequence[Token]], pairs: Sequence[tuple[int, int]]
) -> AlignedExclusion:
    """Which links among the words that two texts share are left out of their comparison: a word
    that is left out in one text is left out in both.

    names: what is left out: kinds of tokens, such as "special", and "self" and "neighbours".
    texts: the tokens of the two texts.
    pairs: each shared word's token in the first and the second text.
    """
    # [word]: where each shared word stands in the first text, and in the second
    first, second = np.asarray(pairs, np.int64).reshape((-1, 2)).T
    in_first, in_second = (exclusion(names, tokens) for tokens in texts)
    # `beside`, the offsets from query to key that are left out (0 for "self", −1 and 1 for
    # "neighbours"), depends on the names alone, so that both texts have the same; `places` tells
    # which words have such an offset in either text
    return AlignedExclusion(
        queries=in_first.queries[first] | in_second.queries[second],
        keys=in_first.keys[first] | in_second.keys[second],
        beside=in_first.beside,
        places=np.stack([first, second]),
    )


def is_punctuation(token: Token) -> bool:
    """Whether a token is nothing but punctuation (Unicode category P); special tokens are not."""
    return not token.special and _punctuation_alone(token.text)


@lru_cache(4096)
def _punctuation_alone(text: str) -> bool:
    """Whether a text is nothing but punctuation, once the markers of word pieces (such as `##`) are
    taken off.
    """
    text = text.strip("Ġ▁ ")
    return text != "" and all(unicodedata.category(letter).startswith("P") for letter in text)


# Which earlier positions carry the same token as a query: sparse, by rows, nothing n × n.


class TokenPairs:
    """Finds the pairs of positions of one text that hold the same token, block of queries by block.

    tokens: one name or id per position. Memory is linear in the text; a block of rows costs as many
    entries as it has pairs.
    """

    def __init__(self, tokens: Sequence[Hashable]) -> None:
        """Sort the positions by token: equal tokens form a run, in the order of the text."""
        # equal tokens get the same number, [position]
        numbers: dict[Hashable, int] = {}
        kinds = np.array([numbers.setdefault(token, len(numbers)) for token in tokens], np.int64)

        # the positions sorted by token, and where each position stands in that order
        self._order = np.argsort(kinds, kind="stable")
        places = np.empty_like(self._order)
        places[self._order] = np.arange(kinds.size)

        # for each position: where its token's run begins, and how many equal tokens come before it
        starts = np.searchsorted(kinds[self._order], kinds)
        self._starts = starts
        self._earlier = places - starts
        # by `after`: the query positions that `of` was last asked about, and what it returned
        self._last: dict[int, tuple[Ints, tuple[Ints, Ints]]] = {}

    def of(self, i: Ints, after: int) -> tuple[Ints, Ints]:
        """The pairs (row, key) of a block of queries, two arrays [pair], in which the key lies
        `after` tokens behind an earlier occurrence j < i of the query's token: key = j + after.

        i: query positions [row].
        after: 0 for the duplicates, 1 for the tokens that followed them.

        Only 0 < key < i: key 0 and the query itself are left out.
        """
        last = self._last.get(after)
        if last is not None and last[0] is i:  # the same block of rows, of another head
            return last[1]
        pairs = self._find_pairs(i, after)
        self._last[after] = (i, pairs)
        return pairs

    def _find_pairs(self, i: Ints, after: int) -> tuple[Ints, Ints]:
        """The pairs (row, key), two arrays [pair], with key = j + after for each earlier position j
        of the same token as a row's, as `of` returns them, computed anew.

        i: the rows' positions, [row].
        """
        # each row comes as often as its token occurs before; `within` counts these up, 0, 1, …, from
        # each row's first pair on
        counts = self._earlier[i]
        rows = np.repeat(np.arange(i.size), counts)
        first_pairs = np.cumsum(counts) - counts
        within = np.arange(rows.size) - np.repeat(first_pairs, counts)
        # equal tokens lie side by side in `_order`, in the order of the text
        keys = self._order[np.repeat(self._starts[i], counts) + within] + after
        is_earlier = (keys > 0) & (keys < i[rows])
        return rows[is_earlier], keys[is_earlier]


class WordPieces:
    """The tokens that make up each word of a text.

    starts: the index of each word's first token.
    count: tokens of the text.
    is_start: which tokens are the first of their word, [token].
    """

    def __init__(self, starts: Ints, count: int) -> None:
        self.is_start: Bools = np.zeros(count, bool)
        self.is_start[starts] = True
        sizes = np.diff(starts, append=count)
        # by token: the first token of its word, and how many others the word has
        self._first = np.repeat(starts, sizes)
        self._others = np.repeat(sizes, sizes) - 1

    def of(self, i: Ints) -> tuple[Ints, Ints]:
        """For query positions i [row]: the pairs (row, key), two arrays [pair], where the key is
        another token of the query's word.
        """
        # each row comes as often as its word has other tokens; `within` counts these up, 0, 1, …,
        # from each row's first pair on
        counts = self._others[i]
        rows = np.repeat(np.arange(i.size), counts)
        first_pairs = np.cumsum(counts) - counts
        within = np.arange(rows.size) - np.repeat(first_pairs, counts)
        keys = self._first[i][rows] + within
        # skip the query itself: keys from its position on move up by one
        return rows, np.where(keys >= i[rows], keys + 1, keys)


class TokenFacts(Struct, frozen=True, eq=False):
    """What is known of the tokens behind the keys, for metrics that need it; None for what is not
    known.

    pairs: which earlier keys carry the query's own token, None where tokens are not known.
    special, punctuation, separators: booleans [key], None where not known.
    aligned: whether queries and keys are the same text, so that i − j is a distance.
    words: which tokens make up a word, None where not known.
    """

    pairs: TokenPairs | None = None
    special: Bools | None = None
    punctuation: Bools | None = None
    aligned: bool = True
    words: WordPieces | None = None
    separators: Bools | None = None


NEARBY = 2
"""How far the offsets go that several metrics look at."""
NEAREST = tuple(range(-NEARBY, NEARBY + 1))
"""These offsets, from −2 to 2."""
AT_ONCE = 2**18
"""Weights of whole matrices that are looked at together, so that float64 copies of them stay small.
"""


def token_facts(tokens: Sequence[Token], words: WordPieces | None = None) -> TokenFacts:
    """The facts that metrics may use of a text's tokens: pairs of equal ones, special ones,
    punctuation and, where given, words."""
    return TokenFacts(
        TokenPairs([token.text if token.id is None else token.id for token in tokens]),
        np.array([token.special for token in tokens]),
        np.array([is_punctuation(token) for token in tokens]),
        words=words,
        separators=np.array([is_separator(token) for token in tokens], bool),
    )


def portions(heads: int, rows: int, keys: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices of heads and of rows that together cover [head, row, key], each with at most
    `AT_ONCE` weights, or one row: several whole heads, or some rows of one head."""
    # one head at a time where its rows × keys are too many; then some of its rows
    head_step = max(AT_ONCE // max(rows * keys, 1), 1)
    row_step = max(AT_ONCE // max(keys, 1), 1)
    for head in range(0, heads, head_step):
        for row in range(0, rows, row_step):
            yield slice(head, min(head + head_step, heads)), slice(row, min(row + row_step, rows))


CLEARLY = 1 - 1e-6
"""Up to this share of the peak, key 0's weight is below it however a division was rounded."""
NO_FACTS: Mapping[str, Array] = {}


class AttentionRows(Protocol):
    """The interface of a block of attention's query rows: sums and picks of its weights A that
    metrics are made from.

    i: absolute query positions [row].
    sight: which keys each row sees.
    """

    i: Ints
    sight: Sight
    about: TokenFacts

    @property
    def heads(self) -> int:
        """How many heads the facts have on their first axis; 1 where they hold for all heads."""

    @property
    def total(self) -> Floats:
        """Each row's sum of weights, Σ_j A_ij, [head or 1, row]."""

    @property
    def entropy(self) -> Floats:
        """Each row's entropy −Σ_j A_ij ln A_ij in nats, [head or 1, row]."""

    @property
    def peak(self) -> Floats:
        """Each row's largest weight, [head or 1, row]; 0 in a row that sees nothing."""

    @property
    def peak_beyond_first(self) -> Floats:
        """Each row's largest weight on a key other than key 0, [head or 1, row]; 0 where there is
        none.
        """

    @property
    def entropy_beyond_first(self) -> Floats:
        """Each row's −Σ A ln(A / s) over the keys other than key 0, s being their sum, in nats,
        [head or 1, row]: their entropy times s."""

    @property
    def moments(self) -> tuple[Floats, Floats]:
        """Each row's Σ_j A_ij |i − j| and Σ_j A_ij (j − i), each [head or 1, row]."""

    @property
    def rest(self) -> Floats:
        """Each row's weight without key 0 and the query itself, [head or 1, row]; summed, not
        subtracted, as sinks leave little."""

    def at_offset(self, offset: int) -> Floats:
        """Each row's weight on the key at this offset, A_{i, i+offset}, [head or 1, row]; 0 where
        that key is not visible."""

    def key(self, k: int) -> Floats:
        """Each row's weight on key k, A_ik, [head or 1, row]; 0 where that key is not visible."""

    def mass(self, key_mask: Bools) -> Floats:
        """Each row's weight on the keys j in `key_mask`, booleans [key]; [head or 1, row]."""

    def largest(self, key_mask: Bools) -> Floats:
        """Each row's largest weight on the keys in `key_mask` but the query itself, booleans [key];
        [head or 1, row]; 0 where it sees none of them."""

    def at_pairs(self, rows: Ints, keys: Ints) -> Floats:
        """Each row's weight on the keys of the pairs (row, key), integers [pair]; keys that a row
        does not see add nothing."""


def entropy_of_part(entropy: Floats, left_out: Floats, weight: Floats) -> Floats:
    """−Σ A ln(A / s) in nats over all keys but one, with s the sum of their weights: their entropy
    times s. Rounding never makes it negative.

    entropy: −Σ A ln A over all keys.
    left_out: the weight on the key that is left out.
    weight: s, the weight on all others.
    """
    # −Σ A ln A without one key is entropy + left_out · ln left_out; − Σ A ln(1 / s) adds s ln s
    part: Floats = entropy + _times_log(left_out) + _times_log(weight)
    return np.maximum(part, 0.0)


def _times_log(weight: Floats) -> Floats:
    """w ln w, 0 for w = 0."""
    return weight * np.log(np.where(weight > 0, weight, 1.0))


class WeightRows:
    """An `AttentionRows` (facts of a block of query rows) of weights [head, row, low..high-1].
    NumPy sums in float64, torch pairwise in float32 or wider.

    facts: the entropy and the peak of each row [head, row], where the attention step has told them.
    """

    def __init__(
        self,
        backend: Backend,
        weights: Array,
        i: Ints,
        low: int,
        sight: Sight,
        about: TokenFacts,
        facts: Mapping[str, Array] = NO_FACTS,
    ) -> None:
        """Take a block of rows; NumPy's weights become float64, torch's of low precision float32.

        weights: [head, row, key].
        i: the rows' query positions, [row].
        low: the first key of the weights.
        sight: which keys each row sees.
        about: what is known of the tokens.
        facts: "entropy" and "peak" of each row, [head, row], where the attention step computed them.
        """
        self.backend = backend
        self.i = i
        self.low = low
        self.sight = sight
        self.about = about
        if backend.name == "numpy":
            self.weights = backend.cast(weights, "float64")
        elif backend.dtype_of(weights) in LOW_PRECISION:
            self.weights = backend.cast(weights, "float32")
        else:
            self.weights = weights
        self._facts = facts
        # A_{i, i+offset} by offset, each computed when a metric first asks for it
        self._by_offset: dict[int, Floats] = {}

    @property
    def heads(self) -> int:
        """How many heads the weights are of."""
        return self._shape[0]

    @cached_property
    def total(self) -> Floats:
        """Each row's sum of weights, Σ_j A_ij, [head, row]."""
        before, after = self._sides
        # key 0 is in neither side; where the near weights do not begin with it, it is added
        first_key: Floats | float = 0.0
        if self._near_range[0] > 0:
            first_key = self.key(0)
        return before + self._near_weights.sum(-1) + after + first_key

    @cached_property
    def entropy(self) -> Floats:
        """Each row's entropy −Σ_j A_ij ln A_ij in nats, [head, row]."""
        entropies = self._facts.get("entropy")
        return self.numpy(self.backend.entropy(self.weights) if entropies is None else entropies)

    @cached_property
    def entropy_beyond_first(self) -> Floats:
        """Each row's −Σ A ln(A / s) over the keys other than key 0, s their sum, [head, row]."""
        # `rest` leaves out the query itself, too, which in row 0 is key 0
        beyond = self.rest + np.where(self.i > 0, self.at_offset(0), 0.0)
        return entropy_of_part(self.entropy, self.key(0), beyond)

    @cached_property
    def peak(self) -> Floats:
        """Each row's largest weight, [head, row]."""
        peaks = self._facts.get("peak")
        if peaks is None:
            return np.maximum(self.peak_beyond_first, self.key(0))
        return self.numpy(peaks)

    @cached_property
    def peak_beyond_first(self) -> Floats:
        """Each row's largest weight on a key other than key 0, [head, row]."""
        # where key 0's weight is below the row's peak, the peak is on another key; only the rows in
        # which it may be on key 0 are looked at again
        if "peak" in self._facts:
            is_doubtful = self.key(0) > self.peak * CLEARLY
        else:
            is_doubtful = np.ones(self._shape, bool)
        if 2 * is_doubtful.sum() > is_doubtful.size:  # most of them: all rows at once are faster
            return self._largest(self.weights)
        peaks = self.peak.copy()
        for head in np.flatnonzero(is_doubtful.any(-1)):
            rows = np.flatnonzero(is_doubtful[head])
            row_indices = self.backend.array_as_is(rows)
            doubtful_weights = self.backend.take(self.weights[head], row_indices, 0)
            peaks[head, rows] = self._largest(doubtful_weights)
        return peaks

    def _largest(self, weights: Array) -> Floats:
        """The largest of each row's weights on keys other than key 0; 0 where there is none."""
        beyond = weights[..., max(1 - self.low, 0) :]  # without column 0 if that is key 0's
        if beyond.shape[-1]:
            return self.numpy(self.backend.max(beyond, -1)[..., 0])
        return np.zeros(weights.shape[:-1])

    @cached_property
    def _shape(self) -> tuple[int, int]:
        """The numbers of heads and of rows."""
        return self.weights.shape[0], self.weights.shape[1]

    @cached_property
    def moments(self) -> tuple[Floats, Floats]:
        """Each row's Σ_j A_ij |i − j| and Σ_j A_ij (j − i), each [head, row]."""
        # before the first row's position and after the last row's, |i − j| is linear in j: there
        # Σ A (j − i) = Σ A j − i Σ A, two products instead of a matrix of distances. Positions count
        # from the first row, so that nothing large cancels.
        first = int(self.i[0])
        near_range = self._near_range
        i = (self.i - first).astype(np.float64)
        weight_before, weight_after = self._sides  # both without key 0
        if near_range[0] > 0:
            weight_before = weight_before + self.key(0)
        before = self._ramp(0, near_range[0], first) - i * weight_before
        after = self._ramp(near_range[1], self.weights.shape[-1], first) - i * weight_after

        # between them, key by key
        j = self.low + np.arange(*near_range) - first
        steps = j[None, :] - i[:, None]
        near = np.einsum("hij,ij->hi", self._near_weights, np.abs(steps))
        near_signed = np.einsum("hij,ij->hi", self._near_weights, steps)
        return (after - before) + near, (before + after) + near_signed

    @cached_property
    def _near_range(self) -> tuple[int, int]:
        """The weights' columns [start, stop) at the keys from the first row's own position to the
        last row's.
        """
        columns = self.weights.shape[-1]
        start = int(self.i[0]) - self.low
        stop = int(self.i[-1]) + 1 - self.low
        return min(max(start, 0), columns), min(max(stop, 0), columns)

    @cached_property
    def rest(self) -> Floats:
        """Each row's weight without key 0 and the query itself, [head, row]."""
        j = self.low + np.arange(*self._near_range)
        before, after = self._sides
        # among the keys at the rows' own positions: 0 for the query itself and key 0, else 1
        key_counts = ((j[None, :] != self.i[:, None]) & (j != 0)).astype(np.float64)
        return before + np.einsum("hij,ij->hi", self._near_weights, key_counts) + after

    @cached_property
    def _near_weights(self) -> Floats:
        """The weights on the keys at the positions of the block's rows, [head, row, position]."""
        return self.numpy(self.weights[..., slice(*self._near_range)])

    @cached_property
    def _sides(self) -> tuple[Floats, Floats]:
        """Σ A_ij over the keys before the first row's own position and over those after the last
        row's, each [head, row]; key 0 left out."""
        start, stop = self._near_range
        beyond = max(1 - self.low, 0)  # the first column that is not key 0's
        before = self.weights[..., beyond : max(start, beyond)]
        after = self.weights[..., max(stop, beyond) :]
        weight_before = self.numpy(self.backend.sum(before, -1)[..., 0])
        weight_after = self.numpy(self.backend.sum(after, -1)[..., 0])
        return weight_before, weight_after

    def _ramp(self, start: int, stop: int, origin: int) -> Floats:
        """Each row's Σ A_ij (j − origin) over the columns start..stop-1, [head, row]."""
        if start >= stop:
            return np.zeros(self._shape)
        backend = self.backend
        weights = self.weights[..., start:stop]
        positions = (self.low + np.arange(start, stop) - origin).astype(np.float64)
        j = backend.cast(backend.array_as_is(positions), backend.dtype_of(weights))
        return self.numpy(backend.matmul(weights, j))

    def at_offset(self, offset: int) -> Floats:
        """Each row's weight on the key at this offset, A_{i, i+offset}, [head, row]."""
        if offset not in self._by_offset:
            # several metrics ask for the nearest offsets: these are taken together and kept
            if abs(offset) <= NEARBY:
                offsets = NEAREST
            else:
                offsets = (offset,)
            heads, rows = self._shape
            column = self.i + np.array(offsets)[:, None] - self.low  # [offset, row]
            inside = (column >= 0) & (column < self.weights.shape[-1])
            # 0 where the key lies outside the block; else the weight at each pair of row and column
            weights = np.zeros((heads, len(offsets), rows))
            _, row = np.nonzero(inside)
            weights[:, inside] = self._pick(row, column[inside])
            self._by_offset.update(zip(offsets, weights.swapaxes(0, 1), strict=True))
        return self._by_offset[offset]

    def key(self, k: int) -> Floats:
        """Each row's weight on key k, A_ik, [head, row]."""
        if not self.low <= k < self.low + self.weights.shape[-1]:
            return np.zeros(self._shape)
        return self.numpy(self.weights[..., k - self.low])

    def mass(self, key_mask: Bools) -> Floats:
        """Each row's weight on the keys in `key_mask`, booleans [key]; [head, row]."""
        columns = np.flatnonzero(key_mask[self.low : self.low + self.weights.shape[-1]])
        if not columns.size:
            return np.zeros(self._shape)
        picked = self.backend.take(self.weights, self.backend.array_as_is(columns), -1)
        return self.numpy(self.backend.sum(picked, -1)[..., 0])

    def largest(self, key_mask: Bools) -> Floats:
        """Each row's largest weight on the keys in `key_mask` but the query itself, booleans [key];
        [head, row]."""
        columns = np.flatnonzero(key_mask[self.low : self.low + self.weights.shape[-1]])
        if not columns.size:
            return np.zeros(self._shape)
        weights = self.numpy(self.backend.take(self.weights, self.backend.array_as_is(columns), -1))
        # the query's own key, by row and by place among these columns, does not count
        rows, own_columns = np.nonzero(columns[None, :] + self.low == self.i[:, None])
        weights[:, rows, own_columns] = 0.0
        peaks: Floats = weights.max(-1)
        return peaks

    def at_pairs(self, rows: Ints, keys: Ints) -> Floats:
        """Each row's weight on the keys of the pairs (row, key), integers [pair]; [head, row]."""
        # keys outside the block have no weight
        if keys.size and (self.low > 0 or int(keys.max()) >= self.weights.shape[-1]):
            inside = (keys >= self.low) & (keys < self.low + self.weights.shape[-1])
            rows = rows[inside]
            keys = keys[inside]
        sums = np.zeros(self._shape)
        if rows.size:
            # pairs come row by row: one sum from the first pair of each row to that of the next
            starts = np.flatnonzero(np.diff(rows, prepend=-1))
            weights = self._pick(rows, keys - self.low)
            sums[:, rows[starts]] = np.add.reduceat(weights, starts, axis=-1)
        return sums

    def _pick(self, rows: Ints, columns: Ints) -> Floats:
        """The weights at these pairs of row and column, two arrays [pair]; [head, pair]."""
        heads, _, width = self.weights.shape
        flat_weights = self.weights.reshape((heads, -1))
        indices = self.backend.array_as_is(rows * width + columns)
        return self.numpy(self.backend.take(flat_weights, indices, -1))

    def numpy(self, array: Array) -> Floats:
        """Any array of the rows' backend as float64 NumPy."""
        return self.backend.numpy(array).astype(np.float64)
