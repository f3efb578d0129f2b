"""The document of `attn ablate`, from what was found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import UNSET

from attncli.analysis.document import header, notes
from attncli.analysis.documents.ablate import AblateDocument, EffectRow
from attncli.analysis.documents.effects import LinkPlace, Looks, Measures, TokenPlace, VectorChange
from attncli.analysis.effects.ablation import Effect, Removal, ranked, remove
from attncli.analysis.effects.changes import Link
from attncli.analysis.effects.measures import Asked
from attncli.analysis.target import target_token
from attncli.inputs.token import Token
from attncli.models.model import Model


def ablate_document(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    removal: Removal,
    asked: Asked,
    *,
    memory: int | None = None,
    told: Callable[[float], None] = lambda share: None,
) -> AblateDocument:
    """Take heads away, or cut a link, and return the `attn.ablate/1` document. Arguments, errors: as `remove`."""
    found = remove(model, tokens, removal, asked, memory=memory, told=told)
    predicts = "logprob" in asked.measures or "kl" in asked.measures
    about = found.target is not None and "logprob" in asked.measures and not asked.every
    return AblateDocument(
        **header(model, text, tokens, computing=found.backend),
        by=removal.by.name if removal.link is None else "knockout",
        measures=list(asked.measures),
        place="mean" if len(asked.at) == len(tokens) and len(tokens) > 1 else place_of(asked.at),
        every=asked.every,
        position=asked.position if predicts else None,
        target=target_token(model, found.target) if about and found.target is not None else None,
        link=None if removal.link is None else _cut(removal.link, model),
        effects=[_row(found.effects[at]) for at in ranked(found.effects)],
        together=Measures(**measured(found.together)),
        warnings=notes(model, text, tokens),
    )


def place_of(at: Sequence[int]) -> TokenPlace:
    """A token, or a span."""
    return TokenPlace(token=at[0], last=UNSET if len(at) == 1 else at[-1])


def _cut(link: Link, model: Model) -> LinkPlace:
    query, key = _one(link.queries), _one(link.keys)
    if link.kind == "self":
        return LinkPlace(query=query, key=key)
    text = " ".join(model.source[key].text for key in link.keys) if model.source else UNSET
    return LinkPlace(query=query, key=key, attention="cross", text=text)


def _one(places: Sequence[int]) -> int | list[int]:
    return places[0] if len(places) == 1 else list(places)


def _row(effect: Effect) -> EffectRow:
    return EffectRow(
        attention=effect.place.kind,
        layer=effect.place.layer,
        head=effect.place.head,
        **measured(effect.readings),
        weight=effect.weight,
        looks=None if effect.looks is None else Looks(key=effect.looks[0], weight=effect.looks[1]),
        random=None if effect.random is None else Measures(**measured(effect.random)),
    )


def measured(readings: Mapping[str, float]) -> dict[str, Any]:
    """Readings as documents tell them: those that are undefined are null."""
    number = {name: None if math.isnan(value) else value for name, value in readings.items()}
    found: dict[str, Any] = {name: number[name] for name in ("logprob", "kl") if name in number}
    if "cosine" in number:
        found["vector"] = VectorChange(cosine=number["cosine"], norm=number["norm"])
    return found
