"""Rows in pieces: the numbers of the whole array, whatever its shape, and what a piece raises."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from attncli.arrays import numpy_backend
from attncli.arrays.numpy_backend import by_rows


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_backend, "PIECE", 12)
    monkeypatch.setattr(numpy_backend, "LARGE_ARRAY", 1)
    monkeypatch.setattr(numpy_backend, "cores", lambda: 3)


@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (8, 4), (3, 7, 5), (2, 40), (0, 4)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_pieces_give_the_whole(shape: tuple[int, ...], dtype: str) -> None:
    x, y = np.random.default_rng(0).standard_normal((2, *shape)).astype(dtype)
    met: list[int] = []

    def work(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        met.append(a.size)
        return (a - a.sum(-1, keepdims=True)) * b

    kept = x.copy()
    found = by_rows(work, x, y)
    assert found.dtype == x.dtype
    assert np.array_equal(found, (x - x.sum(-1, keepdims=True)) * y)
    assert np.array_equal(x, kept)
    if dtype == "float16":
        assert met == [x.size]
    else:
        assert sum(met) == x.size
        assert max(met, default=0) <= max(12, shape[-1])


def test_an_array_that_does_not_lie_row_by_row_is_worked_on_whole() -> None:
    x = np.arange(20.0).reshape(4, 5).T
    assert np.array_equal(
        by_rows(lambda a: a + a.sum(-1, keepdims=True), x), x + x.sum(-1, keepdims=True)
    )


def test_what_a_piece_raises_is_raised() -> None:
    def work(a: np.ndarray) -> np.ndarray:
        if a.max() >= 40:
            raise MemoryError
        return a

    with pytest.raises(MemoryError):
        by_rows(work, np.arange(45.0).reshape(9, 5))


def test_other_threads_warn_of_what_this_one_warns_of() -> None:
    x = np.full((9, 5), 1e300)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with np.errstate(over="ignore"):
            assert np.isinf(by_rows(lambda a: a * a, x)).all()
        with pytest.raises(RuntimeWarning):
            by_rows(lambda a: a * a, x)
