"""`attn.compare/1`: what differs between two runs, B minus A."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import UNSET, UnsetType, field

from attncli.documents import (
    AttentionPart,
    Count,
    Document,
    LeftOut,
    ModelPart,
    Numbers,
    Part,
    PlacedHead,
    Share,
    TokenRow,
    axes,
    describe,
    index_of,
)
from attncli.documents.parts import NextToken
from attncli.features.compare_models.document import ModelChange
from attncli.language import message


class CompareSide(Part, frozen=True, kw_only=True):
    """What ran on one side."""

    name: str
    text: str
    tokens: Annotated[list[TokenRow], describe("The tokens in order.")]
    model: ModelPart
    attention: AttentionPart
    next_tokens: Annotated[
        list[NextToken] | UnsetType,
        describe("Of a decoder whose last layer ran: what comes most likely after the text."),
    ] = field(default=UNSET, name="next")


class HeadPlace(PlacedHead, frozen=True, kw_only=True):
    """A head by its place."""


class SignedDifference(Part, frozen=True, kw_only=True):
    """The weight that differs most, signed; positions in A."""

    value: float
    query: Annotated[Count, index_of("token of A")]
    key: Annotated[Count, index_of("token of A")]


class BothNumbers(Part, frozen=True, kw_only=True):
    """A number of either side."""

    a: float
    b: float


class BothCounts(Part, frozen=True, kw_only=True):
    """A count of either side."""

    a: Count
    b: Count


class ComparedHead(Part, frozen=True, kw_only=True):
    """One pair of heads."""

    a: HeadPlace
    b: HeadPlace
    max_difference: SignedDifference
    link: Annotated[
        SignedDifference | UnsetType | None,
        describe(
            "The weight that differs most of those that count: the kinds left out are not; null"
            " where none does."
        ),
    ] = UNSET
    mean_difference: Annotated[float, describe("Mean of |B - A|.")]
    js: Annotated[
        float | None, describe("Mean Jensen-Shannon divergence of the rows in nats, 0 to 0.6931.")
    ]
    js_rows: Annotated[Count, describe("Rows that it was taken over.")]
    outside: Annotated[BothNumbers, describe("Mean weight on tokens that the other text lacks.")]
    pairs: Annotated[BothCounts | None, describe("Visible pairs.")]
    kept: Annotated[Share | None, describe("Share of A's weight on keys that B sees.")]
    output_error: Annotated[float | None, describe("|O_B - O_A| / |O_A|.")]
    weights_a: Annotated[
        Numbers,
        axes("aligned", "aligned", meaning="aligned query, aligned key; null where hidden."),
    ]
    weights_b: Annotated[Numbers, axes("aligned", "aligned")]
    difference: Annotated[Numbers, axes("aligned", "aligned")]

    @property
    def change(self) -> SignedDifference | None:
        """The difference that is reported of this head: the largest of links that count, None where
        none does; the largest of all where every link counts."""
        if self.link is UNSET:
            return self.max_difference
        return self.link


class RegionChange(Part, frozen=True, kw_only=True):
    """What a pair of heads changes for a region."""

    a: HeadPlace
    b: HeadPlace
    difference: Annotated[float, describe("B - A.")]


class ComparedShare(Part, frozen=True, kw_only=True):
    """A share of weight on either side, the mean over heads."""

    a: Annotated[Share | None, describe("In A; null where nothing is seen.")]
    b: Annotated[Share | None, describe("In B.")]
    difference: Annotated[float | None, describe("B - A.")]
    most: Annotated[
        RegionChange | None,
        describe("The pair of heads in which the share differs most; null without any."),
    ]


class ComparedRegion(Part, frozen=True, kw_only=True):
    """What goes to a region on either side: of what the last token looks at, or the queries of
    --query.
    """

    name: str
    tokens_a: Annotated[
        list[Annotated[Count, index_of("token of A")]], describe("Its positions in A, rising.")
    ]
    tokens_b: Annotated[
        list[Annotated[Count, index_of("token of B")]], describe("Its positions in B.")
    ]
    a: Annotated[
        Share | None,
        describe("The share of it in A, the mean over heads; null where nothing is seen."),
    ]
    b: Annotated[Share | None, describe("In B.")]
    difference: Annotated[float | None, describe("B - A.")]
    most: Annotated[
        RegionChange | None,
        describe("The pair of heads in which the share differs most; null without any."),
    ]
    beyond_rest: Annotated[
        ComparedShare | UnsetType,
        describe("The same as parts of the weight that is not on keys where heads rest."),
    ] = UNSET

    @property
    def change(self) -> ComparedRegion | ComparedShare:
        """The shares to show for this region: of the weight that does not go to tokens on which heads
        rest (put weight when they look for nothing), where the document has that; else of all
        weight.
        """
        if self.beyond_rest is UNSET:
            return self
        return self.beyond_rest


class OnlyOn(Part, frozen=True, kw_only=True):
    """Positions without a partner."""

    a: list[Annotated[Count, index_of("token of A")]]
    b: list[Annotated[Count, index_of("token of B")]]


class CompareSummary(Part, frozen=True, kw_only=True):
    """Over all pairs of heads."""

    max_difference: float
    mean_difference: float
    js: float | None


class MovedWeight(PlacedHead, frozen=True, kw_only=True):
    """A weight that differs; layer and head are A's, query and key positions in A."""

    query: Annotated[Count, index_of("token of A")]
    key: Annotated[Count, index_of("token of A")]
    a: float
    b: float
    difference: float


class CompareDocument(Document, tag="attn.compare/1", frozen=True, kw_only=True):
    """Two runs compared, B minus A."""

    a: CompareSide
    b: CompareSide
    differs: Annotated[list[str], describe("In what the sides differ.")]
    aligned: Annotated[
        list[
            tuple[
                Annotated[Count, index_of("token of A")], Annotated[Count, index_of("token of B")]
            ]
        ],
        axes("aligned", meaning="positions of the tokens that both have: [in A, in B]."),
    ]
    only: OnlyOn
    queries: Annotated[
        list[Annotated[Count, index_of("token of A")]] | UnsetType,
        describe(
            "With --query: the positions in A whose rows alone are measured; absent when all are."
        ),
    ] = UNSET
    heads: list[ComparedHead]
    summary: CompareSummary
    region_changes: Annotated[
        list[ComparedRegion] | UnsetType, describe("With --region: the largest difference first.")
    ] = UNSET
    region_rest: Annotated[
        ComparedShare | UnsetType,
        describe("With regions: the share of the keys where heads rest; absent without any."),
    ] = UNSET
    common_beginning: Annotated[
        Count | UnsetType,
        describe(
            "Tokens that both texts begin with, where no row sees a later token: their rows cannot"
            " differ by the texts."
        ),
    ] = UNSET
    links_leave_out: LeftOut | UnsetType = UNSET
    moved: Annotated[
        list[MovedWeight],
        describe("The weights that differ most of those that count, largest first."),
    ]
    models: Annotated[
        ModelChange | UnsetType,
        describe("Of two forms of one model, over one text: what the other form changes."),
    ] = UNSET
    warnings: list[str]

    def lengths(self) -> Mapping[str, int | range]:
        """How many entries the axes have that the fields of this document name: the tokens of A, the
        tokens of B, and "aligned", those that both have."""
        return {
            message("token of A"): len(self.a.tokens),
            message("token of B"): len(self.b.tokens),
            "aligned": len(self.aligned),
        }

    def measured_rows(self) -> list[int]:
        """The indices into `aligned` of the queries whose rows are compared: all, or those that
        --query names."""
        if self.queries is UNSET:
            return list(range(len(self.aligned)))
        return [row for row, (token_a, _) in enumerate(self.aligned) if token_a in self.queries]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield (field, message) for each fault: heads and aligned tokens are needed, and each of the
        latter must stand in its text."""
        if not self.heads or not self.aligned:
            yield "heads", message("no pair of heads, or no token that both texts have")
        for number, pair in enumerate(self.aligned):
            if any(
                index >= len(side.tokens)
                for index, side in zip(pair, (self.a, self.b), strict=True)
            ):
                yield f"aligned[{number}]", message("a token that is not there")
