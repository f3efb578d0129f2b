"""Reformer's hash attention against loops, and against the reference implementation in
transformers.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import buckets as oracle_buckets
from oracles import causal
from oracles_hash import hash_keys as oracle_keys
from oracles_hash import reformer_head

from attncli.arrays.numpy_backend import NumpyBackend
from attncli.arrays.torch_backend import TorchBackend
from attncli.errors import UnsupportedError, UsageError
from attncli.mechanism.mask import Causal, Everywhere, Hashed, MatrixMask, Padding, intersection
from attncli.mechanism.mask.pattern import buckets_of, directions
from attncli.mechanism.reformer import Reformer, hash_attention, hash_keys

BACKENDS = [NumpyBackend("float64"), TorchBackend("float64")]
NAMES = ["numpy", "torch"]


def arrays(
    tokens: int, *, heads: int = 3, dim: int = 5, v_dim: int = 7, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.standard_normal((heads, tokens, dim)) * 2, random.standard_normal(
        (heads, tokens, v_dim)
    )


def expected(q, v, buckets, chunk, sees=lambda i, j: True):
    found = [
        reformer_head(
            q[h].tolist(),
            v[h].tolist(),
            [[0] * q.shape[1]] if buckets is None else buckets[h].tolist(),
            chunk,
            sees,
        )
        for h in range(len(q))
    ]
    return {name: np.array([head[name] for head in found]) for name in found[0]}


def agrees(backend, trace, reference) -> None:
    assert np.allclose(backend.numpy(trace.mixed), reference["mixed"], rtol=1e-10, atol=1e-12)
    assert np.allclose(backend.numpy(trace.weights), reference["weights"], rtol=1e-10, atol=1e-12)
    assert np.array_equal(backend.numpy(trace.masked) > -np.inf, reference["compared"])


@pytest.mark.parametrize("backend", BACKENDS, ids=NAMES)
@settings(deadline=None, max_examples=20)
@given(
    st.integers(1, 29),
    st.integers(1, 3),
    st.sampled_from([None, 1, 2, 3, 5, 11]),
    st.sampled_from([2, 4, 6]),
    st.booleans(),
)
def test_against_loops(backend, tokens, rounds, chunk, buckets, is_causal):
    q, v = arrays(tokens, seed=tokens)
    rule = Reformer(buckets, rounds, chunk, seed=3)
    trace = hash_attention(
        backend,
        backend.array_as_is(q),
        backend.array_as_is(v),
        rule,
        mask=Causal() if is_causal else Everywhere(),
        dense=True,
    )
    agrees(
        backend,
        trace,
        expected(q, v, trace.buckets, trace.chunk, causal if is_causal else lambda i, j: True),
    )
    assert np.allclose(backend.numpy(trace.weights).sum(-1), 1)


def test_the_comparison_can_fail():
    backend, (q, v) = BACKENDS[0], arrays(29)
    trace = hash_attention(backend, q, v, Reformer(4, 2, 5), dense=True)
    agrees(backend, trace, expected(q, v, trace.buckets, 5))
    for wrong in (
        expected(q, v, trace.buckets, 6),
        expected(q, v, trace.buckets[:, :1], 5),
        expected(q * 1.001, v, trace.buckets, 5),
    ):
        with pytest.raises(AssertionError):
            agrees(backend, trace, wrong)


@pytest.mark.parametrize("backend", BACKENDS, ids=NAMES)
def test_buckets_are_the_loops(backend):
    q, _ = arrays(31)
    rotations = directions(5, 3, 5, 2, 6)
    found = backend.numpy(
        buckets_of(backend, backend.array_as_is(q), backend.array_as_is(rotations))
    )
    assert found.tolist() == oracle_buckets(q.tolist(), rotations.astype(float).tolist())
    assert found.min() == 0
    assert found.max() == 5
    assert np.array_equal(
        hash_attention(
            backend, backend.array_as_is(q), backend.array_as_is(q), Reformer(6, 2, 7, seed=5)
        ).buckets,
        found,
    )


@pytest.mark.parametrize("backend", BACKENDS, ids=NAMES)
@pytest.mark.parametrize("size", [0.0, 1e-4, 1e-3, 1.0, 1e3])
def test_keys_are_normalised_and_small_ones_stay_finite(backend, size):
    q = arrays(7)[0] * size
    assert np.allclose(
        backend.numpy(hash_keys(backend, backend.array_as_is(q)))[1],
        oracle_keys(q[1].tolist()),
        rtol=1e-12,
        atol=0,
    )


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("decoder", [False, True])
def test_against_transformers(rounds, decoder):
    import torch
    from transformers import ReformerConfig
    from transformers.models.reformer.modeling_reformer import LSHSelfAttention

    tokens, chunk, buckets = 35, 7, 4
    settings = ReformerConfig(
        hidden_size=15, num_attention_heads=3, attention_head_size=5, num_hashes=rounds, num_buckets=buckets,
        lsh_attn_chunk_length=chunk, is_decoder=decoder, hash_seed=1,
    )  # fmt: skip
    torch.manual_seed(0)
    module = LSHSelfAttention(settings, layer_idx=0).double().eval()
    hidden = torch.randn(1, tokens, 15, dtype=torch.float64) * 3
    with torch.no_grad():
        q, v = (
            map(hidden).reshape(tokens, 3, 5).permute(1, 0, 2)
            for map in (module.query_key, module.value)
        )
        hashed = buckets_of(
            BACKENDS[1], q, BACKENDS[1].array_as_is(directions(2, 3, 5, rounds, buckets))
        )
        offsets = (torch.arange(rounds) * buckets)[None, :, None]
        reference = module(hidden, buckets=hashed + offsets).hidden_states[0].numpy()
    trace = hash_attention(
        BACKENDS[1],
        q,
        v,
        Reformer(buckets, rounds, chunk, seed=2),
        mask=Causal() if decoder else None,
    )
    assert np.allclose(
        trace.mixed.permute(1, 0, 2).reshape(tokens, 15).numpy(), reference, rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("backend", BACKENDS, ids=NAMES)
def test_one_chunk_is_full_attention_without_oneself(backend):
    q, v = arrays(11)
    trace = hash_attention(
        backend, backend.array_as_is(q), backend.array_as_is(v), Reformer(4, 3, 11), dense=True
    )
    assert trace.buckets is None
    scores = q @ np.swapaxes(
        backend.numpy(hash_keys(backend, backend.array_as_is(q))), -1, -2
    ) - 1e5 * np.eye(11)
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    assert np.allclose(
        backend.numpy(trace.weights), raised / raised.sum(-1, keepdims=True), rtol=1e-9
    )
    assert trace.pair_count == 121


@pytest.mark.parametrize("backend", BACKENDS, ids=NAMES)
def test_alone_a_token_sees_itself_and_an_empty_row_is_zero(backend):
    q, v = arrays(13)
    trace = hash_attention(
        backend,
        backend.array_as_is(q),
        backend.array_as_is(v),
        Reformer(4, 2, 3),
        mask=Causal(),
        dense=True,
    )
    assert np.allclose(backend.numpy(trace.weights)[:, 0], np.eye(13)[0])
    hidden = np.ones((13, 13), bool)
    hidden[5] = False
    poisoned = v.copy()
    poisoned[:, -1] = np.nan
    mask = intersection(Padding(1), MatrixMask(hidden))
    trace = hash_attention(
        backend,
        backend.array_as_is(q),
        backend.array_as_is(poisoned),
        Reformer(4, 2, 3),
        mask=mask,
        dense=True,
    )
    assert backend.numpy(trace.empty_rows)[:, 5].all()
    assert not backend.numpy(trace.mixed)[:, 5].any()
    assert np.isfinite(backend.numpy(trace.mixed)).all()
    assert not backend.numpy(trace.weights)[..., -1].any()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_lower_precision_stays_near(dtype):
    q, v = arrays(23)
    backend = TorchBackend(dtype)
    trace = hash_attention(
        backend, backend.array(q), backend.array(v), Reformer(4, 2, 5), dense=True
    )
    assert backend.dtype_of(trace.mixed) == dtype
    reference = expected(backend.numpy(backend.array(q)).astype(float), v, trace.buckets, 5)
    assert np.abs(backend.numpy(trace.mixed) - reference["mixed"]).max() < (
        1e-5 if dtype == "float32" else 5e-2
    )


def test_refusals():
    q, v = arrays(13)
    for rule in (Reformer(3), Reformer(4, 0), Reformer(4, 1, 0)):
        with pytest.raises(UsageError):
            hash_attention(BACKENDS[0], q, v, rule)
    for mask in (Hashed(4), intersection(Causal(), MatrixMask(np.ones((3, 13, 13), bool)))):
        with pytest.raises(UnsupportedError):
            hash_attention(BACKENDS[0], q, v, Reformer(4), mask=mask)


@pytest.mark.parametrize("backend", BACKENDS, ids=NAMES)
def test_a_visible_nan_shows(backend):
    q, v = arrays(13)
    q[0, 4] = np.nan
    v[1, 4] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace = hash_attention(
            backend,
            backend.array_as_is(q),
            backend.array_as_is(v),
            Reformer(4, 1, 13),
            mask=Causal(),
            dense=True,
        )
    mixed = backend.numpy(trace.mixed)
    assert np.isfinite(mixed[:, :4]).all()
    assert np.isnan(mixed[0, 4:]).all()
    assert np.isfinite(mixed[2]).all()
    assert np.isnan(mixed[1, 4:]).all()
    assert not backend.numpy(trace.empty_rows).any()
