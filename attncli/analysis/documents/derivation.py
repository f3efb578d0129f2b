"""The topic `attention` of `attn.explain/1`: one query's attention, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, TypeVar

from msgspec import UNSET, UnsetType

from attncli.analysis.documents.declaration import Count, Numbers, Part, axes, describe, index_of
from attncli.analysis.documents.parts import EmptyRows, Header, ShapeRows

Values = list[float | None]


class Projections(Part, tag_field="step", tag="projections", frozen=True, kw_only=True):
    """q, k and v of the token and of every key."""

    formula: str
    x: Annotated[Numbers, axes("width")]
    q: Annotated[Numbers, axes("dim")]
    column: Annotated[Numbers, axes("width", meaning="what x is multiplied with for q's first entry.")] | UnsetType = (
        UNSET
    )
    bias: Annotated[float, describe("What is added to q's first entry.")] | UnsetType = UNSET
    k: Annotated[Numbers, axes("key", "dim")]
    v: Annotated[Numbers, axes("key", "v_dim")]


class Products(Part, tag_field="step", tag="similarity", frozen=True, kw_only=True):
    """q·k, product by product."""

    formula: str
    products: Annotated[Numbers, axes("key", "dim", meaning="q_i·k_ji.")]
    raw: Annotated[Numbers, axes("key", meaning="their sums.")]


class Scores(Part, tag_field="step", tag="scores", frozen=True, kw_only=True):
    """What becomes of the sums before the softmax."""

    formula: str
    scale: float
    softcap: float | None
    scaled: Annotated[Numbers, axes("key")]
    capped: Annotated[Numbers, axes("key")] | None
    bias: Annotated[Numbers, axes("key")] | None
    visible: Annotated[list[bool], axes("key")]
    scores: Annotated[Values, axes("key", meaning="what enters the softmax; null where hidden.")]


class SoftmaxRow(Part, tag_field="step", tag="softmax", frozen=True, kw_only=True):
    """The softmax, exponential by exponential."""

    formula: str
    highest: float | None
    shifted: Annotated[Values, axes("key")]
    exponentials: Annotated[Values, axes("key")]
    sink: Annotated[float | None, describe("Exponential of a learned sink.")]
    sum: float
    weights: Annotated[Numbers, axes("key")]


class OutputSum(Part, tag_field="step", tag="output", frozen=True, kw_only=True):
    """The values, weighted and added."""

    formula: str
    terms: Annotated[Numbers, axes("key", "v_dim", meaning="w_j·v_j.")]
    output: Annotated[Numbers, axes("v_dim", meaning="their sum.")]


Step = Projections | Products | Scores | SoftmaxRow | OutputSum
Kind = TypeVar("Kind", Projections, Products, Scores, SoftmaxRow, OutputSum)


class After(Part, frozen=True, kw_only=True):
    """The token's vector after the heads."""

    x: Annotated[Numbers, axes("width", meaning="what entered the layer.")]
    heads: (
        Annotated[
            Numbers, axes("every head", "width", meaning="of several heads: each one's O_h times its rows of W_O.")
        ]
        | UnsetType
    ) = UNSET
    bias: Annotated[Numbers, axes("width", meaning="b_O.")] | UnsetType = UNSET
    out: Annotated[Numbers, axes("concat", meaning="concat(O₁ … O_h), times W_O where there is one.")]
    sum: Annotated[Numbers, axes("width", meaning="x + out.")] | UnsetType = UNSET
    norm: Annotated[Numbers, axes("width", meaning="the norm of the sum.")] | UnsetType = UNSET

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """What is added is of one width."""
        if self.sum is not UNSET and len(self.out) != len(self.x):
            yield "sum", f"x of width {len(self.x)} and out of {len(self.out)}"


class Matrices(Part, frozen=True, kw_only=True):
    """The matrices that the steps are a row of."""

    x: Annotated[Numbers, axes("token", "width", meaning="the input X.")] | UnsetType = UNSET
    raw: Annotated[Numbers, axes("token", "key", meaning="S = Q·Kᵀ.")] | UnsetType = UNSET
    scaled: Annotated[Numbers, axes("token", "key", meaning="S × scale.")] | UnsetType = UNSET
    scores: Annotated[Numbers, axes("token", "key")]
    weights: Annotated[Numbers, axes("token", "key")]
    output: Annotated[Numbers, axes("token", "v_dim")]


class AttentionTopic(Header, tag="attn.explain/1", frozen=True, kw_only=True):
    """One query's attention, step by step."""

    topic: Literal["attention"]
    layer: Count
    head: Count
    query: Annotated[Count, index_of("token")]
    extra_keys: Annotated[Count, describe("Learned keys after those of the tokens.")]
    rotated: Annotated[bool, describe("Whether q and k are shown after rotation by position.")]
    shapes: ShapeRows
    steps: Annotated[list[Step], describe("The steps in order; keys in the order of the text.")]
    matrices: Matrices
    projections: (
        Annotated[dict[str, Numbers], describe("With --show W_Q and the like: the head's weights, [in, out].")]
        | UnsetType
    ) = UNSET
    after: After | UnsetType = UNSET
    agreement: Annotated[float, describe("Largest difference between the steps and the run's own numbers.")]
    empty_rows: EmptyRows
    warnings: list[str]

    def lengths(self) -> Mapping[str, int | range]:
        """The tokens, and the learned keys after them."""
        return {**super().lengths(), "key": len(self.tokens) + self.extra_keys}

    def step(self, kind: type[Kind]) -> Kind:
        """The step of that kind; there is one of each."""
        return next(step for step in self.steps if isinstance(step, kind))

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """The steps follow from each other, each once."""
        yield from super().validation_errors()
        order = [type(step) for step in self.steps]
        if order != [Projections, Products, Scores, SoftmaxRow, OutputSum]:
            yield "steps", "the steps are not projections, similarity, scores, softmax and output"
