"""`attn.why/1`: why a head looks at a key, part by part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Annotated, Literal, NamedTuple, Protocol

from msgspec import UNSET, UnsetType

from attncli.documents import (
    Count,
    Header,
    Part,
    PlacedHead,
    TokenRow,
    Weight,
    describe,
    index_of,
    position_errors,
)
from attncli.documents.parts import TargetToken
from attncli.features.effects.document import AttentionKind, PairsSummary
from attncli.language import Message, contextual, message
from attncli.mechanism.spec import head_label

WhyKind = Literal[
    "token", "position", "type", "states", "head", "heads", "bias", "feed_forward", "convolution", "mixer", "norm",
    "relative", "score_bias",
]  # fmt: skip
Split = Literal["part", "token", "frequency", "dimension"]
HALF = 0.5
"""A part that makes at least this share of all that speaks for a link is named as its reason."""
Optional = Annotated[float | None, describe("Null where the part has no such side.")]


class WhyLink(PlacedHead, frozen=True, kw_only=True):
    """The link that is explained."""

    query: Annotated[Count, index_of("token")]
    key: Annotated[Count, describe("A token of the text, or of the other text in cross-attention.")]
    attention: AttentionKind


class ThanKey(Part, frozen=True, kw_only=True):
    """Another key that the advantage is over."""

    key: Count
    weight: Weight


class RowKey(Part, frozen=True, kw_only=True):
    """A key that the query sees: its weight, and what its score has over what the row expects."""

    key: Annotated[Count, describe("Learned keys come after the tokens.")]
    weight: Weight
    advantage: float


class WeightWithout(Part, frozen=True, kw_only=True):
    """The link's weight with the part taken from the query's side, from this key's, or from every
    key's.
    """

    query: Optional
    key: Optional
    all_keys: Optional


class PairMean(Part, frozen=True, kw_only=True):
    """A mean over pairs."""

    mean: float
    low: Annotated[
        float | None,
        describe("End of its 95% interval; null below 20 pairs, and where all give the same."),
    ]
    high: float | None
    sign_share: Annotated[float, describe("The share of pairs with the sign of the mean.")]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield (field, message) for an interval of which only one end is given."""
        if (self.low is None) != (self.high is None):
            yield "high", message("an interval with one end")


class PairReasons(Part, frozen=True, kw_only=True):
    """The pairs that a score is explained over: its numbers are means over their clean texts, and a
    weight without a part is that with the part as in the corrupt text."""

    measured: PairsSummary
    query: Annotated[str | None, describe("The token that looks; null for the last.")]
    key: Annotated[str | None, describe("The token looked at; null for the answer.")]
    weight: PairMean
    corrupt: Annotated[PairMean, describe("The weight at the same places in the corrupt texts.")]
    total: PairMean


class WhyPart(Part, frozen=True, kw_only=True):
    """A part of the score."""

    kind: Annotated[
        WhyKind, describe("What wrote it; score_bias and relative are what the position adds.")
    ]
    layer: Annotated[Count | None, describe("The layer that wrote it; null for embeddings.")]
    attention: Annotated[
        AttentionKind | None, describe("Of a head or a bias: which attention of its layer.")
    ]
    head: Annotated[
        Count | None, describe("Of a head; of a bias, the head whose queries and keys it is in.")
    ]
    place: Annotated[
        str | None,
        describe(
            "Of a norm: where it sits. Of a bias in queries and keys: qk. Of a head: rest, for"
            " tokens not told alone."
        ),
    ]
    source: Annotated[
        Count | None, describe("The token whose values a head carried; null for several of them.")
    ]
    side: Annotated[Literal["both", "query", "key"], describe("Whose stream it is a part of.")]
    query_side: Annotated[
        float | None, describe("As part of the query, over all parts of the key.")
    ]
    key_side: Annotated[float | None, describe("As part of the key, over all parts of the query.")]
    weight_without: WeightWithout
    query_spread: Annotated[
        PairMean | UnsetType | None, describe("With pairs: `query_side` with its interval.")
    ] = UNSET
    key_spread: Annotated[
        PairMean | UnsetType | None, describe("With pairs: `key_side` with its interval.")
    ] = UNSET


class WhyPair(Part, frozen=True, kw_only=True):
    """A part of the query with a part of the key, by their places in `parts`."""

    query_part: Count
    key_part: Count
    contribution: float


class WhyDimensions(Part, frozen=True, kw_only=True):
    """Entries of queries and keys that are multiplied with each other, and what their product adds."""

    dimensions: Annotated[
        list[Count], describe("Which entries: one, or a pair that is rotated together.")
    ]
    period: Annotated[
        float | None, describe("Tokens for a whole turn of the pair; null where nothing turns.")
    ]
    contribution: float
    weight_without: Annotated[float, describe("The link's weight without these entries.")]


class Written(Part, frozen=True, kw_only=True):
    """What the head writes from one source token: the weight times its value, through the output
    matrix.
    """

    source: Annotated[Count, describe("Learned keys come after the tokens.")]
    weight: Weight
    norm: float
    share: Annotated[
        float,
        describe("Of the head's output: the part along it, over its length; shares sum to 1."),
    ]
    logit: Annotated[
        float | None, describe("What it adds to the target's logit; null without one.")
    ]


class Writes(Part, frozen=True, kw_only=True):
    """What the head writes for the query, by source token."""

    norm: Annotated[float, describe("Of the head's whole output for the query.")]
    target: TargetToken | None
    versus: Annotated[
        TargetToken | UnsetType, describe("With --versus: its logit is taken from the target's.")
    ] = UNSET
    logit: Annotated[
        float | None, describe("What the head adds to the target's logit; null without one.")
    ]
    sources: list[Written]


class WhyDocument(Header, tag="attn.why/1", frozen=True, kw_only=True):
    """Why a head looks at a key: its score as a sum over pairs of parts of the residual stream,
    with the statistics of every norm those of this run."""

    source_text: Annotated[
        str | UnsetType | None,
        describe("The text that is looked at in cross-attention; null for captured states."),
    ] = UNSET
    source_tokens: list[TokenRow] | UnsetType = UNSET
    link: WhyLink
    by: Split
    score: Annotated[float, describe("Before a soft cap, with what the position adds.")]
    softcap: Annotated[
        float | None,
        describe("The bound of the soft cap, which parts do not explain; null for none."),
    ]
    weight: Weight
    centred: Annotated[
        Literal["row"] | ThanKey,
        describe("What contributions are over: what the row expects, or another key."),
    ]
    total: Annotated[
        float, describe("The advantage of the key, which the contributions of each side add up to.")
    ]
    difference: Annotated[float, describe("The sum of all pairs of parts less the score.")]
    row: Annotated[list[RowKey], describe("The keys that the query sees.")]
    by_layer: Annotated[
        bool, describe("Whether the heads of a layer are one part, to save memory.")
    ]
    parts: Annotated[list[WhyPart], describe("In the order of the model.")]
    pairs: Annotated[list[WhyPair], describe("The strongest pairs, by size.")]
    pair_count: Annotated[Count, describe("How many pairs there are.")]
    dimensions: Annotated[
        list[WhyDimensions], describe("With --by frequency or dimension: entries of q and k.")
    ]
    writes: Writes | UnsetType = UNSET
    over_pairs: Annotated[
        PairReasons | UnsetType,
        describe("With --pairs: the text and the link are the first pair's."),
    ] = UNSET
    warnings: list[str]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield (field, message) for each fault: keys must lie in the text that is attended to, pairs
        must name parts that are there, and heads and feed-forward parts must have a layer."""
        yield from super().validation_errors()
        keys = self.keys
        if self.link.attention == "cross" and self.source_tokens is UNSET:
            yield "source_tokens", message("absent, and the link is to another text")
        if self.source_tokens is not UNSET and isinstance(self.source_text, str):
            yield from position_errors(self.source_tokens, self.source_text, "source_tokens")
        if self.link.key >= len(keys):
            yield "link.key", message("{key} of {count} tokens", key=self.link.key, count=len(keys))
        if not isinstance(self.centred, str) and self.centred.key >= len(keys):
            yield (
                "centred.key",
                message("{key} of {count} tokens", key=self.centred.key, count=len(keys)),
            )
        for number, pair in enumerate(self.pairs):
            if max(pair.query_part, pair.key_part) >= len(self.parts):
                yield f"pairs[{number}]", message("of {count} parts", count=len(self.parts))
        for number, part in enumerate(self.parts):
            if part.kind in ("head", "feed_forward") and part.layer is None:
                yield f"parts[{number}]", message("{kind} without its layer", kind=repr(part.kind))

    @property
    def keys(self) -> list[TokenRow]:
        """The tokens that keys are positions in: the source text's in cross-attention, else the
        text's own.
        """
        if self.source_tokens is UNSET:
            return self.tokens
        return self.source_tokens


# What screens, figures and pages say of parts.


class NamedPart(Protocol):
    """The fields of a part of a score that `part_name` makes its name from."""

    @property
    def kind(self) -> str:
        """What wrote the part: head, feed_forward or the like."""

    @property
    def layer(self) -> int | None:
        """The layer that the part belongs to; None for one of no layer."""

    @property
    def attention(self) -> str | None:
        """Of a head or a bias: which attention of its layer, self or cross; else None."""

    @property
    def head(self) -> int | None:
        """Of a head or a bias: the head's number in its layer; else None."""

    @property
    def place(self) -> str | None:
        """Of a norm: where in its layer it sits. Of a bias: "qk" where it is one of the link's own
        queries and keys. Of a head: "rest" for the tokens that are not listed one by one. Else None.
        """


def is_of_source(part: WhyPart, document: WhyDocument) -> bool:
    """Whether a part was written by the encoder: in cross-attention, a layer's part on the key
    side.
    """
    return document.link.attention == "cross" and part.side == "key" and part.layer is not None


def part_title(part: WhyPart, document: WhyDocument) -> str:
    """The name of a part in tables, with "encoder" before it where an encoder layer wrote it."""
    name = part_name(part)
    if is_of_source(part, document):
        return message("encoder {part}", part=name)
    return name


def source_of(part: WhyPart, document: WhyDocument) -> tuple[TokenRow, str] | None:
    """The token whose value a head carried in this part, and its place, such as " #3", where the
    same text stands more than once (else ""); None for a part of several tokens."""
    if part.attention == "cross" or part.side == "key":
        tokens = document.keys
    else:
        tokens = document.tokens
    if part.source is None or part.source >= len(tokens):
        return None
    token = tokens[part.source]
    same_texts = sum(row.text.strip() == token.text.strip() for row in tokens)
    if same_texts == 1:
        return token, ""
    return token, f" #{token.index}"


def earlier_heads(document: WhyDocument) -> dict[str, list[tuple[int, int, float]]]:
    """What each earlier head adds to the advantage (the link's score above its row's mean, or above
    another key's), query and key side together, as (layer, head, number), by "self", "cross" and
    "encoder". Empty where heads are split by token."""
    heads: dict[str, list[tuple[int, int, float]]] = {}
    if document.by == "token":
        return heads
    for part in document.parts:
        if part.kind != "head" or part.layer is None or part.head is None:
            continue
        if part.attention is None:
            continue
        name: str = part.attention
        if is_of_source(part, document):
            name = "encoder"
        # a part of one side alone adds nothing on the other
        added = (part.query_side or 0.0) + (part.key_side or 0.0)
        heads.setdefault(name, []).append((part.layer, part.head, added))
    return heads


def _head_label(part: NamedPart) -> str:
    """The name of the head that a part is, or belongs to, such as "L5 H11"; the part must have a
    layer and a head."""
    assert part.layer is not None
    assert part.head is not None
    return head_label(part.layer, part.head)


def part_name(part: NamedPart) -> str:
    """The name of a part in tables, such as "L5 H11" or "token"."""
    layer = part.layer
    match part.kind:
        case "token":
            return contextual("part", "token")
        case "position":
            return contextual("part", "position")
        case "type":
            return contextual("part", "token type")
        case "states":
            return message("captured states")
        case "head" if part.place == "rest":
            return message("{head}, other tokens", head=_head_label(part))
        case "head" if part.attention == "cross":
            return message("{head} cross", head=_head_label(part))
        case "head":
            return _head_label(part)
        case "heads":
            return message("L{layer} all heads", layer=layer)
        case "feed_forward":
            return message("L{layer} feed-forward", layer=layer)
        case "convolution":
            return message("L{layer} convolution", layer=layer)
        case "mixer":
            return message("L{layer} mixer", layer=layer)
        case "relative":
            return message("relative position")
        case "score_bias":
            return message("position bias")
        case "bias" if part.place == "qk":
            return message("biases of q and k")
        case "bias":
            if layer is None:
                return message("embedding bias")
            return message("L{layer} attention bias", layer=layer)
        case _:
            return _norm_name(part)


def _norm_name(part: NamedPart) -> Message:
    """The name, in tables, of a part that a norm's bias adds: by where the norm sits."""
    match part.place:
        case "embed.norm":
            return message("embedding norm")
        case "final":
            return message("final norm")
        case "mlp.sum" | "mlp.out":
            return message("L{layer} norm after feed-forward", layer=part.layer)
        case "cross.sum" | "cross.out":
            return message("L{layer} norm after cross-attention", layer=part.layer)
        case "attn.sum" | "attn.out":
            return message("L{layer} norm after attention", layer=part.layer)
        case "conv.norm":
            return message("L{layer} norm after convolution", layer=part.layer)
        case _:
            return message("L{layer} norm before attention", layer=part.layer)


def side_value(part: WhyPart, side: Literal["query", "key"]) -> float | None:
    """What a part adds to the advantage (the link's score above its row's mean, or above another
    key's) through the query or through the key; None for a part of the other side alone."""
    if side == "query":
        return part.query_side
    return part.key_side


def ranked_parts(
    document: WhyDocument, side: Literal["query", "key"]
) -> list[tuple[WhyPart, float]]:
    """The parts of one side with what each adds to the link's score above its row's mean (or
    another key's), the largest absolute value first."""
    values = [
        (part, value) for part in document.parts if (value := side_value(part, side)) is not None
    ]
    return sorted(values, key=lambda pair: -abs(pair[1]))


class Support(NamedTuple):
    """What speaks for a link on one side. total: the sum of what adds to its advantage; against what
    takes away it is not set off, since a difference that cancels makes any part look large. share:
    the largest part's of that, 0 where nothing speaks for it. half: how many parts, the largest
    first, make half of it.
    """

    total: float
    share: float
    half: int


def support(values: Iterable[float]) -> Support:
    """Summarise what speaks for a link: the sum of the positive values, the share of the largest,
    and how many of the largest make half of the sum.

    values: what each part adds to the link's advantage.
    """
    gains = sorted((value for value in values if value > 0), reverse=True)
    total = sum(gains)
    if not gains:
        return Support(total=0.0, share=0.0, half=0)
    # one more than the sums of the first, the first two, … that stay below half
    half = 1 + sum(sum_so_far < HALF * total for sum_so_far in accumulate(gains))
    return Support(total=total, share=gains[0] / total, half=half)
