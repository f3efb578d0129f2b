"""The NumPy backend: instant start, and the reference the other one is held to."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from attncli.arrays import few_rows as thin
from attncli.arrays import threads
from attncli.arrays.error_function import erf
from attncli.errors import UsageError

NDArray = np.ndarray[Any, Any]


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


def _width(dtype: np.dtype[Any]) -> int:
    return dtype.itemsize


def _product(a: NDArray, b: NDArray) -> NDArray:
    block = thin.block_rows(a, b)
    return np.matmul(a, b) if block is None else thin.product(a, b, block)


def _threaded_product(a: NDArray, b: NDArray) -> NDArray:
    """a [..., rows, in] times b [in, out], the columns shared out among threads."""
    product = np.empty((*a.shape[:-1], b.shape[1]), a.dtype)

    def columns(part: slice) -> None:
        product[..., part] = _product(a, b[:, part])

    threads.in_parts(b.shape[1], columns)
    return product


class NumpyBackend:
    """`Backend` over NumPy arrays on the CPU.

    Low-precision products are accumulated in float32 and rounded once, as accelerators do.
    """

    name = "numpy"
    device = "cpu"

    def __init__(self, dtype: str = "float32") -> None:
        self.dtype = dtype

    def array(self, values: Any) -> NDArray:
        array = np.asarray(values)
        if array.dtype.kind == "b":
            return array
        if array.dtype.kind in "iu":
            return array.astype(np.int64, copy=False)
        return array.astype(dtype_named(self.dtype), copy=False)

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
        if min(a.dtype.itemsize, b.dtype.itemsize) >= 4:
            if b.ndim == 2 and a.dtype == b.dtype and a.size * b.shape[1] >= threads.LARGE_PRODUCT and threads.cores() > 1:
                return _threaded_product(a, b)
            return _product(a, b)
        narrow = min(a.dtype, b.dtype, key=_width)
        return np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(narrow)

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
        result = np.where(condition, a, b)
        return result.astype(np.result_type(*sides), copy=False) if sides else result

    def hide(self, array: NDArray, visible: NDArray) -> NDArray:
        np.copyto(array, -np.inf, where=~visible)
        return array

    def at_least(self, array: NDArray, least: float) -> NDArray:
        return np.maximum(array, array.dtype.type(least), out=array)

    def exp_over(self, array: NDArray) -> NDArray:
        return np.exp(array, out=array)

    def exp(self, array: NDArray, *, out: NDArray | None = None) -> NDArray:
        return np.exp(array, out=out)

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

    def dot_over(self, a: NDArray, b: NDArray) -> NDArray:
        a *= b
        return self.sum(a, -1)

    def any(self, array: NDArray, axis: int) -> NDArray:
        return np.any(array, axis, keepdims=True)

    def affine(self, x: NDArray, weight: NDArray, bias: NDArray | None) -> NDArray:
        product = self.matmul(x, weight.T)
        if bias is not None:
            product += bias
        return product

    def by_columns(self, weight: NDArray) -> NDArray:
        return weight

    def layer_norm(self, x: NDArray, eps: float, weight: NDArray | None, bias: NDArray | None) -> NDArray:
        result = x - self.sum(x, -1) / x.shape[-1]
        result /= np.sqrt(self.sum(result * result, -1) / x.shape[-1] + eps)
        if weight is not None:
            result *= weight
        if bias is not None:
            result += bias
        return result

    def activation(self, kind: str, array: NDArray) -> NDArray | None:
        return None

    def shared_out(self, most: int) -> AbstractContextManager[int]:
        return nullcontext(min(threads.cores(), most))

    def entropy(self, array: NDArray) -> NDArray:
        # an entry of 0 meets ln 1: nothing is added, and 0·−inf never arises
        return -(array * np.log(np.where(array > 0, array, 1))).sum(-1)
