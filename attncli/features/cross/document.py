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
    LeftOut,
    LinkRows,
    ModelPart,
    Numbers,
    Part,
    PlacedHead,
    ShapeRows,
    Size,
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
        Numbers | UnsetType,
        axes(
            "query",
            "key",
            meaning="what enters the softmax; null where masked. Absent where pieces are merged.",
        ),
    ] = UNSET
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

    query: Annotated[Count, index_of("query token")]
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


class KeyHead(PlacedHead, frozen=True, kw_only=True):
    """With a query and a key: what the query gives the key in one head."""

    weight: Weight
    rank: Annotated[
        Size | None, describe("1 if no key has more weight; null where the key is hidden.")
    ]
    beyond_special: Annotated[
        Size | UnsetType | None,
        describe(
            "The same among the keys that are no special tokens; null where the key is hidden, or is"
            " one. Absent without special tokens."
        ),
    ] = UNSET


class CrossDocument(Document, tag="attn.cross/1", frozen=True, kw_only=True):
    """Cross-attention between two texts."""

    query_text: str
    key_text: str
    value_text: Annotated[str | None, describe("Where values come from a third text.")]
    queries: Annotated[
        list[TokenRow],
        axes("query token", meaning="the tokens of the query text, or its words (`words`)."),
    ]
    keys: Annotated[
        list[TokenRow],
        axes("key token", meaning="the tokens of the key text, or its words (`words`)."),
    ]
    words: Annotated[
        bool | UnsetType, describe("Whether pieces were merged; absent where they were not.")
    ] = UNSET
    query: Annotated[
        Annotated[Count, index_of("query token")] | UnsetType,
        describe("With a query: the only one whose row of weights, links and more are told."),
    ] = UNSET
    key: Annotated[
        Annotated[Count, index_of("key token")] | UnsetType,
        describe("With a query and a key: the key that `key_heads` is about."),
    ] = UNSET
    key_heads: Annotated[
        list[KeyHead] | UnsetType, describe("The heads by that weight, the largest first.")
    ] = UNSET
    model: ModelPart
    attention: AttentionPart
    shapes: ShapeRows
    layers: list[CrossLayer]
    said: Annotated[
        list[str] | UnsetType,
        axes(
            "query token",
            meaning="what the decoder of an encoder-decoder says there: it reads the text one token"
            " late. Absent for others, and where tokens are merged.",
        ),
    ] = UNSET
    alignment: Annotated[
        list[Aligned],
        describe(
            "For each query the key with the largest mean weight over the layers and heads of the"
            " document."
        ),
    ]
    links: LinkRows
    links_leave_out: LeftOut | UnsetType = UNSET
    empty_rows: EmptyRows
    warnings: list[str]

    @property
    def shown_queries(self) -> list[int]:
        """The positions of the queries that the document has rows of: all, or the one that was asked
        about."""
        if self.query is UNSET:
            return list(range(len(self.queries)))
        return [self.query]

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
            "query": len(self.shown_queries),
            message("query token"): len(self.queries),
            message("key token"): count,
            "key": keys_of(count),
        }
