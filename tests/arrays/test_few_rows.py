"""A few rows times a large matrix, by blocks: the same product, taken only where it is meant to be."""

import os

import numpy as np
import pytest

from attncli.arrays import numpy_backend
from attncli.arrays.numpy_backend import NumpyBackend

RANDOM = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def few_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(numpy_backend, "LARGE_MATRIX", 1000)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("rows", "width", "out"), [(2, 67, 64), (5, 251, 1009 * 8), (16, 1031, 48), (13, 4099, 16)]
)
def test_the_product_is_that_of_loops(rows: int, width: int, out: int, dtype: str) -> None:
    a, weight = (
        RANDOM.standard_normal((rows, width)).astype(dtype),
        RANDOM.standard_normal((out, width)).astype(dtype),
    )
    block = numpy_backend.block_rows(a, weight.T)
    assert block is not None
    assert out % block == 0
    found = NumpyBackend(dtype).matmul(a, weight.T)
    assert found.dtype == dtype
    expected = np.array([[np.float64(row) @ np.float64(column) for column in weight] for row in a])
    assert np.max(np.abs(found - expected)) < (1e-3 if dtype == "float32" else 1e-11)
    swapped = np.roll(weight, 1, axis=0)
    assert (
        np.max(np.abs(NumpyBackend(dtype).matmul(a, swapped.T) - expected)) > 1
    )  # the comparison can fail


def test_everything_else_is_left_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    a, weight = np.ones((5, 64), np.float32), np.ones((64, 64), np.float32)
    assert numpy_backend.block_rows(a, weight.T) is not None
    assert numpy_backend.block_rows(a, weight) is None  # not the view of a weight
    assert numpy_backend.block_rows(a[:1], weight.T) is None
    assert numpy_backend.block_rows(np.ones((17, 64), np.float32), weight.T) is None
    assert numpy_backend.block_rows(a[None], weight.T) is None
    assert numpy_backend.block_rows(np.ones((5, 64)), weight.T) is None
    assert numpy_backend.block_rows(a, np.ones((61, 64), np.float32).T) is None
    assert numpy_backend.block_rows(a, np.ones((8, 64), np.float32).T) is None  # small
    assert (
        numpy_backend.block_rows(np.ones((16, 8192), np.float32), np.ones((64, 8192), np.float32).T)
        is None
    )  # no block is small enough
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert numpy_backend.block_rows(a, weight.T) is None
