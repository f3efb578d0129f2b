"""Positions, norms, activations and whole layers as loops: the oracle of `position` and `block`."""

from __future__ import annotations

import cmath
import math
from collections.abc import Mapping
from typing import Any

from oracles import Matrix, Vector, attention, dot

Weights = Mapping[str, Any]


def sinusoidal(position: int, width: int) -> Vector:
    found = []
    for entry in range(width):
        angle = position / 10000 ** ((entry - entry % 2) / width)
        found.append(math.sin(angle) if entry % 2 == 0 else math.cos(angle))
    return found


def timescales(position: int, width: int) -> Vector:
    """Wavelengths from 2π to 10000·2π, each a constant factor longer than the one before."""
    half = width // 2
    step = 10000 ** (1 / (half - 1))
    angles = [position / step**k for k in range(half)]
    return [math.sin(a) for a in angles] + [math.cos(a) for a in angles] + [0.0] * (width % 2)


def frequency(k: int, dims: int, theta: float) -> float:
    return theta ** (-2 * k / dims)


def llama3_frequency(
    k: int, dims: int, theta: float, factor: float, low: float, high: float, original: int
) -> float:
    plain = frequency(k, dims, theta)
    wavelength = 2 * math.pi / plain
    if wavelength > original / low:
        return plain / factor
    if wavelength < original / high:
        return plain
    smooth = (original / wavelength - low) / (high - low)
    return (1 - smooth) * plain / factor + smooth * plain


def dynamic_frequency(
    k: int, dims: int, theta: float, factor: float, original: int, length: int
) -> float:
    longest = max(length, original)
    return frequency(
        k, dims, theta * (factor * longest / original - (factor - 1)) ** (dims / (dims - 2))
    )


def yarn_frequency(k: int, dims: int, theta: float, factor: float, original: int) -> float:
    def turns(r: float) -> float:
        return dims * math.log(original / (2 * math.pi * r)) / (2 * math.log(theta))

    low, high = max(math.floor(turns(32)), 0), min(math.ceil(turns(1)), dims - 1)
    ramp = min(max((k - low) / (high - low), 0), 1)
    plain = frequency(k, dims, theta)
    return plain / factor * ramp + plain * (1 - ramp)


def longrope_frequency(
    k: int, dims: int, theta: float, short: Vector, long: Vector, original: int, length: int
) -> float:
    return 1 / ((long if length > original else short)[k] * theta ** (2 * k / dims))


def rotated(x: Vector, angles: Vector, magnitude: float, pairing: str) -> Vector:
    """Each pair as one complex number, turned by its angle; entries past the pairs stay."""
    dims, found = 2 * len(angles), list(x)
    for k, angle in enumerate(angles):
        a, b = (k, k + dims // 2) if pairing == "half" else (2 * k, 2 * k + 1)
        turned = complex(x[a], x[b]) * cmath.rect(magnitude, angle)
        found[a], found[b] = turned.real, turned.imag
    return found


def alibi_slopes(heads: int) -> Vector:
    if heads & (heads - 1) == 0:
        return [2 ** (-8 * k / heads) for k in range(1, heads + 1)]
    lower = 2 ** math.floor(math.log2(heads))
    return alibi_slopes(lower) + alibi_slopes(2 * lower)[0::2][: heads - lower]


def t5_bucket(relative: int, buckets: int, furthest: int, bidirectional: bool) -> int:
    """By comparing whole numbers: no logarithm, hence no rounding."""
    count = buckets // 2 if bidirectional else buckets
    base = count if bidirectional and relative > 0 else 0
    distance = abs(relative) if bidirectional else max(-relative, 0)
    exact = count // 2
    if distance < exact:
        return base + distance
    steps = 0
    # (distance / exact) ** (count - exact) >= (furthest / exact) ** step
    while steps + 1 < count - exact and distance ** (count - exact) * exact ** (
        steps + 1
    ) >= furthest ** (steps + 1) * exact ** (count - exact):
        steps += 1
    return base + exact + steps


def layer_norm(
    x: Vector, eps: float, weight: Vector | None = None, bias: Vector | None = None
) -> Vector:
    mean = math.fsum(x) / len(x)
    variance = math.fsum((value - mean) ** 2 for value in x) / len(x)
    normed = [(value - mean) / math.sqrt(variance + eps) for value in x]
    return [
        value * (weight[at] if weight else 1) + (bias[at] if bias else 0)
        for at, value in enumerate(normed)
    ]


def rms_norm(
    x: Vector, eps: float, weight: Vector | None = None, unit_offset: bool = False
) -> Vector:
    size = math.sqrt(math.fsum(value * value for value in x) / len(x) + eps)
    return [
        value / size * ((weight[at] + (1 if unit_offset else 0)) if weight else 1)
        for at, value in enumerate(x)
    ]


def activation(kind: str, x: float) -> float:
    match kind:
        case "gelu":
            return x * (1 + math.erf(x / math.sqrt(2))) / 2
        case "gelu_tanh":
            return x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        case "relu":
            return max(x, 0.0)
        case "silu":
            return x / (1 + math.exp(-x))
        case "quick_gelu":
            return x / (1 + math.exp(-1.702 * x))
        case "tanh":
            return math.tanh(x)
        case "relu2":
            return max(x, 0.0) ** 2
        case _:
            raise ValueError(kind)


def linear(weights: Weights, name: str, x: Vector) -> Vector:
    bias = weights.get(f"{name}.bias")
    return [
        dot(row, x) + (bias[at] if bias is not None else 0.0)
        for at, row in enumerate(weights[f"{name}.weight"])
    ]


def split(rows: Matrix, heads: int) -> list[Matrix]:
    """[token][width] to [head][token][dim]."""
    size = len(rows[0]) // heads
    return [[row[head * size : (head + 1) * size] for row in rows] for head in range(heads)]


def multi_head(
    x: Matrix,
    weights: Weights,
    heads: int,
    kv_heads: int,
    *,
    prefix: str = "attn",
    memory: Matrix | None = None,
    clip: float = math.inf,
    **options: Any,
) -> dict[str, Any]:
    """Multi-head attention with every stage; `out` is [token][width]. options: as
    `oracles.attention` takes them.
    """
    source = x if memory is None else memory

    def projected(name: str, row: Vector) -> Vector:
        return [min(max(value, -clip), clip) for value in linear(weights, f"{prefix}.{name}", row)]

    q = split([projected("q", row) for row in x], heads)
    k = split([projected("k", row) for row in source], kv_heads)
    v = split([projected("v", row) for row in source], kv_heads)
    found = attention(q, k, v, **options)
    joined = [[value for head in found["mixed"] for value in head[at]] for at in range(len(x))]
    out = (
        [linear(weights, f"{prefix}.o", row) for row in joined]
        if f"{prefix}.o.weight" in weights
        else joined
    )
    return {**found, "q": q, "k": k, "v": v, "out": out}


def feed_forward(
    weights: Weights, x: Vector, kind: str, gated: bool = False, prefix: str = "mlp"
) -> Vector:
    up = linear(weights, f"{prefix}.up", x)
    if gated:
        inner = [
            activation(kind, g) * u
            for g, u in zip(linear(weights, f"{prefix}.gate", x), up, strict=True)
        ]
    else:
        inner = [activation(kind, u) for u in up]
    return linear(weights, f"{prefix}.down", inner)


def experts(weights: Weights, x: Vector, kind: str, chosen: int, renormalise: bool) -> Vector:
    """The router's best parts, one after the other, each in its share."""
    shares = softmax(linear(weights, "experts.router", x))
    best = sorted(range(len(shares)), key=lambda expert: -shares[expert])[:chosen]
    whole = math.fsum(shares[expert] for expert in best) if renormalise else 1.0
    total = [0.0] * len(x)
    for expert in best:
        served = feed_forward(one_expert(weights, expert), x, kind, True, "one")
        total = [a + shares[expert] / whole * b for a, b in zip(total, served, strict=True)]
    return total


def one_expert(weights: Weights, expert: int) -> Weights:
    return {
        f"one.{name}.weight": weights[f"experts.{name}.weight"][expert]
        for name in ("up", "gate", "down")
    }


def grouped_shares(
    scores: Vector, correction: Vector, chosen: int, groups: int, of_groups: int, by: int
) -> Vector:
    """Each expert's own sigmoid, 0 unless it is among the best of the best groups by corrected
    worth; then to sum 1.
    """
    shares = [1 / (1 + math.exp(-score)) for score in scores]
    worth = [share + extra for share, extra in zip(shares, correction, strict=True)]
    size = len(scores) // groups

    def of_group(group: int) -> float:
        return sum(sorted(worth[group * size : (group + 1) * size])[-by:])

    open_groups = sorted(range(groups), key=lambda group: -of_group(group))[:of_groups]
    allowed = [expert for expert in range(len(scores)) if expert // size in open_groups]
    best = sorted(allowed, key=lambda expert: -worth[expert])[:chosen]
    whole = sum(shares[expert] for expert in best)
    return [shares[expert] / whole if expert in best else 0.0 for expert in range(len(scores))]


def bounded(weights: Weights, x: Vector, limit: float, slope: float) -> Vector:
    inner = []
    for gate, up in zip(linear(weights, "mlp.gate", x), linear(weights, "mlp.up", x), strict=True):
        gate, up = min(gate, limit), max(min(up, limit), -limit)
        inner.append(gate / (1 + math.exp(-slope * gate)) * (up + 1))
    return linear(weights, "mlp.down", inner)


def latent(
    x: Matrix, weights: Weights, heads: int, own: int, straight: int, v_dim: int, eps: float
) -> list[list[Matrix]]:
    """Queries, keys and values by head, [head][token][dim] each, from narrow vectors; not rotated."""
    found: list[list[Matrix]] = [[[] for _ in range(heads)] for _ in range(3)]
    for row in x:
        asked = linear(
            weights,
            "attn.q",
            rms_norm(linear(weights, "attn.q_down", row), eps, weights["attn.q_down_norm.weight"]),
        )
        down = linear(weights, "attn.kv_down", row)
        narrow, shared = down[:-straight], down[-straight:]
        both = linear(
            weights, "attn.kv", rms_norm(narrow, eps, weights["attn.kv_down_norm.weight"])
        )
        for head in range(heads):
            part = both[head * (own + v_dim) : (head + 1) * (own + v_dim)]
            found[0][head].append(asked[head * (own + straight) : (head + 1) * (own + straight)])
            found[1][head].append(part[:own] + shared)
            found[2][head].append(part[own:])
    return found


def softmax(x: Vector) -> Vector:
    raised = [math.exp(value - max(x)) for value in x]
    return [value / math.fsum(raised) for value in raised]


def plus(a: Matrix, b: Matrix) -> Matrix:
    return [
        [x + y for x, y in zip(left, right, strict=True)] for left, right in zip(a, b, strict=True)
    ]
