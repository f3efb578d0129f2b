"""Products between heads and the key-value heads that they share."""

from __future__ import annotations

from attncli.arrays.backend import Array, Backend
from attncli.mechanism.workspace import ScoreBuffer


def by_group(backend: Backend, a: Array, b: Array, buffer: ScoreBuffer | None = None) -> Array:
    """a [..., head, rows, n] times b [..., kv, n, m], consecutive heads sharing one entry of b. buffer: where to put
    it."""
    heads, groups = a.shape[-3], b.shape[-3]
    if heads == groups:
        return backend.matmul(a, b, out=None if buffer is None else buffer.take("scores", (*a.shape[:-1], b.shape[-1])))
    rows = a.reshape((*a.shape[:-3], groups, heads // groups * a.shape[-2], a.shape[-1]))
    product = backend.matmul(
        rows, b, out=None if buffer is None else buffer.take("scores", (*rows.shape[:-1], b.shape[-1]))
    )
    return product.reshape((*product.shape[:-3], heads, a.shape[-2], b.shape[-1]))


def mix(backend: Backend, weights: Array, values: Array, visibility: Array | None) -> Array:
    """weights·values, where a hidden value may be NaN or infinite without reaching the result.

    weights: [..., head, rows, key]. values: [..., kv, key, v_dim]. visibility: booleans that broadcast
    to the weights; None if all is visible.
    """
    if visibility is None:
        return by_group(backend, weights, values)
    finite = backend.isfinite(values)
    if bool(finite.all()):
        return by_group(backend, weights, values)
    clean = by_group(backend, weights, backend.where(finite, values, 0.0))
    # what a visible query meets is what IEEE arithmetic would give it: inf, −inf or NaN
    dtype = backend.dtype_of(weights)
    visible = backend.cast(backend.broadcast(visibility, weights.shape), dtype)
    visible_weights = backend.where(visible > 0, weights, 0.0)
    up = by_group(backend, visible_weights, backend.cast(values == float("inf"), dtype)) > 0
    down = by_group(backend, visible_weights, backend.cast(values == -float("inf"), dtype)) > 0
    lost = by_group(backend, visible, backend.cast(values != values, dtype)) > 0
    nothing = by_group(backend, visible * backend.cast(weights == 0, dtype), backend.cast(~finite, dtype)) > 0
    clean = backend.where(up, float("inf"), backend.where(down, -float("inf"), clean))
    return backend.where(lost | nothing | (up & down), float("nan"), clean)
