"""`attn.effects/1`, `attn.difference/1`, and the parts that all documents about effects have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, assert_never

from msgspec import UNSET, Meta, UnsetType, field

from attncli.documents.declaration import Count, Document, Part, Size, Weight, describe, index_of, members
from attncli.documents.parts import AttentionPart, ModelPart

AttentionKind = Annotated[
    Literal["self", "cross"],
    describe("Whether the head looks at the text itself, or at the text that a decoder reads."),
]


Measure = Literal["vector", "logprob", "kl"]
MeasureNames = Annotated[list[Measure], Meta(min_length=1)]
Reading = Literal["cosine", "norm", "logprob", "kl"]
"""A number of a measure: `vector` has two of them."""


def readings_of(measures: Sequence[Measure]) -> list[Reading]:
    """The readings of these measures, in their order: the first one ranks."""
    readings: list[Reading] = []
    for measure in measures:
        match measure:
            case "vector":
                readings += ["cosine", "norm"]
            case "logprob" | "kl":
                readings.append(measure)
            case _:
                assert_never(measure)
    return readings


class VectorChange(Part, frozen=True, kw_only=True):
    """How far the last vector turned and moved; null where a vector of length 0 has no direction."""

    cosine: Annotated[float | None, describe("1 − cos(x, x′), 0 to 2.")]
    norm: Annotated[float | None, describe("‖x − x′‖ / ‖x‖.")]


class Measures(Part, frozen=True, kw_only=True):
    """What changed, by the measures asked for."""

    vector: VectorChange | UnsetType = UNSET
    logprob: Annotated[float | None, describe("log p′ − log p of the target, in nats; below 0: rarer.")] | UnsetType = (
        UNSET
    )
    kl: Annotated[float | None, describe("KL(p ‖ p′) of the next token, in nats.")] | UnsetType = UNSET


class Looks(Part, frozen=True, kw_only=True):
    """The key that the token measured at looks at most, and its weight."""

    key: Count
    weight: Weight


class TokenPlace(Part, frozen=True, kw_only=True):
    """The token measured at; of a span, its first one and its last."""

    token: Annotated[Count, index_of("token")]
    last: Annotated[Annotated[Count, index_of("token")] | UnsetType, describe("Absent for one token.")] = UNSET


class LinkPlace(Part, frozen=True, kw_only=True):
    """A link that was cut: every query to every key."""

    query: (
        Annotated[list[Annotated[Count, index_of("token")]], describe("The tokens that look.")]
        | Annotated[Count, index_of("token")]
    )
    key: Annotated[list[Count], describe("The tokens looked at, of the other text where the link is `cross`.")] | Count
    attention: AttentionKind | UnsetType = UNSET
    text: Annotated[str | UnsetType, describe("The keys' text, where it is the other text's.")] = UNSET


class TargetToken(Part, frozen=True, kw_only=True):
    """An entry of the vocabulary."""

    id: Count
    text: str


class Interval(Part, frozen=True, kw_only=True):
    """A mean over texts with its 95% interval by Student's t; null ends with one text."""

    mean: float
    low: float | None
    high: float | None
    texts: Annotated[Size, describe("How many of the texts it is the mean of: those where it is defined.")]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """It has two ends, or none."""
        if (self.low is None) != (self.high is None):
            yield "high", "an interval with one end"


class MeanMeasures(Part, frozen=True, kw_only=True):
    """Measures over texts, by name; null where no text defines one."""

    cosine: Interval | UnsetType | None = UNSET
    norm: Interval | UnsetType | None = UNSET
    logprob: Interval | UnsetType | None = UNSET
    kl: Interval | UnsetType | None = UNSET

    def mean(self, name: Reading) -> Interval | None:
        """The mean of a reading; None where no text defines it, or none was taken."""
        match name:
            case "cosine":
                interval = self.cosine
            case "norm":
                interval = self.norm
            case "logprob":
                interval = self.logprob
            case "kl":
                interval = self.kl
            case _:
                assert_never(name)
        return interval or None


class MeanEffect(Part, frozen=True, kw_only=True):
    """What one head's removal changes, over texts."""

    attention: AttentionKind
    layer: Count
    head: Count
    measures: MeanMeasures


class NamedLink(Part, frozen=True, kw_only=True):
    """The link that was cut, by the words that name it in every text."""

    query: str = field(name="from")
    key: str = field(name="to")


class EffectsDocument(Document, tag="attn.effects/1", frozen=True, kw_only=True):
    """What changes when a head is taken away, or a link cut: the mean over texts of `attn.ablate/1`."""

    texts: Annotated[Size, describe("How many texts there were.")]
    model: ModelPart
    attention: AttentionPart
    by: Literal["zero", "mean", "resample", "knockout"]
    measures: MeasureNames
    place: Annotated[str, describe("Where it was measured: `mean`, `last`, or the word that names a token.")] = field(
        name="at"
    )
    link: NamedLink | None
    effects: Annotated[list[MeanEffect], describe("By the size of the mean, the largest first.")]
    together: Annotated[MeanMeasures, describe("All of these heads at once.")]
    warnings: list[str]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Every mean is of the same measures."""
        readings = set(readings_of(self.measures))
        rows = [(f"effects[{number}].measures", row.measures) for number, row in enumerate(self.effects)]
        for place, measures in (("together", self.together), *rows):
            if {name for name, _ in members(measures)} != readings:
                yield place, f"means of other measures than {', '.join(self.measures)}"


# How effects of heads differ between two sets of texts, or two models.


class DifferenceSide(Part, frozen=True, kw_only=True):
    """One side: its file, how many texts it had, which model."""

    name: str
    texts: Size
    model: str | None


class DifferentHead(Part, frozen=True, kw_only=True):
    """One head on both sides."""

    attention: AttentionKind
    layer: Count
    head: Count
    a: float
    b: float
    difference: Annotated[float, describe("B − A.")]
    low: Annotated[
        float | None, describe("End of the 95% interval of the difference, by Welch's t; null with one text.")
    ]
    high: float | None

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """An interval has two ends."""
        if (self.low is None) != (self.high is None):
            yield "high", "an interval with one end"


class DifferenceDocument(Document, tag="attn.difference/1", frozen=True, kw_only=True):
    """Two `attn.effects/1` documents compared by their first measure, head by head."""

    a: DifferenceSide
    b: DifferenceSide
    measure: Annotated[str, describe("cosine, logprob or kl.")]
    heads: Annotated[list[DifferentHead], Meta(min_length=1), describe("The largest difference first.")]
    warnings: list[str]
