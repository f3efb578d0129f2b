"""The one softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from attncli.arrays.backend import Array, Backend
from attncli.mechanism.workspace import ScoreBuffer

LEAST = -800.0
"""Below this, exp is 0 even in float64."""


class SoftmaxResult(NamedTuple):
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
    visibility: Array | None,
    sinks: Array | None,
    *,
    free: bool,
    entropy: bool = False,
    hidden: Sequence[slice] | None = None,
    buffer: ScoreBuffer | None = None,
) -> SoftmaxResult:
    """Softmax over keys of scores [..., head, rows, key] in which hidden keys are −inf.

    visibility: visibility that broadcasts to the scores; None if every row sees something. sinks: a logit
    per head that takes part and is dropped. free: whether the scores may be overwritten. hidden: the ranges of keys
    among which some are hidden, None where that is not known. buffer: memory to work in.
    """
    highest = backend.max(scores, -1)
    shape = (*scores.shape[:-1], 1)
    empty = (
        backend.full(shape, 0, "bool") if visibility is None else backend.broadcast(~backend.any(visibility, -1), shape)
    )

    def unless_empty(value: float, values: Array) -> Array:
        return values if visibility is None else backend.where(empty, value, values)

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
        weights = backend.exp(scores, out=None if buffer is None else buffer.take("weights", scores.shape))
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
    entropies = None
    if entropy:
        mean_log_total = spread if sinks is None else spread * backend.sum(weights, -1)
        entropies = mean_log_total - backend.dot_over(scores, weights)
    # the highest score's exponential is 1
    peak = unless_empty(0.0, 1.0 / total) if sinks is None else None
    return SoftmaxResult(weights, unless_empty(-float("inf"), highest + spread), empty, entropies, peak)
