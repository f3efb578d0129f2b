"""The one softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from attncli.arrays.backend import Array, Backend
from attncli.mechanism.workspace import Room

LEAST = -800.0
"""Below this, exp is 0 even in float64."""


class Softmax(NamedTuple):
    """weights: [..., head, rows, key]. lse: log-sum-exp. empty: rows that see nothing. entropy: −Σ w ln w in nats.
    peak: the largest weight, 0 in an empty row.

    All but the weights are [..., head, rows, 1]; entropy is None unless asked for, peak where a sink takes part.
    """

    weights: Array
    lse: Array
    empty: Array
    entropy: Array | None
    peak: Array | None


def softmax(
    backend: Backend,
    scores: Array,
    seen: Array | None,
    sinks: Array | None,
    *,
    free: bool,
    entropy: bool = False,
    hidden: Sequence[slice] | None = None,
    room: Room | None = None,
) -> Softmax:
    """Softmax over keys of scores [..., head, rows, key] in which hidden keys are −inf.

    seen: visibility that broadcasts to the scores; None if every row sees something. sinks: a logit
    per head that takes part and is dropped. free: whether the scores may be overwritten. hidden: the ranges of keys
    among which some are hidden, None where that is not known. room: memory to work in.
    """
    highest = backend.max(scores, -1)
    shape = (*scores.shape[:-1], 1)
    empty = backend.full(shape, 0, "bool") if seen is None else backend.broadcast(~backend.any(seen, -1), shape)

    def unless_empty(value: float, found: Array) -> Array:
        return found if seen is None else backend.where(empty, value, found)

    highest = unless_empty(0.0, highest)
    if sinks is not None:
        sink = backend.cast(sinks, backend.dtype_of(scores))[:, None, None]
        highest = backend.where(sink > highest, sink, highest)
    if free:
        scores -= highest
    else:
        scores = scores - highest
    # Σ w ln w needs no logarithm of each weight while their exponents are at hand
    if entropy:
        weights = backend.exp(scores, out=None if room is None else room.take("weights", scores.shape))
        for part in (slice(None),) if hidden is None else hidden:
            backend.at_least(scores[..., part], LEAST)  # 0 · −inf is not 0
    else:
        weights = backend.exp_over(scores)
    total = backend.sum(weights, -1)
    if sinks is not None:
        total = total + backend.exp(sink - highest)
    total = unless_empty(1.0, total)
    weights /= total
    spread = backend.log(total)
    found = None
    if entropy:
        taken = spread if sinks is None else spread * backend.sum(weights, -1)
        found = taken - backend.dot_over(scores, weights)
    # the highest score's exponential is 1
    peak = unless_empty(0.0, 1.0 / total) if sinks is None else None
    return Softmax(weights, unless_empty(-float("inf"), highest + spread), empty, found, peak)
