"""What taking chosen heads away changes in each text of a corpus."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from attncli.analysis.effects.changes import By, ByMean, ByZero, ablate_heads
from attncli.analysis.effects.measures import MeasureRequest
from attncli.analysis.effects.places import HeadSelection, measured_at, places
from attncli.analysis.effects.sweep import SweepPlan, SweepText, sweep
from attncli.analysis.effects.sweep_memory import memory_budget
from attncli.analysis.visible_keys import Floats
from attncli.errors import UsageError
from attncli.inputs.token import Token
from attncli.models.model import Model
from attncli.models.run import Store
from attncli.scan.conditions import parse_heads

WAYS: dict[str, By] = {"zero": ByZero(), "mean": ByMean()}
"""What stands for a head that is taken away; the mean is over the text's own tokens."""


class AblationEffects:
    """Takes heads away one at a time: how far the vector at the end turns, 1 − cos.

    It is that of a decoder's last token, of an encoder the mean over all tokens. way_and_heads: the way, then heads as
    written. store: of the model's weights, held.
    """

    def __init__(self, way_and_heads: Sequence[str], model: Model, store: Store) -> None:
        way, *heads = way_and_heads
        self._by, self._model = WAYS[way], replace(model, store=store)
        pairs = sorted({pair for head_text in heads for pair in parse_heads(head_text)})
        self.places = places(model.spec, HeadSelection((), (), pairs))

    def of(self, tokens: Sequence[Token]) -> Floats:
        """The effect of each place, [place]; NaN where a vector has no direction."""
        text = SweepText(self._model, tokens, self._model.backend)
        spec, count = self._model.spec, len(tokens)
        request = MeasureRequest(("vector",), measured_at(spec, count), count - 1)
        space = memory_budget(spec, count, len(self.places), text.backend.dtype, None)
        cosines = sweep(text, SweepPlan(self.places, ablate_heads(text, self._by)), request, space).readings["cosine"][
            :, 0
        ]
        return np.asarray(cosines, np.float64)


def check_effects(way: str, heads: Sequence[str]) -> tuple[str, ...]:
    """What a plan says of effects: the way, then the heads. Raises UsageError where one lacks the other."""
    if not way and not heads:
        return ()
    if not way:
        raise UsageError("--head chooses heads for --effects", expected="both", hint="--effects zero")
    if not heads:
        raise UsageError("--effects needs the heads to take away", expected="both", hint="--head L5H11")
    return (way, *(f"L{layer}H{head}" for head_text in heads for layer, head in parse_heads(head_text)))
