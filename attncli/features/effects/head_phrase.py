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

AnyHead: TypeAlias = EffectRow | MeanEffect | PatchRow | LogitPart | DifferentHead


def head_phrase(effect: AnyHead, view: View) -> str:
    """A head as sentences name it, such as `layer 5 head 11`."""
    if effect.attention == "cross":
        name = message("layer {layer} cross head {head}")
    else:
        name = message("layer {layer} head {head}")
    phrase = say(view, name, layer=effect.layer, head=effect.head)
    if effect.attention == "cross":
        return phrase
    return claim(phrase, view, layer=effect.layer, head=effect.head)
