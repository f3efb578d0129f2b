"""Exclusions: which pairs of query and key are left out, so that one can read past sinks and specials."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from attncli.errors import UsageError
from attncli.inputs.token import Token
from attncli.measure.visible_keys import Bools, Ints

KINDS = ("first", "special", "self", "neighbours", "punctuation")
"""What can be left out: the first token and punctuation as keys; special tokens as keys and as queries; the query
itself; the tokens beside it."""


class Exclusion(Struct, frozen=True, eq=False):
    """Pairs left out of one text's attention.

    names: out of `KINDS` and "unknown", in their order. keys: booleans [key], keys left out for every query.
    queries: booleans [query], rows left out. beside: how far from the diagonal pairs are left out:
    offsets of the key from the query. renormalise: whether what is left of a row is scaled to sum to 1.
    """

    names: tuple[str, ...]
    keys: Bools
    queries: Bools
    beside: tuple[int, ...]
    renormalise: bool = False

    def rows(self, i: Ints) -> Bools:
        """Which pairs are left out for the queries i, [row, key]."""
        out = np.repeat(self.keys[None, :], i.size, 0)
        out[self.queries[i]] = True
        for offset in self.beside:
            inside = (i + offset >= 0) & (i + offset < self.keys.size)
            out[np.flatnonzero(inside), (i + offset)[inside]] = True
        return out

    def without(self, weights: Any, i: Ints, low: int = 0) -> np.ndarray[Any, Any]:
        """A copy of weights [head, row, low…] of the queries i without the pairs left out.

        A row of which nothing is left is 0, renormalised or not.
        """
        weights_left: np.ndarray[Any, Any] = np.where(self.rows(i)[:, low : low + weights.shape[-1]], 0.0, weights)
        if self.renormalise:
            sums = weights_left.sum(-1, keepdims=True, dtype=np.float64)
            weights_left = weights_left / np.where(sums > 0, sums, 1.0)
        return weights_left


def parse(text: str) -> tuple[str, ...]:
    """The names in an `--exclude` value such as "first,special", in the order of `KINDS`. Raises UsageError."""
    words = [name.strip() for name in text.split(",") if name.strip()]
    for name in words:
        if name not in KINDS:
            from difflib import get_close_matches

            near = get_close_matches(name, KINDS, 1, 0.5)
            raise UsageError(
                f"--exclude {name!r} is nothing to leave out",
                expected=", ".join(KINDS),
                hint=f"--exclude {near[0]}" if near else "",
            )
    if not words:
        raise UsageError("--exclude names nothing", expected=", ".join(KINDS))
    return tuple(name for name in KINDS if name in words)


def exclusion(
    names: Sequence[str], tokens: Sequence[Token], *, queries: Sequence[Token] | None = None, renormalise: bool = False
) -> Exclusion:
    """What the names leave out of a text: those of `KINDS`, and "unknown" for tokens that a vocabulary does not know,
    as keys and as queries. queries: the query tokens if they are another text's; then there is no first token, no self
    and no neighbour to leave out."""
    asking = tokens if queries is None else queries
    keys, rows = np.zeros(len(tokens), bool), np.zeros(len(asking), bool)
    beside: tuple[int, ...] = ()
    if "special" in names:
        keys |= [token.special for token in tokens]
        rows |= [token.special for token in asking]
    if "unknown" in names:
        keys |= [token.unknown for token in tokens]
        rows |= [token.unknown for token in asking]
    if "punctuation" in names:
        keys |= [is_punctuation(token) for token in tokens]
    if queries is None:
        keys[:1] |= "first" in names
        beside = (0,) * ("self" in names) + (-1, 1) * ("neighbours" in names)
    return Exclusion(tuple(name for name in (*KINDS, "unknown") if name in names), keys, rows, beside, renormalise)


class AlignedExclusion(NamedTuple):
    """Pairs of words that two texts share, left out where they are left out of either text.

    queries, keys: which words are, as such, [word]. beside: offsets of the key from the query that are left out.
    places: where the words stand in either text, [text, word].
    """

    queries: Bools
    keys: Bools
    beside: tuple[int, ...]
    places: Ints

    def flags(self) -> list[list[Any]]:
        """The fields as lists of whole numbers, in their order."""
        numbers = (self.queries.astype(int), self.keys.astype(int), np.array(self.beside, int), self.places)
        return [array.tolist() for array in numbers]

    def mask(self) -> Bools:
        """Which pairs are left out, [query, key]."""
        out = self.queries[:, None] | self.keys[None, :]
        for places in self.places:
            out |= np.isin(places[None, :] - places[:, None], self.beside)
        return out


def aligned_exclusion(
    names: Sequence[str], texts: Sequence[Sequence[Token]], pairs: Sequence[tuple[int, int]]
) -> AlignedExclusion:
    """What the names leave out of the words that two texts share. texts: both; pairs: the words' places in either."""
    places = np.asarray(pairs, np.int64).reshape((-1, 2)).T
    sides = [exclusion(names, tokens) for tokens in texts]
    queries, keys = (
        np.any([getattr(side, kind)[at] for side, at in zip(sides, places, strict=True)], axis=0)
        for kind in ("queries", "keys")
    )
    return AlignedExclusion(queries, keys, sides[0].beside, places)


def is_punctuation(token: Token) -> bool:
    """Whether a token is nothing but punctuation (Unicode category P); special tokens are not."""
    return not token.special and _punctuation_alone(token.text)


@lru_cache(4096)
def _punctuation_alone(text: str) -> bool:
    text = text.strip("Ġ▁ ")
    return text != "" and all(unicodedata.category(letter).startswith("P") for letter in text)
