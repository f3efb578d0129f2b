"""`attn.cross/1`: queries from one text, keys and values from another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import UNSET, UnsetType

from attncli.documents import (
    AttentionPart,
    Count,
    Document,
    EmptyRows,
    LinkRows,
    ModelPart,
    Numbers,
    Part,
    ShapeRows,
    TokenRow,
    Weight,
    axes,
    describe,
    index_of,
    keys_of,
    position_errors,
)
from attncli.language import message


class CrossHead(Part, frozen=True, kw_only=True):
    """One head between the two texts."""

    head: Count
    scores: Annotated[
        Numbers, axes("query", "key", meaning="what enters the softmax; null where masked.")
    ]
    weights: Annotated[Numbers, axes("query", "key")]
    output: Annotated[Numbers, axes("query", "", meaning="weights times values, of width d_v.")]


class CrossLayer(Part, frozen=True, kw_only=True):
    """One layer between the two texts."""

    layer: Count
    heads: list[CrossHead]
    output: Annotated[Numbers, axes("query", "", meaning="the output of the attention.")]


class BestKey(Part, frozen=True, kw_only=True):
    """A key that a query looks at most, and its weight."""

    key: Annotated[Count, index_of("key token")]
    weight: Weight


class Aligned(Part, frozen=True, kw_only=True):
    """For a query the key with the largest mean weight."""

    query: Annotated[Count, index_of("query")]
    key: Annotated[
        Annotated[Count, index_of("key token")] | None,
        describe("null where the query sees nothing."),
    ]
    weight: Weight
    special: Annotated[
        Weight | UnsetType,
        describe("Of the special tokens of the key text together, as its end; absent without any."),
    ] = UNSET
    beyond_special: Annotated[
        BestKey | UnsetType | None,
        describe(
            "The same without special tokens, not rescaled; null where all weight is there, absent"
            " without any."
        ),
    ] = UNSET


class CrossDocument(Document, tag="attn.cross/1", frozen=True, kw_only=True):
    """Cross-attention between two texts."""

    query_text: str
    key_text: str
    value_text: Annotated[str | None, describe("Where values come from a third text.")]
    queries: Annotated[list[TokenRow], axes("query", meaning="the tokens of the query text.")]
    keys: Annotated[list[TokenRow], axes("key token", meaning="the tokens of the key text.")]
    model: ModelPart
    attention: AttentionPart
    shapes: ShapeRows
    layers: list[CrossLayer]
    alignment: Annotated[
        list[Aligned],
        describe(
            "For each query the key with the largest mean weight over the layers and heads of the"
            " document."
        ),
    ]
    links: LinkRows
    empty_rows: EmptyRows
    warnings: list[str]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield (field, fault) pairs for tokens that do not lie in their texts, and links of heads
        that are not there."""
        yield from position_errors(self.queries, self.query_text, "queries")
        yield from position_errors(self.keys, self.key_text, "keys")
        heads = {(layer.layer, head.head) for layer in self.layers for head in layer.heads}
        for number, link in enumerate(self.links):
            if (link.layer, link.head) not in heads:
                yield f"links[{number}]", message("it belongs to no head of the document")

    def lengths(self) -> Mapping[str, int | range]:
        """Lengths of the axes of the arrays: the queries, and the keys with learned keys after
        them.
        """
        count = len(self.keys)
        return {
            "query": len(self.queries),
            message("query token"): len(self.queries),
            message("key token"): count,
            "key": keys_of(count),
        }
