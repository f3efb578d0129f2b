"""What `attn.model/1` says of a model's parts: the fields of `mechanism.spec`, each kind by its name."""

from __future__ import annotations

from typing import Annotated, Literal

from attncli.analysis.documents.declaration import Count, Part, Size, describe


class NormPart(Part, frozen=True, kw_only=True):
    """A normalization."""

    kind: Literal["layer", "rms"]
    eps: float
    unit_offset: Annotated[bool, describe("Whether the stored weight w multiplies as 1 + w.")]
    affine: Annotated[bool, describe("Whether there is a stored weight.")]


class QkNormPart(Part, tag_field="kind", tag="qknorm", frozen=True, kw_only=True):
    """The normalization of queries and keys."""

    norm: NormPart
    over: Annotated[
        Literal["head", "own", "width"], describe("Each head by shared or own weights, or all heads at once.")
    ]
    after: Annotated[bool, describe("Whether it follows the position encoding.")]


class LatentPart(Part, tag_field="kind", tag="latent", frozen=True, kw_only=True):
    """Queries, keys and values that come from narrow vectors."""

    query: Annotated[
        Size | None, describe("Width of the vector of queries; null where they come from the input at once.")
    ]
    keys: Annotated[Size, describe("Width of the vector of keys and values.")]
    norm: NormPart
    straight: Annotated[
        Count, describe("Entries of each key that come from the input at once, the same for all heads.")
    ]


class TemperaturePart(Part, tag_field="kind", tag="temperature", frozen=True, kw_only=True):
    """Queries that grow with their position p: times 1 + scale · ln(1 + ⌊(p + 1)/floor⌋)."""

    floor: Size
    scale: float


class LinearPart(Part, tag_field="kind", tag="linear", frozen=True, kw_only=True):
    """Frequencies divided by a factor."""

    factor: float


class DynamicPart(Part, tag_field="kind", tag="dynamic", frozen=True, kw_only=True):
    """A base that grows with the text."""

    factor: float
    original: Size


class Llama3Part(Part, tag_field="kind", tag="llama3", frozen=True, kw_only=True):
    """Long wavelengths divided, short ones kept."""

    factor: float
    low: float
    high: float
    original: Size


class YarnPart(Part, tag_field="kind", tag="yarn", frozen=True, kw_only=True):
    """Slow dimensions interpolated, fast ones kept, cos and sin scaled."""

    factor: float
    original: Size
    fast: float
    slow: float
    magnitude: float | None
    truncate: bool


class LongRopePart(Part, tag_field="kind", tag="longrope", frozen=True, kw_only=True):
    """One divisor per frequency, by the length of the text."""

    short: list[float]
    long: list[float]
    original: Size
    magnitude: float


class RopePart(Part, tag_field="kind", tag="rope", frozen=True, kw_only=True):
    """Rotary positions."""

    dims: Annotated[Count, describe("How many entries of each query and key are rotated.")]
    theta: float
    pairing: Literal["half", "adjacent"]
    scaling: LinearPart | DynamicPart | Llama3Part | YarnPart | LongRopePart | None
    first: Annotated[Count, describe("The entry at which the rotated ones begin.")]


class AlibiPart(Part, tag_field="kind", tag="alibi", frozen=True, kw_only=True):
    """A bias by distance, with a slope per head."""

    symmetric: bool
    factor: float
    coarse: Annotated[bool, describe("Whether it is rounded to bfloat16.")]


class BucketsPart(Part, tag_field="kind", tag="relativebuckets", frozen=True, kw_only=True):
    """A learned bias by distance, in buckets."""

    buckets: Size
    max_distance: Size
    bidirectional: bool


class DisentangledPart(Part, tag_field="kind", tag="disentangled", frozen=True, kw_only=True):
    """Scores of content with position and of position with content."""

    span: Size
    furthest: Size | None
    asks: bool
    answers: bool
    own: bool
    norm: NormPart | None


class RelativeSinesPart(Part, tag_field="kind", tag="relativesines", frozen=True, kw_only=True):
    """Scores of content with the sinusoid of the distance."""

    furthest: Annotated[Size | None, describe("Distances beyond it count as it.")]


class FirstBlockAgainPart(Part, tag_field="kind", tag="firstblockagain", frozen=True, kw_only=True):
    """Keys of the first block that count several times."""

    times: Annotated[Count, describe("How many times more.")]
    size: Annotated[Size, describe("Of a block.")]
    longest: Annotated[Count, describe("The longest text that is seen whole.")]


PositionPart = RopePart | AlibiPart | BucketsPart | DisentangledPart | RelativeSinesPart | FirstBlockAgainPart


class BoundedPart(Part, tag_field="kind", tag="bounded", frozen=True, kw_only=True):
    """A gate with bounds."""

    limit: float
    slope: float


Activation = Annotated[str, describe("The activation function.")]


class MlpPart(Part, tag_field="kind", tag="mlp", frozen=True, kw_only=True):
    """A feed-forward part."""

    width: Size
    activation: Activation
    gated: bool
    bounded: BoundedPart | None


class RoutingPart(Part, tag_field="kind", tag="routing", frozen=True, kw_only=True):
    """How a router's numbers become the experts' shares."""

    score: Literal["softmax", "sigmoid"]
    factor: float
    groups: Size
    groups_chosen: Size
    group_by: Size
    corrected: bool
    of_input: bool


class ExpertsPart(Part, tag_field="kind", tag="experts", frozen=True, kw_only=True):
    """A mixture of feed-forward parts."""

    count: Size
    chosen: Size
    width: Size
    activation: Activation
    renormalise: Annotated[bool, describe("Whether the shares of the chosen ones are made to sum to 1.")]
    shared: Annotated[MlpPart | None, describe("A part that serves every token besides.")]
    shared_share: Annotated[bool, describe("Whether the token decides how much of it is added.")]
    routing: RoutingPart
    bounded: BoundedPart | None


class EmbeddingPart(Part, tag_field="kind", tag="embedding", frozen=True, kw_only=True):
    """How token ids become vectors."""

    width: Annotated[Size | None, describe("Of the token table; null for d_model.")]
    projection: Literal["tokens", "sum"] | None
    scale: float
    positions: Literal["learned", "sinusoidal", "halves", "timescales"] | None
    position_offset: int
    padding: int | None
    types: Count
    norm: NormPart | None


class HeadPart(Part, tag_field="kind", tag="head", frozen=True, kw_only=True):
    """How the last vectors become logits."""

    tied: Annotated[bool, describe("Whether the token table is the matrix.")]
    scale: float
    softcap: float | None
    projection: bool
    offsets: bool
