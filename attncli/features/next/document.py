"""`attn.next/1`: the next word that a model would say, from which layer on, and without some heads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType, field

from attncli.documents import (
    Count,
    Entropy,
    Header,
    Part,
    PlacedHead,
    Size,
    Weight,
    describe,
    index_of,
)
from attncli.documents.parts import NextToken, TargetToken, Weighed
from attncli.language import message


class NextTarget(Part, frozen=True, kw_only=True):
    """The token that is asked about, among all that may follow."""

    token: TargetToken
    probability: Weight
    rank: Annotated[Size, describe("From 1, the likeliest.")]


class LayerChoice(Part, frozen=True, kw_only=True):
    """From which layer on a token comes first, read off through the final norm and output head."""

    layer: Annotated[Count, describe("The first layer after which it does, until the next row's.")]
    token: TargetToken
    probability: Annotated[Weight, describe("After that layer.")]


class FollowingToken(Part, frozen=True, kw_only=True):
    """How likely the token was that does follow."""

    token: Annotated[Count, index_of("token", "The token that follows, by its position.")]
    probability: Weight
    rank: Size


class WithoutHeads(Part, frozen=True, kw_only=True):
    """The same with some heads taken away."""

    heads: Annotated[list[PlacedHead], Meta(min_length=1)]
    top: list[NextToken]
    entropy: Entropy
    target: NextTarget


class Dose(Part, frozen=True, kw_only=True):
    """What comes next with attention on the region weighed by one factor."""

    factor: Annotated[float, Meta(ge=0), describe("0 takes the region away, 1 changes nothing.")]
    probability: Annotated[Weight, describe("Of the target.")]
    random: Annotated[
        Weight | None,
        describe("The same for as many random other tokens, mean of the draws; null without room."),
    ]
    random_low: Annotated[Weight | None, describe("The least of the draws.")]
    random_high: Annotated[Weight | None, describe("The largest of the draws.")]
    text: Annotated[
        str, describe("How the text then goes on, the likeliest token each time; a masked word.")
    ]


class NextDocument(Header, tag="attn.next/1", frozen=True, kw_only=True):
    """What would come next after a text, with probabilities. Layers and heads count from 0."""

    position: Annotated[
        Count, index_of("token", "After which token; of an encoder the one that is masked.")
    ]
    masked: Annotated[
        bool | UnsetType,
        describe("True where all is said of the word behind a mask, not of a next one."),
    ] = UNSET
    top: Annotated[list[NextToken], Meta(min_length=1), describe("The likeliest first.")]
    entropy: Entropy
    target: Annotated[NextTarget, describe("The token asked about, else the likeliest.")]
    layers: Annotated[list[LayerChoice], describe("Only layers where the first place changes.")]
    following: Annotated[
        list[FollowingToken] | UnsetType,
        describe("With --each: of every token after the first, how likely it was."),
    ] = field(default=UNSET, name="each")
    without: Annotated[
        WithoutHeads | UnsetType, describe("With --without: the same without these heads.")
    ] = UNSET
    weighed: Annotated[
        Weighed | UnsetType, describe("With --weigh: the keys whose weights are multiplied.")
    ] = UNSET
    doses: Annotated[
        list[Dose] | UnsetType, describe("With --weigh: by rising factor, 1 among them.")
    ] = UNSET
    draws: Annotated[
        Count | UnsetType, describe("With --weigh: draws of random tokens, of which each is exact.")
    ] = UNSET
    warnings: list[str]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Faults as (field, message), unless layers stand in rising order."""
        yield from super().validation_errors()
        layers = [row.layer for row in self.layers]
        if layers != sorted(set(layers)):
            yield "layers", message("layers that do not rise")
