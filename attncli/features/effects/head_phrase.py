"""A head of an effect as sentences name it."""

from __future__ import annotations

from typing import TypeAlias

from attncli.draw.token_names import claim
from attncli.draw.view import View
from attncli.features.effects.document import (
    DifferentHead,
    EffectRow,
    LogitPart,
    MeanEffect,
    PatchRow,
)
from attncli.language import message, say
from attncli.mechanism.spec import spoken_head

AnyHead: TypeAlias = EffectRow | MeanEffect | PatchRow | LogitPart | DifferentHead


def head_phrase(effect: AnyHead, view: View) -> str:
    """A head as sentences name it, such as `layer 5 head 11`, in the view's language; on a page the
    phrase also points at the head."""
    if effect.attention == "cross":
        template = message("layer {layer} cross head {head}")
        return say(view, template, layer=effect.layer, head=effect.head)
    assert effect.layer is not None
    assert effect.head is not None
    phrase = say(view, spoken_head(effect.layer, effect.head))
    return claim(phrase, view, layer=effect.layer, head=effect.head)
