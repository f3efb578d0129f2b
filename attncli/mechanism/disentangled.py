"""Disentangled attention: content meets content, content meets position, position meets content. Source: He et al.,
DeBERTa, 2021."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import Array, Backend
from attncli.mechanism.attend import PositionBias
from attncli.mechanism.feed_forward import Role, linear
from attncli.mechanism.norm import normalise
from attncli.mechanism.spec import Attention, Disentangled, RelativeSines

Integers = np.ndarray[Any, Any]
EVERY_HEAD = slice(None)

ASKS, ANSWERS = "content_position", "position_content"
"""The stages that hold the scores of queries with positions, and of positions with keys."""


class Places(Struct, frozen=True, eq=False):
    """The vectors of relative positions as keys and as queries, [..., bucket, width of all heads]; None where there are
    none. more: what is added to queries that meet positions, [..., 1, width of all heads]; None for nothing."""

    keys: Array | None
    queries: Array | None
    more: Array | None = None


def project_all(
    backend: Backend, spec: Attention, position: Disentangled, weights: Role, prefix: str, x: Array
) -> tuple[Array, Array, Array, Places]:
    """Queries, keys and values of x [..., token, width], and what the same or other projections make of positions."""
    table = weights(f"{prefix}.relative.weight")
    if table is None:
        raise KeyError(f"{prefix}.relative.weight")
    if position.norm is not None:
        name = f"{prefix}.relative_norm"
        table = normalise(backend, position.norm, table, weights(f"{name}.weight"), weights(f"{name}.bias"))
    value = linear(backend, weights, f"{prefix}.v", x)
    if position.own:
        q, k = (linear(backend, weights, f"{prefix}.{name}", x) for name in ("q", "k"))
        keys = linear(backend, weights, f"{prefix}.relative_k", table) if position.asks else None
        queries = linear(backend, weights, f"{prefix}.relative_q", table) if position.answers else None
        return q, k, value, Places(keys, queries)
    count = x.shape[-2]
    rows = backend.broadcast(table, (*x.shape[:-2], *table.shape))
    both = backend.concat([x, rows], -2)  # so that each matrix is read once
    q, k = (linear(backend, weights, f"{prefix}.{name}", both) for name in ("q", "k"))
    keys, queries = k[..., count:, :], q[..., count:, :]
    places = Places(keys if position.asks else None, queries if position.answers else None)
    return q[..., :count, :], k[..., :count, :], value, places


def project_sines(
    backend: Backend, position: RelativeSines, weights: Role, prefix: str, x: Array
) -> tuple[Array, Array, Array, Places]:
    """As `project_all` with a sinusoid for each distance from −n to n − 1, one bucket each."""
    q, k, v = (linear(backend, weights, f"{prefix}.{name}", x) for name in ("q", "k", "v"))
    table = backend.array(sines(position, x.shape[-2], x.shape[-1]))
    bias, relative_bias = weights(f"{prefix}.q.bias"), weights(f"{prefix}.relative_q.bias")
    if bias is None or relative_bias is None:
        raise KeyError(f"{prefix}.relative_q.bias")
    keys = linear(backend, weights, f"{prefix}.relative_k", table)
    return q, k, v, Places(keys, None, (relative_bias - bias)[None, :])


def sines(position: RelativeSines, count: int, width: int) -> np.ndarray[Any, Any]:
    """The sinusoids of the distances −count to count − 1, float64 [2·count, width]: sines, then cosines."""
    distances, pairs = np.arange(-count, count, dtype=np.float64), np.arange(0, width, 2, dtype=np.float64)
    if position.furthest is not None:
        distances = distances.clip(-position.furthest, position.furthest)
    angles = distances[:, None] / 10000.0 ** (pairs / width)
    return np.concatenate((np.sin(angles), np.cos(angles)), 1)


def terms(
    backend: Backend,
    spec: Attention,
    position: Disentangled | RelativeSines,
    q: Array,
    k: Array,
    places: Places,
    offset: int,
) -> Mapping[str, PositionBias]:
    """The scores with positions by stage: functions of (i [rows, 1], j [1, columns]) giving [..., head, rows, columns].

    q, k: [..., head, token, dim]. places: by head, [..., head, bucket, dim]. offset: the position of query 0.
    """
    scores: dict[str, PositionBias] = {}
    if places.keys is not None:
        meeting = q if places.more is None else q + places.more
        scores[ASKS] = partial(_asks, backend, spec, position, meeting, places.keys, offset)
    if places.queries is not None and isinstance(position, Disentangled):
        scores[ANSWERS] = partial(_answers, backend, spec, position, k, places.queries)
    return scores


def bucket(relative: Integers, position: Disentangled) -> Integers:
    """The row of the table for each i − j, integers in [0, 2·span). The logarithm is taken in float32, as trained."""
    relative = np.asarray(relative, np.int64)
    rows = relative
    if position.furthest is not None:
        exact = position.span // 2
        far = np.maximum(np.abs(relative), exact).astype(np.float32) / np.float32(exact)
        # the same logarithm on both sides: the furthest distance is exactly the last step, not a rounding beyond it
        steps = np.log(far) / np.log(np.asarray([(position.furthest - 1) / exact], np.float32)) * np.float32(exact - 1)
        logarithmic = (np.ceil(steps) + exact).astype(np.int64) * np.sign(relative)
        rows = np.where(np.abs(relative) <= exact, relative, logarithmic)
    return np.clip(rows + position.span, 0, 2 * position.span - 1)


def _asks(
    backend: Backend,
    spec: Attention,
    position: Disentangled | RelativeSines,
    q: Array,
    keys: Array,
    offset: int,
    i: Array,
    j: Array,
    *,
    heads: slice = EVERY_HEAD,
) -> Array:
    query_positions, key_positions = backend.numpy(i).reshape(-1), backend.numpy(j).reshape(-1)
    queries = backend.take(q[..., heads, :, :], backend.array(query_positions - offset), -2)
    scores = backend.matmul(queries, backend.transpose(keys[..., heads, :, :])) * spec.scale
    distances = query_positions[:, None] - key_positions[None, :]
    if isinstance(position, RelativeSines):
        return _pick_buckets(backend, scores, distances + keys.shape[-2] // 2)
    return _pick_buckets(backend, scores, bucket(distances, position))


def _answers(
    backend: Backend,
    spec: Attention,
    position: Disentangled,
    k: Array,
    queries: Array,
    i: Array,
    j: Array,
    *,
    heads: slice = EVERY_HEAD,
) -> Array:
    query_positions, key_positions = backend.numpy(i).reshape(-1), backend.numpy(j).reshape(-1)
    keys = backend.take(k[..., heads, :, :], backend.array(key_positions), -2)
    scores = backend.matmul(keys, backend.transpose(queries[..., heads, :, :])) * spec.scale
    return backend.transpose(
        _pick_buckets(backend, scores, bucket(query_positions[None, :] - key_positions[:, None], position))
    )


def _pick_buckets(backend: Backend, scores: Array, buckets: Integers) -> Array:
    """Of each row's scores with all buckets those of its own: [..., row, bucket] and [row, column] to [..., row,
    column]."""
    rows, wide = buckets.shape[0], scores.shape[-1]
    flat = scores.reshape((*scores.shape[:-2], rows * wide))
    places = (np.arange(rows)[:, None] * wide + buckets).reshape(-1)
    return backend.take(flat, backend.array(places), -1).reshape((*scores.shape[:-2], *buckets.shape))
