"""The topics of `attn.explain/1` that are about a whole layer: positions, masks, several heads, residual and norm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import UNSET, UnsetType, field

from attncli.analysis.documents.declaration import Count, Numbers, Part, Size, Weight, axes, describe, index_of
from attncli.analysis.documents.parts import Header, TokenRow


class PositionWay(Part, frozen=True, kw_only=True):
    """One way of telling attention where tokens stand, and what it makes of the query's weights."""

    position: str
    enters: Annotated[
        Literal["nowhere", "input", "queries and keys", "scores"], describe("Where in the layer the positions come in.")
    ]
    formula: str
    table: (
        Annotated[
            Numbers,
            axes(
                "token",
                "",
                meaning="what comes in: vectors added to the input, angles in radians by pair of entries, or what is "
                "added to the scores of each key.",
            ),
        ]
        | UnsetType
    ) = UNSET
    weights: Annotated[Numbers, axes("key", meaning="the query's weights.")]
    moved: Annotated[float, describe("Largest |difference| of the query's weights from those of the first way.")]


class PositionTopic(Header, tag="attn.explain/1", frozen=True, kw_only=True):
    """Ways of telling attention where tokens stand."""

    topic: Literal["position"]
    layer: Count
    head: Count
    query: Annotated[Count, index_of("token")]
    ways: list[PositionWay]
    warnings: list[str]


class PaddedText(Part, frozen=True, kw_only=True):
    """A text of a padded batch."""

    text: str
    tokens: list[TokenRow]
    weights: Annotated[Numbers, axes("padded", meaning="of its last token, padding included.")]
    agreement: Annotated[float, describe("Largest |difference| of its weights from those that it has alone.")]


class MaskTopic(Header, tag="attn.explain/1", frozen=True, kw_only=True):
    """What a mask does between scores and weights; with several texts, how padding is masked."""

    topic: Literal["mask"]
    layer: Count
    head: Count
    query: Annotated[Count, index_of("token")]
    scores: Annotated[Numbers, axes("token", "key", meaning="as they are before the mask.")]
    masked: Annotated[Numbers, axes("token", "key", meaning="what enters the softmax; null where hidden.")]
    before: Annotated[Numbers, axes("token", "key", meaning="softmax of each row of `scores`.")]
    after: Annotated[Numbers, axes("token", "key", meaning="softmax of each row of `masked`.")]
    hidden: Annotated[Weight, describe("What the query's hidden keys have of its weights before the mask.")]
    batch: Annotated[list[PaddedText], describe("With several texts: each, padded to the longest.")] | UnsetType = UNSET
    warnings: list[str]


class HeadPart(Part, frozen=True, kw_only=True):
    """What one head looks at, and what it gives."""

    head: Count
    weights: Annotated[Numbers, axes("key", meaning="the query's weights.")]
    output: Annotated[Numbers, axes("v_dim", meaning="the query's row of A·V.")]
    share: Annotated[Numbers, axes("width", meaning="its output times its rows of W_O.")] | UnsetType = UNSET


class SingleHead(Part, frozen=True, kw_only=True):
    """One query's attention worked out without heads: softmax(q·kᵀ × scale)·v."""

    weights: Annotated[Numbers, axes("key")]
    output: Annotated[Numbers, axes("v_dim")]
    agreement: Annotated[float, describe("Largest |difference| of both from those of the run's one head.")]


class MultiheadTopic(Header, tag="attn.explain/1", frozen=True, kw_only=True):
    """Several heads side by side: their weights, outputs, and concat(O₁ … O_h)·W_O."""

    topic: Literal["multihead"]
    layer: Count
    query: Annotated[Count, index_of("token")]
    heads: list[HeadPart]
    average: Annotated[Numbers, axes("key", meaning="of the heads' weights.")]
    entropies: Annotated[list[float], describe("Of each head's row, in nats.")]
    average_entropy: Annotated[float, describe("Of the averaged row, in nats; never below the mean of the heads' own.")]
    single: Annotated[SingleHead, describe("Of one head: the same without heads.")] | UnsetType = UNSET
    concat: Annotated[Numbers, axes("concat", meaning="the heads' outputs side by side.")]
    bias: Annotated[Numbers, axes("width", meaning="b_O.")] | UnsetType = UNSET
    out: Annotated[Numbers, axes("out", meaning="concat·W_O, or concat where there is no W_O.")]
    agreement: Annotated[
        float, describe("Largest |difference| of the heads' shares, added up, from the run's own output.")
    ]
    warnings: list[str]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """There are heads, each with its entropy, and a share of each or of none."""
        yield from super().validation_errors()
        if not self.heads or len(self.entropies) != len(self.heads):
            yield "entropies", f"{len(self.entropies)} of {len(self.heads)} heads"
        if len({head.share is UNSET for head in self.heads}) > 1:
            yield "heads", "shares of some heads only"
        if any(head.share is not UNSET and len(head.share) != len(self.out) for head in self.heads):
            yield "out", f"{len(self.out)} wide, and shares of another width"


class NormStep(Part, frozen=True, kw_only=True):
    """A norm of one vector, number by number."""

    place: Annotated[str, describe("attn.sum: after the residual; attn.in: before the attention.")]
    kind: Literal["layer", "rms"]
    eps: float
    vector: Annotated[Numbers, axes("width", meaning="the vector that is normed.")] = field(name="given")
    mean: Annotated[float, describe("Of its entries; subtracted by a layer norm alone.")]
    variance: Annotated[float, describe("Mean square of the entries, after the mean is subtracted where it is.")]
    scaled: Annotated[Numbers, axes("width", meaning="(x − mean) / √(variance + eps).")]
    normed: Annotated[Numbers, axes("width", meaning="times the learned weight, plus the learned bias.")]


class ResidualTopic(Header, tag="attn.explain/1", frozen=True, kw_only=True):
    """The residual connection and the norm, for one query."""

    topic: Literal["residual"]
    layer: Count
    query: Annotated[Count, index_of("token")]
    width: Size
    x: Annotated[Numbers, axes("width", meaning="what entered the layer.")]
    out: Annotated[Numbers, axes("width", meaning="what attention adds.")]
    sum: Annotated[Numbers, axes("width", meaning="x + out.")]
    weights: (
        Annotated[Numbers, axes("key", meaning="the most that the query gives each key in any head.")] | UnsetType
    ) = UNSET
    cosine: Annotated[float, describe("Between x and x + out: 1 where attention changes no direction.")]
    norm: NormStep | None
    agreement: Annotated[float, describe("Largest |difference| of x + out and its norm from the run's own.")]
    warnings: list[str]
