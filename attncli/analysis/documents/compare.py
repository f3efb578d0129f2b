"""`attn.compare/1`: what differs between two runs, B minus A."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import UNSET, UnsetType

from attncli.analysis.documents.declaration import Count, Document, Numbers, Part, at, axes, says
from attncli.analysis.documents.parts import AttentionPart, LeftOut, ModelPart, TokenRow


class CompareSide(Part, frozen=True, kw_only=True):
    """What ran on one side."""

    name: str
    text: str
    tokens: Annotated[list[TokenRow], says("The tokens in order.")]
    model: ModelPart
    attention: AttentionPart


class HeadPlace(Part, frozen=True, kw_only=True):
    """A head by its place."""

    layer: Count
    head: Count


class SignedDifference(Part, frozen=True, kw_only=True):
    """The weight that differs most, signed; positions in A."""

    value: float
    query: Annotated[Count, at("token of A")]
    key: Annotated[Count, at("token of A")]


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
    link: (
        Annotated[
            SignedDifference | None,
            says("The weight that differs most of those that count: the kinds left out are not; null where none does."),
        ]
        | UnsetType
    ) = UNSET
    mean_difference: Annotated[float, says("Mean of |B - A|.")]
    js: Annotated[float | None, says("Mean Jensen-Shannon divergence of the rows in nats, 0 to 0.6931.")]
    js_rows: Annotated[Count, says("Rows that it was taken over.")]
    outside: Annotated[BothNumbers, says("Mean weight on tokens that the other text lacks.")]
    pairs: Annotated[BothCounts | None, says("Visible pairs.")]
    kept: Annotated[float | None, says("Share of A's weight on keys that B sees.")]
    output_error: Annotated[float | None, says("|O_B - O_A| / |O_A|.")]
    weights_a: Annotated[Numbers, axes("aligned", "aligned", says="aligned query, aligned key; null where hidden.")]
    weights_b: Annotated[Numbers, axes("aligned", "aligned")]
    difference: Annotated[Numbers, axes("aligned", "aligned")]

    @property
    def change(self) -> SignedDifference | None:
        """The difference that is told of this head: the largest that counts, of all where none is left out."""
        return self.max_difference if self.link is UNSET else self.link


class OnlyOn(Part, frozen=True, kw_only=True):
    """Positions without a partner."""

    a: list[Annotated[Count, at("token of A")]]
    b: list[Annotated[Count, at("token of B")]]


class CompareSummary(Part, frozen=True, kw_only=True):
    """Over all pairs of heads."""

    max_difference: float
    mean_difference: float
    js: float | None


class MovedWeight(Part, frozen=True, kw_only=True):
    """A weight that differs; layer and head are A's, query and key positions in A."""

    layer: Count
    head: Count
    query: Annotated[Count, at("token of A")]
    key: Annotated[Count, at("token of A")]
    a: float
    b: float
    difference: float


class CompareDocument(Document, tag="attn.compare/1", frozen=True, kw_only=True):
    """Two runs compared, B minus A."""

    a: CompareSide
    b: CompareSide
    differs: Annotated[list[str], says("In what the sides differ.")]
    aligned: Annotated[
        list[tuple[Annotated[Count, at("token of A")], Annotated[Count, at("token of B")]]],
        axes("aligned", says="positions of the tokens that both have: [in A, in B]."),
    ]
    only: OnlyOn
    queries: (
        Annotated[
            list[Annotated[Count, at("token of A")]],
            says("With --query: the positions in A whose rows alone are measured; absent when all are."),
        ]
        | UnsetType
    ) = UNSET
    heads: list[ComparedHead]
    summary: CompareSummary
    links_leave_out: LeftOut | UnsetType = UNSET
    moved: Annotated[list[MovedWeight], says("The weights that differ most of those that count, largest first.")]
    warnings: list[str]

    def lengths(self) -> Mapping[str, int | range]:
        """The tokens of either side, and those that both have."""
        return {"token of A": len(self.a.tokens), "token of B": len(self.b.tokens), "aligned": len(self.aligned)}

    def rows(self) -> list[int]:
        """The aligned queries that are measured: which entries of `aligned`."""
        chosen = None if self.queries is UNSET else set(self.queries)
        return [at for at, (left, _) in enumerate(self.aligned) if chosen is None or left in chosen]

    def misfits(self) -> Iterator[tuple[str, str]]:
        """Something is compared."""
        if not self.heads or not self.aligned:
            yield "heads", "no pair of heads, or no token that both texts have"
        for number, pair in enumerate(self.aligned):
            if any(at >= len(side.tokens) for at, side in zip(pair, (self.a, self.b), strict=True)):
                yield f"aligned[{number}]", "a token that is not there"
