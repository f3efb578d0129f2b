"""The NumPy backend: instant start, and the reference the other one is held to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attncli.arrays import few_rows as thin
from attncli.arrays import threads
from attncli.errors import UsageError

NDArray = np.ndarray[Any, Any]

# Cody's rational approximations of erf (|x| <= 0.46875) and erfc (up to 4, and beyond).
_ERF_P = (
    3.20937758913846947e3,
    3.77485237685302021e2,
    1.13864154151050156e2,
    3.16112374387056560,
    1.85777706184603153e-1,
)
_ERF_Q = (2.84423683343917062e3, 1.28261652607737228e3, 2.44024637934444173e2, 2.36012909523441209e1, 1.0)
_MID_P = (
    1.23033935479799725e3, 2.05107837782607147e3, 1.71204761263407058e3, 8.81952221241769090e2,
    2.98635138197400131e2, 6.61191906371416295e1, 8.88314979438837594, 5.64188496988670089e-1, 2.15311535474403846e-8,
)  # fmt: skip
_MID_Q = (
    1.23033935480374942e3, 3.43936767414372164e3, 4.36261909014324716e3, 3.29079923573345963e3,
    1.62138957456669019e3, 5.37181101862009858e2, 1.17693950891312499e2, 1.57449261107098347e1, 1.0,
)  # fmt: skip
_FAR_P = (
    6.58749161529837803e-4,
    1.60837851487422766e-2,
    1.25781726111229246e-1,
    3.60344899949804439e-1,
    3.05326634961232344e-1,
    1.63153871373020978e-2,
)
_FAR_Q = (
    2.33520497626869185e-3,
    6.05183413124413191e-2,
    5.27905102951428412e-1,
    1.87295284992346725,
    2.56852019228982242,
    1.0,
)
_INV_SQRT_PI = 0.56418958354775628695
_ERF_AT_ONCE = 2**13
"""Numbers whose dozen intermediate arrays stay in the processor's caches together."""


def dtype_named(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a name; bfloat16 comes from ml_dtypes."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def float_dtype(array: Any) -> str:
    """The name of a float array's dtype; integers count as float64, as NumPy promotes them."""
    name = str(np.asarray(array).dtype)
    return name if "float" in name else "float64"


def erf(x: NDArray) -> NDArray:
    """The error function, entrywise, to within 2e-16 in float64.

    Source: W. J. Cody, Rational Chebyshev approximation for the error function, 1969.
    """
    values = np.asarray(x)
    found = np.empty(values.shape, values.dtype)
    flat, out = values.reshape(-1), found.reshape(-1)
    for start in range(0, flat.size, _ERF_AT_ONCE):
        part = slice(start, start + _ERF_AT_ONCE)
        out[part] = _erf(flat[part].astype(np.float64))
    return found


def _erf(wide: NDArray) -> NDArray:
    size = np.minimum(np.abs(wide), 6.0)  # erf(6) is 1 to the last bit
    square = size * size
    near = wide * _ratio(square, _ERF_P, _ERF_Q)
    rest = np.exp(-square)
    rest *= _ratio(size, _MID_P, _MID_Q)
    far = size > 4
    if far.any():  # few are, and often none
        last = size[far]
        inverse = 1 / (last * last)
        rest[far] = np.exp(-last * last) * (_INV_SQRT_PI - inverse * _ratio(inverse, _FAR_P, _FAR_Q)) / last
    found: NDArray = np.where(size <= 0.46875, near, np.copysign(1 - rest, wide))
    return found


def _ratio(x: NDArray, above: Sequence[float], below: Sequence[float]) -> NDArray:
    return _horner(x, above) / _horner(x, below)


def _horner(x: NDArray, coefficients: Sequence[float]) -> NDArray:
    """Σ c_k·x^k. `numpy.polynomial` would do, but importing it takes longer than a whole MiniLM run's activations."""
    found = np.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        found *= x
        found += coefficient
    return found


def _product(a: NDArray, b: NDArray) -> NDArray:
    block = thin.block_rows(a, b)
    return np.matmul(a, b) if block is None else thin.product(a, b, block)


def _threaded(a: NDArray, b: NDArray) -> NDArray:
    """a [..., rows, in] times b [in, out], the columns shared out among threads."""
    found = np.empty((*a.shape[:-1], b.shape[1]), a.dtype)

    def columns(part: slice) -> None:
        found[..., part] = _product(a, b[:, part])

    threads.in_parts(b.shape[1], columns)
    return found


class NumpyBackend:
    """`Backend` over NumPy arrays on the CPU.

    Low-precision products are accumulated in float32 and rounded once, as accelerators do.
    """

    name = "numpy"
    device = "cpu"

    def __init__(self, dtype: str = "float32") -> None:
        self.dtype = dtype

    def array(self, values: Any) -> NDArray:
        found = np.asarray(values)
        if found.dtype.kind == "b":
            return found
        if found.dtype.kind in "iu":
            return found.astype(np.int64, copy=False)
        return found.astype(dtype_named(self.dtype), copy=False)

    def keep(self, values: Any) -> NDArray:
        return np.asarray(values)

    def numpy(self, array: NDArray) -> NDArray:
        return array.astype(np.float32) if array.dtype.name == "bfloat16" else array

    def dtype_of(self, array: NDArray) -> str:
        return array.dtype.name

    def cast(self, array: NDArray, dtype: str) -> NDArray:
        return array.astype(dtype_named(dtype), copy=False)

    def arange(self, start: int, stop: int) -> NDArray:
        return np.arange(start, stop, dtype=np.int64)

    def full(self, shape: Sequence[int], value: float, dtype: str) -> NDArray:
        return np.full(tuple(shape), value, dtype_named(dtype))

    def matmul(self, a: NDArray, b: NDArray, *, out: NDArray | None = None) -> NDArray:
        if a.dtype.itemsize >= 4:
            if b.ndim == 2 and a.dtype == b.dtype and a.size * b.shape[1] >= threads.LARGE and threads.cores() > 1:
                return _threaded(a, b)
            return _product(a, b)
        return np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)

    def transpose(self, array: NDArray) -> NDArray:
        return np.swapaxes(array, -1, -2)

    def permute(self, array: NDArray, axes: Sequence[int]) -> NDArray:
        return np.transpose(array, tuple(axes))

    def concat(self, arrays: Sequence[NDArray], axis: int) -> NDArray:
        return np.concatenate(list(arrays), axis)

    def broadcast(self, array: NDArray, shape: Sequence[int]) -> NDArray:
        return np.broadcast_to(array, tuple(shape))

    def repeat(self, array: NDArray, times: int, axis: int) -> NDArray:
        return np.repeat(array, times, axis)

    def take(self, array: NDArray, indices: NDArray, axis: int) -> NDArray:
        return np.take(array, indices, axis)

    def where(self, condition: NDArray, a: NDArray | float, b: NDArray | float) -> NDArray:
        # Python scalars adapt to NumPy's own types by themselves, but not to bfloat16.
        sides = [side.dtype for side in (a, b) if isinstance(side, np.ndarray)]
        chosen = np.where(condition, a, b)
        return chosen.astype(np.result_type(*sides), copy=False) if sides else chosen

    def hide(self, array: NDArray, seen: NDArray) -> NDArray:
        np.copyto(array, -np.inf, where=~seen)
        return array

    def at_least(self, array: NDArray, least: float, *, out: NDArray | None = None) -> NDArray:
        return np.maximum(array, array.dtype.type(least), out=out)

    def exp_over(self, array: NDArray) -> NDArray:
        return np.exp(array, out=array)

    def exp(self, array: NDArray) -> NDArray:
        return np.exp(array)

    def log(self, array: NDArray) -> NDArray:
        return np.log(array)

    def sqrt(self, array: NDArray) -> NDArray:
        return np.sqrt(array)

    def tanh(self, array: NDArray) -> NDArray:
        return np.tanh(array)

    def erf(self, array: NDArray) -> NDArray:
        return erf(array)

    def isfinite(self, array: NDArray) -> NDArray:
        return np.isfinite(array)

    def max(self, array: NDArray, axis: int) -> NDArray:
        if array.shape[axis] == 0:
            raise UsageError("there are no keys to take a maximum over")
        return array.max(axis, keepdims=True)

    def sum(self, array: NDArray, axis: int) -> NDArray:
        if array.dtype.itemsize < 4 and array.dtype.kind != "b":
            return array.sum(axis, keepdims=True, dtype=np.float32).astype(array.dtype)
        return array.sum(axis, keepdims=True)

    def any(self, array: NDArray, axis: int) -> NDArray:
        return np.any(array, axis, keepdims=True)

    def entropy(self, array: NDArray) -> NDArray:
        # an entry of 0 meets ln 1: nothing is added, and 0·−inf never arises
        return -(array * np.log(np.where(array > 0, array, 1))).sum(-1)
