"""`attn.patch/1`: which heads carry the difference between two texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import field

from attncli.documents.declaration import Count, Part, describe, index_of
from attncli.documents.parts import Header, TokenRow, position_errors
from attncli.features.effects.document import AttentionKind, TargetToken


class PatchRow(Part, frozen=True, kw_only=True):
    """How much of the clean text's answer one head brings back."""

    attention: AttentionKind
    layer: Count
    head: Count
    recovered: Annotated[float, describe("0 as in the corrupt text, 1 as in the clean one; beyond both is possible.")]


class PatchDocument(Header, tag="attn.patch/1", frozen=True, kw_only=True):
    """The corrupt text run with what one head mixes in the clean one put in. `tokens` are those of the clean text."""

    clean: str
    corrupt: str
    corrupt_tokens: list[TokenRow]
    places: Annotated[list[Annotated[Count, index_of("token")]], describe("The tokens that got the clean text's.")] = (
        field(name="at")
    )
    query: Annotated[
        list[Annotated[Count, index_of("token")]], describe("The tokens measured at; of logits, the last of them.")
    ]
    measure: Literal["logit difference", "log probability", "cosine"]
    target: TargetToken | None
    versus: TargetToken | None
    m_clean: float
    m_corrupt: float
    effects: Annotated[list[PatchRow], describe("By what they recover, the largest first.")]
    warnings: list[str]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Tokens lie in their texts."""
        yield from position_errors(self.tokens, self.clean, "tokens")
        yield from position_errors(self.corrupt_tokens, self.corrupt, "corrupt_tokens")
