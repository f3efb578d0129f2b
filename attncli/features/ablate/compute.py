"""The document of `attn ablate`: what taking away each head, or a link, changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import UNSET

from attncli.documents.header import header, notes
from attncli.features.ablate.document import AblateDocument, EffectRow
from attncli.features.effects.ablation import Effect, Removal, rank_effects, remove
from attncli.features.effects.changes import CutLink
from attncli.features.effects.document import LinkPlace, Looks, Measures, TokenPlace, VectorChange
from attncli.features.effects.measures import MeasureRequest, target_token
from attncli.inputs.token import Token
from attncli.models.model import Model


def ablate_document(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    removal: Removal,
    request: MeasureRequest,
    *,
    memory: int | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> AblateDocument:
    """Take heads away, or cut a link, and return the `attn.ablate/1` document. Arguments, errors: as `remove`."""
    removed_effects = remove(model, tokens, removal, request, memory=memory, progress=progress)
    predicts = "logprob" in request.measures or "kl" in request.measures
    about = removed_effects.target is not None and "logprob" in request.measures and not request.every
    return AblateDocument(
        **header(model, text, tokens, computing=removed_effects.backend),
        by=removal.by.name if removal.link is None else "knockout",
        measures=list(request.measures),
        place="mean" if len(request.positions) == len(tokens) and len(tokens) > 1 else place_of(request.positions),
        every=request.every,
        position=request.position if predicts else None,
        target=target_token(model, removed_effects.target) if about and removed_effects.target is not None else None,
        link=None if removal.link is None else _link_place(removal.link, model),
        effects=[_row(removed_effects.effects[index]) for index in rank_effects(removed_effects.effects)],
        together=Measures(**reading_fields(removed_effects.together)),
        warnings=notes(model, text, tokens),
    )


def place_of(places: Sequence[int]) -> TokenPlace:
    """A token, or a span."""
    return TokenPlace(token=places[0], last=UNSET if len(places) == 1 else places[-1])


def _link_place(link: CutLink, model: Model) -> LinkPlace:
    query, key = _single_or_list(link.queries), _single_or_list(link.keys)
    if link.kind == "self":
        return LinkPlace(query=query, key=key)
    text = " ".join(model.source[key].text for key in link.keys) if model.source else UNSET
    return LinkPlace(query=query, key=key, attention="cross", text=text)


def _single_or_list(places: Sequence[int]) -> int | list[int]:
    return places[0] if len(places) == 1 else list(places)


def _row(effect: Effect) -> EffectRow:
    return EffectRow(
        attention=effect.place.kind,
        layer=effect.place.layer,
        head=effect.place.head,
        **reading_fields(effect.readings),
        weight=effect.weight,
        looks=None if effect.looks is None else Looks(key=effect.looks[0], weight=effect.looks[1]),
        random=None if effect.random is None else Measures(**reading_fields(effect.random)),
    )


def reading_fields(readings: Mapping[str, float]) -> dict[str, Any]:
    """Readings as documents tell them: those that are undefined are null."""
    number = {name: None if math.isnan(value) else value for name, value in readings.items()}
    fields: dict[str, Any] = {name: number[name] for name in ("logprob", "kl") if name in number}
    if "cosine" in number:
        fields["vector"] = VectorChange(cosine=number["cosine"], norm=number["norm"])
    return fields
