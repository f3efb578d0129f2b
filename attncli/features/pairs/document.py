"""`attn.pairs/1`: which pairs of a file fit a model, and how often it is right."""

from __future__ import annotations

from typing import Annotated

from attncli.documents import Count, Document, ModelPart, Part, Share, Size, describe
from attncli.documents.parts import MeanWithInterval, TargetToken


class PairInterval(MeanWithInterval, frozen=True, kw_only=True):
    """A mean over pairs with its 95% interval; no ends below 20 pairs, and where all give the same."""


class PairRow(Part, frozen=True, kw_only=True):
    """A pair that fits the model: two texts of as many tokens, and two answers."""

    clean: str
    corrupt: str
    answer: TargetToken
    versus: TargetToken
    tokens: Annotated[Size, describe("Tokens of each text.")]
    m_clean: Annotated[float, describe("logit(answer) − logit(versus) after the clean text.")]
    m_corrupt: Annotated[float, describe("The same after the corrupt text.")]


class PairFault(Part, frozen=True, kw_only=True):
    """A pair that does not fit the model."""

    pair: Annotated[Count, describe("Its place among the pairs of the file, from 0.")]
    where: str
    fault: str


class PairsDocument(Document, tag="attn.pairs/1", frozen=True, kw_only=True):
    """Pairs of texts as a model reads them, and the difference of two logits after each."""

    name: Annotated[str, describe("The file of pairs, or the task of the package.")]
    model: ModelPart
    pairs: Annotated[list[PairRow], describe("Those that fit, in the order of the file.")]
    faults: Annotated[list[PairFault], describe("Those that do not.")]
    right: Annotated[Share | None, describe("Share of pairs with m_clean above 0; null for none.")]
    clean: Annotated[PairInterval | None, describe("m_clean over the pairs; null for none.")]
    corrupt: Annotated[PairInterval | None, describe("m_corrupt over the pairs; null for none.")]
    warnings: list[str]
