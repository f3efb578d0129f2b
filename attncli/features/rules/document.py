"""`attn.rules/1`: heads as mixtures of simple rules, and the model with rules in their place."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import UNSET, UnsetType

from attncli.documents import Count, Document, ModelPart, Part, PlacedHead, Share, Size, describe
from attncli.language import message

LEAST_OVERLAP = 0.5
"""The overlap from which on a head has a rule: half of its weights."""


class RuleMeaning(Part, frozen=True, kw_only=True):
    """One rule that heads were compared with."""

    name: str
    formula: Annotated[str, describe("Which keys j the query i prefers.")]
    sentence: Annotated[str, describe("The same in words.")]
    found_share: Annotated[
        Share | UnsetType,
        describe(
            "In what share of the rows fitted to it finds a key of its own; in the others it says the"
            " first token."
        ),
    ] = UNSET


def known_share(share: float) -> float | UnsetType:
    """A share of rows as documents hold it: UNSET for NaN, which stands for no rows."""
    if math.isnan(share):
        return UNSET
    return share


class RulePart(Part, frozen=True, kw_only=True):
    """One rule of a head's mixture."""

    rule: Annotated[str, describe("Its name in `rules`.")]
    weight: Annotated[Share, describe("Its part of the mixture; the parts of a head sum to 1.")]


class HeadMixture(Part, frozen=True, kw_only=True):
    """The rules of one head, of which another document tells."""

    parts: Annotated[list[RulePart], describe("The largest weight first.")]
    overlap: Annotated[
        Share, describe("The share of its weights that they say on texts not fitted to.")
    ]


class RuledHead(PlacedHead, frozen=True, kw_only=True):
    """One head: its mixture, and how much of its attention that says on texts that it was neither
    fitted to nor chosen by. An overlap is the mean over rows that see two keys or more of
    Σ min(A, Â), 0 to 1."""

    parts: Annotated[list[RulePart], describe("The largest weight first.")]
    overlap: Annotated[Share, describe("With the mixture.")]
    overlap_first: Annotated[Share, describe("With the first token alone.")]
    overlap_even: Annotated[Share, describe("With an even spread over what the query sees.")]
    overlap_distance: Annotated[
        Share, describe("With the head's own mean by distance, of the texts that were fitted to.")
    ]
    has_rule: Annotated[bool, describe("Whether the overlap with the mixture is 0.5 or more.")]


class RuleOverlaps(Part, frozen=True, kw_only=True):
    """Means over all heads of their overlaps."""

    rules: Share
    first: Share
    even: Share
    distance: Share


class RuleStability(Part, frozen=True, kw_only=True):
    """Whether the texts that were measured on give the same rules when they are fitted to."""

    weights: Annotated[
        Share, describe("Mean over heads of Σ min(c, c'), c and c' the weights of the two halves.")
    ]
    strongest: Annotated[Share, describe("Share of heads whose strongest rule is the same.")]


class SwappedHeads(Part, frozen=True, kw_only=True):
    """The model with rules in place of some heads: losses are means of −log p of the next token, in
    nats, over the texts that were measured on."""

    share: Annotated[Share, describe("Of all heads.")]
    heads: Annotated[
        Size,
        describe("How many: those with the largest overlap on the texts that chose the rules."),
    ]
    loss: float
    loss_first: Annotated[
        float | UnsetType, describe("With the same heads at the first token alone.")
    ] = UNSET
    loss_even: Annotated[float, describe("With the same heads spread evenly.")]
    loss_distance: Annotated[float, describe("With the same heads by their mean by distance.")]
    loss_drawn: Annotated[float, describe("With rules in place of as many heads drawn at random.")]
    loss_model: Annotated[float, describe("Of the model as it is.")]


class RuleTexts(Part, frozen=True, kw_only=True):
    """The texts, split by their place: every second one is measured on, and of the others every
    third decides which rules stay."""

    source: Annotated[str, describe('"built-in", or where the texts were read.')]
    fitted: Annotated[Count, describe("Texts that weights were fitted to.")]
    choosing: Annotated[Count, describe("Texts that decided which rules stay.")]
    measured: Annotated[Count, describe("Texts that overlaps and losses were measured on.")]
    measured_tokens: Annotated[
        Count | UnsetType, describe("Of the texts that are measured on.")
    ] = UNSET
    tokens: Annotated[Count, describe("Of all texts.")]


class RulesDocument(Document, tag="attn.rules/1", frozen=True, kw_only=True):
    """Every head of a model as a mixture of rules that need no model. Layers and heads count from
    0."""

    model: ModelPart
    texts: RuleTexts
    rules: Annotated[list[RuleMeaning], describe("Those that heads were compared with.")]
    heads: Annotated[list[RuledHead], describe("Every head, in the order of layers.")]
    overlap: RuleOverlaps
    stability: RuleStability
    swapped: Annotated[
        list[SwappedHeads],
        describe("The fewest heads first; none for a model that predicts no next token."),
    ]
    predicts: Annotated[
        bool | UnsetType, describe("Whether the model predicts the next token.")
    ] = UNSET
    seed: Annotated[int, describe("Of the heads that are drawn.")]
    warnings: list[str]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield (place, what is wrong) for each fault of the document: no heads at all, a head
        without rules, or a part that names no rule of the document."""
        if not self.heads:
            yield "heads", message("no head")
        yield from mixture_faults(self.heads, self.rules)


def mixture_faults(
    heads: Sequence[RuledHead], rules: Sequence[RuleMeaning]
) -> Iterator[tuple[str, str]]:
    """Yield (place, what is wrong) for each head without rules, and each part that names none of
    these rules; a place is such as `heads[3].parts`."""
    names = {rule.name for rule in rules}
    for place, head in enumerate(heads):
        if not head.parts:
            yield f"heads[{place}].parts", message("no rule")
        for number, part in enumerate(head.parts):
            if part.rule not in names:
                where = f"heads[{place}].parts[{number}].rule"
                yield where, message("no rule is called {name}", name=repr(part.rule))
