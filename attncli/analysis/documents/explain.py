"""`attn.explain/1`: one query's derivation, or another topic explained; `topic` tells which."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, get_args

from msgspec import UNSET, UnsetType, field

from attncli.analysis.documents.declaration import Count, Document, Numbers, Part, Size, axes, describe, index_of
from attncli.analysis.documents.derivation import AttentionTopic
from attncli.analysis.documents.layer_topics import MaskTopic, MultiheadTopic, PositionTopic, ResidualTopic
from attncli.analysis.documents.parts import Header, TokenRow

Order = Annotated[
    list[Annotated[Count, index_of("token")]],
    axes("token", meaning="for each new place the position of the token that moves there."),
]


class SoftmaxTopic(Document, tag="attn.explain/1", frozen=True, kw_only=True):
    """Softmax of given numbers."""

    topic: Literal["softmax"]
    numbers: Annotated[list[float], axes("score")] = field(name="given")
    temperature: float
    scores: Annotated[list[float], axes("score", meaning="what was given, divided by the temperature.")]
    exponentials: Annotated[
        list[float | None], axes("score", meaning="exp of the scores; null where too large for a float.")
    ]
    sum: float | None
    highest: float
    shifted: Annotated[list[float | None], axes("score")]
    shifted_exponentials: Annotated[list[float | None], axes("score")]
    shifted_sum: float
    weights: Annotated[list[float], axes("score")]
    entropy: Annotated[float, describe("Nats.")]
    gradient: Annotated[float, describe("Frobenius norm of diag(w) - w·wT.")]
    agreement: float
    warnings: list[str]


SCALES = ("none", "sqrt-dk", "sqrt-dmodel")


class ScaleVariance(Part, frozen=True, kw_only=True):
    """The variance of q·k under one scale."""

    scale: str
    mean: float
    mean_error: float
    variance: float
    variance_error: Annotated[float, describe("Standard error of the variance.")]
    theory: float
    standard_errors: float | None


class ScaleSoftmax(Part, frozen=True, kw_only=True):
    """What a softmax makes of one scale; means over the queries."""

    scale: Annotated[str, describe("A scale, or `uniform` for weights that are all alike.")]
    largest: float
    entropy: float
    gradient: float


class ScalingTopic(Document, tag="attn.explain/1", frozen=True, kw_only=True):
    """The variance of q·k, and a softmax with and without scaling."""

    topic: Literal["scaling"]
    d_k: Size
    d_model: Size | None
    samples: Size
    keys: Size
    queries: Size
    seed: Count
    variance: list[ScaleVariance]
    softmax: Annotated[list[ScaleSoftmax], describe("Means over the queries.")]
    warnings: list[str]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Each scale stands beside the others, that of d_model where there is one."""
        scales = [*SCALES[: 2 if self.d_model is None else 3]]
        if [row.scale for row in self.variance] != scales:
            yield "variance", f"the scales are not {', '.join(scales)}"
        if [row.scale for row in self.softmax] != [*scales, "uniform"]:
            yield "softmax", f"the scales are not {', '.join(scales)}, uniform"


class MatrixSoftmaxTopic(Header, tag="attn.explain/1", frozen=True, kw_only=True):
    """Softmax by rows and over the whole matrix."""

    topic: Literal["matrix-softmax"]
    layer: Count
    head: Count
    scores: Annotated[Numbers, axes("token", "key")]
    rows: Annotated[Numbers, axes("token", "key", meaning="softmax of each row.")]
    whole: Annotated[Numbers, axes("token", "key", meaning="softmax over all entries.")]
    row_sums: Annotated[Numbers, axes("token", meaning="of `whole`.")]
    warnings: list[str]


class OrderRow(Part, frozen=True, kw_only=True):
    """What one model makes of one order."""

    mask: str
    position: str
    dtype: str
    order: Order
    max_difference: float
    token: Annotated[Count, index_of("token")]
    tolerance: Annotated[float, describe("What float rounding may make of equal outputs.")]
    equal: bool
    per_token: Annotated[Numbers, axes("token")]
    outputs: (
        Annotated[Numbers, axes("token", "entry", meaning="the first entries, 8 at most, of each token's output.")]
        | UnsetType
    ) = UNSET
    moved_outputs: (
        Annotated[Numbers, axes("token", "entry", meaning="the same in the other order, token for token.")] | UnsetType
    ) = UNSET


class OrderTopic(Header, tag="attn.explain/1", frozen=True, kw_only=True):
    """The same tokens in two orders."""

    topic: Literal["order"]
    layer: Count
    order: Order
    reversed: Annotated[
        bool, describe("Whether the other order is the tokens read backwards, which keeps every distance.")
    ]
    moved: Annotated[list[TokenRow], axes("token", meaning="the tokens in the other order.")]
    rows: list[OrderRow]
    warnings: list[str]


class MetricExample(Part, frozen=True, kw_only=True):
    """A metric of one small head, and of uniform attention."""

    weights: Annotated[Numbers, axes("query", "query")]
    value: float | None
    uniform: float | None
    rows: Count


class MetricTopic(Document, tag="attn.explain/1", frozen=True, kw_only=True):
    """What a metric means."""

    topic: Literal["metric"]
    name: str
    says: str
    formula: str
    low: int | float | None
    high: int | float | None
    range: str
    unit: str
    rows: str
    note: str | None
    source: str
    needs: str | None
    example: MetricExample
    warnings: list[str]


TaughtTopic = (
    SoftmaxTopic
    | ScalingTopic
    | MatrixSoftmaxTopic
    | OrderTopic
    | MetricTopic
    | PositionTopic
    | MaskTopic
    | MultiheadTopic
    | ResidualTopic
)
ExplainDocument = AttentionTopic | TaughtTopic
TOPICS: tuple[type[Document], ...] = get_args(ExplainDocument)
"""What an explanation may be about, told apart by `topic`."""
