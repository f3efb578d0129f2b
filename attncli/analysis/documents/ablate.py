"""`attn.ablate/1`: what changes when a head, or a link, is taken away."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, UnsetType, field

from attncli.analysis.documents.declaration import Count, Part, says
from attncli.analysis.documents.effects import (
    AttentionKind,
    LinkPlace,
    Looks,
    Measures,
    TargetToken,
    TokenPlace,
    VectorChange,
)
from attncli.analysis.documents.parts import Header


class EffectRow(Part, frozen=True, kw_only=True):
    """What one head's removal changes."""

    attention: AttentionKind
    layer: Count
    head: Count
    vector: VectorChange | UnsetType = UNSET
    logprob: float | UnsetType | None = UNSET
    kl: float | UnsetType | None = UNSET
    weight: Annotated[float | None, says("The weight that the cut link had; null without a link.")]
    looks: Annotated[Looks | None, says("Null where the mean over all tokens is measured.")]
    random: Annotated[
        Measures | None,
        says("The same for changes of the same size in random directions, the mean of 8 draws; null where not drawn."),
    ]


class AblateDocument(Header, tag="attn.ablate/1", frozen=True, kw_only=True):
    """What changes when a head is taken away, or a link cut, one head at a time; these effects do not add up."""

    by: Annotated[
        Literal["zero", "mean", "resample", "knockout"],
        says("What stands for a head: nothing, a mean, another text's values; or it without the link."),
    ]
    measures: list[Literal["vector", "logprob", "kl"]]
    place: Annotated[TokenPlace | Literal["mean"], says("Whose last vector turns.")] = field(name="at")
    every: Annotated[bool, says("Whether logprob is the mean over all positions of the token that follows.")]
    position: Annotated[Count | None, says("After which token logprob and kl are taken; null where they are not.")]
    target: Annotated[TargetToken | None, says("What logprob is about; null where it is not.")]
    link: Annotated[LinkPlace | None, says("The link that was cut; null where heads were taken away.")]
    effects: Annotated[list[EffectRow], says("By size, the largest first.")]
    together: Annotated[Measures, says("All of these heads at once.")]
    warnings: list[str]
