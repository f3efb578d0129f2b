"""`attn.difference/1`: how effects of heads differ between two sets of texts, or two models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from attncli.analysis.documents.declaration import Count, Document, Part, Size, describe
from attncli.analysis.documents.effects import AttentionKind


class DifferenceSide(Part, frozen=True, kw_only=True):
    """One side: its file, how many texts it had, which model."""

    name: str
    texts: Size
    model: str | None


class DifferentHead(Part, frozen=True, kw_only=True):
    """One head on both sides."""

    attention: AttentionKind
    layer: Count
    head: Count
    a: float
    b: float
    difference: Annotated[float, describe("B − A.")]
    low: Annotated[
        float | None, describe("End of the 95% interval of the difference, by Welch's t; null with one text.")
    ]
    high: float | None

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """An interval has two ends."""
        if (self.low is None) != (self.high is None):
            yield "high", "an interval with one end"


class DifferenceDocument(Document, tag="attn.difference/1", frozen=True, kw_only=True):
    """Two `attn.effects/1` documents compared by their first measure, head by head."""

    a: DifferenceSide
    b: DifferenceSide
    measure: Annotated[str, describe("cosine, logprob or kl.")]
    heads: Annotated[list[DifferentHead], Meta(min_length=1), describe("The largest difference first.")]
    warnings: list[str]
