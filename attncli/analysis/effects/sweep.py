"""A sweep: one branch for each change of one head, through the layers above it, measured at the end.

The text's own run goes along once and stays as the trunk. Branches run in portions that fit the memory given; where
not even their vectors fit together, several sweeps begin at the layers where theirs leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from msgspec import Struct, field

from attncli.analysis.effects.measures import Reader, Readings, SweepReading, refuse_overflow
from attncli.analysis.effects.places import HeadAddress, may_ask_some, may_start_late
from attncli.analysis.effects.sweep_memory import MemoryBudget
from attncli.analysis.visible_keys import Floats
from attncli.arrays.backend import Array, Backend
from attncli.inputs.token import Token
from attncli.mechanism.context import Context, Weights
from attncli.mechanism.intervention import Interventions, Kind
from attncli.mechanism.trace import LayerTrace
from attncli.models.branches import Leaving, Trunk, grow
from attncli.models.model import Model

Numbers = np.ndarray[Any, Any]
Change = Callable[[LayerTrace, Weights, Kind], Numbers]
"""What each head of an attention would mix after the change, [head, token, v_dim], given its layer's own trace."""
Joint = Callable[[LayerTrace], Interventions]
"""Every change of a layer at once."""
Variants = Callable[[HeadAddress, Numbers, Numbers], Numbers]
"""Of a head, what it mixes and what it would, [token, v_dim]: what is run, [variant, token, v_dim]."""


class SweepText(Struct, frozen=True, eq=False):
    """A text on its model, ready to be run. backend: what it is computed in."""

    model: Model
    tokens: Sequence[Token]
    backend: Backend

    @property
    def count(self) -> int:
        """How many tokens there are."""
        return len(self.tokens)

    def context(self, keep: frozenset[str] = frozenset()) -> Context:
        """What every layer must know."""
        memory = self.model.memory
        return Context(
            np.asarray([token.index for token in self.tokens]),
            self.tokens[-1].index + 1,
            memory=None if memory is None else self.backend.cast(memory, self.backend.dtype),
            keep=keep,
        )


class SweepPlan(Struct, frozen=True, eq=False):
    """What is changed. places: one head at a time, each by `change`; variants: those run of each; many: how many.

    start: the first token that changes. joint: every change at once, None for no such run.
    """

    places: Sequence[HeadAddress]
    change: Change
    variants: Variants = field(default=lambda place, values, replacement: replacement[None])
    many: int = 1
    start: int = 0
    joint: Joint | None = None


class SweepResult(Struct, frozen=True, eq=False):
    """What a sweep found. readings: by measure, [place, variant]; together: of the run with every change, [1]; None
    without; reader: what the own run was like."""

    readings: Readings
    together: Readings | None
    reader: Reader


def sweep(
    text: SweepText,
    plan: SweepPlan,
    reading: SweepReading,
    budget: MemoryBudget,
    *,
    on_trace: Callable[[LayerTrace], None] = lambda trace: None,
    on_progress: Callable[[float], None] = lambda share: None,
) -> SweepResult:
    """Change one head at a time and measure.

    on_trace: is handed each layer's own trace, with its weights. on_progress: the share done.
    """
    spec, rows = text.model.spec, reading.rows(text.count)
    rows_only = may_ask_some(spec)
    late = min(plan.start, rows.start) if may_start_late(spec) else 0
    entering: dict[int, Array] = {0: text.model.store.embed(text.backend, text.tokens)}
    readings = _SweepReadings(len(plan.places), plan.many)
    together: Readings | None = None
    reader: Reader | None = None
    groups = list(budget.groups(plan.places, plan.many)) or [[]]
    for number, group in enumerate(groups):
        leaver = _Leaver(text, group, plan, budget.at_once, on_trace if number == 0 else None)
        progress = _Progress(on_progress, number, len(groups), group, len(spec.blocks))
        first = group[0].layer if number else 0
        trunk = Trunk(
            spec, text.model.store, text.backend, text.context(frozenset(("weights",) if number == 0 else ())),
            first, late, rows if rows_only else None, budget.at_once, plan.joint if number == 0 else None,
        )  # fmt: skip

        def on_layer(layer: int, hidden: Array, progress: _Progress = progress) -> None:
            entering[layer] = hidden
            progress.report_layer(layer)

        branched = grow(trunk, entering[first], leaver.leave, on_layer)
        if reader is None:
            own_hidden = branched.hidden if rows_only else branched.hidden[rows]
            refuse_overflow(text.backend, own_hidden)
            reader = reading.reader(text.model, text.backend, own_hidden, rows.start)
            if branched.joint is not None:
                together = reader.read(branched.joint[None] if rows_only else branched.joint[None][:, rows])
        here = slice(rows.start - late, rows.stop - late)
        readings.add(leaver.ran, [reader.read(part if rows_only else part[:, here]) for part in branched.branches])
    assert reader is not None
    on_progress(1.0)
    return SweepResult(readings.result(reader.baseline), together, reader)


class _Leaver:
    """Makes the branches of a group of places as their layers are reached.

    ran: of each variant, whether it was run; one that leaves what a head mixes bit for bit as it was is not, nor one of
    a head that W_O writes nowhere.
    """

    def __init__(
        self,
        text: SweepText,
        group: Sequence[HeadAddress],
        plan: SweepPlan,
        at_once: int,
        on_trace: Callable[[LayerTrace], None] | None,
    ) -> None:
        self._backend, self._plan, self._at_once, self._on_trace = text.backend, plan, at_once, on_trace
        self._group = {
            key: list(head_places) for key, head_places in groupby(group, key=lambda place: (place.layer, place.kind))
        }
        self.ran: list[bool] = []

    def leave(self, trace: LayerTrace, weights: Weights) -> Iterator[Leaving]:
        if self._on_trace is not None:
            self._on_trace(trace)
        kinds: tuple[Kind, ...] = ("self", "cross")
        for kind in kinds:
            places = self._group.get((trace.layer, kind), [])
            if not places:
                continue
            of = trace if kind == "self" else trace.cross
            assert of is not None
            head_values = self._backend.numpy(of.stages["mixed"])
            idle = _idle(weights(f"{'attn' if kind == 'self' else 'cross'}.o.weight"), *head_values.shape[::2])
            replacement = self._plan.change(trace, weights, kind)
            waiting: list[Numbers] = []
            for place in places:
                for values in self._plan.variants(place, head_values[place.head], replacement[place.head]):
                    same = np.array_equal(values, head_values[place.head], equal_nan=True)
                    differs = not (same or idle[place.head])
                    self.ran.append(differs)
                    if differs:
                        whole = head_values.copy()
                        whole[place.head] = values
                        waiting.append(whole)
                    if len(waiting) == self._at_once:
                        yield Leaving(kind, self._backend.array(np.stack(waiting)))
                        waiting = []
            if waiting:
                yield Leaving(kind, self._backend.array(np.stack(waiting)))


def _idle(projection: Array | None, heads: int, width: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether each head's columns of W_O, [out, head·v_dim], are all 0."""
    if projection is None:
        return np.zeros(heads, bool)
    is_idle: np.ndarray[Any, np.dtype[np.bool_]] = np.asarray(
        [not bool((projection[:, head * width : (head + 1) * width] != 0).any()) for head in range(heads)]
    )
    return is_idle


class _SweepReadings:
    """Readings of branches as they come, put where their places are."""

    def __init__(self, places: int, variants: int) -> None:
        self._shape = (places, variants)
        self._ran: list[bool] = []
        self._parts: list[Readings] = []

    def add(self, ran: Sequence[bool], parts: Sequence[Readings]) -> None:
        self._ran += ran
        self._parts += parts

    def result(self, baseline: Readings) -> Readings:
        """By measure [place, variant]. baseline: the measures of what was not run, [1]."""
        ran = np.asarray(self._ran, bool)
        whole: Readings = {}
        for name, value in baseline.items():
            column: Floats = np.full(ran.shape, value[0])
            if self._parts:
                column[ran] = np.concatenate([part[name] for part in self._parts])
            whole[name] = column.reshape(self._shape)
        return whole


class _Progress(Struct, frozen=True):
    """The share done of sweeps that begin at different layers."""

    progress: Callable[[float], None]
    number: int
    groups: int
    group: Sequence[HeadAddress]
    layers: int

    def report_layer(self, layer: int) -> None:
        """Layer `layer` begins: what is done grows with the square of how many branches go along."""
        first = self.group[0].layer if self.group else 0
        share = ((layer - first) / max(self.layers - first, 1)) ** 2
        self.progress((self.number + share) / self.groups)
