"""`attn.scan_compare/1`: how two scans differ, head by head."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from attncli.analysis.documents.declaration import Count, Document, Part, describe
from attncli.analysis.documents.scan import Interval, PlanPart, Share


class ScanDifference(Part, frozen=True, kw_only=True):
    """One metric of one head in both scans; differences are a − b."""

    layer: Count
    head: Count
    metric: str
    a: Annotated[float, describe("Mean over texts, each stratum weighted as in both scans together.")]
    b: float
    difference: float
    ci95: Annotated[
        Interval | None,
        describe(
            "95% interval of the difference: of pairs from replicates, else from the spread of texts within strata."
        ),
    ]
    cohens_d: Annotated[float | None, describe("The difference over the pooled standard deviation of texts.")]
    cliffs_delta: Annotated[float | None, describe("P(a > b) − P(a < b) of a text's value.")]
    cliffs_error: Annotated[float | None, describe("How far off equal bins may put it.")]
    z: Annotated[float | None, describe("The difference in standard errors, as a normal deviate.")]
    p: Annotated[Share | None, describe("Probability of such a difference by chance.")]
    q: Annotated[Share | None, describe("p adjusted for all heads and metrics (Benjamini–Hochberg).")]


class ScanCompareDocument(Document, tag="attn.scan_compare/1", frozen=True, kw_only=True):
    """Two scans side by side, largest effect first."""

    a: PlanPart
    b: PlanPart
    texts: Annotated[list[Count], describe("Texts of a and of b.")]
    paired: Annotated[bool, describe("Whether both saw the same texts, so that their replicates are paired.")]
    strata: Annotated[
        list[Annotated[int, Meta(ge=1)] | None], describe("Common strata: tokens of the longest text of each.")
    ]
    differences: list[ScanDifference]
    warnings: list[str]
