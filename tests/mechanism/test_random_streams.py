"""Named streams of random numbers: the same everywhere, independent of each other, and of the
promised shape.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import oracles
from hypothesis import given, settings
from hypothesis import strategies as st

from attncli.arrays.numpy_backend import integers, normal, uniform


def test_the_stream_is_what_its_documentation_says():
    assert integers(7, "q.weight", 5).tolist() == oracles.stream(7, "q.weight", 5)
    assert integers(0, "词", 3).tolist() == oracles.stream(0, "词", 3)
    assert integers(0, "\ud800", 3).dtype == np.uint32


def test_numbers_that_must_never_change():
    assert integers(0, "q.weight", 3).tolist() == [3944175402, 1643380059, 1973277023]
    assert uniform(0, "q.weight", (3,)).tolist() == [
        1.4491199254989624,
        -0.4065842628479004,
        -0.14050617814064026,
    ]
    assert uniform(0, "q.weight", (2, 3), 0.125).ravel()[1].item().hex() == "-0x1.a057a00000000p-5"
    assert (
        hashlib.sha256(uniform(0, "q.weight", (64, 64)).tobytes()).hexdigest()
        == "281656ceff6fc1333a9b0b8f1aa36948478b91fc66038275482d9b19d4b362e8"
    )


@settings(deadline=None, max_examples=30)
@given(st.integers(-5, 2**32), st.text(max_size=8), st.integers(0, 37), st.floats(0.01, 3))
def test_uniform_agrees_with_its_definition(seed, name, count, scale):
    found = uniform(seed, name, (count,), scale)
    expected = [
        ((u + 0.5) / 2**31 - 1) * (math.sqrt(3) * scale) for u in oracles.stream(seed, name, count)
    ]
    assert found.dtype == np.float32
    assert found.tolist() == [float(np.float32(x)) for x in expected]


def test_more_numbers_begin_with_the_fewer_and_streams_do_not_touch():
    assert np.array_equal(integers(1, "a", 3), integers(1, "a", 1000)[:3])
    for other in (integers(2, "a", 99), integers(1, "b", 99), integers(-1, "a", 99)):
        assert not np.intersect1d(integers(1, "a", 99), other).size


def test_uniform_has_the_deviation_asked_for_and_is_bounded():
    found = uniform(3, "x", (100, 200), 0.25)
    assert found.dtype == np.float32
    assert abs(found.mean()) < 0.005
    assert abs(found.std() - 0.25) < 0.002
    assert np.abs(found).max() <= 0.25 * 3**0.5
    assert (
        abs(uniform(3, "x", (100, 200), 0.35).std() - 0.25) > 0.05
    )  # control: the check sees another scale
    assert uniform(3, "x", (0, 5)).shape == (0, 5)
    assert uniform(3, "x", ()).shape == ()


def test_normal_has_four_right_moments():
    found = normal(3, "x", (200, 211)).astype(float)
    assert abs(found.mean()) < 0.02
    assert abs(found.std() - 1) < 0.02
    assert abs((found**3).mean()) < 0.05
    assert abs((found**4).mean() - 3) < 0.15
    assert np.isfinite(found).all()
