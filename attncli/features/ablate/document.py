"""`attn.ablate/1`: what changes when a head, or a link, is taken away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, assert_never

from msgspec import UNSET, UnsetType, field

from attncli.documents.declaration import Count, Part, Weight, describe
from attncli.documents.parts import Header
from attncli.features.effects.document import (
    AttentionKind,
    LinkPlace,
    Looks,
    MeasureNames,
    Measures,
    Reading,
    TargetToken,
    TokenPlace,
    VectorChange,
)


class EffectRow(Part, frozen=True, kw_only=True):
    """What one head's removal changes."""

    attention: AttentionKind
    layer: Count
    head: Count
    vector: VectorChange | UnsetType = UNSET
    logprob: float | UnsetType | None = UNSET
    kl: float | UnsetType | None = UNSET
    weight: Annotated[Weight | None, describe("The weight that the cut link had; null without a link.")]
    looks: Annotated[Looks | None, describe("Of several tokens: what their mean row looks at; null for a learned key.")]
    random: Annotated[
        Measures | None,
        describe(
            "The same for changes of the same size in random directions, the mean of 8 draws; null where not drawn."
        ),
    ]


def reading_of(row: EffectRow | Measures, name: Reading) -> float | None:
    """A number of what changed; None where it is undefined, or was not measured."""
    match name:
        case "cosine":
            value = None if row.vector is UNSET else row.vector.cosine
        case "norm":
            value = None if row.vector is UNSET else row.vector.norm
        case "logprob":
            value = None if row.logprob is UNSET else row.logprob
        case "kl":
            value = None if row.kl is UNSET else row.kl
        case _:
            assert_never(name)
    return value


class AblateDocument(Header, tag="attn.ablate/1", frozen=True, kw_only=True):
    """What changes when a head is taken away, or a link cut, one head at a time; these effects do not add up."""

    by: Annotated[
        Literal["zero", "mean", "resample", "knockout"],
        describe("What stands for a head: nothing, a mean, another text's values; or it without the link."),
    ]
    measures: MeasureNames
    place: Annotated[TokenPlace | Literal["mean"], describe("Whose last vector turns.")] = field(name="at")
    every: Annotated[bool, describe("Whether logprob is the mean over all positions of the token that follows.")]
    position: Annotated[Count | None, describe("After which token logprob and kl are taken; null where they are not.")]
    target: Annotated[TargetToken | None, describe("What logprob is about; null where it is not.")]
    link: Annotated[LinkPlace | None, describe("The link that was cut; null where heads were taken away.")]
    effects: Annotated[list[EffectRow], describe("By size, the largest first.")]
    together: Annotated[Measures, describe("All of these heads at once.")]
    warnings: list[str]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Every effect is told by the same measures; what is looked at is there, and what is cut had a weight."""
        yield from super().validation_errors()
        rows = [(f"effects[{number}]", row) for number, row in enumerate(self.effects)]
        random_rows = [(f"{place}.random", row.random) for place, row in rows if row.random is not None]
        for place, measures in (("together", self.together), *rows, *random_rows):
            for name in ("vector", "logprob", "kl"):
                if (getattr(measures, name) is UNSET) == (name in self.measures):
                    yield place, f"{name} is {'missing' if name in self.measures else 'not among the measures'}"
        link = self.link
        if link is not None and link.attention in (UNSET, "self"):
            for key in link.key if isinstance(link.key, list) else [link.key]:
                if key >= len(self.tokens):
                    yield "link.key", f"there is no token {key}"
        for place, row in rows:
            if row.attention == "self" and row.looks is not None and row.looks.key >= len(self.tokens):
                yield f"{place}.looks.key", f"there is no token {row.looks.key}"
            if (row.weight is None) != (self.link is None):
                yield f"{place}.weight", "a weight belongs to a link that was cut, and to each"
