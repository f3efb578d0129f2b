"""Rules that say where a head looks without asking the model: patterns of the text alone.

A rule gives every query row a preference for each key. `rule_rows` keeps what the query sees and
scales it to sum to 1; a row in which the rule finds nothing rests on the first key that the query
sees, as trained heads do (`attncli.measure.rest`). Rows are made for the queries asked for, so that
a long text never needs all of them at once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.features.rules.token_patterns import (
    Bools,
    Ints,
    TokenPatterns,
    latest,
)

Floats = np.ndarray[Any, np.dtype[np.float64]]


class HeadRule(Struct, frozen=True):
    """One rule.

    name: as documents and options spell it.
    label: as screens call it.
    formula: which keys j a query i prefers.
    sentence: the same in words.
    """

    name: str
    label: str
    formula: str
    sentence: str

    @property
    def looks_ahead(self) -> bool:
        """Whether it prefers only keys after the query, which a causal model never sees."""
        return False

    @abstractmethod
    def rows(self, patterns: TokenPatterns, queries: Ints) -> Floats:
        """How much each query prefers each key by this rule, 0 or more, [query, key]; `rule_rows`
        leaves out the keys that a query does not see.

        patterns: facts about the text's tokens.
        queries: positions, [query].
        """


class EvenSpread(HeadRule, frozen=True):
    """The same preference for every key."""

    def rows(self, patterns: TokenPatterns, queries: Ints) -> Floats:
        """The same preference of 1 for every key, [query, key]."""
        return np.ones((queries.size, patterns.count))


class Offset(HeadRule, frozen=True):
    """The key at a fixed distance.

    back: how many tokens before the query, negative for after.
    """

    back: int

    @property
    def looks_ahead(self) -> bool:
        """Whether the rule's key comes after the query, which a causal model never sees."""
        return self.back < 0

    def rows(self, patterns: TokenPatterns, queries: Ints) -> Floats:
        """A preference of 1 for the key `back` tokens before each query, and 0 for all others,
        [query, key]."""
        return _one_hot_keys(queries - self.back, patterns.count)


class FirstKey(HeadRule, frozen=True):
    """The text's first token."""

    def rows(self, patterns: TokenPatterns, queries: Ints) -> Floats:
        """A preference of 1 for the text's first token, and 0 for all others, [query, key]."""
        return _one_hot_keys(np.zeros_like(queries), patterns.count)


class LastKey(HeadRule, frozen=True):
    """The text's last token."""

    @property
    def looks_ahead(self) -> bool:
        """True: for every query but the last one the rule's key, the last token, comes later."""
        return True

    def rows(self, patterns: TokenPatterns, queries: Ints) -> Floats:
        """A preference of 1 for the text's last token, and 0 for all others, [query, key]."""
        return _one_hot_keys(np.full_like(queries, patterns.count - 1), patterns.count)


class Decay(HeadRule, frozen=True):
    """Keys near the query: the preference falls by a factor of e every `reach` tokens of distance.

    kind: the attribute of `TokenPatterns` that marks the only tokens that count; "" for all.
    """

    reach: float
    kind: str = ""

    def rows(self, patterns: TokenPatterns, queries: Ints) -> Floats:
        """A preference that falls with the distance, e^(−|i − j| / reach), [query, key]; 0 for tokens
        that are not of the rule's kind, if it has one."""
        keys = np.arange(patterns.count)
        preference = np.exp(-np.abs(queries[:, None] - keys) / self.reach)
        if self.kind:
            preference *= _tokens_of_kind(patterns, self.kind)
        return preference


class Opening(HeadRule, frozen=True):
    """The beginning of the text: the preference falls by a factor of e every `reach` tokens from
    it."""

    reach: float

    def rows(self, patterns: TokenPatterns, queries: Ints) -> Floats:
        """A preference that falls from the beginning of the text, e^(−j / reach), [query, key]."""
        return np.tile(np.exp(-np.arange(patterns.count) / self.reach), (queries.size, 1))


class Marked(HeadRule, frozen=True):
    """Every token of a kind.

    kind: an attribute of `TokenPatterns`.
    """

    kind: str

    def rows(self, patterns: TokenPatterns, queries: Ints) -> Floats:
        """A preference of 1 for every key of the rule's kind, and 0 for others, [query, key]."""
        return np.tile(_tokens_of_kind(patterns, self.kind).astype(np.float64), (queries.size, 1))


class LastMarked(HeadRule, frozen=True):
    """The last token of a kind up to the query.

    kind: an attribute of `TokenPatterns`.
    """

    kind: str

    def rows(self, patterns: TokenPatterns, queries: Ints) -> Floats:
        """A preference of 1 for the last key of the rule's kind up to each query, and 0 for others,
        [query, key]."""
        return _one_hot_keys(latest(_tokens_of_kind(patterns, self.kind))[queries], patterns.count)


class Segment(HeadRule, frozen=True):
    """The tokens of the query's own segment, or of one before it.

    kind: an attribute of `TokenPatterns` that numbers segments.
    back: how many segments before.
    """

    kind: str
    back: int = 0

    def rows(self, patterns: TokenPatterns, queries: Ints) -> Floats:
        """A preference of 1 for the keys of the query's segment, or of the one `back` segments before
        it, and 0 for others, [query, key]."""
        numbers = _numbers(patterns, self.kind)
        return (numbers == numbers[queries, None] - self.back).astype(np.float64)


class Place(HeadRule, frozen=True):
    """A key that the text gives for each query.

    kind: an attribute of `TokenPatterns` with places, `NONE` for no key.
    """

    kind: str

    def rows(self, patterns: TokenPatterns, queries: Ints) -> Floats:
        """A preference of 1 for the key whose position the attribute `kind` holds for each query, and
        0 for others, [query, key]."""
        return _one_hot_keys(_numbers(patterns, self.kind)[queries], patterns.count)


class Twin(HeadRule, frozen=True):
    """Earlier tokens that are like the query (its twins), or tokens at a fixed distance from them:
    with `beside` 1 the token after an earlier occurrence of the query, as an induction head looks.

    kind: the attribute of `TokenPatterns` whose numbers are equal for twins.
    beside: how far the key is from the twin, 1 for the token after it.
    alike: how many tokens, up to the query and up to the twin, must be alike.
    starts: whether only keys that begin a word count.
    apart: the attribute of `TokenPatterns` whose numbers must differ between query and key, such as
        "word"; "" for none.
    """

    kind: str = "identity"
    beside: int = 0
    alike: int = 1
    starts: bool = False
    apart: str = ""

    def rows(self, patterns: TokenPatterns, queries: Ints) -> Floats:
        """A preference of 1 for each key whose twin (the token `beside` places before it) comes
        before the query and is like it, and 0 for others, [query, key].

        patterns: which tokens of the text are alike, by several kinds of likeness.
        queries: positions, [query].
        """
        numbers = _numbers(patterns, self.kind)
        keys = np.arange(patterns.count)
        is_key = np.ones((queries.size, patterns.count), bool)
        # the twin of each key, and the query, alike, and so the tokens before them
        for step in range(self.alike):
            twin_places = keys - self.beside - step
            query_places = queries - step
            is_key &= (twin_places >= 0) & (twin_places < patterns.count)
            is_key &= (query_places >= 0)[:, None]
            # places outside the text are left out above; clipped, they can be looked up
            twin_numbers = numbers[np.clip(twin_places, 0, patterns.count - 1)]
            is_key &= twin_numbers == numbers[np.maximum(query_places, 0), None]
        is_key &= keys - self.beside < queries[:, None]  # the twin comes before the query
        if self.starts:
            is_key &= patterns.word_start
        if self.apart:
            groups = _numbers(patterns, self.apart)
            is_key &= groups != groups[queries, None]
        return is_key.astype(np.float64)


def _one_hot_keys(keys: Ints, count: int) -> Floats:
    """Rows with 1 at one key and 0 elsewhere, [row, key]; all 0 for a key that is not in the text.

    keys: the position of each row's key, [row].
    count: how many keys there are.
    """
    return (keys[:, None] == np.arange(count)).astype(np.float64)


def _tokens_of_kind(patterns: TokenPatterns, kind: str) -> Bools:
    """Which tokens are of a kind, booleans [token]: the attribute `kind` of `TokenPatterns`, such as
    "punctuation"."""
    marked: Bools = getattr(patterns, kind)
    return marked


def _numbers(patterns: TokenPatterns, kind: str) -> Ints:
    """Numbers by token, [token]: the attribute `kind` of `TokenPatterns`, such as "sentence"."""
    numbers: Ints = getattr(patterns, kind)
    return numbers


def rule_rows(
    rules: Sequence[HeadRule], patterns: TokenPatterns, queries: Ints, visible: Bools
) -> Floats:
    """Where each rule looks, [rule, query, key]: rows sum to 1, or to 0 where a query sees nothing.

    queries: positions, [query].
    visible: which keys they see, [query, key]. A row in which a rule finds no key that is seen
        gets weight 1 at the first key that is.
    """
    rows = np.zeros((len(rules), queries.size, patterns.count))
    for place, rule in enumerate(rules):
        rows[place] = rule.rows(patterns, queries)
    rows *= visible
    total = rows.sum(-1, keepdims=True)
    is_empty = total == 0
    np.divide(rows, total, out=rows, where=~is_empty)

    # empty rows of queries that see something
    sees_key = visible.any(-1)
    first_key = visible.argmax(-1)
    rule_places, query_places = np.nonzero(is_empty[..., 0] & sees_key)
    rows[rule_places, query_places, first_key[query_places]] = 1.0
    return rows
