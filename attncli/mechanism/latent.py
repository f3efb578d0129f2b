"""Latent attention: queries, keys and values from narrow vectors. Source: DeepSeek-AI, DeepSeek-V2, 2024."""

from __future__ import annotations

from attncli.arrays.backend import Array, Backend
from attncli.mechanism.feed_forward import Role, linear
from attncli.mechanism.norm import normalise
from attncli.mechanism.spec import Attention, Latent


def from_latent(
    backend: Backend, spec: Attention, latent: Latent, weights: Role, prefix: str, x: Array, source: Array
) -> tuple[Array, Array, Array]:
    """Queries of x, keys and values of `source`, all heads side by side: twice [..., token, head·dim], then
    [..., token, head·v_dim]. x, source: [..., token, width].

    Each head's key ends with the entries that all heads share; they are not yet rotated.
    """

    def normalise_narrow(name: str, wide: Array) -> Array:
        return normalise(backend, latent.norm, wide, weights(f"{prefix}.{name}_norm.weight"), None)

    reads = x if latent.query is None else normalise_narrow("q_down", linear(backend, weights, f"{prefix}.q_down", x))
    q = linear(backend, weights, f"{prefix}.q", reads)
    down = linear(backend, weights, f"{prefix}.kv_down", source)
    narrow, straight = down[..., : latent.keys], down[..., latent.keys :]
    both = linear(backend, weights, f"{prefix}.kv", normalise_narrow("kv_down", narrow))
    lead, content_dim = tuple(both.shape[:-1]), spec.head_dim - latent.straight
    both = both.reshape((*lead, spec.heads, content_dim + spec.v_dim))
    straight_keys = backend.broadcast(straight[..., None, :], (*lead, spec.heads, latent.straight))
    k = backend.concat([both[..., :content_dim], straight_keys], -1).reshape((*lead, spec.heads * spec.head_dim))
    return q, k, both[..., content_dim:].reshape((*lead, spec.heads * spec.v_dim))
