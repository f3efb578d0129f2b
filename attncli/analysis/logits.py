"""The document of `attn logits`, from what was found."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from attncli.analysis.document import header, notes
from attncli.analysis.documents.effects import Looks
from attncli.analysis.documents.logits import LogitPart, LogitsDocument
from attncli.analysis.effects.ablation import choose_backend, refuse_foreign
from attncli.analysis.effects.attribution import attribute
from attncli.analysis.target import target_token
from attncli.inputs.token import Token
from attncli.models.model import Model


def logits_document(
    model: Model, text: str, tokens: Sequence[Token], position: int, target: int | None, versus: int | None
) -> LogitsDocument:
    """Split a logit into its parts and return the `attn.logits/1` document. Arguments, errors: as `attribute`."""
    refuse_foreign(model)
    running = choose_backend(model, tokens, [])
    attribution = attribute(running, position, target, versus)
    return LogitsDocument(
        **header(model, text, tokens, computing=running.backend),
        position=position,
        target=target_token(model, attribution.target),
        versus=None if versus is None else target_token(model, versus),
        softcap=attribution.softcap,
        logit=attribution.logit,
        sum=sum(value for _, value in attribution.parts),
        parts=[
            LogitPart(
                part=part.kind,
                attention=part.attention,
                layer=part.layer,
                head=part.head,
                value=value,
                looks=Looks(key=attribution.looks[part][0], weight=attribution.looks[part][1])
                if part in attribution.looks
                else UNSET,
            )
            for part, value in attribution.parts
        ],
        warnings=notes(model, text, tokens),
    )
