"""Ablation: heads taken away one at a time, or a link cut in each, and what the end of the model makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.analysis.effects.changes import (
    By,
    ByResample,
    ByZero,
    Link,
    ablating,
    ablating_together,
    cutting,
    cutting_together,
    of_kind,
    random_directions,
    same_length,
)
from attncli.analysis.effects.measures import Asked
from attncli.analysis.effects.places import Chosen, Place, attentions, places
from attncli.analysis.effects.sweep import Numbers, Plan, Text, sweep
from attncli.analysis.effects.sweep_memory import Room, least, room, sweep_work
from attncli.analysis.visible_keys import Floats
from attncli.arrays.backend import Backend
from attncli.errors import InputError, LimitError, UnsupportedError
from attncli.inputs.token import Token
from attncli.mechanism.trace import LayerTrace
from attncli.models.estimate import seconds_of
from attncli.models.model import Model

ZERO = ByZero()
DRAWS = 8
"""Random directions whose effects are averaged into a baseline."""
WIDE_UP_TO = 0.1
"""Seconds more up to which float32 effects are worth computing in float64: in float32 they are off by a few millionths
of the largest."""


class Removal(Struct, frozen=True, eq=False):
    """What is taken away, and of which heads. link: cut it instead of the whole head, None for the head.

    together: only all of them at once. baseline: which rows are compared with random directions of the same size:
    "top" for the `top` largest effects.
    """

    chosen: Chosen
    by: By = ZERO
    link: Link | None = None
    together: bool = False
    baseline: Literal["top", "all", "none"] = "top"
    top: int = 10


class Effect(Struct, frozen=True):
    """What one head's removal changes. readings: by measure, NaN where undefined. weight: that the link had, the sum
    over its keys and the mean over its queries; looks: the key that the token measured at looks at most, and how much.
    random: the measures of the baseline, None where it was not drawn."""

    place: Place
    readings: dict[str, float]
    weight: float | None
    looks: tuple[int, float] | None
    random: dict[str, float] | None = None


class Removed(Struct, frozen=True, eq=False):
    """What was found: an effect a head, by layer; that of all together; the target that `logprob` was about;
    what it was computed in."""

    effects: Sequence[Effect]
    together: dict[str, float]
    target: int | None
    backend: Backend


def remove(
    model: Model,
    tokens: Sequence[Token],
    removal: Removal,
    asked: Asked,
    *,
    memory: int | None = None,
    told: Callable[[float], None] = lambda share: None,
) -> Removed:
    """Take heads away, one at a time and together, and measure.

    memory: bytes there may be, None for any amount. told: the share done. Raises LimitError where not even one branch
    fits, UnsupportedError for what this model cannot have taken away or measured.
    """
    refuse_foreign(model)
    refuse_hashed(model)
    if isinstance(removal.by, ByResample):
        same_length(tokens, removal.by.tokens, "the reference")
    kinds = {"self", "cross"} if removal.link is None else {removal.link.kind}
    found = [place for place in places(model.spec, removal.chosen) if place.kind in kinds]
    if not found:
        raise InputError("no chosen head has such a link", expected="heads of the attention that the link is in")
    text = ready(model, tokens, [] if removal.together else found)
    refuse_least(text, memory, predicts=asked.predicts)
    link = removal.link
    change = ablating(text, removal.by) if link is None else cutting(text, link)
    joint = (
        ablating_together(text, removal.by, removal.chosen)
        if link is None
        else cutting_together(text, link, removal.chosen)
    )
    looking = _Looking(text, asked, link)
    plan = Plan(() if removal.together else found, change, start=0 if link is None else min(link.queries), joint=joint)
    rounds = 1 if removal.baseline == "none" or removal.together else 2
    compared = len(found) if removal.baseline == "all" else min(removal.top, len(found))
    # of the whole work: a random change takes as long as taking the head away
    first = 1.0 if rounds == 1 else len(found) / (len(found) + compared * DRAWS)
    swept = sweep(
        text, plan, asked, _space(text, len(plan.places), asked, memory),
        see=looking.see, told=lambda share: told(share * first),
    )  # fmt: skip
    assert swept.together is not None
    effects = [
        Effect(place, {name: float(column[at, 0]) for name, column in swept.readings.items()}, *looking.of(place))
        for at, place in enumerate(plan.places)
    ]
    if rounds == 2:
        chosen = range(len(effects)) if removal.baseline == "all" else ranked(effects)[: removal.top]
        drawn = _drawn(
            text,
            replace(plan, joint=None),
            [found[at] for at in chosen],
            asked,
            memory,
            lambda share: told(first + share * (1 - first)),
        )
        effects = [replace(one, random=drawn.get(one.place)) for one in effects]
    return Removed(
        effects, {name: float(value[0]) for name, value in swept.together.items()}, swept.reader.target, text.backend
    )


def _space(text: Text, branches: int, asked: Asked, memory: int | None) -> Room:
    return room(text.model.spec, text.count, branches, text.backend.dtype, memory, predicts=asked.predicts)


def ranked(effects: Sequence[Effect]) -> list[int]:
    """The places of the effects, the largest by the first measure first; what is undefined comes last."""
    first = [next(iter(one.readings.values())) for one in effects]
    return sorted(range(len(effects)), key=lambda at: (np.isnan(first[at]), -abs(np.nan_to_num(first[at])), at))


def ready(model: Model, tokens: Sequence[Token], branches: Sequence[Place]) -> Text:
    """The text in the type that it is computed in: float64 for a checkpoint's float32 results where that takes little
    time more (`WIDE_UP_TO`). Documents say which (`compute_dtype`)."""
    own = model.backend
    if own.dtype == "float32" and model.identity.source == "checkpoint":
        work = sweep_work(model.spec, len(tokens), branches, 1)
        if seconds_of(work, "float64") - seconds_of(work, "float32") <= WIDE_UP_TO:
            return Text(model, tokens, model.computing(len(tokens)))
    return Text(model, tokens, own)


def refuse_least(text: Text, memory: int | None, *, predicts: bool) -> None:
    """Raise LimitError if one branch at a time takes more than `memory` bytes. predicts: whether next tokens are
    measured."""
    needed = least(text.model.spec, text.count, text.backend.dtype, predicts=predicts)
    if memory is not None and needed > memory:
        raise LimitError(
            f"this would take about {needed:,} bytes of memory, there may be {memory:,}",
            expected="less work, or a higher --max-memory",
            hint="a shorter text",
        )


def refuse_foreign(model: Model) -> None:
    """Raise UnsupportedError for a model whose layers cannot be run one by one."""
    if not model.own_layers:
        raise UnsupportedError(
            f"models of the family {model.spec.family!r} run through transformers, which runs them whole: effects need "
            "layers that can be run one by one, with weights by role",
            expected="a family that runs natively, as attn models list shows",
        )


def refuse_hashed(model: Model) -> None:
    """Raise UnsupportedError for masks that are made from each run's own vectors, where layers follow."""
    for block in model.spec.blocks[1:]:
        if any(part.depends_on() == "vectors" for part in block.attention.mask.parts_of()):
            raise UnsupportedError(
                "a hash mask is made from each run's own vectors, and effects run many at once",
                expected="a mask by position, such as causal or window:W",
            )


def _drawn(
    text: Text, plan: Plan, rows: Sequence[Place], asked: Asked, memory: int | None, told: Callable[[float], None]
) -> dict[Place, dict[str, float]]:
    """The baseline of these places: the mean over the draws."""

    def variants(place: Place, own: Numbers, other: Numbers) -> Numbers:
        return random_directions(place.layer, place.kind, place.head, own, other, DRAWS)

    in_order = sorted(rows, key=plan.places.index)
    drawing = replace(plan, places=in_order, variants=variants, many=DRAWS)
    readings = sweep(text, drawing, asked, _space(text, len(rows) * DRAWS, asked, memory), told=told).readings
    return {
        place: {name: float(column[at].mean()) for name, column in readings.items()}
        for at, place in enumerate(in_order)
    }


class _Looking:
    """Where heads look, noted while the own run goes by: the link's weight, and what the measured token looks at."""

    def __init__(self, text: Text, asked: Asked, link: Link | None) -> None:
        self._text, self._link = text, link
        self._at = asked.at
        self._found: dict[Place, tuple[float | None, tuple[int, float] | None]] = {}

    def see(self, trace: LayerTrace) -> None:
        for kind, attention in attentions(self._text.model.spec.blocks[trace.layer]):
            stages = of_kind(trace, kind).stages
            if "weights" not in stages:
                continue
            weights = np.asarray(self._text.backend.numpy(stages["weights"]), np.float64)
            for head in range(attention.heads):
                self._found[Place(trace.layer, kind, head)] = self._row(weights[head], kind)

    def _row(self, weights: Floats, kind: str) -> tuple[float | None, tuple[int, float] | None]:
        link, weight = self._link, None
        if link is not None and link.kind == kind:
            weight = float(weights[np.ix_(np.asarray(link.queries), np.asarray(link.keys))].sum(-1).mean())
        row = weights[list(self._at)].mean(0)
        key = int(row.argmax())
        learned = kind == "self" and key >= self._text.count  # a key that no token stands for
        return weight, None if learned else (key, float(row[key]))

    def of(self, place: Place) -> tuple[float | None, tuple[int, float] | None]:
        return self._found.get(place, (None, None))
