"""`attn.logits/1`: what each part of a model adds to a token's logit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import UNSET, UnsetType, field

from attncli.documents.declaration import Count, Part, describe, index_of
from attncli.documents.parts import Header
from attncli.features.effects.document import AttentionKind, Looks, TargetToken


class LogitPart(Part, frozen=True, kw_only=True):
    """What one part adds."""

    part: Literal["embedding", "head", "mlp", "bias"]
    attention: Annotated[AttentionKind | None, describe("Of a head; null for other parts.")]
    layer: Annotated[
        Count | None, describe("Null for the embedding, and for the biases of the final norm and the head.")
    ]
    head: Count | None
    value: float
    looks: Annotated[Looks | UnsetType, describe("Of a head: what the token at `at` looks at most there.")] = UNSET

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """A head has its place, a feed-forward part its layer."""
        of_head = None not in (self.attention, self.layer, self.head)
        if (self.part == "head" and not of_head) or (self.part == "mlp" and self.layer is None):
            yield "part", f"{self.part!r} without its place"


class LogitsDocument(Header, tag="attn.logits/1", frozen=True, kw_only=True):
    """What each part adds to a logit, the statistics of every norm being those of this run; the parts sum to it."""

    position: Annotated[Count, index_of("token", "After which token.")] = field(name="at")
    target: TargetToken
    versus: Annotated[TargetToken | None, describe("Whose logit is taken away from the target's; null for none.")]
    softcap: Annotated[float | None, describe("The bound that the model puts on its logits after this; null for none.")]
    logit: Annotated[float, describe("The model's own, after its scale and before a soft cap.")]
    sum: Annotated[float, describe("The sum of the parts.")]
    parts: Annotated[list[LogitPart], describe("In the order of the model.")]
    warnings: list[str]
