"""`attn.find/1`: which heads send one token to another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import UNSET, UnsetType, field

from attncli.documents import (
    Count,
    Header,
    Part,
    PlacedHead,
    RegionRow,
    Size,
    Weight,
    axes,
    describe,
    index_of,
)
from attncli.documents.parts import TargetToken
from attncli.features.effects.document import Difference, IntervalEnd, PairsSummary, SignShare
from attncli.language import message

LinkWeight = Annotated[Weight, describe("From the query to the key.")]
KeyRank = Annotated[
    Size | None, describe("1 if no key of this query has more weight; null if hidden.")
]
VisibleKeys = Annotated[Count, describe("Keys that this query may see.")]
TopKeyIndex = Annotated[
    Annotated[Count, index_of("token")] | None,
    describe("The key with the most weight; null if the query sees none."),
]


class BeyondRest(Part, frozen=True, kw_only=True):
    """The same of the weight that is not on keys where heads rest (`rest`)."""

    share: Annotated[
        float | None,
        describe("The key's part of that weight; null for a key where heads rest, or without any."),
    ]
    rank: Annotated[
        Size | None,
        describe("1 if no other such key has more weight; null if hidden, or where heads rest."),
    ]
    visible: Annotated[Count, describe("Keys that this query may see and where heads do not rest.")]
    top_key: TopKeyIndex
    weight: Annotated[
        float | UnsetType,
        describe(
            "To a key that holds tokens where heads rest and others: its weight on the others."
        ),
    ] = UNSET


class VerifiedLink(Part, frozen=True, kw_only=True):
    """With --verify: the link in the text with another word in front."""

    weight: LinkWeight
    rank: KeyRank
    beyond_rest: BeyondRest


class Reverse(Part, frozen=True, kw_only=True):
    """The same from `to` to `from`."""

    weight: LinkWeight
    rank: KeyRank
    visible: VisibleKeys
    top_key: TopKeyIndex
    beyond_rest: BeyondRest | UnsetType = UNSET


class OtherKey(Part, frozen=True, kw_only=True):
    """What the same query gives another key in the same head."""

    weight: Annotated[
        Weight,
        describe(
            "From the query to this key; of one that holds tokens where heads rest and others, on"
            " the others."
        ),
    ]
    rank: KeyRank
    whole: Annotated[
        Weight | UnsetType,
        describe(
            "Of a key that holds tokens where heads rest and others: its weight on all of them."
        ),
    ] = UNSET


class FoundHead(PlacedHead, frozen=True, kw_only=True):
    """What one head sends from the query to the key."""

    weight: LinkWeight
    rank: KeyRank
    visible: VisibleKeys
    top_key: TopKeyIndex
    reverse: Reverse
    beyond_rest: BeyondRest | UnsetType = UNSET
    verified: VerifiedLink | UnsetType = UNSET
    others: Annotated[
        list[OtherKey] | UnsetType,
        axes("other", meaning="with several keys: what the others of `other_keys` get."),
    ] = UNSET
    effect: Annotated[
        float | UnsetType | None,
        describe(
            "With --effect: 1 − cosine of the query's last vector when the link is cut in this head"
            " alone."
        ),
    ] = UNSET
    difference: Annotated[
        Difference | UnsetType,
        describe("With --effect and --versus: what m = logit(target) − logit(versus) loses then."),
    ] = UNSET


def counted_weight(link: FoundHead | Reverse) -> float:
    """The weight by which a link is ranked: its weight; where the key is a word that holds both
    resting keys (the first token, special tokens) and other tokens, that on the others."""
    if link.beyond_rest is UNSET or link.beyond_rest.weight is UNSET:
        return link.weight
    return link.beyond_rest.weight


class PairLink(PlacedHead, frozen=True, kw_only=True):
    """With pairs: what one head sends from the query to the key, mean over pairs."""

    weight: Annotated[Weight, describe("In the clean texts, summed over the tokens of the key.")]
    corrupt: Annotated[Weight, describe("At the same places in the corrupt texts.")]
    versus: Annotated[
        Weight | UnsetType,
        describe("To the other answer in the clean texts, where it stands in all of them."),
    ] = UNSET
    change: Annotated[float, describe("weight − corrupt.")]
    low: IntervalEnd = UNSET
    high: IntervalEnd = UNSET
    sign_share: SignShare = UNSET
    difference: Annotated[
        Difference | UnsetType,
        describe("With --effect: what m loses when the link is cut in this head alone."),
    ] = UNSET


class FindDocument(Header, tag="attn.find/1", frozen=True, kw_only=True):
    """Heads ranked by how much of one token's attention goes to another. Positions, layers and
    heads count from 0.
    """

    query: Annotated[Count, index_of("token", "Index of the query token.")] = field(name="from")
    key: Annotated[Count, index_of("token", "Index of the key token.")] = field(name="to")
    other_keys: Annotated[
        list[Annotated[Count, index_of("token")]] | UnsetType,
        axes("other", meaning="with several keys: those after the first, as asked."),
    ] = UNSET
    words: Annotated[bool, describe("Whether pieces were merged: then `tokens` are words.")]
    heads: Annotated[
        list[FoundHead],
        describe(
            "Every head, the largest weight first (of a key that holds tokens where heads rest and"
            " others, on the others); none with pairs."
        ),
    ]
    effect_together: Annotated[
        float | UnsetType | None,
        describe("With --effect: the same with the link cut in all of these heads."),
    ] = UNSET
    difference_together: Annotated[
        Difference | UnsetType,
        describe(
            "With --effect, and --versus or pairs: what m loses with the link cut in all of these"
            " heads."
        ),
    ] = UNSET
    target: Annotated[
        TargetToken | UnsetType,
        describe("With --versus: the next token whose logit m begins with."),
    ] = UNSET
    versus: Annotated[
        TargetToken | UnsetType, describe("With --versus: the one whose logit m takes away.")
    ] = UNSET
    pairs: PairsSummary | UnsetType = UNSET
    pair_links: Annotated[
        list[PairLink] | UnsetType,
        describe("With pairs, in place of `heads`: the largest change first."),
    ] = UNSET
    regions: Annotated[
        list[RegionRow] | UnsetType,
        describe("Regions that are an end of the link: each is one of `tokens`."),
    ] = UNSET
    rest: Annotated[
        list[Annotated[Count, index_of("token")]] | UnsetType,
        describe(
            "Of trained weights: keys where heads rest whatever the text says, the first token,"
            " special tokens, line breaks and separators."
        ),
    ] = UNSET
    word_before: Annotated[
        str | UnsetType, describe("With --verify: the word put in front of the text.")
    ] = UNSET
    warnings: list[str]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield a fault (field, message) unless the effect of a cut is there for every head, or for
        none.
        """
        yield from super().validation_errors()
        for number, head in enumerate(self.heads):
            if (head.effect is UNSET) != (self.effect_together is UNSET):
                yield f"heads[{number}].effect", message("told of some heads only")
            if len(head.others or ()) != len(self.other_keys or ()):
                yield f"heads[{number}].others", message("not one for each of `other_keys`")
