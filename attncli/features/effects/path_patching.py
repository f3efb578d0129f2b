"""Direct path patching: what earlier heads tell one head's queries, keys or values, taken from the clean text.

The part of each earlier head that reaches a receiver's queries (keys, values) is replaced by its part of the clean
text, with the norms held as they were in the corrupt one; the receiver is recomputed, and the rest of the model runs
on.
Source: Wang et al., Interpretability in the wild, 2022, whose receivers read what only the sender changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import Array
from attncli.errors import InputError, UnsupportedError
from attncli.features.effects.places import HeadAddress
from attncli.features.effects.sweep import SweepText
from attncli.language import message
from attncli.mechanism.block import run_block
from attncli.mechanism.context import Interventions, Kind, PutProjection
from attncli.mechanism.frozen_projection import Side, freeze, head_projection
from attncli.mechanism.spec import Attention, Disentangled, RelativeSines, Spec
from attncli.models.residual_stream import HeadEvent, Receiver, read_stream
from attncli.models.run import cache_weights

Floats = np.ndarray[Any, np.dtype[Any]]
SIDES: tuple[Side, ...] = ("q", "k", "v")
"""What a receiver reads with: queries, keys, values."""


class PathReceiver(Struct, frozen=True):
    """A head of the self-attention of a layer, and whether its queries, keys or values are told."""

    layer: int
    head: int
    side: Side


def check_receivers(spec: Spec, receivers: Sequence[PathReceiver], senders: Sequence[HeadAddress]) -> None:
    """Raise InputError where no chosen head comes before a receiver, UnsupportedError for what cannot be told apart."""
    last = max(receiver.layer for receiver in receivers)
    if not any(sender.layer < last for sender in senders):
        raise InputError("no chosen head comes before the one that --into names", expected="a head of a later layer")
    for receiver in receivers:
        attention = spec.blocks[receiver.layer].attention
        if isinstance(attention.position, Disentangled | RelativeSines) and receiver.side != "v":
            raise UnsupportedError(
                "the queries and keys of this {family} model also meet positions, which cannot be replaced apart",
                expected="values, as in L1H0:v, or another model",
                family=spec.family,
            )
        if attention.own_global:
            raise UnsupportedError(
                "global tokens have projections to themselves, which --into does not replace",
                expected="a model without global tokens",
            )


def told_values(
    text: SweepText,
    receivers: Sequence[PathReceiver],
    clean: Mapping[tuple[int, Kind], Floats],
    positions: Sequence[int],
) -> dict[HeadAddress, dict[PathReceiver, Floats]]:
    """What each earlier head would make of each receiver's queries, keys or values, [token, dim], as it is in the clean
    text at these positions. text: the corrupt one. clean: what every head mixes in the clean one."""
    model, backend = text.model, text.backend
    whole = slice(0, text.count)
    projections, taps, frozen = [], [], []
    for receiver in receivers:
        attention = model.spec.blocks[receiver.layer].attention
        weights = cache_weights(model.store.layer(backend, receiver.layer))
        projection = head_projection(backend, attention, weights, "attn", receiver.side, receiver.head)
        projections.append((projection, weights))
        taps.append(Receiver(receiver.layer, "self", projection.matrix, whole))
    changes: dict[tuple[int, HeadAddress], tuple[int, Floats]] = {}
    rows = list(positions)

    def on_heads(number: int, event: HeadEvent) -> None:
        mixed = np.asarray(backend.numpy(event.trace.stages["mixed"]), np.float64)
        clean_mixed = clean[event.trace.layer, event.kind]
        for head in range(len(mixed)):
            change = np.zeros_like(mixed[head])
            change[rows] = clean_mixed[head][rows] - mixed[head][rows]
            address = HeadAddress(event.trace.layer, event.kind, head)
            changes[number, address] = (event.begun, change @ event.matrices[head] * event.factors)

    readings = read_stream(model, text.tokens, backend, taps, on_heads=on_heads)
    for (projection, weights), reading in zip(projections, readings, strict=True):
        frozen.append(freeze(backend, projection, weights, reading.entering, text.context()))
    result: dict[HeadAddress, dict[PathReceiver, Floats]] = {}
    for (number, address), (begun, change) in changes.items():
        turned = frozen[number].apply(change * readings[number].tails[begun][:, None])
        result.setdefault(address, {})[receivers[number]] = turned
    return result


def run_paths(
    text: SweepText,
    receivers: Sequence[PathReceiver],
    changes: Sequence[Mapping[PathReceiver, Floats]],
    at_once: int,
    progress: Callable[[float], None],
) -> list[Array]:
    """What leaves the last layer for each sender's changes, [sender, token, width] in parts of at most `at_once`: the
    corrupt text run on from the first receiver, with every receiver's projection as the changes have it."""
    model, backend, spec = text.model, text.backend, text.model.spec
    context = text.context()
    first = min(receiver.layer for receiver in receivers)
    hidden = model.store.embed(backend, text.tokens)
    entering, own = hidden, dict[int, dict[str, Array]]()
    model.store.expect(range(len(spec.blocks)))
    for index, block in enumerate(spec.blocks):
        if index == first:
            entering = hidden
        trace = run_block(backend, block, model.store.layer(backend, index), hidden, context, index)
        if any(receiver.layer == index for receiver in receivers):
            own[index] = {name: trace.stages[name] for name in SIDES}
        hidden = trace.after
    parts = [range(start, min(start + at_once, len(changes))) for start in range(0, len(changes), at_once)]
    results = [backend.broadcast(entering, (len(part), *entering.shape)) for part in parts]
    for index in range(first, len(spec.blocks)):
        block, weights = spec.blocks[index], cache_weights(model.store.layer(backend, index))
        here = [receiver for receiver in receivers if receiver.layer == index]
        for number, part in enumerate(parts):
            puts = [
                _put(text, block.attention, receiver, own[index], [changes[place] for place in part])
                for receiver in here
            ]
            interventions: Interventions = {(index, "self"): tuple(puts)} if puts else {}
            changed = replace(context, interventions=interventions)
            results[number] = run_block(backend, block, weights, results[number], changed, index).after
        progress((index + 1 - first) / (len(spec.blocks) - first))
    return results


def _put(
    text: SweepText,
    attention: Attention,
    receiver: PathReceiver,
    own: Mapping[str, Array],
    changes: Sequence[Mapping[PathReceiver, Floats]],
) -> PutProjection:
    """A receiver's queries, keys or values with each sender's change: the run's own for a sender that comes later."""
    backend = text.backend
    group = 1 if receiver.side == "q" else attention.heads // attention.kv_heads
    base = np.asarray(backend.numpy(own[receiver.side]), np.float64)[receiver.head // group][: text.count]
    values = np.stack([base + change.get(receiver, 0.0) for change in changes])
    return PutProjection(receiver.head, receiver.side, backend.array(values))


def parse_receivers(names: Sequence[str], spec: Spec) -> list[PathReceiver]:
    """The receivers that `--into` names, such as L5H11:q. Raises InputError for heads or sides that are not there."""
    receivers = []
    for name in [part.strip() for argument in names for part in argument.split(",")]:
        place, colon, side = name.partition(":")
        layer, _, head = place[1:].upper().partition("H")
        reads = next((known for known in SIDES if known == side.strip().lower()), None)
        if place[:1] not in ("L", "l") or not (layer.isdecimal() and head.isdecimal()) or not colon or reads is None:
            raise InputError(
                "--into {name} is no head with its side", expected="such as L5H11:q, :k or :v", name=repr(name)
            )
        if int(layer) >= len(spec.blocks) or int(head) >= spec.blocks[int(layer)].attention.heads:
            raise InputError(
                message("there is no head {name}", name=place),
                expected="layers 0 to {layers}, heads 0 to {heads}",
                layers=len(spec.blocks) - 1,
                heads=spec.blocks[min(int(layer), len(spec.blocks) - 1)].attention.heads - 1,
            )
        receivers.append(PathReceiver(int(layer), int(head), reads))
    return list(dict.fromkeys(receivers))
