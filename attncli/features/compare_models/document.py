"""`attn.compare_models/1`: what another form of a model changes over texts, B minus A."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, UnsetType

from attncli.documents import (
    AttentionPart,
    Count,
    Document,
    ModelPart,
    Part,
    PlacedHead,
    Size,
    describe,
)
from attncli.documents.parts import MeanWithInterval, NextToken


class ChangedNumber(MeanWithInterval, frozen=True, kw_only=True):
    """A number over texts: its mean with the 95% interval; no ends below 20 texts, and where all
    texts give the same."""


class ChangedHead(PlacedHead, frozen=True, kw_only=True):
    """How far the rows of a head moved."""

    js: Annotated[
        ChangedNumber,
        describe(
            "Jensen-Shannon divergence in nats, 0 to 0.6931, the mean over the rows compared of a text."
        ),
    ]
    max_difference: Annotated[float, describe("The weight that differs most in any text, B - A.")]


class ChangedLayer(Part, frozen=True, kw_only=True):
    """How far the heads of a layer moved."""

    layer: Count
    js: Annotated[ChangedNumber, describe("The mean over its heads.")]
    moved: Annotated[Count, describe("Its heads whose js is above `beyond`.")]


class LogProbability(Part, frozen=True, kw_only=True):
    """How likely the models find the texts: ln p of each token after those before it, a token."""

    a: float
    b: float
    difference: Annotated[ChangedNumber, describe("B - A.")]
    tokens: Annotated[Size, describe("Tokens that have one: all but the first of each text.")]


class NextWords(Part, frozen=True, kw_only=True):
    """What comes after the text in either model, the likeliest first."""

    a: list[NextToken]
    b: list[NextToken]


class ModelChange(Part, frozen=True, kw_only=True):
    """What the other form of a model changes."""

    beyond: Annotated[float, describe("The js above which a head counts as moved.")]
    moved: Annotated[Count, describe("Heads above it.")]
    heads: Annotated[list[ChangedHead], describe("All heads, the largest js first.")]
    layers: Annotated[list[ChangedLayer], describe("Those that attend, in their order.")]
    logprob: Annotated[
        LogProbability | None,
        describe("Null for models that say no next token, and for single tokens."),
    ]
    agreement: Annotated[
        ChangedNumber | None,
        describe("The share of all tokens after which both find the same next token likeliest."),
    ]
    next: Annotated[
        NextWords | UnsetType, describe("After the text; absent over several texts.")
    ] = UNSET


class ComparedModel(Part, frozen=True, kw_only=True):
    """One of the two models."""

    name: Annotated[str, describe("As it was given.")]
    model: ModelPart
    attention: AttentionPart


class CompareModelsDocument(Document, tag="attn.compare_models/1", frozen=True, kw_only=True):
    """Two forms of one model, compared over texts."""

    a: ComparedModel
    b: ComparedModel
    texts: Size
    tokens: Annotated[Size, describe("Of all texts together.")]
    change: ModelChange
    warnings: list[str]
