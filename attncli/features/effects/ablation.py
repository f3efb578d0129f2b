"""Ablation: heads taken away one at a time, or a link cut in each, and what the end of the model makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import Backend
from attncli.errors import InputError, LimitError, UnsupportedError
from attncli.features.effects.changes import (
    By,
    ByResample,
    ByZero,
    CutLink,
    ablate_heads,
    ablate_heads_together,
    cut_link,
    cut_link_together,
    of_kind,
    random_directions,
    same_length,
)
from attncli.features.effects.measures import MeasureRequest
from attncli.features.effects.places import HeadAddress, HeadSelection, attentions, places
from attncli.features.effects.sweep import (
    MemoryBudget,
    Numbers,
    SweepPlan,
    SweepText,
    least,
    memory_budget,
    sweep,
    sweep_work,
)
from attncli.inputs.token import Token
from attncli.measure.visible_keys import Floats
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

    selection: HeadSelection
    by: By = ZERO
    link: CutLink | None = None
    together: bool = False
    baseline: Literal["top", "all", "none"] = "top"
    top: int = 10


class Effect(Struct, frozen=True):
    """What one head's removal changes. readings: by measure, NaN where undefined. weight: that the link had, the sum
    over its keys and the mean over its queries; looks: the key that the token measured at looks at most, and how much.
    random: the measures of the baseline, None where it was not drawn."""

    place: HeadAddress
    readings: dict[str, float]
    weight: float | None
    looks: tuple[int, float] | None
    random: dict[str, float] | None = None


class RemovalResult(Struct, frozen=True, eq=False):
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
    request: MeasureRequest,
    *,
    memory: int | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> RemovalResult:
    """Take heads away, one at a time and together, and measure.

    memory: bytes there may be, None for any amount. progress: the share done. Raises LimitError where not even one
    branch fits, UnsupportedError for what this model cannot have taken away or measured.
    """
    refuse_foreign(model)
    refuse_hashed(model)
    if isinstance(removal.by, ByResample):
        same_length(tokens, removal.by.tokens, "the reference")
    kinds = {"self", "cross"} if removal.link is None else {removal.link.kind}
    places_found = [place for place in places(model.spec, removal.selection) if place.kind in kinds]
    if not places_found:
        raise InputError("no chosen head has such a link", expected="heads of the attention that the link is in")
    text = choose_backend(model, tokens, [] if removal.together else places_found)
    refuse_least(text, memory, predicts=request.predicts)
    link = removal.link
    change = ablate_heads(text, removal.by) if link is None else cut_link(text, link)
    joint = (
        ablate_heads_together(text, removal.by, removal.selection)
        if link is None
        else cut_link_together(text, link, removal.selection)
    )
    looking = _TargetReader(text, request, link)
    plan = SweepPlan(
        () if removal.together else places_found, change, start=0 if link is None else min(link.queries), joint=joint
    )
    rounds = 1 if removal.baseline == "none" or removal.together else 2
    compared = len(places_found) if removal.baseline == "all" else min(removal.top, len(places_found))
    # of the whole work: a random change takes as long as taking the head away
    first = 1.0 if rounds == 1 else len(places_found) / (len(places_found) + compared * DRAWS)
    swept = sweep(
        text, plan, request, _memory_budget(text, len(plan.places), request, memory),
        on_trace=looking.on_trace, on_progress=lambda share: progress(share * first),
    )  # fmt: skip
    assert swept.together is not None
    effects = [
        Effect(place, {name: float(column[index, 0]) for name, column in swept.readings.items()}, *looking.of(place))
        for index, place in enumerate(plan.places)
    ]
    if rounds == 2:
        rank_numbers = range(len(effects)) if removal.baseline == "all" else rank_effects(effects)[: removal.top]
        random_readings = _random_effects(
            text,
            replace(plan, joint=None),
            [places_found[index] for index in rank_numbers],
            request,
            memory,
            lambda share: progress(first + share * (1 - first)),
        )
        effects = [replace(effect, random=random_readings.get(effect.place)) for effect in effects]
    return RemovalResult(
        effects, {name: float(value[0]) for name, value in swept.together.items()}, swept.reader.target, text.backend
    )


def _memory_budget(text: SweepText, branches: int, request: MeasureRequest, memory: int | None) -> MemoryBudget:
    return memory_budget(text.model.spec, text.count, branches, text.backend.dtype, memory, predicts=request.predicts)


def rank_effects(effects: Sequence[Effect]) -> list[int]:
    """The places of the effects, the largest by the first measure first; what is undefined comes last."""
    first = [next(iter(effect.readings.values())) for effect in effects]
    return sorted(
        range(len(effects)), key=lambda index: (np.isnan(first[index]), -abs(np.nan_to_num(first[index])), index)
    )


def choose_backend(model: Model, tokens: Sequence[Token], branches: Sequence[HeadAddress]) -> SweepText:
    """The text in the type that it is computed in: float64 for a checkpoint's float32 results where that takes little
    time more (`WIDE_UP_TO`). Documents say which (`compute_dtype`)."""
    backend = model.backend
    if backend.dtype == "float32" and model.identity.source == "checkpoint":
        work = sweep_work(model.spec, len(tokens), branches, 1)
        if seconds_of(work, "float64") - seconds_of(work, "float32") <= WIDE_UP_TO:
            return SweepText(model, tokens, model.computing(len(tokens)))
    return SweepText(model, tokens, backend)


def refuse_least(text: SweepText, memory: int | None, *, predicts: bool) -> None:
    """Raise LimitError if one branch at a time takes more than `memory` bytes. predicts: whether next tokens are
    measured."""
    least_bytes = least(text.model.spec, text.count, text.backend.dtype, predicts=predicts)
    if memory is not None and least_bytes > memory:
        raise LimitError(
            f"this would take about {least_bytes:,} bytes of memory, there may be {memory:,}",
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


def _random_effects(
    text: SweepText,
    plan: SweepPlan,
    rows: Sequence[HeadAddress],
    request: MeasureRequest,
    memory: int | None,
    progress: Callable[[float], None],
) -> dict[HeadAddress, dict[str, float]]:
    """The baseline of these places: the mean over the draws."""

    def variants(place: HeadAddress, values: Numbers, replacement: Numbers) -> Numbers:
        return random_directions(place.layer, place.kind, place.head, values, replacement, DRAWS)

    in_order = sorted(rows, key=plan.places.index)
    drawing = replace(plan, places=in_order, variants=variants, many=DRAWS)
    readings = sweep(
        text, drawing, request, _memory_budget(text, len(rows) * DRAWS, request, memory), on_progress=progress
    ).readings
    return {
        place: {name: float(column[index].mean()) for name, column in readings.items()}
        for index, place in enumerate(in_order)
    }


class _TargetReader:
    """Where heads look, noted while the own run goes by: the link's weight, and what the measured token looks at."""

    def __init__(self, text: SweepText, request: MeasureRequest, link: CutLink | None) -> None:
        self._text, self._link = text, link
        self._positions = request.positions
        self._by_place: dict[HeadAddress, tuple[float | None, tuple[int, float] | None]] = {}

    def on_trace(self, trace: LayerTrace) -> None:
        for kind, attention in attentions(self._text.model.spec.blocks[trace.layer]):
            stages = of_kind(trace, kind).stages
            if "weights" not in stages:
                continue
            weights = np.asarray(self._text.backend.numpy(stages["weights"]), np.float64)
            for head in range(attention.heads):
                self._by_place[HeadAddress(trace.layer, kind, head)] = self._row(weights[head], kind)

    def _row(self, weights: Floats, kind: str) -> tuple[float | None, tuple[int, float] | None]:
        link, weight = self._link, None
        if link is not None and link.kind == kind:
            weight = float(weights[np.ix_(np.asarray(link.queries), np.asarray(link.keys))].sum(-1).mean())
        row = weights[list(self._positions)].mean(0)
        key = int(row.argmax())
        is_learned_key = kind == "self" and key >= self._text.count  # a key that no token stands for
        return weight, None if is_learned_key else (key, float(row[key]))

    def of(self, place: HeadAddress) -> tuple[float | None, tuple[int, float] | None]:
        return self._by_place.get(place, (None, None))
