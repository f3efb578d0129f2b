"""Position encodings: sinusoidal vectors, rotary embedding, ALiBi slopes, T5 buckets."""

from __future__ import annotations

import math
from typing import Any, assert_never

import numpy as np

from attncli.arrays.backend import Array, Backend
from attncli.mechanism.spec import (
    Dynamic,
    FirstBlockAgain,
    Linear,
    Llama3,
    LongRope,
    RelativeBuckets,
    Rope,
    Temperature,
    Yarn,
)

Floats = np.ndarray[Any, np.dtype[np.float64]]


def sinusoidal(positions: np.ndarray[Any, Any], width: int) -> Floats:
    """Sinusoidal position vectors, [token, width], float64.

    Entry 2k is sin(p / 10000^(2k/width)) and entry 2k + 1 the cosine of the same angle.
    Source: Vaswani et al., Attention is all you need, 2017, section 3.5.
    """
    even = np.arange(0, width, 2)
    angles = np.asarray(positions, np.float64)[:, None] / 10000.0 ** (even / width)
    vectors = np.empty((len(angles), width))
    vectors[:, 0::2] = np.sin(angles)
    vectors[:, 1::2] = np.cos(angles[:, : width // 2])
    return vectors


def timescales(positions: np.ndarray[Any, Any], width: int) -> Floats:
    """Sinusoidal vectors whose wavelengths grow geometrically from 2π to 10000·2π, [token, width], float64.

    All sines stand before all cosines, and a zero at the end of an odd width. Frequencies and angles are rounded to
    float32, as in `rotation`. Source: Vaswani et al., Tensor2Tensor, 2018.
    """
    half = width // 2
    per_entry = (10000.0 ** (-np.arange(half) / max(half - 1, 1))).astype(np.float32)
    angles = (np.asarray(positions, np.float32)[:, None] * per_entry).astype(np.float64)
    return np.concatenate([np.sin(angles), np.cos(angles), np.zeros((len(angles), width % 2))], -1)


def frequencies(rope: Rope, length: int) -> tuple[Floats, float]:
    """The rotation per position of each pair, [dims/2] in radians (float64), and the factor on cos and sin.

    length: how many positions the text has; Dynamic and LongRope depend on it.
    Source: Su et al., RoFormer, 2021; the scalings as their models' configurations define them.
    """
    exponent = np.arange(0, rope.dims, 2, dtype=np.float64) / rope.dims
    plain = rope.theta**-exponent
    match rope.scaling:
        case None:
            return plain, 1.0
        case Linear(factor):
            return plain / factor, 1.0
        case Dynamic(factor, original):
            longest = max(length, original)
            theta = rope.theta * (factor * longest / original - (factor - 1)) ** (rope.dims / (rope.dims - 2))
            return theta**-exponent, 1.0
        case Llama3(factor, low, high, original):
            turns = original * plain / (2 * math.pi)  # original / wavelength
            smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
            return (1 - smooth) * plain / factor + smooth * plain, 1.0
        case Yarn(factor, original, fast, slow, magnitude, truncate):
            ends = [
                rope.dims * math.log(original / (turn * 2 * math.pi)) / (2 * math.log(rope.theta))
                for turn in (fast, slow)
            ]
            if truncate:
                ends = [math.floor(ends[0]), math.ceil(ends[1])]
            first, last = max(ends[0], 0), min(ends[1], rope.dims - 1)
            last = last + 0.001 if last == first else last  # a ramp of no width would divide by zero
            ramp = np.clip((np.arange(rope.dims // 2) - first) / (last - first), 0.0, 1.0)
            amplitude = 0.1 * math.log(factor) + 1.0 if magnitude is None and factor > 1 else magnitude or 1.0
            return plain / factor * ramp + plain * (1 - ramp), amplitude
        case LongRope(short, long, original, magnitude):
            divisors = np.asarray(long if length > original else short, np.float64)
            return plain / divisors, magnitude
        case _:
            assert_never(rope.scaling)


def rotation(rope: Rope, positions: np.ndarray[Any, Any], length: int) -> tuple[Floats, Floats]:
    """cos and sin for each position and pair, both [token, dims/2], float64, times the scaling's factor.

    The frequencies and angles are rounded to float32, as the reference implementations of
    every family do whatever they compute in: trained weights have seen those angles.
    """
    per_pair, magnitude = frequencies(rope, length)
    angles = (np.asarray(positions, np.float32)[:, None] * per_pair.astype(np.float32)).astype(np.float64)
    return np.cos(angles) * magnitude, np.sin(angles) * magnitude


def rotate(backend: Backend, rope: Rope, x: Array, cos: Array, sin: Array) -> Array:
    """Queries or keys [..., head, token, dim] with `dims` entries rotated, from entry `first` on.

    cos, sin: [token, dims/2]. The other entries pass through unchanged.
    """
    last = rope.first + rope.dims
    before, entries, rest = x[..., : rope.first], x[..., rope.first : last], x[..., last:]
    match rope.pairing:
        case "half":
            a, b = entries[..., : rope.dims // 2], entries[..., rope.dims // 2 :]
            result = backend.concat([a * cos - b * sin, b * cos + a * sin], -1)
        case "adjacent":
            a, b = entries[..., 0::2], entries[..., 1::2]
            pairs = backend.concat([(a * cos - b * sin)[..., None], (b * cos + a * sin)[..., None]], -1)
            result = pairs.reshape(entries.shape)
        case _:
            assert_never(rope.pairing)
    parts = [part for part in (before, result, rest) if part.shape[-1]]
    return backend.concat(parts, -1) if len(parts) > 1 else result


def temperatures(temperature: Temperature, positions: np.ndarray[Any, Any]) -> Floats:
    """What the query at each position is multiplied with, [token], float64, at least 1. Source: Llama 4, 2025."""
    steps = np.floor((np.asarray(positions, np.float64) + 1.0) / temperature.floor)
    return np.log1p(steps) * temperature.scale + 1.0


def alibi_slopes(heads: int) -> Floats:
    """ALiBi's slope of each head, [head], float64, in (0, 1).

    Source: Press et al., Train short, test long, 2022; for a number of heads that is no power
    of two, the slopes of the next lower power and every other one of the next higher.
    """
    lower = 1 << (heads.bit_length() - 1)

    def powers(count: int) -> list[float]:
        return [2.0 ** (-8 * k / count) for k in range(1, count + 1)]

    return np.asarray(powers(lower) + powers(2 * lower)[0::2][: heads - lower])


def alibi(slopes: Array, i: Array, j: Array, *, symmetric: bool) -> Array:
    """ALiBi's bias −m·(i − j) (−m·|i − j| if symmetric), [head, rows, columns].

    slopes: [head]. i: [..., rows, 1]. j: [1, columns].
    """
    distance = i - j
    if symmetric:
        distance = abs(distance)
    return -slopes[:, None, None] * distance


def coarse_alibi(backend: Backend, slopes: Floats, factor: float, i: Array, j: Array) -> Array:
    """ALiBi's bias with slopes, positions and their products rounded to bfloat16, times `factor`: [head, rows,
    columns].

    i: [..., rows, 1]. j: [1, columns]. It is m·j − m·i; models add the first term alone, which gives the same weights.
    """
    from ml_dtypes import bfloat16

    steep = slopes.astype(bfloat16)[:, None, None]
    at_i, at_j = ((steep * backend.numpy(positions).astype(bfloat16)).astype(np.float64) for positions in (i, j))
    return backend.array(factor * (at_j - at_i))


def first_block_again(
    backend: Backend, position: FirstBlockAgain, keys: int, i: Array, j: Array, *, heads: slice = slice(None)
) -> Array:
    """What keys of the first block gain, [rows, columns], for all heads alike. keys: how many there are.

    i: [rows, 1]. j: [1, columns].
    """
    del heads
    block, last = i // position.size, (keys - 1) // position.size
    again = (block > 0) & (block < last) & (j < position.size)
    return backend.where(again, backend.full((1, 1), math.log1p(position.times), "float64"), 0.0)


def t5_bucket(relative: np.ndarray[Any, Any], buckets: RelativeBuckets) -> np.ndarray[Any, Any]:
    """The bucket of each j − i, integers in [0, buckets), same shape.

    Exact for small distances, logarithmic up to `max_distance`, then constant.
    Source: Raffel et al., T5, 2020. The logarithm is taken in float32, as trained models have it.
    """
    relative = np.asarray(relative, np.int64)
    if buckets.bidirectional:
        count = buckets.buckets // 2
        base = np.where(relative > 0, count, 0)
        distance = np.abs(relative)
    else:
        count, base = buckets.buckets, np.zeros_like(relative)
        distance = np.maximum(-relative, 0)
    exact = count // 2
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(exact)) / np.float32(
        math.log(buckets.max_distance / exact)
    )
    far = exact + (ratio * np.float32(count - exact)).astype(np.int64)
    return base + np.where(distance < exact, distance, np.minimum(far, count - 1))
