"""`attn.tensors/1`: attention over captured q, k and v arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import UNSET, UnsetType

from attncli.analysis.documents.declaration import Count, Document, Numbers, Part, Weight, at, axes, says
from attncli.analysis.documents.heads import Metrics
from attncli.analysis.documents.parts import AttentionPart, EmptyRows, ModelPart, ShapeRows

Place = Annotated[list[Count], says("Place on the leading axes; empty without any.")]


class CapturedHead(Part, frozen=True, kw_only=True):
    """One head of captured arrays."""

    head: Count
    scores: Annotated[Numbers, axes("query", "key", says="what enters the softmax; null where masked.")] | UnsetType = (
        UNSET
    )
    weights: Annotated[Numbers, axes("query", "key")] | UnsetType = UNSET
    output: Annotated[Numbers, axes("query", "", says="weights times values, of width d_v.")] | UnsetType = UNSET
    stages: Annotated[dict[str, Numbers], says("With --stages all.")] | UnsetType = UNSET
    metrics: Metrics | UnsetType = UNSET
    baseline: (
        Annotated[Metrics, says("The same metrics if every row were uniform over what it may see.")] | UnsetType
    ) = UNSET

    def misfits(self) -> Iterator[tuple[str, str]]:
        """Scores, weights and output are held together."""
        if len({held is UNSET for held in (self.scores, self.weights, self.output)}) > 1:
            yield "weights", "scores, weights and output are not all there"


class BatchEntry(Part, frozen=True, kw_only=True):
    """The heads at one place on the leading axes."""

    index: Place
    heads: list[CapturedHead]


class CapturedLink(Part, frozen=True, kw_only=True):
    """A link at one place on the leading axes."""

    index: Place
    head: Count
    query: Annotated[Count, at("query")]
    key: Annotated[Count, at("key")]
    weight: Weight


class TensorsDocument(Document, tag="attn.tensors/1", frozen=True, kw_only=True):
    """Attention over arrays from a file; queries and keys have positions, not texts."""

    file: str
    queries: Annotated[Count, says("Number of query rows.")]
    keys: Annotated[Count, says("Number of keys.")]
    model: ModelPart
    attention: AttentionPart
    shapes: ShapeRows
    batch: Annotated[list[BatchEntry], says("One entry per place on the leading axes.")]
    links: Annotated[list[CapturedLink], says("The strongest links over all batch entries, strongest first.")]
    empty_rows: EmptyRows
    warnings: list[str]

    def lengths(self) -> Mapping[str, int | range]:
        """Queries and keys, as the document counts them."""
        return {"query": self.queries, "query token": self.queries, "key": self.keys}
