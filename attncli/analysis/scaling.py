"""Why scores are divided by √d_k, measured on seeded random vectors: topic "scaling" of `attn.explain/1`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from attncli import __version__
from attncli.analysis.documents.explain import ScaleSoftmax, ScaleVariance, ScalingTopic
from attncli.errors import LimitError, UsageError
from attncli.mechanism.attention import attention
from attncli.mechanism.random_streams import normal

MOST_NUMBERS = 2 * 10**8
CHUNK = 2**22
"""Random numbers drawn at a time, which bounds the memory."""


def scaling_document(d_k: int, *, samples: int, keys: int, seed: int, d_model: int | None = None) -> ScalingTopic:
    """Variance of q·k for `samples` independent pairs of standard normal vectors of width d_k, and what scaling does
    to a softmax.

    keys: over how many keys the softmax runs, for samples // keys queries (at least 1). d_model:
    also scale by 1/√d_model, None for not. The standard error of a variance s² of N numbers with
    fourth moment m₄ is √((m₄ − s⁴)/N). Raises UsageError for sizes below 1 (2 samples), LimitError for too much work.
    """
    for name, value, least in (
        ("d_k", d_k, 1),
        ("samples", samples, 2),
        ("keys", keys, 1),
        ("d_model", d_model or 1, 1),
    ):
        if value < least:
            raise UsageError(f"--{name.replace('_', '-')} is {value}", expected=f"at least {least}")
    if d_k * samples > MOST_NUMBERS:
        raise LimitError(
            f"{samples} pairs of width {d_k} are {2 * d_k * samples:,} random numbers",
            expected=f"at most {2 * MOST_NUMBERS:,}",
            hint=f"--samples {max(MOST_NUMBERS // d_k, 2)}",
        )
    dots = _dots(d_k, samples, seed)
    scales = [("none", 1.0), ("sqrt-dk", d_k**-0.5)]
    scales += [("sqrt-dmodel", d_model**-0.5)] if d_model is not None else []
    queries = max(samples // keys, 1)
    return ScalingTopic(
        version=__version__,
        topic="scaling",
        d_k=d_k,
        d_model=d_model,
        samples=samples,
        keys=keys,
        queries=queries,
        seed=seed,
        variance=[_variance(name, dots * scale, d_k * scale**2) for name, scale in scales],
        softmax=_softmax(d_k, scales, queries, keys, seed),
        warnings=[],
    )


def _dots(d_k: int, samples: int, seed: int) -> np.ndarray[Any, Any]:
    """q·k of independent pairs, [samples], float64."""
    rows = max(CHUNK // d_k, 1)
    parts = []
    for start in range(0, samples, rows):
        shape = (min(rows, samples - start), d_k)
        q, k = (normal(seed, f"scaling\0{name}\0{start}", shape).astype(np.float64) for name in "qk")
        parts.append((q * k).sum(axis=1))
    return np.concatenate(parts)


def _variance(scale: str, values: np.ndarray[Any, Any], theory: float) -> ScaleVariance:
    deviations = values - values.mean()
    variance = float((deviations**2).sum() / (len(values) - 1))
    error = math.sqrt(max(float((deviations**4).mean()) - variance**2, 0.0) / len(values))
    return ScaleVariance(
        scale=scale,
        mean=float(values.mean()),
        mean_error=math.sqrt(variance / len(values)),
        variance=variance,
        variance_error=error,
        theory=theory,
        standard_errors=abs(variance - theory) / error if error > 0 else None,
    )


def _softmax(d_k: int, scales: list[tuple[str, float]], queries: int, keys: int, seed: int) -> list[ScaleSoftmax]:
    """Means over the queries of largest weight, entropy (nats) and gradient norm, for every scale and for uniform
    weights."""
    sums = {name: np.zeros(3) for name, _ in scales}
    rows = max(CHUNK // (d_k * keys), 1)
    for start in range(0, queries, rows):
        count = min(rows, queries - start)
        q = normal(seed, f"scaling\0query\0{start}", (count, 1, 1, d_k)).astype(np.float64)
        k = normal(seed, f"scaling\0keys\0{start}", (count, 1, keys, d_k)).astype(np.float64)
        for name, scale in scales:
            weights = attention(q, k, np.zeros((count, 1, keys, 1)), scale=scale).weights
            sums[name] += peakedness(weights[:, 0, 0]).sum(axis=0)
    rows_by_scale = [_softmax_row(name, total / queries) for name, total in sums.items()]
    return [*rows_by_scale, _softmax_row("uniform", peakedness(np.full((1, keys), 1 / keys))[0])]


def peakedness(weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Largest weight, entropy in nats, and the norm of the softmax's derivative, [row, 3], for weights [row, key].

    The derivative with respect to the scores is diag(w) − w·wᵀ; its norm is Frobenius', 0 where one weight is 1.
    """
    logs = np.log(np.where(weights > 0, weights, 1.0))
    squares = (weights**2).sum(axis=1)
    norms = np.sqrt(np.maximum(squares - 2 * (weights**3).sum(axis=1) + squares**2, 0.0))
    return np.stack([weights.max(axis=1), -(weights * logs).sum(axis=1), norms], axis=1)


def _softmax_row(scale: str, values: np.ndarray[Any, Any]) -> ScaleSoftmax:
    return ScaleSoftmax(scale=scale, largest=float(values[0]), entropy=float(values[1]), gradient=float(values[2]))
