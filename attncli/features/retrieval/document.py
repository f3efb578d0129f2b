"""`attn.retrieval/1`: the heads that fetch a fact which stands somewhere in the text."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, UnsetType

from attncli.documents import Count, Document, ModelPart, Part, PlacedHead, Share, Size, describe


class FetchScore(Part, frozen=True, kw_only=True):
    """A score of one head, the mean over the runs that were answered."""

    mean: float
    low: Annotated[float, describe("Lower end of the 95% interval: runs drawn again, by needle.")]
    high: Annotated[float, describe("Upper end.")]
    chance: Annotated[float, describe("The same score of as many other tokens of the haystack.")]


class FetchingHead(PlacedHead, frozen=True, kw_only=True):
    """One head."""

    literal: Annotated[
        FetchScore,
        describe(
            "Share of the answer's tokens at which the head looks most at that very token in the"
            " needle, 0 to 1 (Wu et al. 2024, arXiv 2404.15574)."
        ),
    ]
    writes: Annotated[
        FetchScore,
        describe(
            "What the head adds to the logit of the answer from a token of the needle, less that"
            " from any other token (LOCOS 2026, arXiv 2607.01002)."
        ),
    ]
    retrieval: Annotated[bool, describe("Whether `literal` is 0.1 or more.")]


class FetchCheck(Part, frozen=True, kw_only=True):
    """With --verify: what is left when heads are taken away."""

    heads: Annotated[Size, describe("How many are taken away.")]
    literal: Annotated[float, describe("Recall without the first by the literal score.")]
    writes: Annotated[float, describe("Recall without the first by what they write.")]
    random: Annotated[
        list[float], describe("Recall without as many others, drawn at random several times.")
    ]


class RetrievalDocument(Document, tag="attn.retrieval/1", frozen=True, kw_only=True):
    """Heads that fetch a fact from the text, measured on needles in haystacks. Layers and heads
    count from 0.
    """

    model: ModelPart
    needles: Annotated[list[str], describe("The facts: what is asked, and the answer after it.")]
    sizes: Annotated[list[Size], describe("Tokens of the texts, at most.")]
    depths: Annotated[
        list[float], describe("Where the needle stands: 0 is the beginning, 1 the end.")
    ]
    runs: Size
    answered: Annotated[
        Count, describe("Runs in which more than half of the answer was predicted.")
    ]
    recall: Annotated[Share, describe("Share of the answers' tokens that the model predicts.")]
    heads: Annotated[
        list[FetchingHead],
        describe(
            "Every head, the largest literal score first; none where too few runs were answered to"
            " tell."
        ),
    ]
    verify: Annotated[
        list[FetchCheck] | UnsetType, describe("With --verify: the fewest heads first.")
    ] = UNSET
    warnings: list[str]
