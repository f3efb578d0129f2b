"""From vectors to queries, keys and values, normed and rotated; position encodings; the rule of the
weights.

Positions enter as sinusoidal vectors, rotary embedding, ALiBi slopes or T5 buckets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, assert_never

import numpy as np
from msgspec import Struct, field

from attncli.arrays.backend import Array, Backend
from attncli.mechanism.attend import PositionBias, Rule, SeparateQueries
from attncli.mechanism.context import Context, Kind, Past, visible_links, weighed_scores
from attncli.mechanism.feed_forward import LayerPart, normalise
from attncli.mechanism.spec import (
    Alibi,
    Attention,
    Disentangled,
    Dynamic,
    FirstBlockAgain,
    Latent,
    Linear,
    Llama3,
    LongRope,
    Norm,
    Position,
    RelativeBuckets,
    RelativeSines,
    Rope,
    Temperature,
    Yarn,
)

Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, Any]
EVERY_HEAD = slice(None)


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
    """Sinusoidal vectors whose wavelengths grow geometrically from 2π to 10000·2π, [token, width],
    float64.

    All sines stand before all cosines, and a zero at the end of an odd width. Frequencies and
    angles are rounded to float32, as in `rotation`. Source: Vaswani et al., Tensor2Tensor, 2018.
    """
    half = width // 2
    # (a width of 2 or 3 has a single wavelength, 2π)
    per_entry = (10000.0 ** (-np.arange(half) / max(half - 1, 1))).astype(np.float32)
    angles = (np.asarray(positions, np.float32)[:, None] * per_entry).astype(np.float64)
    return np.concatenate([np.sin(angles), np.cos(angles), np.zeros((len(angles), width % 2))], -1)


def frequencies(rope: Rope, length: int) -> tuple[Floats, float]:
    """The rotation per position of each pair, [dims/2] in radians (float64), and the factor on cos
    and sin.

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
            # NTK: the base grows so that the slowest pair turns `growth` times slower, and the
            # fastest as before
            longest = max(length, original)
            growth = factor * longest / original - (factor - 1)
            theta = rope.theta * growth ** (rope.dims / (rope.dims - 2))
            return theta**-exponent, 1.0
        case Llama3(factor, low, high, original):
            # how often a pair turns within the original length
            turns = original * plain / (2 * math.pi)
            if high == low:  # nothing lies between: long wavelengths are divided, short ones kept
                smooth = np.where(turns > high, 1.0, 0.0)
            else:
                smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
            return (1 - smooth) * plain / factor + smooth * plain, 1.0
        case Yarn(factor, original, fast, slow, magnitude, truncate):
            # the pairs that turn `fast` and `slow` times within the original length: between them
            # the frequency goes over from the plain one to the divided one
            first, last = (
                rope.dims * math.log(original / (turn * 2 * math.pi)) / (2 * math.log(rope.theta))
                for turn in (fast, slow)
            )
            if truncate:
                first = math.floor(first)
                last = math.ceil(last)
            first = max(first, 0)
            last = min(last, rope.dims - 1)
            if last == first:  # a ramp of no width would divide by zero
                last += 0.001
            ramp = np.clip((np.arange(rope.dims // 2) - first) / (last - first), 0.0, 1.0)
            if magnitude is None and factor > 1:  # the paper's formula
                amplitude = 0.1 * math.log(factor) + 1.0
            else:  # not stated (None): 1, which changes nothing
                amplitude = magnitude or 1.0
            return plain / factor * ramp + plain * (1 - ramp), amplitude
        case LongRope(short, long, original, magnitude):
            divisors = np.asarray(long if length > original else short, np.float64)
            return plain / divisors, magnitude
        case _:
            assert_never(rope.scaling)


def rotation(rope: Rope, positions: np.ndarray[Any, Any], length: int) -> tuple[Floats, Floats]:
    """cos and sin for each position and pair, both [token, dims/2], float64, times the scaling's
    factor.

    length: how many positions the text has, on which some scalings depend.

    The frequencies and angles are rounded to float32, as the reference implementations of
    every family do whatever they compute in: trained weights have seen those angles.
    """
    per_pair, magnitude = frequencies(rope, length)
    angles = (np.asarray(positions, np.float32)[:, None] * per_pair.astype(np.float32)).astype(
        np.float64
    )
    return np.cos(angles) * magnitude, np.sin(angles) * magnitude


def keeps_angles(position: Position, before: int, after: int) -> bool:
    """Whether the rotary angles of tokens stay the same when a text grows from `before` positions
    to `after`.

    Where they do not, keys kept from the shorter text are wrong for the longer one, which must be
    computed anew from its first token.
    """
    # only these two scalings depend on the length of the text
    if not isinstance(position, Rope) or not isinstance(position.scaling, Dynamic | LongRope):
        return True
    short, _ = frequencies(position, before)
    long, _ = frequencies(position, after)
    return bool(np.array_equal(short, long))


def rotate(backend: Backend, rope: Rope, x: Array, cos: Array, sin: Array) -> Array:
    """Queries or keys x, [..., head, token, dim], with the rotary embedding: `rope.dims` entries
    from entry `rope.first` on are rotated in pairs, the others stay.

    cos, sin: of each token's angles, [token, dims/2].
    """
    last = rope.first + rope.dims
    before = x[..., : rope.first]
    entries = x[..., rope.first : last]
    rest = x[..., last:]
    match rope.pairing:
        case "half":  # entry k with entry k + dims/2
            a = entries[..., : rope.dims // 2]
            b = entries[..., rope.dims // 2 :]
            result = backend.concat([a * cos - b * sin, b * cos + a * sin], -1)
        case "adjacent":  # entry 2k with entry 2k + 1, which stay neighbours
            a = entries[..., 0::2]
            b = entries[..., 1::2]
            pairs = backend.concat(
                [(a * cos - b * sin)[..., None], (b * cos + a * sin)[..., None]], -1
            )
            result = pairs.reshape(entries.shape)
        case _:
            assert_never(rope.pairing)
    parts = [part for part in (before, result, rest) if part.shape[-1]]
    if len(parts) > 1:
        return backend.concat(parts, -1)
    return result


def temperatures(temperature: Temperature, positions: np.ndarray[Any, Any]) -> Floats:
    """The factor that the query at each position is multiplied with, [token], float64, at least 1.
    Source: Llama 4, 2025.
    """
    steps = np.floor((np.asarray(positions, np.float64) + temperature.first) / temperature.floor)
    return np.log1p(steps) * temperature.scale + 1.0


def alibi_slopes(heads: int) -> Floats:
    """ALiBi's slope of each head, [head], float64, in (0, 1).

    Source: Press et al., Train short, test long, 2022; for a number of heads that is no power
    of two, the slopes of the next lower power and every other one of the next higher.
    """
    lower = 1 << (heads.bit_length() - 1)

    def powers(count: int) -> list[float]:
        """ALiBi's slopes for `count` heads, a power of two."""
        return [2.0 ** (-8 * k / count) for k in range(1, count + 1)]

    return np.asarray(powers(lower) + powers(2 * lower)[0::2][: heads - lower])


def alibi(slopes: Array, i: Array, j: Array, *, symmetric: bool) -> Array:
    """ALiBi's bias −m·(i − j) (−m·|i − j| if symmetric), [head, rows, columns].

    slopes: [head].
    i: [..., rows, 1].
    j: [1, columns].
    """
    if symmetric:
        distance = abs(i - j)
    else:
        distance = i - j
    return -slopes[:, None, None] * distance


def coarse_alibi(
    backend: Backend,
    slopes: Floats,
    factor: float,
    i: Array,
    j: Array,
    *,
    heads: slice = EVERY_HEAD,
) -> Array:
    """ALiBi's bias with slopes, positions and their products rounded to bfloat16, times `factor`:
    [head, rows, columns].

    slopes: [head], of all heads.
    i: [..., rows, 1].
    j: [1, columns].

    The bias is m·j − m·i; models add the first term alone, which gives the same weights.
    """
    from ml_dtypes import bfloat16

    steep = slopes[heads].astype(bfloat16)[:, None, None]
    at_i, at_j = (
        (steep * backend.numpy(positions).astype(bfloat16)).astype(np.float64)
        for positions in (i, j)
    )
    return backend.array(factor * (at_j - at_i))


def first_block_again(
    backend: Backend,
    position: FirstBlockAgain,
    keys: int,
    i: Array,
    j: Array,
    *,
    heads: slice = EVERY_HEAD,
) -> Array:
    """BigBird's bias ln(1 + times), [rows, columns], on keys of the first block for queries of
    middle blocks, the same for all heads: in the softmax of such a query these keys then count
    1 + times times, `times` of them in place of random blocks.

    keys: number of keys.
    i: [rows, 1].
    j: [1, columns].
    """
    del heads
    block = i // position.size  # of each query
    last = (keys - 1) // position.size
    is_repeated = (block > 0) & (block < last) & (j < position.size)
    return backend.where(
        is_repeated, backend.full((1, 1), math.log1p(position.times), "float64"), 0.0
    )


def t5_bucket(relative: np.ndarray[Any, Any], buckets: RelativeBuckets) -> np.ndarray[Any, Any]:
    """The bucket of each j − i, `relative`, integers in [0, buckets), same shape.
    Exact for small distances, logarithmic up to `max_distance`, then constant.
    Source: Raffel et al., T5, 2020. The logarithm is taken in float32, as trained models have it.
    """
    relative = np.asarray(relative, np.int64)
    if buckets.bidirectional:
        count = buckets.buckets // 2
        base = np.where(relative > 0, count, 0)
        distance = np.abs(relative)
    else:
        count = buckets.buckets
        base = np.zeros_like(relative)
        distance = np.maximum(-relative, 0)
    exact = count // 2  # distances below have a bucket each
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(exact)) / np.float32(
        math.log(buckets.max_distance / exact)
    )
    far = exact + (ratio * np.float32(count - exact)).astype(np.int64)
    return base + np.where(distance < exact, distance, np.minimum(far, count - 1))


class Projection(Struct, frozen=True, eq=False):
    """Queries, keys and values, and the Rule by which they become weights.

    scores: bias functions of the position encoding by stage name.
    """

    q: Array
    k: Array
    v: Array
    rule: Rule
    scores: Mapping[str, PositionBias] = field(default_factory=dict)


class LayerAttention(LayerPart, frozen=True, eq=False):
    """One attention of a layer: its Spec and its weights, on a backend. prefix: "attn" or "cross"."""

    spec: Attention

    def split_heads(self, x: Array, heads: int) -> Array:
        """Split the last axis into heads: [..., token, head·dim] to [..., head, token, dim]."""
        apart = x.reshape((*x.shape[:-1], heads, x.shape[-1] // heads))
        axes = [*range(apart.ndim - 3), apart.ndim - 2, apart.ndim - 3, apart.ndim - 1]
        return self.backend.permute(apart, axes)


def project(
    attention: LayerAttention, x: Array, memory: Array | None, context: Context, layer: int
) -> Projection:
    """Queries from x, keys and values from x or from `memory`, normed and rotated as the spec says,
    and the rule by which they become weights.

    x: what enters the attention, [..., token, width].
    memory: an encoder's output, [..., token, width], for cross-attention; None for self-attention.
    layer: the layer's number, for kept keys and interventions.

    The result's q is [..., head, query, dim], its k and v [..., kv, key, dim or v_dim].
    """
    spec = attention.spec
    # what the queries come from, of the tokens that are computed as such (`asking` is None for all);
    # and what keys and values come from. In cross-attention x holds no other tokens any more
    positions = context.positions[context.asking or slice(None)]
    if memory is None:
        query_input = context.queries_of(x)
        source = x
    else:
        query_input = x
        source = memory

    # queries, keys and values
    q, k, v, vectors = _project_inputs(attention, query_input, source, context)
    q, k, v = _split_and_normalise(attention, q, k, v)
    q, k = _rotate_and_norm(attention, q, k, memory, context)
    if spec.temperature is not None:
        q = q * attention.backend.array(temperatures(spec.temperature, positions)[:, None])
    if context.past is not None and memory is None:  # those of earlier tokens come before
        k, v = _remember(attention.backend, context.past, layer, k, v)
    spec.mask.check_size(q.shape[-2], k.shape[-2])

    # some models have a learned key and value behind those of the text
    learned_k = attention.find("bias_k")
    learned_v = attention.find("bias_v")
    extra_keys = 0
    if learned_k is not None and learned_v is not None:
        k = _append_key(attention, k, learned_k)
        v = _append_key(attention, v, learned_v)
        extra_keys = 1

    # the rule
    offset = 0  # in cross-attention queries have no position among the keys
    if memory is None and len(positions):  # (there are none where no query is asked for)
        offset = int(positions[0])
    scores: dict[str, PositionBias] = {}
    if vectors is not None:
        scores = place_scores(attention, q, k, vectors, offset)
    kind: Kind = "self" if memory is None else "cross"
    interventions = context.interventions.get((layer, kind), ())
    rule = Rule(
        scale=spec.scale,
        softcap=spec.softcap,
        # a mask that goes by content, such as one by hashes, is worked out from q and k
        mask=spec.mask.bind(attention.backend, q, k, spec.scale, spec.softcap),
        visibility=visible_links(
            attention.backend, interventions, spec.heads, positions, k.shape[-2]
        ),
        bias=weighed_scores(attention.backend, interventions, spec.heads, k.shape[-2]),
        position_bias=_bias_of_places(attention, scores, k.shape[-2]),
        offset=offset,
        key_lengths=context.key_lengths if memory is None else context.memory_lengths,
        extra_keys=extra_keys,
        sinks=attention.find("sinks") if spec.sinks else None,
        apart=_separate_queries(attention, query_input, source, positions),
    )
    return Projection(q, k, v, rule, scores)


def _project_inputs(
    attention: LayerAttention, x: Array, source: Array, context: Context
) -> tuple[Array, Array, Array, PlaceVectors | None]:
    """Queries of x, keys and values of `source`, each [..., token, width of all heads] and clipped
    where the spec says so; with the vectors of relative positions, None for a model without any.

    x: what enters the attention, of the tokens that are computed as queries.
    source: the same of all tokens of the text; in cross-attention, an encoder's output.
    """
    spec = attention.spec
    vectors = None
    if isinstance(spec.position, Disentangled | RelativeSines):
        # in these models x is part of `source`, whose queries are projected together with its keys
        # and with the positions, and then cut to those of x
        q, k, v, vectors = project_with_places(attention, spec.position, source)
        q = context.queries_of(q)
    elif spec.latent is None:
        q = attention.linear("q", x)
        k = attention.linear("k", source)
        v = attention.linear("v", source)
    else:
        q, k, v = from_latent(attention, spec.latent, x, source)
    if spec.clip is not None:
        q, k, v = (_clip(attention.backend, part, spec.clip) for part in (q, k, v))
    return q, k, v, vectors


def _split_and_normalise(
    attention: LayerAttention, q: Array, k: Array, v: Array
) -> tuple[Array, Array, Array]:
    """Queries, keys and values, [..., token, head·dim], split into heads, [..., head, token, dim].
    Queries and keys are normed where the model says so: over the whole width before the split, or
    over each head after it, unless that norm follows the rotation."""
    spec = attention.spec
    norm = spec.qk_norm
    if norm is not None and norm.over == "width":
        q = _norm_heads(attention, norm.norm, "q", q)
        k = _norm_heads(attention, norm.norm, "k", k)
    q = attention.split_heads(q, spec.heads)
    k = attention.split_heads(k, spec.kv_heads)
    v = attention.split_heads(v, spec.kv_heads)
    if norm is not None and norm.over != "width" and not norm.after:
        q = _norm_heads(attention, norm.norm, "q", q)
        k = _norm_heads(attention, norm.norm, "k", k)
    return q, k, v


def _rotate_and_norm(
    attention: LayerAttention, q: Array, k: Array, memory: Array | None, context: Context
) -> tuple[Array, Array]:
    """Queries and keys [..., head, token, dim], rotated by their positions in a model with RoPE,
    then normed in a model that norms after rotating.

    memory: what keys of cross-attention come from; None for self-attention.
    """
    backend = attention.backend
    position = attention.spec.position
    if isinstance(position, Rope):
        cos, sin = (backend.array(part) for part in rotations_of(backend, position, context))
        q = rotate(backend, position, q, context.queries_of(cos), context.queries_of(sin))
        if memory is not None:  # the keys are another text, at positions of its own
            places = np.arange(k.shape[-2])
            cos, sin = (backend.array(part) for part in rotation(position, places, len(places)))
        k = rotate(backend, position, k, cos, sin)
    norm = attention.spec.qk_norm
    # a norm over all heads at once comes before the rotation, and has been applied
    if norm is not None and norm.over != "width" and norm.after:
        q = _norm_heads(attention, norm.norm, "q", q)
        k = _norm_heads(attention, norm.norm, "k", k)
    return q, k


def _remember(backend: Backend, past: Past, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
    """The layer's keys and values of all tokens so far, [..., token, dim]: those in `past`, then
    the new ones, k and v. Both are put into `past` for the next run."""
    if layer in past:
        k = backend.concat([past[layer][0], k], -2)
        v = backend.concat([past[layer][1], v], -2)
    past[layer] = (k, v)
    return k, v


def _bias_of_places(
    attention: LayerAttention, scores: Mapping[str, PositionBias], keys: int
) -> PositionBias | None:
    """The function that gives the bias by position on the scores: the sum of the scores of content
    with relative positions, where there are any; that of BigBird's first block in a long text; or
    the spec's own bias. None for no bias.

    scores: those of content with relative positions, by stage name.
    keys: how many keys there are.
    """
    if scores:
        return partial(_sum_scores, scores)
    position = attention.spec.position
    if isinstance(position, FirstBlockAgain) and keys > position.longest:
        return partial(first_block_again, attention.backend, position, keys)
    return position_bias(attention)


def _append_key(attention: LayerAttention, keys: Array, learned: Array) -> Array:
    """Keys or values, [..., kv, key, dim], with one more at the end, a learned vector for each
    head.

    learned: the vectors of all heads side by side.
    """
    by_head = learned.reshape((attention.spec.kv_heads, 1, -1))
    learned_key = attention.backend.broadcast(by_head, (*keys.shape[:-2], 1, keys.shape[-1]))
    return attention.backend.concat([keys, learned_key], -2)


def _separate_queries(
    attention: LayerAttention, x: Array, source: Array, positions: Integers
) -> SeparateQueries | None:
    """The queries of the model's global tokens, and the keys and values that these meet, each by a
    projection of its own; None where no query is of a global token. Source: Beltagy et al.,
    Longformer, 2020.

    x: what the queries come from, [..., query, width].
    source: what keys and values come from, [..., key, width].
    positions: of the queries, [query].
    """
    spec = attention.spec
    # which of the queries are of global tokens; most models state no positions of such (None)
    rows = np.flatnonzero(np.isin(positions, spec.own_global or ())).tolist()
    if not rows:
        return None
    q = attention.split_heads(attention.linear("global_q", x[..., rows, :]), spec.heads)
    k, v = (
        attention.split_heads(attention.linear(f"global_{name}", source), spec.kv_heads)
        for name in "kv"
    )
    return SeparateQueries(tuple(rows), q, k, v)


def _sum_scores(
    scores: Mapping[str, PositionBias], i: Array, j: Array, *, heads: slice = EVERY_HEAD
) -> Array:
    """The sum of these position biases, each called with i and j, [..., head, rows, columns]."""
    first, *others = (score(i, j, heads=heads) for score in scores.values())
    return sum(others, start=first)


def rotations_of(backend: Backend, rope: Rope, context: Context) -> tuple[Floats, Floats]:
    """cos and sin of a rotation, [token, pair], or [batch, 1, token, pair] where they depend on
    each text's own length."""
    if context.key_lengths is None or not isinstance(rope.scaling, Dynamic | LongRope):
        return rotation(rope, context.positions, context.length)
    lengths = backend.numpy(context.key_lengths).reshape(-1).tolist()
    rotations = [rotation(rope, context.positions, length) for length in lengths]
    return (
        np.stack([cos for cos, _ in rotations])[:, None],
        np.stack([sin for _, sin in rotations])[:, None],
    )


def position_bias(attention: LayerAttention) -> PositionBias | None:
    """The bias that the position encoding adds to the scores; None if it adds none.

    Raises KeyError where a table is missing.
    """
    backend = attention.backend
    spec = attention.spec
    match spec.position:
        case Alibi(factor=factor, coarse=True):
            return partial(coarse_alibi, backend, alibi_slopes(spec.heads), factor)
        case Alibi(symmetric, factor):
            slopes = backend.array(factor * alibi_slopes(spec.heads))
            return lambda i, j, *, heads=EVERY_HEAD: alibi(slopes[heads], i, j, symmetric=symmetric)
        case RelativeBuckets():
            return partial(_bucket_bias, backend, spec.position, attention.read("buckets.weight"))
        case Rope() | Disentangled() | RelativeSines() | FirstBlockAgain() | None:
            return None  # none, or one that content or the length of the text takes part in
        case _:
            assert_never(spec.position)


def _bucket_bias(
    backend: Backend,
    spec: RelativeBuckets,
    table: Array,
    i: Array,
    j: Array,
    *,
    heads: slice = EVERY_HEAD,
) -> Array:
    """T5's bias of each query and key, [head, rows, columns].

    table: [bucket, head].
    i: [rows, 1].
    j: [1, columns].
    """
    head_table = table[:, heads]
    buckets = t5_bucket(backend.numpy(j - i), spec)  # [rows, columns]
    # [rows · columns, head], whose last axis then comes first
    biases = backend.take(head_table, backend.array(buckets.reshape(-1)), 0)
    return backend.permute(biases.reshape((*buckets.shape, head_table.shape[-1])), (2, 0, 1))


def _norm_heads(attention: LayerAttention, norm: Norm, name: str, x: Array) -> Array:
    """Queries ("q") or keys ("k") normed over their last axis, with weights for all heads or of
    each head's own.
    """
    weight = attention.find(f"{name}_norm.weight")
    bias = attention.find(f"{name}_norm.bias")
    if weight is not None and weight.ndim == 2:  # [head, dim]: every head its own
        weight = weight[:, None, :]
    return normalise(attention.backend, norm, x, weight, bias)


def _clip(backend: Backend, x: Array, bound: float) -> Array:
    """Every entry cut off at ±bound; NaN stays."""
    return backend.where(x > bound, bound, backend.where(x < -bound, -bound, x))


# Latent attention: queries, keys and values from narrow vectors. Source: DeepSeek-AI, DeepSeek-V2,
# 2024.


def from_latent(
    attention: LayerAttention, latent: Latent, x: Array, source: Array
) -> tuple[Array, Array, Array]:
    """Queries of x, keys and values of `source`, all heads side by side: twice [..., token,
    head·dim], then [..., token, head·v_dim].

    x, source: [..., token, width].

    Each head's key ends with the entries that all heads share; they are not yet rotated.
    """
    backend = attention.backend
    spec = attention.spec

    def normalise_narrow(name: str, vectors: Array) -> Array:
        """Latent vectors (MLA) normed, with the weight of the role `name`_norm."""
        weight = attention.find(f"{name}_norm.weight")
        return normalise(backend, latent.norm, vectors, weight, bias=None)

    # queries
    query_input = x
    if latent.query is not None:
        query_input = normalise_narrow("q_down", attention.linear("q_down", x))
    q = attention.linear("q", query_input)

    # one map down gives the narrow vectors of keys and values, and behind them the entries of keys
    # that all heads share
    down = attention.linear("kv_down", source)
    narrow = down[..., : latent.keys]
    straight = down[..., latent.keys :]

    # one map up gives, for each head, the content of its key and then its value
    both = attention.linear("kv", normalise_narrow("kv_down", narrow))
    lead = tuple(both.shape[:-1])
    content_dim = spec.head_dim - latent.straight
    both = both.reshape((*lead, spec.heads, content_dim + spec.v_dim))
    straight_keys = backend.broadcast(straight[..., None, :], (*lead, spec.heads, latent.straight))
    k = backend.concat([both[..., :content_dim], straight_keys], -1)
    v = both[..., content_dim:]
    return (
        q,
        k.reshape((*lead, spec.heads * spec.head_dim)),
        v.reshape((*lead, spec.heads * spec.v_dim)),
    )


# Disentangled attention: content meets content, content meets position, position meets content.
# Source: He et al., DeBERTa, 2021.

CONTENT_POSITION, POSITION_CONTENT = "content_position", "position_content"
"""The stages that hold the scores of queries with positions, and of positions with keys."""


class PlaceVectors(Struct, frozen=True, eq=False):
    """Vectors of relative positions, used as keys and as queries, [..., bucket, width of all
    heads]; None where the model has none.

    more: added to queries when they meet these, [..., 1, width of all heads], or None.
    """

    keys: Array | None
    queries: Array | None
    more: Array | None = None


def project_with_places(
    attention: LayerAttention, position: Disentangled | RelativeSines, x: Array
) -> tuple[Array, Array, Array, PlaceVectors]:
    """Queries, keys and values of x [..., token, width], and vectors for relative positions: each
    distance, or bucket of distances, has a vector (learned, or a sinusoid for each distance from −n
    to n − 1), which is projected to a query, a key or both.

    A model may let queries meet positions (`asks`), positions meet keys (`answers`), or both; its
    positions have projections of their own (`own`) or share those of the tokens.

    Raises KeyError where a table or a bias is missing.
    """
    backend = attention.backend
    linear = attention.linear
    if isinstance(position, RelativeSines):
        q, k, v = (linear(name, x) for name in "qkv")
        sines = backend.array(distance_sines(position, x.shape[-2], x.shape[-1]))
        # queries that meet positions have another bias than those that meet content: the difference
        more = (attention.read("relative_q.bias") - attention.read("q.bias"))[None, :]
        return q, k, v, PlaceVectors(keys=linear("relative_k", sines), queries=None, more=more)
    table = attention.read("relative.weight")
    if position.norm is not None:
        table = attention.normalise(position.norm, "relative_norm", table)
    v = linear("v", x)
    if position.own:
        q, k = (linear(name, x) for name in "qk")
        keys = None
        if position.asks:
            keys = linear("relative_k", table)
        queries = None
        if position.answers:
            queries = linear("relative_q", table)
        return q, k, v, PlaceVectors(keys, queries)
    # the table shares the projections of the content: it stands behind the tokens, so that each
    # matrix is read once
    count = x.shape[-2]
    both = backend.concat([x, backend.broadcast(table, (*x.shape[:-2], *table.shape))], -2)
    q, k = (linear(name, both) for name in "qk")
    places = PlaceVectors(
        k[..., count:, :] if position.asks else None,
        q[..., count:, :] if position.answers else None,
    )
    return q[..., :count, :], k[..., :count, :], v, places


def distance_sines(position: RelativeSines, count: int, width: int) -> Floats:
    """The sinusoids of the distances −count to count − 1, float64 [2·count, width]: sines, then
    cosines.
    """
    distances = np.arange(-count, count, dtype=np.float64)
    pairs = np.arange(0, width, 2, dtype=np.float64)
    if position.furthest is not None:
        distances = distances.clip(-position.furthest, position.furthest)
    angles = distances[:, None] / 10000.0 ** (pairs / width)
    return np.concatenate((np.sin(angles), np.cos(angles)), 1)


def place_scores(
    attention: LayerAttention, q: Array, k: Array, places: PlaceVectors, offset: int
) -> dict[str, PositionBias]:
    """The functions, by stage name, that give the scores of content with relative positions. Each
    is called with positions of queries, i [rows, 1], and of keys, j [1, columns], and gives [...,
    head, rows, columns].

    q, k: queries and keys of the content, [..., head, token, dim].
    places: the vectors of relative positions.
    offset: the position of query 0.
    """
    heads = attention.spec.heads
    scores: dict[str, PositionBias] = {}
    if places.keys is not None:
        queries = q
        if places.more is not None:
            queries = q + attention.split_heads(places.more, heads)
        keys = attention.split_heads(places.keys, heads)
        scores[CONTENT_POSITION] = partial(_score_place_keys, attention, queries, keys, offset)
    if places.queries is not None:
        place_queries = attention.split_heads(places.queries, heads)
        scores[POSITION_CONTENT] = partial(_score_place_queries, attention, k, place_queries)
    return scores


class RelativeVectors(Struct, frozen=True, eq=False):
    """The relative-position vectors between one query of one head and each key: used as keys, used
    as queries, both [key, dim], and what is added to the query when it meets the first, [dim]; each
    None where the model has none.
    """

    keys: np.ndarray[Any, Any] | None
    queries: np.ndarray[Any, Any] | None
    more: np.ndarray[Any, Any] | None


def relative_vectors(
    attention: LayerAttention, x: Array, query: int, keys: Integers, head: int
) -> RelativeVectors | None:
    """The relative-position vectors between a query and the keys with these indices, in one head;
    None for a model without any.

    x: what enters the attention, [token, width].
    """
    position = attention.spec.position
    if not isinstance(position, Disentangled | RelativeSines):
        return None
    *_, places = project_with_places(attention, position, x)
    rows = _distance_rows(position, query - np.asarray(keys, np.int64), x.shape[-2])
    columns = slice(head * attention.spec.head_dim, (head + 1) * attention.spec.head_dim)

    def of_head(array: Array | None, which: Integers) -> np.ndarray[Any, Any] | None:
        """The rows `which` of an array, only this head's columns, float64; None for None."""
        if array is None:
            return None
        return np.asarray(attention.backend.numpy(array), np.float64)[which][:, columns]

    # what is added to queries where they meet positions has one row, [1, width]
    more = of_head(places.more, np.zeros(1, np.int64))
    if more is not None:
        more = more[0]
    return RelativeVectors(of_head(places.keys, rows), of_head(places.queries, rows), more)


def _distance_rows(
    position: Disentangled | RelativeSines, distances: Integers, count: int
) -> Integers:
    """The row of the relative-position vectors for each distance i − j, in a text of `count`
    tokens; these vectors have a row for each distance from −count on, or for each bucket.
    """
    if isinstance(position, RelativeSines):
        return distances + count
    return distance_buckets(distances, position)


def distance_buckets(relative: Integers, position: Disentangled) -> Integers:
    """DeBERTa's position bucket for each i − j, integers in [0, 2·span). Distances up to span / 2
    have a bucket each, larger ones share buckets by their logarithm, taken in float32, as the
    models were trained."""
    relative = np.asarray(relative, np.int64)
    rows = relative
    if position.furthest is not None:
        exact = position.span // 2
        far = np.maximum(np.abs(relative), exact).astype(np.float32) / np.float32(exact)
        # the same logarithm on both sides: the furthest distance is exactly the last step, not a
        # rounding beyond it
        steps = (
            np.log(far)
            / np.log(np.asarray([(position.furthest - 1) / exact], np.float32))
            * np.float32(exact - 1)
        )
        logarithmic = (np.ceil(steps) + exact).astype(np.int64) * np.sign(relative)
        rows = np.where(np.abs(relative) <= exact, relative, logarithmic)
    return np.clip(rows + position.span, 0, 2 * position.span - 1)


def _score_place_keys(
    attention: LayerAttention,
    q: Array,
    keys: Array,
    offset: int,
    i: Array,
    j: Array,
    *,
    heads: slice = EVERY_HEAD,
) -> Array:
    """The scores of queries with relative positions, [..., head, rows, columns]: for each pair, the
    query times the key that stands for their distance.

    q: [..., head, token, dim].
    keys: the position vectors as keys, [..., head, bucket, dim].
    offset: the position of query 0.
    i, j: positions of queries, [rows, 1], and keys, [1, columns].
    """
    backend = attention.backend
    position = attention.spec.position
    assert isinstance(position, Disentangled | RelativeSines)
    query_positions = backend.numpy(i).reshape(-1)
    key_positions = backend.numpy(j).reshape(-1)
    queries = backend.take(q[..., heads, :, :], backend.array(query_positions - offset), -2)
    scores = (
        backend.matmul(queries, backend.transpose(keys[..., heads, :, :])) * attention.spec.scale
    )
    distances = query_positions[:, None] - key_positions[None, :]
    # of a text of n tokens there are 2n distances, each with its vector
    return _pick_buckets(backend, scores, _distance_rows(position, distances, keys.shape[-2] // 2))


def _score_place_queries(
    attention: LayerAttention,
    k: Array,
    queries: Array,
    i: Array,
    j: Array,
    *,
    heads: slice = EVERY_HEAD,
) -> Array:
    """The scores of relative positions with keys, [..., head, rows, columns]: for each pair, the
    query that stands for their distance times the key.

    k: [..., head, token, dim].
    queries: the position vectors as queries, [..., head, bucket, dim].
    i, j: positions of queries, [rows, 1], and keys, [1, columns].
    """
    backend = attention.backend
    position = attention.spec.position
    assert isinstance(position, Disentangled)
    query_positions = backend.numpy(i).reshape(-1)
    key_positions = backend.numpy(j).reshape(-1)
    keys = backend.take(k[..., heads, :, :], backend.array(key_positions), -2)
    scores = (
        backend.matmul(keys, backend.transpose(queries[..., heads, :, :])) * attention.spec.scale
    )
    # picked key by key, [key, query], and turned round
    buckets = distance_buckets(query_positions[None, :] - key_positions[:, None], position)
    return backend.transpose(_pick_buckets(backend, scores, buckets))


def _pick_buckets(backend: Backend, scores: Array, buckets: Integers) -> Array:
    """Pick from the scores of each row with every bucket, [..., row, bucket], the one of each
    pair's bucket: [..., row, column].

    buckets: the bucket of each pair, [row, column].
    """
    # one look-up in all rows side by side
    rows = buckets.shape[0]
    bucket_count = scores.shape[-1]
    flat = scores.reshape((*scores.shape[:-2], rows * bucket_count))
    places = (np.arange(rows)[:, None] * bucket_count + buckets).reshape(-1)
    return backend.take(flat, backend.array(places), -1).reshape(
        (*scores.shape[:-2], *buckets.shape)
    )
