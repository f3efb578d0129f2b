"""What several documents have in common: tokens, model, attention, the shape trace, links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from msgspec import UNSET, UnsetType

from attncli.documents.declaration import Count, Document, Part, Size, Weight, axes, describe, index_of


class TokenRow(Part, frozen=True, kw_only=True):
    """A token, or a word of several."""

    index: Annotated[Count, describe("Position in the text, from 0.")]
    text: str
    id: Annotated[int | None, describe("Id in the vocabulary; null where the tokenizer has none.")]
    start: Annotated[Count | None, describe("First character in the text, from 0; null for a token that is not in it.")]
    end: Annotated[Count | None, describe("Character after the last.")]
    special: Annotated[bool, describe("Whether the tokenizer added it, such as [CLS].")]
    unknown: (
        Annotated[bool, describe("true where the model has no token of its own for it; absent for all others.")]
        | UnsetType
    ) = UNSET


def position_errors(tokens: Sequence[TokenRow], text: str, name: str) -> Iterator[tuple[str, str]]:
    """The tokens that do not lie in their text, as a document's validation errors. name: of the list."""
    for number, token in enumerate(tokens):
        if token.start is not None and token.end is not None and not token.start <= token.end <= len(text):
            yield f"{name}[{number}]", f"characters {token.start} to {token.end} of a text of {len(text)}"


class ModelPart(Part, frozen=True, kw_only=True):
    """Which weights ran, and their sizes."""

    source: Literal["seeded", "random", "file", "checkpoint", "tensors"]
    name: str | None
    family: str | None
    seed: Annotated[int | None, describe("The seed of the weights; null when they come from elsewhere.")]
    d_model: Annotated[Size | None, describe("Width of a token's vector; null for captured tensors.")]
    layers: Size
    heads: Size
    kv_heads: Size
    d_k: Annotated[Size, describe("Width of a query and a key.")]
    d_v: Annotated[Size, describe("Width of a value.")]
    digest: Annotated[str | None, describe("sha256 of the weights; null where it was not computed.")]


class AttentionPart(Part, frozen=True, kw_only=True):
    """The conventions that ran; where layers differ, each with its layers: `causal (1, 3-5), window:4 (0, 2)`."""

    scale: Annotated[float | None, describe("What q·k is multiplied by.")]
    softcap: float | None
    mask: str
    mask_says: (
        Annotated[str, describe("The mask in words: which keys a query sees, and what its numbers count.")] | UnsetType
    ) = UNSET
    position: str
    backend: str
    dtype: Annotated[str, describe("The type of the numbers.")]
    compute_dtype: (
        Annotated[
            str,
            describe("A wider type that they were computed in before they were rounded; absent where there was none."),
        ]
        | UnsetType
    ) = UNSET
    hashing: (
        Annotated[str, describe("reformer:BUCKETS,ROUNDS,CHUNK where hash attention ran; absent for dense attention.")]
        | UnsetType
    ) = UNSET


class ShapeRow(Part, frozen=True, kw_only=True):
    """A step of the shape trace: its axes and their sizes."""

    step: str
    axes: list[str]
    shape: list[Count]
    formula: str

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Every axis has a size."""
        if len(self.axes) != len(self.shape):
            yield "shape", f"{len(self.shape)} sizes of {len(self.axes)} axes"


ShapeRows = Annotated[
    list[ShapeRow], describe("The shape trace: every step of one layer, with its axes and their sizes.")
]


class TopLink(Part, frozen=True, kw_only=True):
    """A head's link from a query to a key."""

    query: Annotated[Count, index_of("query token")]
    key: Annotated[Count, index_of("key token")]
    weight: Weight


class LinkRow(Part, frozen=True, kw_only=True):
    """A link with its layer and head."""

    layer: Count
    head: Count
    query: Annotated[Count, index_of("query token")]
    key: Annotated[Count, index_of("key token")]
    weight: Weight


LinkRows = Annotated[list[LinkRow], describe("The strongest links, strongest first.")]


class EmptyRow(Part, frozen=True, kw_only=True):
    """A query that sees nothing in one head."""

    layer: Count
    head: Count
    query: Annotated[Count, index_of("query token")]


EmptyRows = Annotated[list[EmptyRow], describe("Queries that see nothing: their weights and outputs are 0.")]


class Resources(Part, frozen=True, kw_only=True):
    """What the run took."""

    bytes_read: Annotated[Count, describe("Bytes of weights read for this text; 0 for weights already in memory.")]
    memory_estimate: Annotated[Count, describe("Bytes this run was expected to take at its peak, besides the program.")]
    peak_memory: (
        Annotated[
            Count | None,
            describe("The most bytes the process held; of checkpoints only, null where the system is silent."),
        ]
        | UnsetType
    ) = UNSET


Tokens = Annotated[list[TokenRow], axes("token", meaning="The tokens in order.")]
Pieces = Annotated[list[TokenRow], describe("With --words: the tokens that were merged; `tokens` holds the words.")]
LeftOutKind = Literal["special", "self", "neighbours", "first", "unknown"]
LeftOut = Annotated[
    list[LeftOutKind], describe("Kinds of link that the strongest links leave out; absent when all count.")
]


LEARNED = 2
"""Keys that a model may have learned beside those of the tokens: `bias_k`, and one of zeros."""


def keys_of(tokens: int) -> range:
    """How many keys a text of so many tokens may have."""
    return range(tokens, tokens + LEARNED + 1)


class Header(Document, frozen=True, kw_only=True):
    """What every document about one text begins with."""

    text: str
    tokens: Tokens
    model: ModelPart
    attention: AttentionPart
    pieces: Pieces | UnsetType = UNSET

    def lengths(self) -> Mapping[str, int | range]:
        """The tokens of the text, or its words; learned keys come after them."""
        count = len(self.tokens)
        return {"token": count, "query token": count, "key token": count, "key": keys_of(count)}

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Tokens lie in the text."""
        yield from position_errors(self.tokens, self.text, "tokens")
