"""A sweep: one branch for each change of one head, through the layers above it, measured at the end; the changes.

The text's own run goes along once and stays as the trunk. Branches run in portions that fit the memory given; where
not even their vectors fit together, several sweeps begin at the layers where theirs leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, ClassVar, Literal, TypeAlias, assert_never

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from attncli.arrays.backend import SCORE_ITEM, Array, Backend
from attncli.arrays.numpy_backend import normal
from attncli.errors import InputError
from attncli.features.effects.measures import LOGITS_AT_ONCE, Reader, Readings, SweepReading, refuse_overflow
from attncli.features.effects.places import HeadAddress, attentions, may_ask_some, may_start_late
from attncli.inputs.token import Token
from attncli.measure.row_facts import Floats
from attncli.mechanism.block import run_block
from attncli.mechanism.context import Context, Intervention, Interventions, Kind, KnockOut, Replace, Weights, Zero
from attncli.mechanism.spec import Block, Experts, HeadSelection, Mlp, Spec
from attncli.mechanism.trace import LayerTrace
from attncli.models.estimate import ComputeWork, CostEstimate, estimate, seconds_of, work_of
from attncli.models.model import Model
from attncli.models.run import LeavingBranches, Trunk, grow, run_layers

# How much memory a sweep takes, how many branches run together within it, and roughly how long it takes.

ROWS_AT_ONCE = 1024
"""Vectors that one matrix product takes: more of them make it no faster."""
SCORES = 3
"""Arrays of the size of a branch's scores that are alive at once."""
LOGITS = 3
"""Arrays of the size of a portion of logits that are alive at once."""
SHARE = 0.5
"""How much of the memory given is for the vectors of branches that wait; the rest is for those that run."""


class BranchPlan(Struct, frozen=True):
    """How branches fit. at_once: how many run together. waiting: how many may have left and wait for the next layer.
    bytes: what the sweep takes at the peak, besides the program itself."""

    at_once: int
    waiting: int
    bytes: int

    def groups(self, places: Sequence[HeadAddress], variants: int) -> Iterator[list[HeadAddress]]:
        """The places by sweeps, in order; each begins at the layer of its first place."""
        size = max(self.waiting // variants, 1)
        for start in range(0, len(places), size):
            yield list(places[start : start + size])


def plan_branches(
    spec: Spec, count: int, branches: int, dtype: str, memory: int | None, *, predicts: bool = False
) -> BranchPlan:
    """The room that `branches` branches of a text of `count` tokens have in `memory` bytes, None for any amount.

    predicts: whether next tokens are measured, which takes the output head and a portion of logits. At least one branch
    at a time runs, whatever the memory: `least` tells what that takes.
    """
    item = SCORE_ITEM[dtype]
    branch_bytes = count * spec.d_model * item
    running = running_bytes(spec, count, dtype)
    base = _base(spec, count, dtype) + (_head(spec, dtype) if predicts else 0)
    most_at_once = max(min(-(-ROWS_AT_ONCE // count), branches), 1)
    if memory is None:
        return BranchPlan(most_at_once, max(branches, 1), base + most_at_once * running + branches * branch_bytes)
    free = max(memory - base, 0)
    at_once = max(min(int(free * SHARE) // running, most_at_once), 1)
    waiting = max(min((free - at_once * running) // branch_bytes, branches), 1)
    return BranchPlan(at_once, waiting, base + at_once * running + waiting * branch_bytes)


def least_bytes(spec: Spec, count: int, dtype: str, *, predicts: bool = False) -> int:
    """Bytes that a sweep takes that runs one branch at a time. predicts: as of `plan_branches`."""
    return plan_branches(spec, count, 1, dtype, 0, predicts=predicts).bytes


def branch_cost(spec: Spec, count: int, dtype: str, *, predicts: bool = False) -> CostEstimate:
    """What a text of `count` tokens takes of which one run at a time is measured. predicts: as of `plan_branches`."""
    return replace(
        estimate(spec, count, dtype=dtype), memory={"branches": least_bytes(spec, count, dtype, predicts=predicts)}
    )


def foretell(
    spec: Spec,
    count: int,
    places: Sequence[HeadAddress],
    dtype: str,
    memory: int,
    *,
    predicts: bool = False,
    draws: int = 0,
) -> CostEstimate:
    """What a sweep over these places takes for a text of `count` tokens in `memory` bytes.

    predicts: as of `plan_branches`.
    draws: how many random changes follow, for the heads that are compared with them: which those are is not known yet,
    so that they count as evenly spread over the places.
    """
    work = sweep_work(spec, count, places, 1)
    seconds = seconds_of(work, dtype) * (1 + draws / len(places))
    widest = max(len(places), draws)
    sweep_bytes = plan_branches(spec, count, widest, dtype, memory, predicts=predicts).bytes
    return replace(
        estimate(spec, count, dtype=dtype),
        multiply_adds=work.products,
        memory={"branches": sweep_bytes},
        seconds=seconds,
        branches=len(places),
    )


def running_bytes(spec: Spec, count: int, dtype: str) -> int:
    """Bytes that one branch takes while it goes through a layer: its vectors, the feed-forward part's, its scores."""
    width = max(3 * _inner(block) + 4 * spec.d_model + _heads_wide(block) for block in spec.blocks)
    heads = max(attention.heads for block in spec.blocks for _, attention in attentions(block))
    return count * (width + SCORES * heads * count) * SCORE_ITEM[dtype]


def _base(spec: Spec, count: int, dtype: str) -> int:
    """What the own run takes, one layer's weights, and what enters each layer."""
    run_bytes = estimate(spec, count, kept_stages=2, dtype=dtype).peak
    layer = max(work_of(spec, [block], count).weights for block in spec.blocks)
    return run_bytes + (layer + len(spec.blocks) * count * spec.d_model) * SCORE_ITEM[dtype]


def _head(spec: Spec, dtype: str) -> int:
    """What an output head takes, and the logits that are in memory at once with what becomes of them."""
    rows = 0 if spec.head is None else spec.vocabulary * spec.d_model * SCORE_ITEM[dtype]
    return rows + LOGITS * min(LOGITS_AT_ONCE, ROWS_AT_ONCE * spec.vocabulary) * 8


def _inner(block: Block) -> int:
    match block.mlp:
        case Mlp(width):
            return width
        case Experts(_, per_token, width):
            return per_token * width
        case None:
            return 0
        case _:
            assert_never(block.mlp)


def _heads_wide(block: Block) -> int:
    return sum(
        2 * attention.heads * (attention.head_dim + attention.v_dim)
        + 2 * attention.kv_heads * (attention.head_dim + attention.v_dim)
        for _, attention in attentions(block)
    )


def sweep_work(spec: Spec, count: int, places: Sequence[HeadAddress], variants: int) -> ComputeWork:
    """What there is to compute for these places: each one's branches go through its own layer and those above."""
    layers = [work_of(spec, [block], count) for block in spec.blocks]
    rest_of_run = [
        ComputeWork(0, sum(work.products for work in layers[layer:]), sum(work.scores for work in layers[layer:]))
        for layer in range(len(layers))
    ]
    whole_run = work_of(spec, spec.blocks, count)
    branches = [
        (rest_of_run[layer], variants * len(list(group)))
        for layer, group in groupby(places, key=lambda place: place.layer)
    ]
    return ComputeWork(
        whole_run.weights,
        whole_run.products + sum(work.products * times for work, times in branches),
        whole_run.scores + sum(work.scores * times for work, times in branches),
    )


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
        return self.model.context(self.tokens, self.backend, keep)


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
    budget: BranchPlan,
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
        branch_rows = slice(rows.start - late, rows.stop - late)
        readings.add(
            leaver.ran, [reader.read(part if rows_only else part[:, branch_rows]) for part in branched.branches]
        )
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

    def leave(self, trace: LayerTrace, weights: Weights) -> Iterator[LeavingBranches]:
        if self._on_trace is not None:
            self._on_trace(trace)
        kinds: tuple[Kind, ...] = ("self", "cross")
        for kind in kinds:
            places = self._group.get((trace.layer, kind), [])
            if not places:
                continue
            head_values = self._backend.numpy(of_kind(trace, kind).stages["mixed"])
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
                        yield LeavingBranches(kind, self._backend.array(np.stack(waiting)))
                        waiting = []
            if waiting:
                yield LeavingBranches(kind, self._backend.array(np.stack(waiting)))


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


# Changes: what a head mixes after it is taken away, or after one of its links is.

Mixed: TypeAlias = Mapping[tuple[int, Kind], Numbers]
"""What the heads of each attention mix, [head, token, v_dim]; [head, 1, v_dim] for a mean over tokens."""

BASELINE_SEED = 0
"""Seed of the random directions."""


class ByZero(Struct, frozen=True):
    """A head passes on nothing. Source: Michel et al., 2019; Voita et al., 2019."""

    name: ClassVar[Literal["zero"]] = "zero"


class ByMean(Struct, frozen=True, eq=False):
    """A head passes on, at every token, the mean of what it mixes over the tokens of texts. of: those means, None for
    this text's own. Source: Wang et al., Interpretability in the wild, 2022."""

    of: Mixed | None = None
    name: ClassVar[Literal["mean"]] = "mean"


class ByResample(Struct, frozen=True, eq=False):
    """A head passes on what it mixes in another text, token by token. Source: Chan et al., Causal scrubbing, 2022."""

    of: Mixed
    tokens: Sequence[Token]
    name: ClassVar[Literal["resample"]] = "resample"


By: TypeAlias = ByZero | ByMean | ByResample


class CutLink(Struct, frozen=True):
    """Which queries look at which keys, by position; of words, every pair of their pieces."""

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    kind: Kind = "self"


def of_kind(trace: LayerTrace, kind: Kind) -> LayerTrace:
    """The part of a layer's trace that is about one of its attentions."""
    kind_trace = trace if kind == "self" else trace.cross
    assert kind_trace is not None
    return kind_trace


def ablate_heads(text: SweepText, by: By) -> Change:
    """Every head taken away in that way."""

    def change(trace: LayerTrace, weights: Weights, kind: Kind) -> Numbers:
        values = text.backend.numpy(of_kind(trace, kind).stages["mixed"])
        return _replacement(by, values, trace.layer, kind)

    return change


def ablate_heads_together(text: SweepText, by: By, selection: HeadSelection) -> Joint:
    """All chosen heads taken away at once, by what they mix in the text's own run."""

    def joint(trace: LayerTrace) -> Interventions:
        changes: dict[tuple[int, Kind], Sequence[Intervention]] = {}
        for kind, attention in attentions(text.model.spec.blocks[trace.layer]):
            heads = tuple(head for head in range(attention.heads) if selection.has(trace.layer, head))
            if not heads:
                continue
            if isinstance(by, ByZero):
                changes[trace.layer, kind] = (Zero(heads),)
                continue
            head_values = text.backend.numpy(of_kind(trace, kind).stages["mixed"])
            values = _replacement(by, head_values, trace.layer, kind)[list(heads)]
            changes[trace.layer, kind] = (Replace(heads, text.backend.array(values)),)
        return changes

    return joint


def _replacement(by: By, values: Numbers, layer: int, kind: Kind) -> Numbers:
    match by:
        case ByZero():
            return np.zeros_like(values)
        case ByMean(None):
            mean = values.mean(-2, keepdims=True, dtype=np.float64)
        case ByMean(of) | ByResample(of):
            assert of is not None
            mean = of[layer, kind]
        case _:
            assert_never(by)
    return np.broadcast_to(mean.astype(values.dtype), values.shape)


def cut_link(text: SweepText, link: CutLink) -> Change:
    """Every head with the link cut; what it mixes differs in the queries of the link alone."""

    def change(trace: LayerTrace, weights: Weights, kind: Kind) -> Numbers:
        block, queries = text.model.spec.blocks[trace.layer], list(link.queries)
        attention = dict(attentions(block))[kind]
        interventions = {(trace.layer, kind): (KnockOut(tuple(range(attention.heads)), link.queries, link.keys),)}
        # whole, as the own run was: the same products, bit for bit
        context = replace(text.context(), interventions=interventions)
        without = run_block(text.backend, block, weights, trace.before, context, trace.layer)
        values = text.backend.numpy(of_kind(trace, kind).stages["mixed"]).copy()
        values[:, queries] = text.backend.numpy(of_kind(without, kind).stages["mixed"])[:, queries]
        return values

    return change


def cut_link_together(text: SweepText, link: CutLink, selection: HeadSelection) -> Joint:
    """The link cut in all chosen heads at once."""

    def joint(trace: LayerTrace) -> Interventions:
        attention = dict(attentions(text.model.spec.blocks[trace.layer])).get(link.kind)
        heads = () if attention is None else tuple(h for h in range(attention.heads) if selection.has(trace.layer, h))
        return {(trace.layer, link.kind): (KnockOut(heads, link.queries, link.keys),)} if heads else {}

    return joint


def put_values(text: SweepText, of: Mixed, positions: Sequence[int]) -> Change:
    """Every head with what it mixes in another text put in at these tokens."""

    def change(trace: LayerTrace, weights: Weights, kind: Kind) -> Numbers:
        values = text.backend.numpy(of_kind(trace, kind).stages["mixed"]).copy()
        values[:, list(positions)] = of[trace.layer, kind][:, list(positions)]
        return values

    return change


def random_directions(layer: int, kind: Kind, head: int, values: Numbers, replacement: Numbers, draws: int) -> Numbers:
    """As far from `values` as `replacement` is at every token, in random directions: [draw, token, v_dim].

    own, other: [token, v_dim]. Each direction is uniform on the sphere, from a stream of its own by layer, attention,
    head, token and draw.
    """
    change = replacement.astype(np.float64) - values
    variants = np.repeat(values.astype(np.float64)[None], draws, 0)
    for token in np.flatnonzero(change.any(-1)):
        size = float(np.linalg.norm(change[token]))
        for draw in range(draws):
            name = f"effect\0{layer}\0{kind}\0{head}\0{token}\0{draw}"
            direction = normal(BASELINE_SEED, name, (values.shape[-1],)).astype(np.float64)
            variants[draw, token] += direction * (size / float(np.linalg.norm(direction)))
    return variants.astype(values.dtype)


def mixed_of(text: SweepText) -> tuple[dict[tuple[int, Kind], Numbers], Array]:
    """What every head mixes in a text, and what leaves its last layer, [token, width]."""
    by_layer: dict[tuple[int, Kind], Numbers] = {}
    spec, store, backend = text.model.spec, text.model.store, text.backend
    after = store.embed(backend, text.tokens)
    for trace in run_layers(spec, store, backend, after, text.context(), range(len(spec.blocks))):
        for kind, _ in attentions(spec.blocks[trace.layer]):
            by_layer[trace.layer, kind] = backend.numpy(of_kind(trace, kind).stages["mixed"])
        after = trace.after
    return by_layer, after


def resample_from(text: SweepText) -> ByResample:
    """Every head passes on what it mixes in this text."""
    return ByResample(mixed_of(text)[0], text.tokens)


def means_of(texts: Iterable[SweepText]) -> Mixed:
    """What every head mixes, the mean over all tokens of all texts, [head, 1, v_dim]. Raises InputError for no text."""
    sums: dict[tuple[int, Kind], Numbers] = {}
    count = 0
    for text in texts:
        count += text.count
        for key, values in mixed_of(text)[0].items():
            total = values.sum(-2, keepdims=True, dtype=np.float64)
            sums[key] = sums[key] + total if key in sums else total
    if not count:
        raise InputError("the reference holds no text", expected="at least one line")
    return {key: total / count for key, total in sums.items()}


def same_length(tokens_a: Sequence[Token], tokens_b: Sequence[Token], what: str) -> None:
    """Raise InputError unless both texts have as many tokens. what: what the other text is called."""
    if len(tokens_a) != len(tokens_b):
        texts = [" ".join(token.text for token in tokens) for tokens in (tokens_a, tokens_b)]
        raise InputError(
            "the text has {tokens_a} tokens, {what} has {tokens_b}",
            where=f"{texts[0]} | {texts[1]}",
            expected="as many tokens in both: they stand for each other one by one",
            tokens_a=len(tokens_a),
            what=what,
            tokens_b=len(tokens_b),
        )
