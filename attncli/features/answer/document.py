"""`attn.answer/1`: which regions of a prompt the whole answer used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from attncli.documents import (
    Count,
    Header,
    Numbers,
    Part,
    PlacedHead,
    Regions,
    Size,
    Weight,
    axes,
    describe,
    index_of,
)
from attncli.documents.parts import TargetToken, Weighed
from attncli.language import message

MOST_COMPARED = 4
"""Regions that are compared with random spans, the largest losses first."""
LITTLE = 0.05
"""A change in nats a token from which on it is told: below it the probability of a token changes by
less than a twentieth."""
SMALL_LOSS = 2 * LITTLE
"""A loss in nats a token below which an answer is not said to rest on a region, though it counts: the
probability of a token falls by less than a tenth."""


class AnswerToken(Part, frozen=True, kw_only=True):
    """A token of the answer."""

    token: TargetToken
    probability: Annotated[Weight, describe("After the prompt and the answer before it.")]


class AnswerSentence(Part, frozen=True, kw_only=True):
    """A sentence of the answer."""

    text: str
    first: Annotated[Count, index_of("answer", "Its first token.")]
    stop: Annotated[Size, describe("The token of the answer behind its last.")]


class AnswerText(Part, frozen=True, kw_only=True):
    """The answer that is measured, without the token that ends it."""

    text: str
    generated: Annotated[
        bool, describe("Whether the model wrote it: the likeliest token each time.")
    ]
    ended: Annotated[
        bool | None,
        describe("Whether the model ended it by itself; null for one that was given."),
    ]
    logprob: Annotated[float, describe("Mean log probability a token, in nats.")]
    tokens: Annotated[
        list[AnswerToken], axes("answer", meaning="one for each token."), Meta(min_length=1)
    ]
    sentences: Annotated[
        list[AnswerSentence], axes("sentence", meaning="in order."), Meta(min_length=1)
    ]


class OtherAnswer(Part, frozen=True, kw_only=True):
    """What the model writes where it does not have a region."""

    text: str
    tokens: Annotated[list[TargetToken], axes("", meaning="the likeliest token each time.")]
    ended: Annotated[bool, describe("Whether the model ended it by itself.")]


class AnswerEffect(Part, frozen=True, kw_only=True):
    """What the answer loses without one leaf region."""

    region: Annotated[Count, index_of("region", "Its place in `regions`.")]
    without: Annotated[
        list[str], describe("Regions inside it, whose tokens are told by themselves.")
    ]
    is_source: Annotated[
        bool,
        describe("Whether it is compared: --region, or without any every message of a chat."),
    ]
    attention: Annotated[
        Weight,
        describe(
            "Of what the answer's queries look at besides where heads rest, the part on it; of means"
            " over layers and heads."
        ),
    ]
    even: Annotated[Weight, describe("Even attention's part, of the same keys.")]
    logprob: Annotated[
        float, describe("Mean log probability a token of the answer without it, in nats.")
    ]
    change: Annotated[float, describe("That less the own: below 0 where the answer uses it.")]
    by_sentence: Annotated[
        Numbers, axes("sentence", meaning="the change of each sentence, a mean over its tokens.")
    ]
    random: Annotated[
        list[float] | UnsetType,
        describe("The change without each of some random spans of as many tokens."),
    ] = UNSET
    matters: Annotated[
        bool | None,
        describe(
            "Whether its loss is 0.05 nats or more and twice that of every random span; null where"
            " that was not compared."
        ),
    ]
    other_answer: Annotated[
        OtherAnswer | None,
        describe(
            "What the model writes without it, where it wrote the answer: of every region that"
            " matters; where none does, of the first that was not compared; else null."
        ),
    ] = None


class SubsetWeight(Part, frozen=True, kw_only=True):
    """What a region adds in the linear model of subsets."""

    region: Annotated[Count, index_of("region", "Its place in `regions`.")]
    weight: Annotated[
        float,
        describe("What it adds to log(p / (1 − p)) over the tokens, p the answer's probability."),
    ]


class HiddenRegions(Part, frozen=True, kw_only=True):
    """Regions that the linear model gives three times the weight or more that the answer loses without
    one alone, and without all of which it loses 0.05 nats more than the sum of that, and each adds as
    much: exact."""

    regions: Annotated[list[Count], index_of("region", "Their places in `regions`.")]
    change: Annotated[
        float, describe("Change of the mean log probability a token without all of them: exact.")
    ]


class AnswerSubsets(Part, frozen=True, kw_only=True):
    """A sparse linear model of runs without random sets of regions (ContextCite, arXiv 2409.00729):
    Lasso over standardised masks."""

    fitted: Annotated[Size, describe("Subsets that the model is fitted on, each an exact run.")]
    tested: Annotated[Size, describe("Other subsets, on which it is tested.")]
    penalty: float
    intercept: Annotated[float, describe("The value without any of the regions.")]
    weights: Annotated[list[SubsetWeight], describe("The largest first.")]
    lds: Annotated[
        float | None,
        describe(
            "Rank correlation of predicted and measured values of the tested subsets; null where one"
            " side does not vary."
        ),
    ]
    low: Annotated[float | None, describe("End of its 95% interval, by bootstrap over subsets.")]
    high: float | None
    hidden: Annotated[
        HiddenRegions | UnsetType, describe("Where there are two or more such regions.")
    ] = UNSET


class CarryingHead(PlacedHead, frozen=True, kw_only=True):
    """What the answer loses where its queries do not see a region in this head alone."""

    attention: Annotated[
        Weight,
        describe(
            "Of the answer's queries on the region in this head, besides where heads rest; a mean."
        ),
    ]
    estimate: Annotated[
        float, describe("The change by the gradient at what the head passes on: to first order.")
    ]
    change: Annotated[
        float, describe("Change of the mean log probability a token: exact, by a run of its own.")
    ]


class CarryingHeads(Part, frozen=True, kw_only=True):
    """Which heads carry a region to the answer: the links from the answer's queries to it are cut in
    some heads. The estimate chooses which heads are run."""

    region: Annotated[Count, index_of("region", "Its place in `regions`.")]
    count: Annotated[Size, describe("Heads of the model, each with an estimate.")]
    heads: Annotated[
        list[CarryingHead],
        describe("Those with the largest estimated loss, the largest exact loss first."),
        Meta(min_length=1),
    ]
    together: Annotated[float, describe("The change with the links cut in all of these: exact.")]
    every: Annotated[float, describe("The change with them cut in every head: exact.")]


class AnswerDose(Part, frozen=True, kw_only=True):
    """The answer with attention on a region weighed by one factor."""

    factor: Annotated[float, Meta(ge=0), describe("0 takes the region away, 1 changes nothing.")]
    logprob: Annotated[float, describe("Mean log probability a token of the answer, in nats.")]
    change: Annotated[float, describe("That less the own.")]


class AnswerDoses(Part, frozen=True, kw_only=True):
    """A dose on a region: attention on it weighed by one factor after another, exact runs."""

    weighed: Annotated[Weighed, describe("What was asked for.")]
    doses: Annotated[list[AnswerDose], describe("The least factor first."), Meta(min_length=2)]
    random: Annotated[
        list[float] | UnsetType,
        describe(
            "The change with each of some random spans of as many tokens weighed by the factor that"
            " was asked for."
        ),
    ] = UNSET


class AnswerDocument(Header, tag="attn.answer/1", frozen=True, kw_only=True):
    """Which regions of a prompt the whole answer used, each taken away by an exact run."""

    regions: Annotated[Regions, describe("Leaves: each without the regions inside it.")]
    cut: Annotated[
        Literal["links", "text"],
        describe(
            "links: no token outside a region sees its keys, in all heads of all layers. text: its"
            " tokens are left out, and later positions move up."
        ),
    ]
    answer: AnswerText
    effects: Annotated[list[AnswerEffect], describe("The largest loss first.")]
    subsets: Annotated[
        AnswerSubsets | UnsetType, describe("With --subsets: regions taken away together.")
    ] = UNSET
    carriers: Annotated[
        CarryingHeads | UnsetType,
        describe(
            "With --each-head: which heads carry the region that the answer rests on most; where none"
            " was compared with random spans, the one that it loses most without."
        ),
    ] = UNSET
    doses: Annotated[AnswerDoses | UnsetType, describe("With --weigh: a dose on a region.")] = UNSET
    seed: Annotated[Count, describe("Of the random spans and subsets.")]
    warnings: list[str]

    def lengths(self) -> Mapping[str, int | range]:
        """How many entries the axes have that the fields of this document name: "region", "answer"
        (its tokens), "sentence", and those of every document."""
        return {
            **super().lengths(),
            "region": len(self.regions),
            "answer": len(self.answer.tokens),
            "sentence": len(self.answer.sentences),
        }

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield (field, message) for each fault: effects must be sorted by change, the largest loss
        first."""
        yield from super().validation_errors()
        changes = [effect.change for effect in self.effects]
        if changes != sorted(changes):
            yield "effects", message("effects that do not rise")
