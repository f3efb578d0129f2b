"""A sweep: one branch for each change of one head, through the layers above it, measured at the
end; the changes.

The text's own run goes along once and stays as the trunk. Branches run in portions that fit the
memory given; where not even their vectors fit together, several sweeps begin at the layers where
theirs leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any, ClassVar, Literal, TypeAlias, assert_never

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from attncli.arrays.backend import SCORE_ITEM, Array, Backend
from attncli.arrays.numpy_backend import normal
from attncli.errors import InputError, LimitError
from attncli.features.effects.measures import (
    LOGITS_AT_ONCE,
    Reader,
    Readings,
    SweepReading,
    refuse_overflow,
)
from attncli.features.effects.places import HeadAddress, may_query_some, may_start_late
from attncli.inputs.token import Token, readable_names
from attncli.language import message
from attncli.measure.row_facts import Bools
from attncli.mechanism.block import run_block
from attncli.mechanism.context import (
    Context,
    Intervention,
    Interventions,
    Kind,
    KnockOut,
    Replace,
    Weights,
    Zero,
)
from attncli.mechanism.spec import Block, Experts, HeadSelection, Mlp, Spec, attentions, most_heads
from attncli.mechanism.trace import LayerTrace
from attncli.models.estimate import (
    ComputeWork,
    CostEstimate,
    estimate,
    seconds_of,
    table_bytes_at_once,
    with_held_weights,
    work_of,
)
from attncli.models.model import Model
from attncli.models.passes import decoding_seconds
from attncli.models.run import BranchResult, LeavingBranches, Trunk, run_branches, run_layers

# How much memory a sweep takes, how many branches run together within it, and roughly how long it
# takes.

ROWS_AT_ONCE = 1024
"""Vectors that one matrix product takes: more of them make it no faster."""
SCORES = 3
"""Arrays of the size of a branch's scores that are alive at once."""
LOGITS = 3
"""Arrays of the size of a portion of logits that are alive at once."""
SHARE = 0.5
"""How much of the memory given is for the vectors of branches that wait; the rest is for those that
run.
"""


class BranchPlan(Struct, frozen=True):
    """How many changed runs ("branches") fit in memory.

    at_once: how many are computed together.
    waiting: how many can be held between layers.
    bytes: the sweep's peak memory, without the program's own.
    """

    at_once: int
    waiting: int
    bytes: int

    def groups(self, places: Sequence[HeadAddress], variants: int) -> Iterator[list[HeadAddress]]:
        """Split the heads, in order, into groups whose branches (`variants` for each head) can be
        held at once; each group is one pass from the layer of its first head."""
        size = max(self.waiting // variants, 1)
        for start in range(0, len(places), size):
            yield list(places[start : start + size])


class SweepSize(Struct, frozen=True):
    """What determines the memory and time of sweeps (runs with one head changed at a time) over a
    text.

    count: its tokens.
    predicts: whether next tokens are measured, which adds the output head and logits.
    """

    spec: Spec
    count: int
    dtype: str
    predicts: bool = False

    def plan(self, branches: int, memory: int | None) -> BranchPlan:
        """How many of the `branches` (changed runs) are computed at once, and how many more wait
        between layers, in `memory` bytes; None for any amount. At least one runs, even where that
        takes more: see `least_bytes`."""
        waiting_bytes = self.count * self.spec.d_model * SCORE_ITEM[self.dtype]  # of one branch
        running_bytes = self._running_bytes  # of one branch
        base = self._base_bytes
        # as many branches as give one matrix product `ROWS_AT_ONCE` vectors
        rounded_up = -(-ROWS_AT_ONCE // self.count)
        most_at_once = max(min(rounded_up, branches), 1)
        if memory is None:
            return BranchPlan(
                at_once=most_at_once,
                waiting=max(branches, 1),
                bytes=base + most_at_once * running_bytes + branches * waiting_bytes,
            )
        free = max(memory - base, 0)
        # running branches get `SHARE` of what is free, waiting ones the rest; one of each there must be
        at_once = max(min(int(free * SHARE) // running_bytes, most_at_once), 1)
        rest = free - at_once * running_bytes
        waiting = max(min(rest // waiting_bytes, branches), 1)
        peak = base + at_once * running_bytes + waiting * waiting_bytes
        return BranchPlan(at_once, waiting, peak)

    @property
    def least_bytes(self) -> int:
        """Memory of a sweep with one branch at a time, in bytes."""
        return self.plan(1, 0).bytes

    def refuse_over(self, memory: int | None) -> None:
        """Raise LimitError if even one changed run at a time takes more than `memory` bytes, None
        for any amount.
        """
        if memory is not None and self.least_bytes > memory:
            raise over_memory(self.least_bytes, memory)

    def run_cost(self) -> CostEstimate:
        """Estimated cost of running the text once, unchanged, and measuring it."""
        return replace(
            estimate(self.spec, self.count, dtype=self.dtype), memory={"branches": self.least_bytes}
        )

    def sweep_cost(
        self,
        places: Sequence[HeadAddress],
        memory: int,
        draws: int = 0,
        *,
        start: int = 0,
        passes: int = 1,
    ) -> CostEstimate:
        """Estimated cost of changing each of these heads in turn, within `memory` bytes.

        draws: how many random changes follow, for the heads that are compared with them: which
            those are is not known yet, so that they count as evenly spread over the places.
        start: the first token that changes; where none reads later ones, those before it run once.
        passes: how often each change runs, twice where attention is held besides.
        """
        work = sweep_work(self.spec, self.count, places)
        skipped = 0.0  # the share of tokens that only the unchanged run computes
        if may_start_late(self.spec):
            skipped = start / self.count
        share = passes * (1 + draws / max(len(places), 1)) * (1 - skipped)
        # the changes of heads and the random ones are two sweeps: the larger one needs the memory
        most_branches = max(len(places), draws)
        return replace(
            self.run_cost(),
            multiply_adds=work.products,
            memory={"branches": self.plan(most_branches, memory).bytes},
            seconds=seconds_of(work, self.dtype) * share,
            branches=len(places),
        )

    @property
    def _running_bytes(self) -> int:
        """Bytes that one changed run takes inside a layer: its vectors, the feed-forward part's and
        its scores.
        """
        # numbers per token, 3 of the feed-forward part's width and 4 of the stream's at once
        width = max(
            3 * _inner_width(block) + 4 * self.spec.d_model + _heads_width(block)
            for block in self.spec.blocks
        )
        scores = SCORES * most_heads(self.spec) * self.count
        return self.count * (width + scores) * SCORE_ITEM[self.dtype]

    @property
    def _base_bytes(self) -> int:
        """Bytes beside the changed runs: the unchanged run with what enters each layer, one layer's
        weights, and, where next tokens are measured, the output head and the logits held at
        once."""
        spec = self.spec
        item = SCORE_ITEM[self.dtype]
        layer = max(work_of(spec, [block], self.count).weights for block in spec.blocks)
        numbers = layer + len(spec.blocks) * self.count * spec.d_model
        run_bytes = (
            estimate(spec, self.count, kept_stages=2, dtype=self.dtype).peak + numbers * item
        )
        if not self.predicts:
            return run_bytes
        if spec.head is None:
            head_bytes = 0
        else:
            head_bytes = table_bytes_at_once(spec.vocabulary * spec.d_model, self.dtype)
        logits = LOGITS * min(LOGITS_AT_ONCE, ROWS_AT_ONCE * spec.vocabulary)
        return run_bytes + head_bytes + logits * 8  # logits are float64


def pass_cost(model: Model, count: int) -> CostEstimate:
    """Estimated cost of running a text of `count` tokens once, unchanged, and measuring its next
    token: quantised weights that are not kept are decoded in each pass."""
    expected = SweepSize(model.spec, count, model.backend.dtype, predicts=True).run_cost()
    seconds = expected.seconds + decoding_seconds(model, count)
    return with_held_weights(replace(expected, seconds=seconds), model.weights_in_memory)


def over_memory(needed: int, memory: int) -> LimitError:
    """The error for work that takes `needed` bytes where there may be `memory`."""
    what = message(
        "this would take about {needed:,} bytes of memory, there may be {memory:,}",
        needed=needed,
        memory=memory,
    )
    return LimitError(what, expected="less work, or a higher --max-memory", hint="a shorter text")


def _inner_width(block: Block) -> int:
    """Numbers per token inside a layer's feed-forward part, of a mixture those of the chosen
    experts; 0 without one.
    """
    match block.mlp:
        case Mlp(width):
            return width
        case Experts(_, per_token, width):
            return per_token * width
        case None:
            return 0
        case _:
            assert_never(block.mlp)


def _heads_width(block: Block) -> int:
    """Numbers per token in queries, keys, values and outputs of all heads of a layer, with room for
    a copy of each."""
    # heads · (head_dim + v_dim) are queries and outputs, kv_heads · (…) keys and values
    return sum(
        2 * (attention.heads + attention.kv_heads) * (attention.head_dim + attention.v_dim)
        for _, attention in attentions(block)
    )


def sweep_work(spec: Spec, count: int, places: Sequence[HeadAddress]) -> ComputeWork:
    """The operations of a sweep over a text of `count` tokens: the unchanged run, and for each head
    in `places` a run from its layer to the last."""
    layers = [work_of(spec, [block], count) for block in spec.blocks]
    whole_run = work_of(spec, spec.blocks, count)
    branches = [work for place in places for work in layers[place.layer :]]
    return ComputeWork(
        whole_run.weights,
        whole_run.products + sum(work.products for work in branches),
        whole_run.scores + sum(work.scores for work in branches),
    )


Numbers = np.ndarray[Any, Any]
Change = Callable[[LayerTrace, Weights, Kind], Numbers]
"""What each head of an attention would mix after the change, [head, token, v_dim], given its
layer's own trace.
"""
JointChange = Callable[[LayerTrace], Interventions]
"""Every change of a layer at once."""
Variants = Callable[[HeadAddress, Numbers, Numbers], Numbers]
"""Of a head, what it mixes and what it would, [token, v_dim]: what is run, [variant, token, v_dim].
"""


class SweepText(Struct, frozen=True, eq=False):
    """A tokenized text with the model that runs it.

    backend: what computes it, in which type.
    """

    model: Model
    tokens: Sequence[Token]
    backend: Backend

    @property
    def count(self) -> int:
        """How many tokens there are."""
        return len(self.tokens)

    def size(self, *, predicts: bool) -> SweepSize:
        """The `SweepSize` of sweeps over this text.

        predicts: whether next tokens are measured.
        """
        return SweepSize(self.model.spec, self.count, self.backend.dtype, predicts)

    def context(self, keep: frozenset[str] = frozenset()) -> Context:
        """The run context that every layer gets; `keep`: names of the stages that traces keep."""
        return self.model.context(self.tokens, self.backend, keep)

    def weighted_values(self, trace: LayerTrace, kind: Kind) -> Numbers:
        """Every head's output before W_O, A·V, in one attention of a layer, [head, token, v_dim],
        from the layer's trace."""
        return self.backend.numpy(trace_of_kind(trace, kind).stages["mixed"])


class SweepPlan(Struct, frozen=True, eq=False):
    """Which heads a sweep changes, and how.

    places: heads, one at a time, by `change`.
    variants: makes from own and changed output those that are run, `many` for each head.

    start: the first token that changes.
    joint: every change at once, None for no such run.
    hold: whether every changed run attends as the unchanged one does.
    """

    places: Sequence[HeadAddress]
    change: Change
    variants: Variants = field(default=lambda place, values, replacement: replacement[None])
    many: int = 1
    start: int = 0
    joint: JointChange | None = None
    hold: bool = False


class LastVectors(Struct, frozen=True, eq=False):
    """What leaves the last layer at one token, before the final norm: of the unchanged run, [width];
    of each changed one, [head, variant, width]; of the run with all changes at once, [width], None
    without one."""

    own: Array
    branches: Array
    together: Array | None


class SweepResult(Struct, frozen=True, eq=False):
    """What a sweep returns.

    readings: measures by name, [head, variant].
    together: those of the run with all changes at once, [1], None without one.
    reader: what measured them, with the unchanged run's values.
    vectors: those that were to be kept, None for none.
    """

    readings: Readings
    together: Readings | None
    reader: Reader
    vectors: LastVectors | None = None


def sweep(
    text: SweepText,
    plan: SweepPlan,
    reading: SweepReading,
    memory: int | None,
    *,
    keep_at: int | None = None,
    on_trace: Callable[[LayerTrace], None] = lambda trace: None,
    on_progress: Callable[[float], None] = lambda share: None,
) -> SweepResult:
    """Run the text once for each head of the plan with that head's output changed, and measure each
    run.

    memory: bytes there may be, None for any amount.
    keep_at: the token at which what leaves the last layer is kept, one of `reading.rows`; None for
        none.
    on_trace: is handed each layer's own trace, with its weights.
    on_progress: the share done.
    """
    spec = text.model.spec
    rows = reading.rows(text.count)
    rows_only = may_query_some(spec)  # else the last layer runs for all, and these are cut out

    # the first token that branches compute: none before a change is touched by it
    branch_start = 0
    if may_start_late(spec):
        branch_start = min(plan.start, rows.start)
    branch_rows = slice(rows.start - branch_start, rows.stop - branch_start)

    # groups of branches that fit in memory, each a pass through the layers: the first pass starts
    # at the bottom, keeps what enters each layer, and runs all changes at once besides; later ones
    # start at the layer of their first head
    entering: dict[int, Array] = {0: text.model.store.embed(text.backend, text.tokens)}
    ran: list[bool] = []  # whether each variant of each head needed a run, in the plan's order
    parts: list[Readings] = []
    together: Readings | None = None
    reader: Reader | None = None
    kept_outputs: list[BranchResult] = []  # of each pass, at the token `keep_at`
    budget = text.size(predicts=reading.predicts).plan(len(plan.places) * plan.many, memory)
    # without heads one empty group, for the unchanged run and all changes at once
    groups = list(budget.groups(plan.places, plan.many)) or [[]]
    for number, group in enumerate(groups):
        is_first = number == 0
        begin = 0
        if group:
            begin = group[0].layer
        first_layer = 0 if is_first else begin
        # the first pass hands them to `on_trace`; branches whose attention is held need them in each
        keeps_weights = is_first or plan.hold
        trunk = Trunk(
            spec,
            text.model.store,
            text.backend,
            text.context(frozenset({"weights"} if keeps_weights else ())),
            first=first_layer,
            start=branch_start,
            asking=rows if rows_only else None,
            at_once=budget.at_once,
            joint=plan.joint if is_first else None,
            hold=plan.hold,
        )
        leaver = _Leaver(text, group, plan, trunk.part_size, on_trace if is_first else None)

        def on_layer(layer: int, hidden: Array, number: int = number, begin: int = begin) -> None:
            """Called before each layer: keep what enters it, [token, width], for later groups, and
            report the share of the sweep that is done. The defaults bind the group that runs now.
            """
            entering[layer] = hidden
            # what is done of a sweep grows with the square of how many branches go along
            share = (max(layer - begin, 0) / (len(spec.blocks) - begin)) ** 2
            on_progress((number + share) / len(groups))

        branched = run_branches(trunk, entering[first_layer], leaver.leave, on_layer)
        if not rows_only:
            branched = _with_rows(branched, rows, branch_rows)
        if reader is None:  # the first pass, which has the unchanged run and all changes at once
            refuse_overflow(text.backend, branched.hidden)
            reader = reading.reader(text.model, text.backend, branched.hidden, rows.start)
            if branched.joint is not None:
                together = reader.read(branched.joint[None])
        if keep_at is not None:
            kept_outputs.append(_output_at_token(text.backend, branched, keep_at - rows.start))
        ran += leaver.ran
        parts += [reader.read(part) for part in branched.branches]
    assert reader is not None
    on_progress(1.0)
    has_run = np.asarray(ran, bool).reshape(len(plan.places), plan.many)
    readings = _place_readings(has_run, parts, reader.baseline)
    vectors = None
    if kept_outputs:
        vectors = _last_vectors(text.backend, has_run, kept_outputs)
    return SweepResult(readings, together, reader, vectors)


def _with_rows(result: BranchResult, rows: slice, branch_rows: slice) -> BranchResult:
    """A sweep's result with what leaves the last layer at some tokens only.

    rows: those tokens in runs of the whole text.
    branch_rows: the same tokens in branches, which may begin at a later token.
    """
    joint = result.joint
    if joint is not None:
        joint = joint[rows]
    return BranchResult(
        result.hidden[rows], [part[:, branch_rows] for part in result.branches], joint
    )


class _Leaver:
    """Makes the changed runs ("branches") of a group of heads when the unchanged run reaches each
    head's layer.

    group: the heads, by layer, self before cross.
    part_size: how many branches are computed together.
    on_trace: called with each layer's unchanged trace; None for nobody.
    ran: of each variant of each head, in order, whether it was run: one that changes no bit of a
        head's output is not, nor one of a head whose part of W_O is all 0.
    """

    def __init__(
        self,
        text: SweepText,
        group: Sequence[HeadAddress],
        plan: SweepPlan,
        part_size: int,
        on_trace: Callable[[LayerTrace], None] | None,
    ) -> None:
        """Sort the heads of a group by the attention that they are in, (layer, kind).

        part_size: how many branches are computed together.
        on_trace: called with the trace of each layer of the unchanged run; None for nobody.
        """
        self._text = text
        self._plan = plan
        self._part_size = part_size
        self._on_trace = on_trace
        # the heads of one attention are neighbours in `group`, as `groupby` needs them
        self._group = {
            key: list(head_places)
            for key, head_places in groupby(group, key=lambda place: (place.layer, place.kind))
        }
        self.ran: list[bool] = []

    def leave(self, trace: LayerTrace, weights: Weights) -> Iterator[LeavingBranches]:
        """Called for each layer of the unchanged run: yield the branches that start in this layer,
        as the changed outputs of its heads, in portions computed together.

        trace: of the layer in the unchanged run.
        weights: the layer's own.
        """
        if self._on_trace is not None:
            self._on_trace(trace)
        kinds: tuple[Kind, ...] = ("self", "cross")
        for kind in kinds:
            if (trace.layer, kind) in self._group:
                changed = self._changed_values(trace, weights, kind)
                while portion := list(islice(changed, self._part_size)):
                    yield LeavingBranches(kind, self._text.backend.array(np.stack(portion)))

    def _changed_values(self, trace: LayerTrace, weights: Weights, kind: Kind) -> Iterator[Numbers]:
        """Yield the outputs of all heads, [head, token, v_dim], once for each variant of each head
        of the group, with that head's output replaced."""
        head_values = self._text.weighted_values(trace, kind)
        replacement = self._plan.change(trace, weights, kind)
        heads, _, width = head_values.shape
        prefix = "attn" if kind == "self" else "cross"
        idle = _idle_heads(weights(f"{prefix}.o.weight"), heads, width)
        for place in self._group[trace.layer, kind]:
            own_values = head_values[place.head]
            for values in self._plan.variants(place, own_values, replacement[place.head]):
                # a branch that ends as the unchanged run does needs no run
                is_same = np.array_equal(values, own_values, equal_nan=True)
                runs = not is_same and not idle[place.head]
                self.ran.append(runs)
                if runs:
                    changed = head_values.copy()
                    changed[place.head] = values
                    yield changed


def _idle_heads(projection: Array | None, heads: int, width: int) -> list[bool]:
    """For each head, whether its columns of W_O are all 0, so that it writes nothing.

    projection: W_O, [out, head·v_dim]; None for none, where every head writes.
    width: v_dim.
    """
    if projection is None:
        return [False] * heads
    columns = [slice(head * width, (head + 1) * width) for head in range(heads)]
    return [not bool((projection[:, part] != 0).any()) for part in columns]


def _place_readings(ran: Bools, parts: Sequence[Readings], baseline: Readings) -> Readings:
    """Arrange the measures of the branches that ran as [head, variant] where `ran` is true, and the
    baseline's, [1], elsewhere."""
    readings: Readings = {}
    for name, value in baseline.items():
        readings[name] = np.full(ran.shape, value[0])
        if parts:
            readings[name][ran] = np.concatenate([part[name] for part in parts])
    return readings


def _output_at_token(backend: Backend, result: BranchResult, row: int) -> BranchResult:
    """The last layer's output at one token, copied, so that the memory of the rest can be freed."""
    at = backend.array(np.array([row]))
    joint = result.joint
    if joint is not None:
        joint = backend.take(joint, at, 0)
    branches = [backend.take(part, at, 1) for part in result.branches]
    return BranchResult(backend.take(result.hidden, at, 0), branches, joint)


def _last_vectors(backend: Backend, ran: Bools, results: Sequence[BranchResult]) -> LastVectors:
    """The vectors of the branches that ran as [head, variant, width] where `ran` is true, the
    unchanged run's elsewhere.

    ran: whether each variant of each head needed a run, [head, variant].
    results: at one token; of several sweeps the first has all changes at once.
    """
    first = results[0]
    own = first.hidden
    # rows of the table below: 0 the unchanged run's, then the branches that ran, in order
    numbers = np.zeros(ran.shape, np.int64)
    numbers[ran] = np.arange(1, ran.sum() + 1)
    parts = [part[:, 0] for result in results for part in result.branches]
    table = backend.concat([own, *parts], 0)
    rows = backend.take(table, backend.array(numbers.reshape(-1)), 0)
    branches = rows.reshape((*ran.shape, own.shape[-1]))
    together = None if first.joint is None else first.joint[0]
    return LastVectors(own=own[0], branches=branches, together=together)


# Changes: what a head mixes after it is taken away, or after one of its links is.

Mixed: TypeAlias = Mapping[tuple[int, Kind], Numbers]
"""What the heads of each attention mix, [head, token, v_dim]; [head, 1, v_dim] for a mean over
tokens.
"""

BASELINE_SEED = 0
"""Seed of the random directions."""
DRAWS = 8
"""Random directions whose effects are averaged into a baseline."""


class ByZero(Struct, frozen=True):
    """Replaces a head's output by 0. Source: Michel et al., 2019; Voita et al., 2019."""

    name: ClassVar[Literal["zero"]] = "zero"


class ByMean(Struct, frozen=True, eq=False):
    """Replaces a head's output at every token by its mean over tokens.

    of: the means over reference texts, None for this text's own.

    Source: Wang et al., Interpretability in the wild, 2022.
    """

    of: Mixed | None = None
    name: ClassVar[Literal["mean"]] = "mean"


class ByResample(Struct, frozen=True, eq=False):
    """Replaces a head's output by that in another text of as many tokens, token by token. Source:
    Chan et al., Causal scrubbing, 2022."""

    of: Mixed
    tokens: Sequence[Token]
    name: ClassVar[Literal["resample"]] = "resample"


By: TypeAlias = ByZero | ByMean | ByResample


class CutLink(Struct, frozen=True):
    """Positions whose attention is cut: no query of `queries` sees any key of `keys`, in self- or
    cross-attention (`kind`)."""

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    kind: Kind = "self"


def trace_of_kind(trace: LayerTrace, kind: Kind) -> LayerTrace:
    """The trace of a layer's self-attention or of its cross-attention."""
    kind_trace = trace if kind == "self" else trace.cross
    assert kind_trace is not None
    return kind_trace


def ablate_heads(text: SweepText, by: By, trace: LayerTrace, kind: Kind) -> Numbers:
    """What replaces each head's output in one attention of a layer, as `by` says: [head, token,
    v_dim].
    """
    values = text.weighted_values(trace, kind)
    match by:
        case ByZero():
            return np.zeros_like(values)
        case ByMean(None):
            replacement = values.mean(-2, keepdims=True, dtype=np.float64)
        case ByMean(reference) | ByResample(reference):
            assert reference is not None
            replacement = reference[trace.layer, kind]
        case _:
            assert_never(by)
    # a mean, [head, 1, v_dim], is the same at every token
    return np.broadcast_to(replacement.astype(values.dtype), values.shape)


def ablate_heads_together(
    text: SweepText, by: By, selection: HeadSelection, trace: LayerTrace
) -> Interventions:
    """The interventions that replace the output of all selected heads of a layer in one run, as
    `by` says.
    """
    changes: dict[tuple[int, Kind], Sequence[Intervention]] = {}
    for kind, attention in attentions(text.model.spec.blocks[trace.layer]):
        heads = tuple(head for head in range(attention.heads) if selection.has(trace.layer, head))
        if heads and isinstance(by, ByZero):
            changes[trace.layer, kind] = (Zero(heads),)
        elif heads:
            values = ablate_heads(text, by, trace, kind)[list(heads)]
            changes[trace.layer, kind] = (Replace(heads, text.backend.array(values)),)
    return changes


def cut_link(
    text: SweepText, link: CutLink, trace: LayerTrace, weights: Weights, kind: Kind
) -> Numbers:
    """Each head's output with the link cut in it, [head, token, v_dim]; only the rows of the link's
    queries differ from the run's."""
    block = text.model.spec.blocks[trace.layer]
    queries = list(link.queries)
    heads = tuple(range(dict(attentions(block))[kind].heads))
    interventions = {(trace.layer, kind): (KnockOut(heads, link.queries, link.keys),)}
    # the whole layer again, not the link's rows alone: the same products as in the own run, bit for
    # bit
    context = replace(text.context(), interventions=interventions)
    without = run_block(text.backend, block, weights, trace.before, context, trace.layer)
    values = text.weighted_values(trace, kind).copy()
    values[:, queries] = text.weighted_values(without, kind)[:, queries]
    return values


def cut_link_together(
    text: SweepText, link: CutLink, selection: HeadSelection, trace: LayerTrace
) -> Interventions:
    """The interventions that cut the link in all selected heads of a layer in one run; empty for a
    layer without such attention."""
    attention = dict(attentions(text.model.spec.blocks[trace.layer])).get(link.kind)
    if attention is None:
        return {}
    heads = tuple(head for head in range(attention.heads) if selection.has(trace.layer, head))
    if not heads:
        return {}
    return {(trace.layer, link.kind): (KnockOut(heads, link.queries, link.keys),)}


def put_values(
    text: SweepText,
    of: Mixed,
    positions: Sequence[int],
    trace: LayerTrace,
    weights: Weights,
    kind: Kind,
) -> Numbers:
    """Each head's output, [head, token, v_dim], with that of another text, `of`, at these
    positions. It is a `Change` of a sweep once the first three arguments are bound.
    """
    del weights
    values = text.weighted_values(trace, kind).copy()
    tokens = list(positions)
    values[:, tokens] = of[trace.layer, kind][:, tokens]
    return values


def random_directions(place: HeadAddress, values: Numbers, replacement: Numbers) -> Numbers:
    """A head's output moved in random directions, at every token as far as `replacement` is from
    `values`: [draw, token, v_dim].

    values, replacement: [token, v_dim].

    Each direction is uniform on the sphere, from a stream of its own by layer, attention, head,
    token and draw.
    """
    change = replacement.astype(np.float64) - values
    variants = np.repeat(values.astype(np.float64)[None], DRAWS, 0)
    for token in np.flatnonzero(change.any(-1)):
        size = float(np.linalg.norm(change[token]))
        for draw in range(DRAWS):
            name = f"effect\0{place.layer}\0{place.kind}\0{place.head}\0{token}\0{draw}"
            direction = normal(BASELINE_SEED, name, (values.shape[-1],)).astype(np.float64)
            variants[draw, token] += direction * (size / float(np.linalg.norm(direction)))
    return variants.astype(values.dtype)


def mixed_of(text: SweepText) -> tuple[dict[tuple[int, Kind], Numbers], Array]:
    """Run a text unchanged and return every head's output before W_O, [head, token, v_dim], by
    (layer, kind), and what leaves the last layer, [token, width]."""
    by_layer: dict[tuple[int, Kind], Numbers] = {}
    spec = text.model.spec
    store = text.model.store
    backend = text.backend
    after = store.embed(backend, text.tokens)
    for trace in run_layers(spec, store, backend, after, text.context(), range(len(spec.blocks))):
        for kind, _ in attentions(spec.blocks[trace.layer]):
            by_layer[trace.layer, kind] = text.weighted_values(trace, kind)
        after = trace.after
    return by_layer, after


def resample_from(text: SweepText) -> ByResample:
    """The replacement of every head's output by that in this text, which is run here."""
    return ByResample(mixed_of(text)[0], text.tokens)


def means_of(texts: Iterable[SweepText]) -> Mixed:
    """Every head's output averaged over all tokens of all texts, [head, 1, v_dim], by (layer,
    kind). Raises InputError for no text."""
    sums: dict[tuple[int, Kind], Numbers] = {}
    count = 0
    for text in texts:
        count += text.count
        outputs, _after = mixed_of(text)
        for key, values in outputs.items():
            total = values.sum(-2, keepdims=True, dtype=np.float64)
            sums[key] = sums[key] + total if key in sums else total
    if not count:
        raise InputError("the reference holds no text", expected="at least one line")
    return {key: total / count for key, total in sums.items()}


def same_length(tokens_a: Sequence[Token], tokens_b: Sequence[Token], what: str) -> None:
    """Raise InputError unless both texts have as many tokens.

    what: what the error calls the second text.
    """
    if len(tokens_a) != len(tokens_b):
        texts = [" ".join(readable_names(tokens)) for tokens in (tokens_a, tokens_b)]
        raise InputError(
            "the text has {tokens_a} tokens, {what} has {tokens_b}",
            where=f"{texts[0]} | {texts[1]}",
            expected="as many tokens in both: they stand for each other one by one",
            tokens_a=len(tokens_a),
            what=what,
            tokens_b=len(tokens_b),
        )
