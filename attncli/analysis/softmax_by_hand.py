"""Softmax and sums worked out number by number, as one would on paper.

This is the explanation beside the computation, not the computation: `attention.attend` is the
only softmax that anything else uses, and every document that holds worked numbers also holds
their largest difference from its result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from attncli import __version__
from attncli.analysis.documents.explain import SoftmaxTopic
from attncli.errors import InputError, UsageError
from attncli.mechanism.attention import attention


class SoftmaxSteps(Struct, frozen=True):
    """One row of softmax with every step, as Python floats.

    scores: what enters, None where hidden. highest: the largest visible score, None if nothing
    is visible. shifted_scores: score − highest, in (−∞, 0]. exponentials: of these, in [0, 1], 0 where hidden.
    sink: the exponential of a learned sink, None without one. total: the sum of all of
    these. weights: exponential / total, in [0, 1], sum 1 (less with a sink, 0 if nothing is visible).
    """

    scores: tuple[float | None, ...]
    highest: float | None
    shifted_scores: tuple[float | None, ...]
    exponentials: tuple[float, ...]
    sink: float | None
    total: float
    weights: tuple[float, ...]

    @property
    def entropy(self) -> float:
        """−Σ w ln w in nats, 0 to ln(number of scores); 0 if nothing is visible."""
        return -sum(weight * math.log(weight) for weight in self.weights if weight > 0)

    @property
    def gradient(self) -> float:
        """The Frobenius norm of the softmax's derivative diag(w) − w·wᵀ, 0 to ½·√2; 0 where one weight is 1."""
        squares = [weight * weight for weight in self.weights]
        return math.sqrt(max(sum(squares) - 2 * sum(w * w * w for w in self.weights) + sum(squares) ** 2, 0.0))


def softmax_steps(scores: Sequence[float | None], *, sink: float | None = None) -> SoftmaxSteps:
    """Softmax of one row of scores. sink: a learned logit that takes its share and is dropped.

    Source: the maximum is subtracted first, as every implementation does, so that no exponential overflows.
    """
    visible = [score for score in scores if score is not None]
    if not visible:
        nothing = (0.0,) * len(scores)
        return SoftmaxSteps(tuple(scores), None, (None,) * len(scores), nothing, None, 0.0, nothing)
    highest = max(visible) if sink is None else max(*visible, sink)
    shifted_scores = tuple(None if score is None else score - highest for score in scores)
    exponentials = tuple(0.0 if difference is None else math.exp(difference) for difference in shifted_scores)
    sink_weight = None if sink is None else math.exp(sink - highest)
    total = math.fsum(exponentials) + (sink_weight or 0.0)
    return SoftmaxSteps(
        tuple(scores),
        highest,
        shifted_scores,
        exponentials,
        sink_weight,
        total,
        tuple(value / total for value in exponentials),
    )


def parse_scores(numbers: Sequence[str]) -> list[float]:
    """The numbers given to `attn explain softmax`: written apart or joined by commas.

    Raises InputError for none or for what is no finite number.
    """
    scores = []
    for piece in " ".join(numbers).replace(",", " ").split():
        try:
            value = float(piece)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise InputError(
                f"{piece!r} is no finite number",
                expected="numbers, such as 2.0 1.0 0.1",
                hint="attn explain softmax 2.0 1.0 0.1",
            )
        scores.append(value)
    if not scores:
        raise InputError("there are no scores", expected="at least one number", hint="attn explain softmax 2.0 1.0 0.1")
    return scores


def softmax_document(scores: Sequence[float], temperature: float) -> SoftmaxTopic:
    """`attn.explain/1`, topic "softmax": given numbers, divided by the temperature, with and without the maximum
    subtracted.

    `exponentials` and `sum` are null where they leave the range of a float. Raises UsageError for
    a temperature that is not a positive number.
    """
    if not (math.isfinite(temperature) and temperature > 0):
        raise UsageError(f"--temperature is {temperature:g}", expected="a positive number")
    divided_scores = [score / temperature for score in scores]
    if not all(map(math.isfinite, divided_scores)):
        raise InputError(
            f"a score divided by the temperature {temperature:g} is too large for a float", expected="smaller scores"
        )
    steps = softmax_steps(divided_scores)
    plain = [_exp(score) for score in divided_scores]
    total = math.fsum(value for value in plain if value is not None)
    ran = softmax_of(divided_scores)
    return SoftmaxTopic(
        version=__version__,
        topic="softmax",
        numbers=list(scores),
        temperature=temperature,
        scores=divided_scores,
        exponentials=plain,
        sum=None if None in plain or not math.isfinite(total) else total,
        highest=max(divided_scores),
        shifted=list(steps.shifted_scores),
        shifted_exponentials=list(steps.exponentials),
        shifted_sum=steps.total,
        weights=list(steps.weights),
        entropy=steps.entropy,
        gradient=steps.gradient,
        agreement=max(abs(a - b) for a, b in zip(steps.weights, ran, strict=True)),
        warnings=[],
    )


def softmax_of(scores: Sequence[float]) -> list[float]:
    """The softmax of numbers by the package's own attention: one query of width 1 that is 1, and the scores as keys."""
    keys = np.asarray(scores, np.float64)[None, :, None]
    weights = attention(np.ones((1, 1, 1)), keys, np.zeros_like(keys), scale=1.0).weights
    return [float(weight) for weight in weights[0, 0]]


def _exp(value: float) -> float | None:
    try:
        return math.exp(value)
    except OverflowError:
        return None
