"""Queries, keys and values from narrow vectors, norms after the rotation, queries that grow:
against loops.
"""

from __future__ import annotations

import math

import numpy as np
import oracles_layers
import pytest
from comparing import LIBRARIES
from msgspec.structs import replace

from attncli.arrays.backend import choose
from attncli.mechanism.context import Context
from attncli.mechanism.mask import Causal
from attncli.mechanism.projection import LayerAttention, project, temperatures
from attncli.mechanism.spec import Attention, Latent, Norm, QkNorm, Rope, Temperature

TOKENS, WIDTH, HEADS, OWN, STRAIGHT, V_DIM, QUERY, KEYS = 7, 11, 3, 5, 4, 2, 13, 6
SPEC = Attention(
    HEADS,
    HEADS,
    OWN + STRAIGHT,
    V_DIM,
    scale=0.4,
    mask=Causal(),
    position=Rope(STRAIGHT, 50.0, "adjacent", first=OWN),
    latent=Latent(QUERY, KEYS, Norm("rms", 1e-3), STRAIGHT),
)
SHAPES = {
    "attn.q_down": (QUERY, WIDTH),
    "attn.q": (HEADS * (OWN + STRAIGHT), QUERY),
    "attn.kv_down": (KEYS + STRAIGHT, WIDTH),
    "attn.kv": (HEADS * (OWN + V_DIM), KEYS),
    "attn.q_down_norm": (QUERY,),
    "attn.kv_down_norm": (KEYS,),
}
RANDOM = np.random.default_rng(3)
WEIGHTS = {f"{name}.weight": RANDOM.standard_normal(shape) for name, shape in SHAPES.items()}
HIDDEN = RANDOM.standard_normal((TOKENS, WIDTH))


def projected(library: str, spec: Attention) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    backend = choose(library, device=None, dtype="float64")
    context = Context(np.arange(TOKENS), TOKENS)
    weights = {name: backend.array(array) for name, array in WEIGHTS.items()}
    found = project(
        LayerAttention(backend, weights.get, "attn", spec), backend.array(HIDDEN), None, context, 0
    )
    return backend.numpy(found.q), backend.numpy(found.k), backend.numpy(found.v)


def turned(vector: list[float], position: int) -> list[float]:
    angles = [
        float(np.float32(position) * np.float32(oracles_layers.frequency(k, STRAIGHT, 50.0)))
        for k in range(STRAIGHT // 2)
    ]
    return vector[:OWN] + oracles_layers.rotated(vector[OWN:], angles, 1.0, "adjacent")


@pytest.mark.parametrize("library", LIBRARIES)
def test_narrow_vectors(library: str) -> None:
    roles = {name: array.tolist() for name, array in WEIGHTS.items()}
    q, k, v = oracles_layers.latent(HIDDEN.tolist(), roles, HEADS, OWN, STRAIGHT, V_DIM, 1e-3)
    rotated = [
        [[turned(row, at) for at, row in enumerate(head)] for head in part] for part in (q, k)
    ]
    for ours, wanted in zip(projected(library, SPEC), (*rotated, v), strict=True):
        assert np.allclose(ours, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("library", LIBRARIES)
def test_norms_after_the_rotation_and_queries_that_grow(library: str) -> None:
    plain = projected(library, SPEC)
    norm, grows = Norm("rms", 1e-2, affine=False), Temperature(3, 0.8)
    found = projected(library, replace(SPEC, qk_norm=QkNorm(norm, after=True), temperature=grows))
    for part, (ours, before) in enumerate(zip(found, plain, strict=True)):
        for head in range(HEADS):
            for at in range(TOKENS):
                row = before[head, at].tolist()
                wanted = row if part == 2 else oracles_layers.rms_norm(row, 1e-2)
                larger = 1 + 0.8 * math.log(1 + (at + 1) // 3) if part == 0 else 1.0
                assert np.allclose(ours[head, at], np.array(wanted) * larger, rtol=1e-10)


def test_the_first_queries_do_not_grow() -> None:
    assert temperatures(Temperature(8192, 0.1), np.arange(3)).tolist() == [1.0, 1.0, 1.0]
