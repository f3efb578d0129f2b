"""Buckets of hash masks against loops."""

from __future__ import annotations

import numpy as np
import oracles
import pytest

from attncli.arrays.numpy_backend import NumpyBackend
from attncli.arrays.torch_backend import TorchBackend
from attncli.errors import LimitError
from attncli.mechanism.mask import AllOf, AnyOf, Causal, Hashed, SameBucket, visible
from attncli.mechanism.mask.pattern import buckets_of, directions

BACKENDS = [NumpyBackend("float64"), TorchBackend("float64")]


def vectors(heads: int, tokens: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((heads, tokens, 5))


@pytest.mark.parametrize("backend", BACKENDS, ids=["numpy", "torch"])
def test_a_bound_mask_shows_keys_that_share_a_bucket_in_some_round(backend):
    q, k = vectors(6, 7), vectors(3, 11, 1)
    rotations = directions(9, 6, 5, 2, 4)
    mine = oracles.buckets(q.tolist(), rotations.astype(float).tolist())
    theirs = oracles.buckets(np.repeat(k, 2, 0).tolist(), rotations.astype(float).tolist())
    wanted = [
        [
            [any(mine[h][r][i] == theirs[h][r][j] for r in range(2)) for j in range(11)]
            for i in range(7)
        ]
        for h in range(6)
    ]
    mask = AllOf((Hashed(4, 2, 9), AnyOf((Hashed(4, 2, 9), Causal()))))
    mask = mask.bind(backend, backend.array_as_is(q), backend.array_as_is(k), 1.0, None)
    i, j = backend.arange(0, 7)[:, None], backend.arange(0, 11)[None, :]
    found = backend.numpy(visible(mask, i, j, keys=11, backend=backend))
    assert found.tolist() == wanted
    assert 0 < found.mean() < 1
    assert isinstance(mask.parts[0], SameBucket)
    assert (
        Causal().bind(backend, backend.array_as_is(q), backend.array_as_is(k), 1.0, None)
        == Causal()
    )


def test_the_same_seed_gives_the_same_buckets_on_both_libraries():
    x, rotations = vectors(2, 31), directions(1, 2, 5, 3, 8)
    mine, theirs = (
        backend.numpy(buckets_of(backend, backend.array_as_is(x), backend.array_as_is(rotations)))
        for backend in BACKENDS
    )
    assert np.array_equal(mine, theirs)
    assert mine.shape == (2, 3, 31)
    assert len(np.unique(mine)) == 8
    other = BACKENDS[0].numpy(buckets_of(BACKENDS[0], x, directions(2, 2, 5, 3, 8)))
    assert not np.array_equal(mine, other)


def test_near_vectors_share_buckets_more_often_than_opposite_ones():
    x = vectors(1, 200)
    backend, rotations = BACKENDS[0], directions(0, 1, 5, 16, 4)
    own = buckets_of(backend, x, rotations)
    assert (own == buckets_of(backend, x * 1.7, rotations)).all()
    assert (own == buckets_of(backend, x + 0.05 * vectors(1, 200, 1), rotations)).mean() > 0.9
    assert not (own == buckets_of(backend, -x, rotations)).any()


def test_directions_are_standard_normal_and_bounded(monkeypatch):
    found = directions(0, 8, 64, 2, 8)
    assert found.shape == (8, 64, 2, 4)
    assert found.dtype == np.float32
    assert abs(found.mean()) < 0.05
    assert abs(found.std() - 1) < 0.05
    with pytest.raises(LimitError, match="1,000,000,000 buckets"):
        directions(0, 1, 64, 1, 10**9)
    monkeypatch.setattr("attncli.mechanism.mask.pattern.MOST_DRAWS", 7 * 5 * 3 * 2)
    assert directions(0, 7, 5, 3, 4).size == directions(0, 7, 5, 3, 5).size == 7 * 5 * 3 * 2
    with pytest.raises(LimitError):
        directions(0, 7, 5, 3, 6)
