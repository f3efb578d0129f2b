"""`attn.run/1`: attention on one text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import UNSET, UnsetType, field

from attncli.documents import (
    Count,
    EmptyRows,
    Header,
    LeftOut,
    LinkRow,
    LinkRows,
    Numbers,
    Part,
    Regions,
    Resources,
    ShapeRows,
    axes,
    describe,
    index_of,
    keys_of,
)
from attncli.documents.parts import (
    HashProducts,
    NextToken,
    PooledMap,
    RegionPart,
    RunLayer,
    StrongestLink,
    Weighed,
)
from attncli.language import message

SQUARE = frozenset(("raw", "scaled", "capped", "biased", "masked", "weights"))
"""Stages with a number for each query and key."""


class ImplicitHead(Part, frozen=True, kw_only=True):
    """One head of a recurrence."""

    head: Count
    weights: Annotated[
        Numbers,
        axes(
            "query",
            "key",
            meaning=(
                "what each value counts in what leaves; 0 after the query. No softmax: entries may"
                " be negative, rows sum to anything."
            ),
        ),
    ]


class ImplicitLayer(Part, frozen=True, kw_only=True):
    """What the recurrence of a layer amounts to, before its norm and gate: O = A·V."""

    layer: Count
    kind: Annotated[str, describe("The recurrence.")]
    heads: list[ImplicitHead]


class RunDocument(Header, tag="attn.run/1", frozen=True, kw_only=True):
    """Attention on one text. Positions, layers and heads count from 0."""

    queries: Annotated[
        list[Annotated[Count, index_of("token")]] | UnsetType,
        axes(
            "query",
            meaning="With --query: the positions of the rows; absent when every token has its row.",
        ),
    ] = UNSET
    shapes: ShapeRows
    overview: Annotated[
        list[StrongestLink] | UnsetType,
        describe("The strongest link of every head that ran; with --query, of that query's row."),
    ] = UNSET
    layers: list[RunLayer]
    links: LinkRows
    maps: Annotated[
        list[PooledMap] | UnsetType,
        describe(
            "Of a text too long for full matrices: each cell is the largest of pool × pool weights."
        ),
    ] = UNSET
    average: Annotated[
        Numbers | UnsetType,
        axes(
            "token",
            meaning=(
                "with --query: its row of weights, averaged over the layers and heads that ran."
            ),
        ),
    ] = UNSET
    regions: Regions | UnsetType = UNSET
    region_shares: Annotated[
        RegionPart | UnsetType, describe("What goes to which region, where there are regions.")
    ] = UNSET
    implicit: Annotated[
        list[ImplicitLayer] | UnsetType,
        describe(
            "With --show implicit: the weights that recurrences amount to, of layers that have one."
        ),
    ] = UNSET
    hashing: Annotated[
        list[HashProducts] | UnsetType,
        describe("Under an `lsh` mask: what decides the buckets of queries and keys in each head."),
    ] = UNSET
    links_leave_out: LeftOut | UnsetType = UNSET
    every_link_counts: Annotated[
        bool | UnsetType,
        describe(
            "With --query: true where all of its links are of kinds left out otherwise, so that"
            " `links` and `overview` hold them."
        ),
    ] = UNSET
    strongest_neighbour: Annotated[
        LinkRow | UnsetType | None,
        describe(
            "With --query, of trained weights: its strongest link to a neighbour where heads do not"
            " rest, in heads that are not positional; links leave it out."
        ),
    ] = UNSET
    strongest_back: Annotated[
        LinkRow | UnsetType | None,
        describe("With --query: the strongest link from another token to it."),
    ] = UNSET
    next_tokens: Annotated[
        list[NextToken] | UnsetType,
        describe("Of a decoder whose last layer ran: what comes most likely after the text."),
    ] = field(default=UNSET, name="next")
    weighed: Annotated[
        Weighed | UnsetType, describe("With --weigh: the keys whose weights are multiplied.")
    ] = UNSET
    empty_rows: EmptyRows
    warnings: list[str]
    resources: Resources | UnsetType = UNSET

    def lengths(self) -> Mapping[str, int | range]:
        """The length of each axis by name; "query" is as long as the queries that are named, or as
        the text."""
        count = len(self.tokens)
        lengths = {
            **super().lengths(),
            "query": count if self.queries is UNSET else len(self.queries),
        }
        if self.regions is UNSET:
            return lengths
        return {**lengths, "region": len(self.regions)}

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Faults as (field, message), unless weights are held of every head, or of none; stages
        have a row per query or key."""
        yield from super().validation_errors()
        if len({head.weights is UNSET for layer in self.layers for head in layer.heads}) > 1:
            yield "layers", message("weights of some heads only")
        # how many rows a stage may have: one for each query, or one for each key
        rows = {
            len(self.tokens) if self.queries is UNSET else len(self.queries),
            *keys_of(len(self.tokens)),
        }
        for layer in self.layers:
            for head in layer.heads:
                for name, stage in (head.stages or {}).items():
                    has_rows = stage.ndim == 2 and len(stage) in rows
                    is_square = name in SQUARE
                    if not has_rows or (is_square and stage.shape[1] not in rows):
                        yield (
                            f"layers[{layer.layer}].heads[{head.head}].stages[{name!r:.40}]",
                            f"shape {list(stage.shape)}",
                        )
