"""Parts that the documents about effects have in common: `attn.ablate/1`, `attn.logits/1`, `attn.patch/1`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, UnsetType

from attncli.analysis.documents.declaration import Count, Part, Weight, at, says

AttentionKind = Annotated[
    Literal["self", "cross"], says("Whether the head looks at the text itself, or at the text that a decoder reads.")
]


class VectorChange(Part, frozen=True, kw_only=True):
    """How far the last vector turned and moved; null where a vector of length 0 has no direction."""

    cosine: Annotated[float | None, says("1 − cos(x, x′), 0 to 2.")]
    norm: Annotated[float | None, says("‖x − x′‖ / ‖x‖.")]


class Measures(Part, frozen=True, kw_only=True):
    """What changed, by the measures asked for."""

    vector: VectorChange | UnsetType = UNSET
    logprob: Annotated[float | None, says("log p′ − log p of the target, in nats; below 0: rarer.")] | UnsetType = UNSET
    kl: Annotated[float | None, says("KL(p ‖ p′) of the next token, in nats.")] | UnsetType = UNSET


class Looks(Part, frozen=True, kw_only=True):
    """The key that the token measured at looks at most, and its weight."""

    key: Count
    weight: Weight


class TokenPlace(Part, frozen=True, kw_only=True):
    """The token measured at; of a span, its first one and its last."""

    token: Annotated[Count, at("token")]
    last: Annotated[Annotated[Count, at("token")] | UnsetType, says("Absent for one token.")] = UNSET


class LinkPlace(Part, frozen=True, kw_only=True):
    """A link that was cut: every query to every key."""

    query: Annotated[list[Annotated[Count, at("token")]], says("The tokens that look.")] | Annotated[Count, at("token")]
    key: Annotated[list[Annotated[Count, at("token")]], says("The tokens looked at.")] | Annotated[Count, at("token")]


class TargetToken(Part, frozen=True, kw_only=True):
    """An entry of the vocabulary."""

    id: Count
    text: str
