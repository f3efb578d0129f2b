"""`attn.tensors/1`: attention over captured q, k and v arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import UNSET, UnsetType

from attncli.documents import (
    AttentionPart,
    Count,
    Document,
    EmptyRows,
    ModelPart,
    Numbers,
    Part,
    ShapeRows,
    Weight,
    axes,
    describe,
    index_of,
)
from attncli.documents.parts import Metrics
from attncli.language import message

Place = Annotated[list[Count], describe("Place on the leading axes; empty without any.")]


class CapturedHead(Part, frozen=True, kw_only=True):
    """One head of captured arrays."""

    head: Count
    scores: Annotated[
        Numbers | UnsetType,
        axes("query", "key", meaning="what enters the softmax; null where masked."),
    ] = UNSET
    weights: Annotated[Numbers | UnsetType, axes("query", "key")] = UNSET
    output: Annotated[
        Numbers | UnsetType, axes("query", "", meaning="weights times values, of width d_v.")
    ] = UNSET
    stages: Annotated[dict[str, Numbers] | UnsetType, describe("With --full.")] = UNSET
    metrics: Metrics | UnsetType = UNSET
    baseline: (
        Annotated[
            Metrics, describe("The same metrics if every row were uniform over what it may see.")
        ]
        | UnsetType
    ) = UNSET

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Faults as (field, message), unless scores, weights and output are held together."""
        if len({value is UNSET for value in (self.scores, self.weights, self.output)}) > 1:
            yield "weights", message("scores, weights and output are not all there")


class BatchEntry(Part, frozen=True, kw_only=True):
    """The heads at one place on the leading axes."""

    index: Place
    heads: list[CapturedHead]


class CapturedLink(Part, frozen=True, kw_only=True):
    """A link at one place on the leading axes."""

    index: Place
    head: Count
    query: Annotated[Count, index_of("query")]
    key: Annotated[Count, index_of("key")]
    weight: Weight


class TensorsDocument(Document, tag="attn.tensors/1", frozen=True, kw_only=True):
    """Attention over arrays from a file; queries and keys have positions, not texts."""

    file: str
    queries: Annotated[Count, describe("Number of query rows.")]
    keys: Annotated[Count, describe("Number of keys.")]
    model: ModelPart
    attention: AttentionPart
    shapes: ShapeRows
    batch: Annotated[list[BatchEntry], describe("One entry per place on the leading axes.")]
    links: Annotated[
        list[CapturedLink], describe("The strongest links over all batch entries, strongest first.")
    ]
    empty_rows: EmptyRows
    warnings: list[str]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Faults as (field, message), unless links belong to heads that there are."""
        heads = {(tuple(entry.index), head.head) for entry in self.batch for head in entry.heads}
        for number, link in enumerate(self.links):
            if (tuple(link.index), link.head) not in heads:
                yield f"links[{number}]", message("it belongs to no head of the document")

    def lengths(self) -> Mapping[str, int | range]:
        """The sizes of the axes that fields name: of queries and of keys."""
        return {"query": self.queries, message("query token"): self.queries, "key": self.keys}
