"""What must hold for any attention: laws over random inputs, on both libraries."""

from __future__ import annotations

import numpy as np
import pytest
from comparing import LIBRARIES, attend, case, plain
from hypothesis import given, settings
from hypothesis import strategies as st

SEEDS = st.integers(0, 10**6)
few = settings(deadline=None, max_examples=15)


def weights_and_mixed(library, *arrays, **options):
    trace = attend(library, *arrays, **options)
    return plain(trace.weights), plain(trace.mixed)


@pytest.mark.parametrize("library", LIBRARIES)
@few
@given(SEEDS, st.booleans())
def test_rows_are_distributions(library, seed, causal):
    weights, mixed = weights_and_mixed(library, *case(seed), causal=causal)
    assert (weights >= 0).all()
    assert np.allclose(weights.sum(-1), 1, atol=1e-13)
    v = np.repeat(case(seed)[2], 2, 0)
    assert (mixed <= v.max(-2, keepdims=True) + 1e-12).all()
    assert (mixed >= v.min(-2, keepdims=True) - 1e-12).all()


@pytest.mark.parametrize("library", LIBRARIES)
@few
@given(SEEDS, st.integers(1, 11))
def test_under_a_causal_mask_a_prefix_does_not_know_what_follows(library, seed, length):
    q, k, v = case(seed, queries=11)
    _, whole = weights_and_mixed(library, q, k, v, causal=True)
    _, prefix = weights_and_mixed(library, q[:, :length], k[:, :length], v[:, :length], causal=True)
    assert np.allclose(whole[:, :length], prefix, rtol=1e-12, atol=1e-13)
    _, last = weights_and_mixed(library, q[:, length - 1 :], k, v, causal=True, offset=length - 1)
    assert np.allclose(whole[:, length - 1 :], last, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("library", LIBRARIES)
@few
@given(SEEDS, st.floats(-50, 50))
def test_a_constant_added_to_a_row_changes_nothing(library, seed, shift):
    q, k, v = case(seed)
    plain_weights, _ = weights_and_mixed(library, q, k, v)
    shifted, _ = weights_and_mixed(library, q, k, v, bias=np.full((7, 1), shift))
    assert np.allclose(plain_weights, shifted, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("library", LIBRARIES)
@few
@given(SEEDS, st.permutations(range(4)))
def test_heads_do_not_know_each_other(library, seed, order):
    q, k, v = case(seed, kv_heads=4)
    _, mixed = weights_and_mixed(library, q, k, v)
    _, permuted = weights_and_mixed(library, q[order], k[order], v[order])
    assert np.array_equal(mixed[order], permuted)


@pytest.mark.parametrize("library", LIBRARIES)
@few
@given(SEEDS, st.permutations(range(11)))
def test_keys_have_no_order_of_their_own(library, seed, order):
    q, k, v = case(seed)
    _, mixed = weights_and_mixed(library, q, k, v)
    _, permuted = weights_and_mixed(library, q, k[:, order], v[:, order])
    assert np.allclose(mixed, permuted, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("library", LIBRARIES)
@few
@given(SEEDS, st.sampled_from([1, 2, 3, 6]))
def test_grouped_is_repeated(library, seed, kv_heads):
    q, k, v = case(seed, heads=6, kv_heads=kv_heads)
    grouped = weights_and_mixed(library, q, k, v, causal=True)
    repeated = weights_and_mixed(
        library, q, np.repeat(k, 6 // kv_heads, 0), np.repeat(v, 6 // kv_heads, 0), causal=True
    )
    for one, other in zip(grouped, repeated, strict=True):
        assert np.allclose(one, other, rtol=1e-12, atol=1e-13)
    if 1 < kv_heads < 6:  # consecutive heads share, which is not the same as tiling
        tiled = weights_and_mixed(
            library,
            q,
            np.tile(k, (6 // kv_heads, 1, 1)),
            np.tile(v, (6 // kv_heads, 1, 1)),
            causal=True,
        )
        assert not np.allclose(grouped[1], tiled[1])


@few
@given(SEEDS, st.booleans(), st.sampled_from(["float64", "float32"]))
def test_both_libraries_give_the_same(seed, causal, dtype):
    arrays = [x.astype(dtype) for x in case(seed, batch=(2,))]
    options = {
        "causal": causal,
        "softcap": 2.0,
        "sinks": np.arange(4.0).astype(dtype),
        "key_lengths": [5, 11],
    }
    mine, theirs = (
        weights_and_mixed("numpy", *arrays, **options),
        weights_and_mixed("torch", *arrays, **options),
    )
    for one, other in zip(mine, theirs, strict=True):
        assert one.dtype == other.dtype == np.dtype(dtype)
        assert np.allclose(one, other, rtol=0, atol=1e-13 if dtype == "float64" else 2e-6)


@pytest.mark.parametrize("library", LIBRARIES)
def test_texts_padded_together_give_what_each_gives_alone(library):
    q, k, v = case(batch=(3,), queries=11)
    lengths = np.array([11, 5, 1])
    _, together = weights_and_mixed(library, q, k, v, key_lengths=lengths)
    for entry, length in enumerate(lengths):
        _, alone = weights_and_mixed(
            library, q[entry, :, :length], k[entry, :, :length], v[entry, :, :length]
        )
        assert np.allclose(together[entry, :, :length], alone, rtol=1e-12, atol=1e-13)
