"""Activation patching: which heads carry the difference between two texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import Array, Backend
from attncli.errors import InputError, UnsupportedError, UsageError
from attncli.features.effects.ablation import refuse_foreign, refuse_hashed, text_for_sweep
from attncli.features.effects.document import PatchPredictions
from attncli.features.effects.measures import (
    Reader,
    Readings,
    log_softmax,
    next_logits,
    portions,
    refuse_overflow,
)
from attncli.features.effects.places import HeadAddress, measured_at, places, reads_on
from attncli.features.effects.predictions import (
    NextReader,
    NextReading,
    prediction_of,
    probabilities_after,
)
from attncli.features.effects.sweep import (
    Mixed,
    SweepPlan,
    SweepText,
    mixed_of,
    put_values,
    same_length,
    sweep,
)
from attncli.features.effects.targets import (
    Target,
    choose_target,
    predicts_next,
    refuse_one_token,
    target_token,
)
from attncli.inputs.token import Token, ignore
from attncli.language import message
from attncli.measure.pair_measure import logit_difference
from attncli.measure.row_facts import Floats
from attncli.mechanism.block import run_block
from attncli.mechanism.context import Interventions, PutProjection
from attncli.mechanism.frozen_projection import Side, freeze, head_projection
from attncli.mechanism.projection import LayerAttention
from attncli.mechanism.spec import (
    Attention,
    Disentangled,
    HeadSelection,
    RelativeSines,
    Spec,
    parse_head,
)
from attncli.models.model import Model
from attncli.models.residual_stream import HeadEvent, Receiver, read_stream
from attncli.models.run import cache_weights, finish

PatchMeasure = Literal["logit difference", "log probability", "cosine"]
LEAST = 1e-6
"""Texts whose measures differ by less have no difference to carry."""


class PatchRequest(Struct, frozen=True):
    """Which heads are patched (their output in the clean text put into the corrupt one), at which
    tokens, and what is measured.

    positions: the tokens that get the clean text's.
    measure: "logit difference" of `target` and `versus` and "log probability" of `target`, after
        the last token of `query`; "cosine" of the mean of `query`'s last vectors to the clean
        text's. Logits are those before a soft cap.
    into: the heads that alone read the clean text's output, with the projection that reads it;
        empty where all that reads the residual stream does.
    expectation: the target with how likely the clean text finds it, None without one.
    least: by how much the measures of both texts must differ.
    predict: whether the result also has what would come next.
    """

    selection: HeadSelection
    positions: tuple[int, ...]
    query: tuple[int, ...]
    measure: PatchMeasure
    target: int | None = None
    versus: int | None = None
    into: tuple[PathReceiver, ...] = ()
    expectation: Target | None = None
    least: float = LEAST
    predict: bool = True

    @property
    def predicts(self) -> bool:
        """Whether the measure needs next-token logits."""
        return self.measure != "cosine"

    @classmethod
    def of(
        cls,
        model: Model,
        clean: Sequence[Token],
        selection: HeadSelection,
        *,
        positions: Iterable[int],
        query: Sequence[int] | None,
        target: str | None,
        versus: str | None,
        into: Sequence[str] = (),
        note: Callable[[str], None] = ignore,
    ) -> PatchRequest:
        """Build the request from names.

        positions: empty for all tokens.
        query: None for the last token with a target, else `measured_at`.
        target, versus: words, or "id:N", of which the likelier spelling in the clean text is taken;
            None for none.
        into: receivers as `--into` names them, such as "L5H11:q"; empty for none.
        note: called with a sentence that says which spelling of a word is taken.

        Raises UsageError for `versus` without `target`.
        """
        if versus is not None and target is None:
            raise UsageError("versus is taken from a target", expected="a target as well")
        last = len(clean) - 1
        if target is None:
            usual = measured_at(model.spec, len(clean))
        else:
            usual = (last,)
        measured = usual
        if query is not None:
            measured = tuple(query)

        def choose(name: str | None) -> Target | None:
            """The one vocabulary entry that a word stands for; None for no word."""
            if name is None:
                return None
            return choose_target(
                model, clean, name, position=measured[-1], several=False, note=note
            )

        # one entry each, as `several` is false
        expectation = choose(target)
        rival = choose(versus)
        target_id = None if expectation is None else expectation.ids[0]
        versus_id = None if rival is None else rival.ids[0]
        refuse_one_token(target_id, versus_id)
        measure: PatchMeasure = "logit difference"
        if target is None:
            measure = "cosine"
        elif versus is None:
            measure = "log probability"
        return cls(
            selection=selection,
            positions=tuple(sorted(set(positions))) or tuple(range(last + 1)),
            query=measured,
            measure=measure,
            target=target_id,
            versus=versus_id,
            into=tuple(parse_receivers(into, model.spec)),
            expectation=expectation,
        )


class PatchResult(Struct, frozen=True, eq=False):
    """The share of the difference between corrupt (0) and clean (1) measure that each head
    recovers; values beyond are possible.

    clean, corrupt: the measures themselves.
    changes: by how much each head moves the corrupt measure.
    predictions: what would come next; None where nothing is predicted.
    """

    recovered_shares: Sequence[tuple[HeadAddress, float]]
    clean: float
    corrupt: float
    backend: Backend
    changes: Sequence[tuple[HeadAddress, float]]
    predictions: PatchPredictions | None = None


def patch(
    model: Model,
    clean: Sequence[Token],
    corrupt: Sequence[Token],
    patching: PatchRequest,
    *,
    memory: int | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> PatchResult:
    """Activation patching: put each head's output in the clean run into the corrupt run, one head
    at a time, and return what share of the measure it recovers.

    memory: bytes there may be, None for any amount.
    progress: called with the share done.

    Raises InputError for texts of different length or without a difference, LimitError where not
    even one changed run fits in memory, UnsupportedError for what this model cannot have patched or
    measured.
    """
    refuse_foreign(model)
    refuse_hashed(model)
    same_length(clean, corrupt, message("the corrupt one"))
    head_places: Sequence[HeadAddress] = places(model.spec, patching.selection)
    if patching.into:
        check_receivers(model.spec, patching.into, head_places)
    text = text_for_sweep(model, corrupt, head_places)
    size = text.size(predicts=patching.predicts)
    size.refuse_over(memory)

    # the clean run: every head's output, and the measure to reach, "m" among a reader's numbers
    mixed, last = mixed_of(replace(text, tokens=clean))
    refuse_overflow(text.backend, last)
    request = _PatchReading(patching, _mean_vector(model, text.backend, last, patching.query))
    rows = request.rows(text.count)
    goal = float(request.reader(model, text.backend, last[rows], rows.start).baseline["m"][0])

    # the corrupt run once per head, with the head's clean output read by all, or by receivers alone
    reader: Reader
    # what comes next is told where it is measured, and of a decoder beside a measure of vectors
    next_reading: NextReading | None = None
    is_next = patching.predict and (patching.predicts or reads_on(model.spec))
    if is_next and predicts_next(model):
        next_reading = NextReading(patching.query[-1], patching.target)
    if patching.into:
        paths = _Paths.of(text, patching, mixed, head_places)
        head_places = paths.places
        reader = request.reader(model, text.backend, paths.corrupt[rows], rows.start)
        at_once = size.plan(len(head_places), memory).at_once
        parts = paths.run(head_places, at_once, progress)
        readings = np.concatenate([reader.read(part[:, rows])["m"] for part in parts])
        patched_next = partial(_next_by_paths, paths)
    else:
        change = partial(put_values, text, mixed, patching.positions)
        plan = SweepPlan(head_places, change, start=min(patching.positions))
        swept = sweep(text, plan, request, memory, on_progress=progress)
        readings = swept.readings["m"][:, 0]  # of [head, variant] the only variant
        reader = swept.reader
        patched_next = partial(_next_by_sweep, text, plan, memory)
    corrupt_value = float(reader.baseline["m"][0])
    # `not … >=`, so that NaN is refused, too
    if not abs(goal - corrupt_value) >= patching.least:
        raise InputError(
            "both texts give the same: {goal:.6g} and {corrupt_value:.6g}",
            expected=(
                "measures that differ by {least:g} or more, so that there is a difference to carry"
            ),
            hint="another --target, --versus or --query, or texts that differ",
            goal=goal,
            corrupt_value=corrupt_value,
            least=patching.least,
        )

    # shares, and what would come next with the head of the largest
    changes = readings - corrupt_value
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = (changes / (goal - corrupt_value)).tolist()
    recovered_shares = list(zip(head_places, shares, strict=True))
    predictions: PatchPredictions | None = None
    if next_reading is not None:
        best = []
        if recovered_shares:
            best_head, _ = max(recovered_shares, key=lambda item: item[1])
            best = [best_head]
        next_reader = patched_next(best, next_reading)
        predictions = _predictions(model, text.backend, next_reading, next_reader, last, best)
    return PatchResult(
        recovered_shares=recovered_shares,
        clean=goal,
        corrupt=corrupt_value,
        backend=text.backend,
        changes=list(zip(head_places, changes.tolist(), strict=True)),
        predictions=predictions,
    )


def _predictions(
    model: Model,
    backend: Backend,
    reading: NextReading,
    reader: NextReader,
    clean: Array,
    best: Sequence[HeadAddress],
) -> PatchPredictions:
    """What would come next in the clean text, in the corrupt one, and in the corrupt one with the
    best head's clean output put in.

    reading: after which token, and the target, None for the clean text's first choice.
    reader: has read the corrupt run, and the patched one where it was run.
    clean: what leaves the last layer in the clean text, [token, width].
    best: the head that recovers most, or none.
    """
    vectors = clean[reading.position : reading.position + 1]
    (own,) = probabilities_after(model, backend, vectors)
    if reading.target is None:
        target = int(own.argmax())
    else:
        target = reading.target
    # a head that writes nothing is not run: the corrupt text stays as it was
    patched = reader.own
    if reader.rows_read:
        patched = reader.rows_read[0]
    return PatchPredictions(
        target=target_token(model, target),
        clean=prediction_of(model, own, target),
        corrupt=prediction_of(model, reader.own, target),
        patched=prediction_of(model, patched, target) if best else None,
    )


def _next_by_sweep(
    text: SweepText,
    plan: SweepPlan,
    memory: int | None,
    best: Sequence[HeadAddress],
    reading: NextReading,
) -> NextReader:
    """What comes next in the corrupt text, and with the best head's clean output put in, read by
    all that reads the residual stream.

    memory: bytes there may be, None for any amount.
    best: that head, or none.
    reading: after which token the next is read.
    """
    reader = sweep(text, replace(plan, places=best), reading, memory).reader
    assert isinstance(reader, NextReader)
    return reader


def _next_by_paths(paths: _Paths, best: Sequence[HeadAddress], reading: NextReading) -> NextReader:
    """What comes next in the corrupt text, and with the best head's clean output read by the
    receivers alone.

    best: that head, or none.
    """
    rows = reading.rows(len(paths.text.tokens))
    backend = paths.text.backend
    reader = reading.reader(paths.text.model, backend, paths.corrupt[rows], rows.start)
    for part in paths.run(best, at_once=1, progress=ignore):
        reader.read(part[:, rows])  # the reader keeps what it has read
    return reader


class _Paths(Struct, frozen=True, eq=False):
    """Direct path patching of a corrupt text.

    places: the heads that come before a receiver.
    changes: what each changes in what the receivers read.
    corrupt: what leaves the last layer in the corrupt text's own run, [token, width].
    """

    text: SweepText
    receivers: Sequence[PathReceiver]
    places: Sequence[HeadAddress]
    changes: Mapping[HeadAddress, Mapping[PathReceiver, Floats]]
    corrupt: Array

    @classmethod
    def of(
        cls,
        text: SweepText,
        patching: PatchRequest,
        clean: Mixed,
        places: Sequence[HeadAddress],
    ) -> _Paths:
        """Measure, for each of these heads, what its clean output changes in what the receivers of a
        request read.

        clean: every head's output in the clean text.
        places: the heads; those that come after every receiver are left out.
        """
        last_receiver = max(receiver.layer for receiver in patching.into)
        _, corrupt = mixed_of(text)
        return cls(
            text=text,
            receivers=patching.into,
            places=[place for place in places if place.layer < last_receiver],
            changes=patched_projections(text, patching.into, clean, patching.positions),
            corrupt=corrupt,
        )

    def run(
        self, senders: Sequence[HeadAddress], at_once: int, progress: Callable[[float], None]
    ) -> list[Array]:
        """Run the corrupt text once per sender (patched head), with what its clean output changes in
        the receivers, and return what leaves the last layer, [sender, token, width], in parts of at
        most `at_once`."""
        changes = [self.changes.get(sender, {}) for sender in senders]
        return run_paths(self.text, self.receivers, changes, at_once, progress)


class _PatchReading(Struct, frozen=True, eq=False):
    """What patching measures, as the `SweepReading` of its sweep.

    clean: the clean text's measured vector, [width].
    """

    patching: PatchRequest
    clean: Floats

    @property
    def predicts(self) -> bool:
        """Whether the measure needs next-token logits."""
        return self.patching.predicts

    def rows(self, count: int) -> slice:
        """The range of tokens whose last-layer vectors are needed."""
        if self.patching.measure == "cosine":
            query = self.patching.query
        else:
            query = self.patching.query[-1:]
        return slice(min(query), max(query) + 1)

    def reader(self, model: Model, backend: Backend, hidden: Array, first: int) -> Reader:
        """The `_Recovery` that measures patched runs.

        hidden: the corrupt run's last-layer output, [token, width], from token `first` on.
        """
        return _Recovery(model, backend, self, hidden, first)


class _Recovery:
    """Computes the measure of patching (logit difference, log-probability or cosine), under the
    name "m".
    """

    target: int | None = None  # a `Reader` has one; that of patching stands in its request

    def __init__(
        self, model: Model, backend: Backend, request: _PatchReading, hidden: Array, first: int
    ) -> None:
        """Measure the corrupt run itself, as `baseline`.

        request: which measure, and the clean run's vector.
        hidden: its last-layer output, [token, width], from token `first` on.
        """
        self._model = model
        self._backend = backend
        self._request = request
        self._first = first
        self.baseline = self.read(hidden[None])

    def read(self, after: Array) -> Readings:
        """The measure "m" of patched runs, [branch].

        after: what leaves the last layer, [branch, token, width].
        """
        patching = self._request.patching
        model = self._model
        backend = self._backend
        if patching.measure == "cosine":
            vectors = np.stack(
                [
                    _mean_vector(model, backend, after[branch], patching.query, self._first)
                    for branch in range(len(after))
                ]
            )
            lengths = np.linalg.norm(vectors, axis=-1) * np.linalg.norm(self._request.clean)
            # NaN for a vector of length 0
            with np.errstate(divide="ignore", invalid="ignore"):
                return {"m": vectors @ self._request.clean / lengths}
        measured = after[:, patching.query[-1] - self._first]
        if patching.measure == "logit difference":
            assert patching.target is not None
            assert patching.versus is not None
            outer = model.store.outer(backend)
            return {
                "m": logit_difference(
                    model, backend, outer, measured, patching.target, patching.versus
                )
            }
        readings = [
            log_softmax(next_logits(model, backend, part))[:, patching.target]
            for part in portions(measured, model.spec.vocabulary)
        ]
        return {"m": np.concatenate(readings)}


def _mean_vector(
    model: Model, backend: Backend, after: Array, query: Sequence[int], first: int = 0
) -> Floats:
    """The mean vector of the tokens at positions `query` after the final norm, [width].

    after: the last layer's output, [token, width], from token `first` on.
    """
    vectors = np.asarray(
        backend.numpy(finish(model.spec, model.store.outer(backend), backend, after)), np.float64
    )
    return np.asarray(vectors[[position - first for position in query]].mean(0))


# Direct path patching: the part of each earlier head that reaches a receiver's queries (keys,
# values) is replaced by its part of the clean text, with the norms held as they were in the corrupt
# one; the receiver is recomputed, and the rest of the model runs on. Source: Wang et al.,
# Interpretability in the wild, 2022, whose receivers read what only the sender changed.

SIDES: tuple[Side, ...] = ("q", "k", "v")
"""What a receiver reads with: queries, keys, values."""


class PathReceiver(Struct, frozen=True):
    """A self-attention head, and which of its projections (`side`: "q", "k" or "v") gets the clean
    text's contribution of earlier heads in path patching."""

    layer: int
    head: int
    side: Side


def check_receivers(
    spec: Spec, receivers: Sequence[PathReceiver], senders: Sequence[HeadAddress]
) -> None:
    """Raise InputError where no sender (patched head) comes before the last receiver,
    UnsupportedError for receivers whose position terms or global projections cannot be replaced."""
    last = max(receiver.layer for receiver in receivers)
    if not any(sender.layer < last for sender in senders):
        raise InputError(
            "no chosen head comes before the one that --into names",
            expected="a head of a later layer",
        )
    for receiver in receivers:
        attention = spec.blocks[receiver.layer].attention
        if isinstance(attention.position, Disentangled | RelativeSines) and receiver.side != "v":
            raise UnsupportedError(
                "the queries and keys of this {family} model also meet positions, which cannot be"
                " replaced apart",
                expected="values, as in L1H0:v, or another model",
                family=spec.family,
            )
        if attention.own_global:
            what = message(
                "global tokens have projections to themselves, which --into does not replace"
            )
            raise UnsupportedError(what, expected="a model without global tokens")


def patched_projections(
    text: SweepText,
    receivers: Sequence[PathReceiver],
    clean: Mixed,
    positions: Sequence[int],
) -> dict[HeadAddress, dict[PathReceiver, Floats]]:
    """How each receiver's queries, keys or values at these positions change if a sender (an earlier
    head) has its output in the clean text: [token, dim] by sender and receiver.

    text: the corrupt one.
    clean: the heads' outputs in the clean one.
    """
    model = text.model
    backend = text.backend
    whole = slice(0, text.count)

    # the linear maps that read the stream for each receiver
    projections = []
    stream_receivers = []
    for receiver in receivers:
        attention = model.spec.blocks[receiver.layer].attention
        weights = cache_weights(model.store.layer(backend, receiver.layer))
        part = LayerAttention(backend, weights, "attn", attention)
        projection = head_projection(part, receiver.side, receiver.head)
        projections.append(projection)
        stream_receivers.append(Receiver(receiver.layer, "self", projection.matrix, whole))
    # by number of the receiver and head: `norm_count` of the head's attention, and the change of what
    # the receiver's map gives, [token, dim]
    changes: dict[tuple[int, HeadAddress], tuple[int, Floats]] = {}
    rows = list(positions)

    def on_heads(number: int, event: HeadEvent) -> None:
        """Called for each attention before a receiver: record how that receiver's projection
        changes if each head of the attention had its output in the clean text.

        number: which of `receivers`.
        """
        stages = event.trace.stages
        mixed = np.asarray(backend.numpy(stages["mixed"]), np.float64)  # [head, token, v_dim]
        if "gate" in stages:
            gate = np.asarray(backend.numpy(stages["gate"]), np.float64)
        else:
            gate = None
        clean_mixed = clean[event.trace.layer, event.kind]
        for head in range(len(mixed)):
            change = np.zeros_like(mixed[head])
            change[rows] = clean_mixed[head][rows] - mixed[head][rows]
            if gate is not None:
                change = change * gate[head]
            address = HeadAddress(event.trace.layer, event.kind, head)
            # through W_O and the receiver's projection (`matrices`, [v_dim, dim]) and the norms
            # known by now (`factors`); later ones are looked up by `norm_count`
            changes[number, address] = (
                event.norm_count,
                change @ event.matrices[head] * event.factors,
            )

    readings = read_stream(
        model, text.tokens, backend, stream_receivers, split="none", on_heads=on_heads
    )

    # through the norms after each head, then the receiver's own norm and rotation, frozen
    frozen = [
        freeze(projection, reading.entering, text.context())
        for projection, reading in zip(projections, readings, strict=True)
    ]
    result: dict[HeadAddress, dict[PathReceiver, Floats]] = {}
    for (number, address), (norm_count, change) in changes.items():
        after_norms = change * readings[number].tails[norm_count][:, None]
        result.setdefault(address, {})[receivers[number]] = frozen[number].apply(after_norms)
    return result


def run_paths(
    text: SweepText,
    receivers: Sequence[PathReceiver],
    changes: Sequence[Mapping[PathReceiver, Floats]],
    at_once: int,
    progress: Callable[[float], None],
) -> list[Array]:
    """Run the corrupt text once per sender, with the receivers' queries, keys or values changed by
    `changes` of that sender; returns the last layer's output, [sender, token, width], in parts of
    at most `at_once`.

    progress: called with the share of the layers that is done.
    """
    model = text.model
    backend = text.backend
    spec = text.model.spec
    context = text.context()

    # the unchanged run, up to the first receiver's layer shared by all senders
    first = min(receiver.layer for receiver in receivers)
    hidden = model.store.embed(backend, text.tokens)
    entering = hidden  # what enters that layer
    own = dict[int, dict[str, Array]]()  # by layer of a receiver: its queries, keys and values
    model.store.expect(range(len(spec.blocks)))
    for index, block in enumerate(spec.blocks):
        if index == first:
            entering = hidden
        trace = run_block(backend, block, model.store.layer(backend, index), hidden, context, index)
        if any(receiver.layer == index for receiver in receivers):
            own[index] = {name: trace.stages[name] for name in SIDES}
        hidden = trace.after

    # the changed runs from there on
    parts = [
        range(start, min(start + at_once, len(changes)))
        for start in range(0, len(changes), at_once)
    ]
    results = [backend.broadcast(entering, (len(part), *entering.shape)) for part in parts]
    for index in range(first, len(spec.blocks)):
        block = spec.blocks[index]
        weights = cache_weights(model.store.layer(backend, index))
        layer_receivers = [receiver for receiver in receivers if receiver.layer == index]
        for number, part in enumerate(parts):
            puts = [
                _put_projection(
                    text, block.attention, receiver, own[index], [changes[place] for place in part]
                )
                for receiver in layer_receivers
            ]
            if puts:
                interventions: Interventions = {(index, "self"): tuple(puts)}
            else:
                interventions = {}
            changed = replace(context, interventions=interventions)
            results[number] = run_block(
                backend, block, weights, results[number], changed, index
            ).after
        progress((index + 1 - first) / (len(spec.blocks) - first))
    return results


def _put_projection(
    text: SweepText,
    attention: Attention,
    receiver: PathReceiver,
    own: Mapping[str, Array],
    changes: Sequence[Mapping[PathReceiver, Floats]],
) -> PutProjection:
    """The intervention that replaces one receiver's queries, keys or values by the run's own plus
    each sender's change, [sender, token, dim]; senders without a change keep the run's own.

    own: the queries, keys and values of the corrupt run, by side, [head, token, dim].
    changes: of each sender, what it changes in the receivers, [token, dim].
    """
    backend = text.backend
    if receiver.side == "q":
        row = receiver.head
    else:  # several heads may share one key-value head
        row = receiver.head // (attention.heads // attention.kv_heads)
    side_values = np.asarray(backend.numpy(own[receiver.side]), np.float64)
    own_values = side_values[row, : text.count]  # learned keys come after those of the tokens
    values = np.stack([own_values + change.get(receiver, 0.0) for change in changes])
    return PutProjection(receiver.head, receiver.side, backend.array(values))


def parse_receivers(names: Sequence[str], spec: Spec) -> list[PathReceiver]:
    """Parse the values of `--into`, such as "L5H11:q", into receivers. Raises InputError for
    malformed names and for heads that the model lacks."""
    receivers = []
    sides: dict[str, Side] = {"q": "q", "k": "k", "v": "v"}  # for the type: a letter is its side
    for name in [part.strip() for argument in names for part in argument.split(",")]:
        place, colon, letter = name.partition(":")
        address = parse_head(place.strip())
        side = sides.get(letter.strip().lower())
        if address is None or not colon or side is None:
            raise InputError(
                "--into {name} is no head with its side",
                expected="such as L5H11:q, :k or :v",
                name=repr(name),
            )
        layer, head = address
        if layer >= len(spec.blocks) or head >= spec.blocks[layer].attention.heads:
            raise InputError(
                message("there is no head {name}", name=place),
                expected="layers 0 to {layers}, heads 0 to {heads}",
                layers=len(spec.blocks) - 1,
                # of that layer, or of the last one where there is no such layer
                heads=spec.blocks[min(layer, len(spec.blocks) - 1)].attention.heads - 1,
            )
        receivers.append(PathReceiver(layer, head, side))
    return list(dict.fromkeys(receivers))
