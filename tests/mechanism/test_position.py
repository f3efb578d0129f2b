"""Position encodings against loops and against the published figures."""

from __future__ import annotations

import numpy as np
import oracles_layers as oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attncli.arrays.numpy_backend import NumpyBackend
from attncli.arrays.torch_backend import TorchBackend
from attncli.mechanism.projection import (
    alibi,
    alibi_slopes,
    frequencies,
    rotate,
    rotation,
    sinusoidal,
    t5_bucket,
    timescales,
)
from attncli.mechanism.spec import Dynamic, Linear, Llama3, LongRope, RelativeBuckets, Rope, Yarn

BACKENDS = [NumpyBackend("float64"), TorchBackend("float64")]


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 5000), st.integers(1, 17))
def test_sinusoidal(position, width):
    assert np.allclose(
        sinusoidal(np.array([position]), width)[0], oracles.sinusoidal(position, width), atol=1e-11
    )


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 500), st.integers(4, 17))
def test_timescales(position, width):
    found = timescales(np.array([position]), width)[0]
    assert np.allclose(found, oracles.timescales(position, width), atol=1e-4)  # angles are float32
    assert np.abs(found).sum() > 0


def test_sinusoidal_begins_with_zeros_and_ones():
    assert sinusoidal(np.arange(1), 6).tolist() == [[0, 1, 0, 1, 0, 1]]


SHORT, LONG = (1.0, 1.5, 2.0, 2.5, 3.0), (2.0, 3.0, 5.0, 7.0, 11.0)
SCALINGS = {
    "none": (None, lambda k, n: oracles.frequency(k, 10, 500.0), 1.0),
    "linear": (Linear(4.0), lambda k, n: oracles.frequency(k, 10, 500.0) / 4, 1.0),
    "dynamic": (
        Dynamic(3.0, 16),
        lambda k, n: oracles.dynamic_frequency(k, 10, 500.0, 3.0, 16, n),
        1.0,
    ),
    "llama3": (
        Llama3(8.0, 1.0, 4.0, 64),
        lambda k, n: oracles.llama3_frequency(k, 10, 500.0, 8.0, 1.0, 4.0, 64),
        1.0,
    ),
    "yarn": (
        Yarn(4.0, 256),
        lambda k, n: oracles.yarn_frequency(k, 10, 500.0, 4.0, 256),
        0.1 * np.log(4.0) + 1,
    ),
    "yarn told": (
        Yarn(4.0, 256, magnitude=1.3),
        lambda k, n: oracles.yarn_frequency(k, 10, 500.0, 4.0, 256),
        1.3,
    ),
    "longrope": (
        LongRope(SHORT, LONG, 32, 1.19),
        lambda k, n: oracles.longrope_frequency(k, 10, 500.0, SHORT, LONG, 32, n),
        1.19,
    ),
}


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("length", [7, 16, 17, 32, 33, 101])
def test_frequencies_of_every_scaling(name, length):
    scaling, wanted, factor = SCALINGS[name]
    found, magnitude = frequencies(Rope(10, 500.0, scaling=scaling), length)
    assert np.allclose(found, [wanted(k, length) for k in range(5)], rtol=1e-13)
    assert magnitude == pytest.approx(factor, rel=1e-14)


def test_the_scalings_differ():
    seen = {
        tuple(np.round(frequencies(Rope(10, 500.0, scaling=scaling), 101)[0], 9))
        for scaling, _, _ in SCALINGS.values()
    }
    assert len(seen) == len(SCALINGS) - 1  # yarn told differs in its magnitude alone


def test_llama3_as_published():
    found, _ = frequencies(Rope(128, 5e5, scaling=Llama3(8.0, 1.0, 4.0, 8192)), 11)
    wanted = [
        3.211446e-3,
        2.1665708e-3,
        1.3718936e-3,
        8.5675141e-4,
        5.2484616e-4,
        3.1269375e-4,
        1.7850781e-4,
        9.5562124e-5,
    ]
    assert np.allclose(found[28:36], wanted, rtol=2e-7)
    assert found[63] == pytest.approx(3.068926e-7, rel=2e-7)
    assert found[28] == pytest.approx(5e5 ** (-56 / 128), rel=1e-14)


def test_yarn_as_published():
    rope = Rope(128, 1e6, scaling=Yarn(4.0, 32768))
    found, magnitude = frequencies(rope, 11)
    plain = 1e6 ** (-np.arange(64) / 64)
    assert magnitude == pytest.approx(1.1386294, rel=1e-7)
    assert np.allclose(found[:24], plain[:24], rtol=1e-14)
    assert not np.isclose(found[24], plain[24], rtol=1e-6)
    assert np.allclose(found[40:], plain[40:] / 4, rtol=1e-14)
    assert not np.isclose(found[39], plain[39] / 4, rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS, ids=["numpy", "torch"])
@pytest.mark.parametrize("pairing", ["half", "adjacent"])
@pytest.mark.parametrize(("dims", "name"), [(6, "none"), *((10, name) for name in SCALINGS)])
def test_rotation_turns_complex_numbers(backend, pairing, dims, name):
    scaling = SCALINGS[name][0]
    rope = Rope(dims, 500.0, pairing, scaling)
    x = np.random.default_rng(0).standard_normal((3, 7, 11))
    positions = np.array([0, 1, 2, 5, 40, 41, 60])
    cos, sin = (backend.array(part) for part in rotation(rope, positions, 61))
    found = backend.numpy(rotate(backend, rope, backend.array(x), cos, sin))
    per_pair, magnitude = frequencies(rope, 61)
    for head in range(3):
        for row, position in enumerate(positions):
            angles = [float(position * f) for f in per_pair]
            # angles are rounded to float32 on purpose: 60 radians hold 4e-6
            assert np.allclose(
                found[head, row],
                oracles.rotated(x[head, row].tolist(), angles, magnitude, pairing),
                atol=2e-5,
            )
    assert np.array_equal(found[..., dims:], x[..., dims:])


def test_the_two_pairings_differ_and_scores_depend_on_distance_alone():
    backend = BACKENDS[0]
    x = np.random.default_rng(0).standard_normal((1, 1, 10))
    y = np.random.default_rng(1).standard_normal((1, 1, 10))
    by_pairing = []
    for pairing in ("half", "adjacent"):
        rope = Rope(10, 500.0, pairing)

        def turned(z, position, rope=rope):
            return rotate(backend, rope, z, *rotation(rope, np.array([position]), 64))

        scores = [(turned(x, i + 9) * turned(y, i)).sum() for i in (0, 5, 20)]
        assert np.ptp(scores) < 1e-4
        assert abs((turned(x, 8) * turned(y, 0)).sum() - scores[0]) > 1e-3
        by_pairing.append(scores[0])
    assert abs(by_pairing[0] - by_pairing[1]) > 1e-3


def test_alibi_slopes():
    assert alibi_slopes(6).tolist() == [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    assert alibi_slopes(8).tolist() == [2.0**-k for k in range(1, 9)]
    for heads in range(1, 41):
        assert alibi_slopes(heads).tolist() == oracles.alibi_slopes(heads)


@pytest.mark.parametrize("backend", BACKENDS, ids=["numpy", "torch"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_alibi_falls_with_distance(backend, symmetric):
    i, j = backend.arange(2, 7)[:, None], backend.arange(0, 5)[None, :]
    found = backend.numpy(alibi(backend.array(alibi_slopes(6)), i, j, symmetric=symmetric))
    for head, slope in enumerate(oracles.alibi_slopes(6)):
        for row in range(5):
            for key in range(5):
                distance = abs(row + 2 - key) if symmetric else row + 2 - key
                assert found[head, row, key] == -slope * distance


def test_t5_buckets_as_published():
    relative = np.array([-128, -64, -32, -16, -8, -1, 0, 1, 8, 16, 32, 64, 128])
    found = t5_bucket(relative, RelativeBuckets(32, 128, bidirectional=True))
    assert found.tolist() == [15, 14, 12, 10, 8, 1, 0, 17, 24, 26, 28, 30, 31]


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("buckets", "furthest"), [(32, 128), (8, 20), (32, 64), (12, 100)])
def test_t5_buckets_against_whole_numbers(bidirectional, buckets, furthest):
    relative = np.arange(-300, 301)
    found = t5_bucket(relative, RelativeBuckets(buckets, furthest, bidirectional))
    assert found.tolist() == [
        oracles.t5_bucket(int(r), buckets, furthest, bidirectional) for r in relative
    ]
    assert set(found) == set(range(buckets)) - (
        {buckets // 2} if bidirectional else set()
    )  # a key after the query is at least 1 away
