"""The `Backend` protocol: about twenty operations, the same on NumPy and torch.

Arithmetic operators, comparisons, slicing, `.shape`, `.ndim` and `.reshape` work alike
on both kinds of array and are used directly; a method exists only where the two differ.
Axes are counted from the end, so that any number of leading axes passes through.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from attncli.errors import UnsupportedError, UsageError

Array: TypeAlias = Any
"""A `numpy.ndarray` or a `torch.Tensor`, whichever the backend in use makes."""

DTYPES = ("float32", "float64", "bfloat16", "float16")
"""Names of the data types a run can compute in."""

LOW_PRECISION = ("bfloat16", "float16")
"""Types whose exponentials and sums are unsafe: their softmax runs in float32."""

ITEM = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}
"""Bytes of one number."""

SCORE_ITEM = {name: ITEM["float32" if name in LOW_PRECISION else name] for name in DTYPES}
"""Bytes of one score or weight of a query and a key."""


class Backend(Protocol):
    """One library, one device and one data type in which a run computes."""

    name: str
    device: str
    dtype: str

    def array(self, values: Any) -> Array:
        """Bring values onto the device: floats in `dtype`, integers as int64, booleans as they are."""

    def keep(self, values: Any) -> Array:
        """Bring values onto the device in the data type they already have."""

    def numpy(self, array: Array) -> Any:
        """The array as `numpy.ndarray` on the CPU (bfloat16 widened to float32)."""

    def dtype_of(self, array: Array) -> str:
        """The name of an array's data type, such as "float32" or "bool"."""

    def cast(self, array: Array, dtype: str) -> Array:
        """The array in another data type; itself if it has that type already."""

    def arange(self, start: int, stop: int) -> Array:
        """The integers start..stop-1 as int64."""

    def full(self, shape: Sequence[int], value: float, dtype: str) -> Array:
        """An array of one value."""

    def matmul(self, a: Array, b: Array, *, out: Array | None = None) -> Array:
        """a·b over the last two axes, leading axes broadcast. out: memory of the result's shape that may be used for
        it."""

    def transpose(self, array: Array) -> Array:
        """Swap the last two axes."""

    def permute(self, array: Array, axes: Sequence[int]) -> Array:
        """Reorder all axes."""

    def concat(self, arrays: Sequence[Array], axis: int) -> Array:
        """Join arrays along one axis."""

    def broadcast(self, array: Array, shape: Sequence[int]) -> Array:
        """A view of the array in a larger shape."""

    def repeat(self, array: Array, times: int, axis: int) -> Array:
        """Every entry along an axis `times` times in a row."""

    def take(self, array: Array, indices: Array, axis: int) -> Array:
        """The entries at `indices` (one axis) along an axis."""

    def where(self, condition: Array, a: Array | float, b: Array | float) -> Array:
        """Select entrywise; never multiplies, so NaN in the unselected side is harmless."""

    def hide(self, array: Array, seen: Array) -> Array:
        """The array itself with −inf written where `seen`, which broadcasts to it, is false."""

    def at_least(self, array: Array, least: float, *, out: Array | None = None) -> Array:
        """Another array with every entry below `least` raised to it. out: memory that may be used for it."""

    def exp_over(self, array: Array) -> Array:
        """The array itself with every entry overwritten by its exponential."""

    def exp(self, array: Array) -> Array: ...
    def log(self, array: Array) -> Array: ...
    def sqrt(self, array: Array) -> Array: ...
    def tanh(self, array: Array) -> Array: ...
    def erf(self, array: Array) -> Array: ...
    def isfinite(self, array: Array) -> Array: ...

    def max(self, array: Array, axis: int) -> Array:
        """Maximum along an axis, which stays with size 1."""

    def sum(self, array: Array, axis: int) -> Array:
        """Sum along an axis, which stays with size 1."""

    def any(self, array: Array, axis: int) -> Array:
        """Whether any entry along an axis is true; the axis stays with size 1."""

    def entropy(self, array: Array) -> Array:
        """−Σ x ln x over the last axis, which is dropped; entries are at least 0, and 0 ln 0 is 0."""


# Torch repays its import (about 1.3 s) once a job has this many multiply-adds: NumPy on two
# cores does some 3e10 of them in that time.
TORCH_PAYS_FROM = 30_000_000_000


def choose(name: str, *, device: str | None, dtype: str, work: int = 0) -> Backend:
    """The backend for a job.

    name: "auto", "numpy" or "torch". "auto" takes torch for a device other than the CPU,
    for low precision, or for `work` (multiply-adds) large enough to repay its import; only
    if torch is installed. Raises UsageError, UnsupportedError.
    """
    if dtype not in DTYPES:
        raise UsageError(f"unknown dtype {dtype!r}", expected=" ".join(DTYPES))
    on_gpu = device not in (None, "cpu")
    if name == "auto":
        wanted = on_gpu or dtype in LOW_PRECISION or work >= TORCH_PAYS_FROM
        name = "torch" if wanted and (on_gpu or torch_is_installed()) else "numpy"
    match name:
        case "numpy":
            if on_gpu:
                raise UnsupportedError(
                    f"the numpy backend runs on the cpu, not on {device!r}",
                    hint=f"--backend torch --device {device}",
                )
            from attncli.arrays.numpy_backend import NumpyBackend

            return NumpyBackend(dtype)
        case "torch":
            if not torch_is_installed():
                raise UnsupportedError("torch is not installed", hint="pip install torch")
            from attncli.arrays.torch_backend import TorchBackend

            return TorchBackend(dtype, device or "cpu")
        case _:
            raise UsageError(f"unknown backend {name!r}", expected="auto numpy torch")


def torch_is_installed() -> bool:
    """Whether torch could be imported; does not import it."""
    from importlib.util import find_spec

    return find_spec("torch") is not None


def backend_of(*arrays: Array) -> Backend:
    """The backend that the given arrays belong to (all of one library and device).

    The data type is that of the first. Raises UsageError when libraries or devices are mixed.
    """
    kinds = {type(array).__module__.partition(".")[0] for array in arrays}
    if kinds == {"torch"}:
        from attncli.arrays.torch_backend import TorchBackend

        devices = {str(array.device) for array in arrays}
        if len(devices) > 1:
            raise UsageError(f"arrays on different devices: {', '.join(sorted(devices))}")
        return TorchBackend(str(arrays[0].dtype).removeprefix("torch."), devices.pop())
    if "torch" in kinds:
        raise UsageError("NumPy arrays and torch tensors mixed", expected="all of one kind")
    from attncli.arrays.numpy_backend import NumpyBackend, float_dtype

    return NumpyBackend(float_dtype(arrays[0]))
