"""The `Backend` protocol: about twenty operations, the same on NumPy and torch; and which layers or
heads are meant.

Arithmetic operators, comparisons, slicing, `.shape`, `.ndim` and `.reshape` work alike on both
kinds of array and are used directly; a method exists only where the two differ.
Axes are counted from the end, so that any number of leading axes passes through.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from numbers import Integral
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar, cast

from attncli.errors import UnsupportedError, UsageError
from attncli.language import listing, message

if TYPE_CHECKING:
    import numpy as np

    from attncli.arrays.torch_backend import Tensor


class Number(Protocol):
    """A single number or truth value of either library."""

    def __bool__(self) -> bool: ...
    def __int__(self) -> int: ...
    def __float__(self) -> float: ...


class Array(Protocol):
    """A `numpy.ndarray` or a `torch.Tensor`: what both do alike. Also called tensor.

    Arithmetic that either library would do with the other's arrays, or with what is no array, is
    for the tests to find: the operands are of any type here, the results are arrays.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def dtype(self) -> Any:
        """The library's own; `Backend.dtype_of` has its name."""

    def reshape(self, shape: tuple[int, ...], /) -> Array:
        """The same entries in another shape."""

    def all(self) -> Number:
        """Whether every entry is true."""

    def any(self) -> Number:
        """Whether any entry is true."""

    def min(self) -> Number:
        """The least entry."""

    def max(self) -> Number:
        """The greatest entry."""

    def argmax(self, axis: int, /) -> Array:
        """The index of the greatest entry along an axis, which is dropped."""

    def mean(self, *, axis: int) -> Any:
        """The mean along an axis, which is dropped."""

    def sum(self, *, axis: int) -> Any:
        """The sum along an axis, which is dropped."""

    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __int__(self) -> int: ...
    def __float__(self) -> float: ...
    def __getitem__(self, index: Any, /) -> Array: ...
    def __setitem__(self, index: Any, values: Any, /) -> None: ...
    def __neg__(self) -> Array: ...
    def __invert__(self) -> Array: ...
    def __abs__(self) -> Array: ...
    def __add__(self, operand: Any, /) -> Array: ...
    def __radd__(self, operand: Any, /) -> Array: ...
    def __sub__(self, operand: Any, /) -> Array: ...
    def __rsub__(self, operand: Any, /) -> Array: ...
    def __mul__(self, operand: Any, /) -> Array: ...
    def __rmul__(self, operand: Any, /) -> Array: ...
    def __truediv__(self, operand: Any, /) -> Array: ...
    def __rtruediv__(self, operand: Any, /) -> Array: ...
    def __floordiv__(self, operand: Any, /) -> Array: ...
    def __mod__(self, operand: Any, /) -> Array: ...
    def __and__(self, operand: Any, /) -> Array: ...
    def __or__(self, operand: Any, /) -> Array: ...
    def __lt__(self, operand: Any, /) -> Array: ...
    def __le__(self, operand: Any, /) -> Array: ...
    def __gt__(self, operand: Any, /) -> Array: ...
    def __ge__(self, operand: Any, /) -> Array: ...
    def __eq__(self, operand: object, /) -> Array: ...  # type: ignore[override]
    def __ne__(self, operand: object, /) -> Array: ...  # type: ignore[override]


Kind = TypeVar("Kind", bound=Array)
"""The arrays of one library, in `Operations`."""
Library = TypeVar("Library", "np.ndarray[Any, Any]", "Tensor")
"""The arrays that a caller hands over and gets back: all NumPy's or all torch's."""

DTYPES = ("float32", "float64", "bfloat16", "float16")
"""Names of the data types a run can compute in."""

LOW_PRECISION = ("bfloat16", "float16")
"""Types whose exponentials and sums are unsafe: their softmax runs in float32."""

ITEM = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}
"""Bytes of one number."""

SCORE_ITEM = {name: ITEM["float32" if name in LOW_PRECISION else name] for name in DTYPES}
"""Bytes of one score or weight of a query and a key."""


class Operations(Protocol[Kind]):
    """The interface of a backend: array operations in one library, on one device, with one data
    type for floats.
    """

    name: str
    device: str
    dtype: str

    def array(self, values: Any) -> Kind:
        """Bring values onto the device: floats in `dtype`, integers as int64, booleans as they are."""

    def array_as_is(self, values: Any) -> Kind:
        """Bring values onto the device in the data type they already have."""

    def numpy(self, array: Kind) -> np.ndarray[Any, Any]:
        """The array as `numpy.ndarray` on the CPU (bfloat16 widened to float32)."""

    def dtype_of(self, array: Kind) -> str:
        """The name of an array's data type, such as "float32" or "bool"."""

    def cast(self, array: Kind, dtype: str) -> Kind:
        """The array in another data type; itself if it has that type already."""

    def arange(self, start: int, stop: int) -> Kind:
        """The integers start..stop-1 as int64."""

    def full(self, shape: Sequence[int], value: float, dtype: str) -> Kind:
        """An array of one value."""

    def matmul(self, a: Kind, b: Kind, *, out: Kind | None = None) -> Kind:
        """a·b over the last two axes, leading axes broadcast.

        out: memory of the result's shape that may be used for it.
        """

    def transpose(self, array: Kind) -> Kind:
        """Swap the last two axes."""

    def permute(self, array: Kind, axes: Sequence[int]) -> Kind:
        """Reorder all axes."""

    def concat(self, arrays: Sequence[Kind], axis: int) -> Kind:
        """Join arrays along one axis."""

    def broadcast(self, array: Kind, shape: Sequence[int]) -> Kind:
        """A view of the array in a larger shape."""

    def repeat(self, array: Kind, times: int, axis: int) -> Kind:
        """Every entry along an axis `times` times in a row."""

    def take(self, array: Kind, indices: Kind, axis: int) -> Kind:
        """The entries at `indices` (one axis) along an axis."""

    def where(self, condition: Kind, a: Kind | float, b: Kind | float) -> Kind:
        """Select entrywise; never multiplies, so NaN in the unselected side is harmless."""

    def hide(self, array: Kind, visible: Kind) -> Kind:
        """The array itself with −inf written where `visible`, which broadcasts to it, is false."""

    def at_least(self, array: Kind, least: float) -> Kind:
        """The array itself with every entry below `least` raised to it."""

    def exp_over(self, array: Kind) -> Kind:
        """The array itself with every entry x overwritten by exp(x)."""

    def exp(self, array: Kind, *, out: Kind | None = None) -> Kind: ...
    def log(self, array: Kind) -> Kind: ...
    def sqrt(self, array: Kind) -> Kind: ...
    def tanh(self, array: Kind) -> Kind: ...
    def erf(self, array: Kind) -> Kind: ...
    def isfinite(self, array: Kind) -> Kind: ...

    def max(self, array: Kind, axis: int) -> Kind:
        """Maximum along an axis, which stays with size 1."""

    def sum(self, array: Kind, axis: int) -> Kind:
        """Sum along an axis, which stays with size 1."""

    def dot_over(self, a: Kind, b: Kind) -> Kind:
        """Σ a·b along the last axis, which stays with size 1; a may be overwritten."""

    def any(self, array: Kind, axis: int) -> Kind:
        """Whether any entry along an axis is true; the axis stays with size 1."""

    def affine(self, x: Kind, weight: Kind, bias: Kind | None) -> Kind:
        """x·Wᵀ + b.

        x: [row, in].
        weight: [out, in].
        bias: [out].
        """

    def multiplier(self, weight: Kind) -> Callable[[Kind, Kind | None], Kind] | None:
        """A faster form of `affine` for many products with this weight [out, in], called with x and
        bias, or None where the library has none."""

    def layer_norm(self, x: Kind, eps: float, weight: Kind | None, bias: Kind | None) -> Kind:
        """(x − mean) / √(variance + eps) · weight + bias over the last axis; weight and bias are
        [width].
        """

    def activation(self, kind: str, array: Kind) -> Kind | None:
        """The activation function of this name (such as "gelu") in one step, as a new array; None
        where the library has no such step."""

    def shared_out(self, most: int) -> AbstractContextManager[int]:
        """A context manager in which several threads compute and share the processor's cores; gives
        how many threads are worth having, at most `most` (1 where another device computes).
        """

    def entropy(self, array: Kind) -> Kind:
        """−Σ x ln x over the last axis, which is dropped; entries are at least 0, and 0 ln 0 is 0."""


Backend: TypeAlias = Operations[Array]
"""The operations of either library: a job makes all of its arrays with one backend, so their kinds
never meet.
"""


# Torch repays its import (about 1.3 s) once a job has this many multiply-adds: NumPy on two
# cores does some 3e10 of them in that time.
TORCH_PAYS_FROM = 30_000_000_000


ArrayKind = tuple[str, str, str]
"""What the arrays of a backend are: their library, where they lie, and the type of their numbers."""


def array_kind(backend: Backend) -> ArrayKind:
    """A key for caches of arrays: two backends with the same key may share arrays."""
    return backend.name, backend.device, backend.dtype


def choose(name: str, *, device: str | None, dtype: str, work: int = 0) -> Backend:
    """The backend that suits a job: NumPy, or torch where that is asked for or repays its import.

    name: "auto", "numpy" or "torch". "auto" takes torch for a device other than the CPU, and, where
        torch is installed, for low precision and for enough work.
    device: "cpu" or one of torch's, such as "cuda"; None for the CPU.
    dtype: the float type to compute in.
    work: multiply-adds of the job, which decide whether torch repays its import.

    Raises UsageError for an unknown name or dtype, UnsupportedError for a device that NumPy does not
    have, and for torch where it is not installed.
    """
    if dtype not in DTYPES:
        raise UsageError("unknown dtype {dtype}", expected=" ".join(DTYPES), dtype=repr(dtype))
    on_gpu = device not in (None, "cpu")
    if name == "auto":
        # NumPy has no GPU, and is slow in low precision; else only long work repays the import
        torch_pays = on_gpu or dtype in LOW_PRECISION or work >= TORCH_PAYS_FROM
        if torch_pays and (on_gpu or torch_is_installed()):
            name = "torch"
        else:
            name = "numpy"
    match name:
        case "numpy":
            if on_gpu:
                what = message(
                    "the numpy backend runs on the cpu, not on {device}", device=repr(device)
                )
                raise UnsupportedError(what, hint=message("--backend {device}", device=device))
            return numpy_backend(dtype)
        case "torch":
            if not torch_is_installed():
                from attncli.extras import install_command

                raise UnsupportedError("torch is not installed", hint=install_command("torch"))
            from attncli.arrays.torch_backend import TorchBackend

            return TorchBackend(dtype, device or "cpu")
        case _:
            raise UsageError("unknown backend {name}", expected="auto numpy torch", name=repr(name))


def numpy_backend(dtype: str) -> Backend:
    """The NumPy backend with this float type, on the CPU."""
    from attncli.arrays.numpy_backend import NDArray, NumpyBackend

    backend: Operations[NDArray] = NumpyBackend(dtype)
    # a type checker cannot know that all arrays of a job are made by its one backend
    return cast("Backend", backend)


def torch_is_installed() -> bool:
    """Whether torch could be imported; does not import it."""
    from importlib.util import find_spec

    return find_spec("torch") is not None


def backend_of(*arrays: Array) -> Backend:
    """The backend that the given arrays belong to (all of one library and device).

    The data type is that of the first. Raises UsageError when libraries or devices are mixed.
    """
    # the name of the library that each comes from
    kinds = {type(array).__module__.partition(".")[0] for array in arrays}
    if kinds == {"torch"}:
        from attncli.arrays.torch_backend import TorchBackend

        # every tensor has a device; `Array`, the type of both libraries' arrays, has none
        devices = {str(getattr(array, "device", "")) for array in arrays}
        if len(devices) > 1:
            raise UsageError(
                "arrays on different devices: {devices}", devices=listing(sorted(devices))
            )
        return TorchBackend(str(arrays[0].dtype).removeprefix("torch."), devices.pop())
    if "torch" in kinds:
        raise UsageError("NumPy arrays and torch tensors mixed", expected="all of one kind")
    from attncli.arrays.numpy_backend import float_dtype

    return numpy_backend(float_dtype(arrays[0]))


# Which layers or heads are meant: some by number, or every one there is.


class Every(Enum):
    """The selection of all layers or heads, however many there are; its only member is `EVERY`."""

    EVERY = "every"


EVERY: Final = Every.EVERY
"""All of them, where a selection is asked for."""
Selection: TypeAlias = (
    Collection[int | str | tuple[int, int]] | int | str | tuple[int, int] | Literal[Every.EVERY]
)
"""Which layers or heads, as the caller of a public function writes them: `EVERY`, all of them; a
number from 0, 5; several, [0, 3] or range(4); a text as the command line takes it, "0,2-5". Heads
may bring their layer, where no layers are named beside them: "L5H11" or (5, 11), several in a list
or as "L5H11,L3H1". [5, 11] are two heads of every layer, (5, 11) is head 11 of layer 5.

Public functions replace it by numbers when they are called (`choose_heads_of`): inside, it holds
whole numbers or is `EVERY`. `help(attncli.HeadSelection)` lists the same."""


def numbers_of(selection: Selection, count: int) -> list[int]:
    """The numbers that a selection means, in its order; for `EVERY` all from 0 to count-1.

    count: how many layers or heads there are; only used for `EVERY`, so that other selections may
        hold numbers beyond it.

    Raises UsageError for what holds no numbers.
    """
    if selection is EVERY:
        return list(range(count))
    if isinstance(selection, int):
        return [selection]
    chosen: list[Any] = []
    if not isinstance(selection, str):
        chosen = list(selection)
    if isinstance(selection, str) or not all(isinstance(number, Integral) for number in chosen):
        raise UsageError(
            "{selection} chooses no layers or heads",
            expected="a number from 0, or several: 5, [0, 3], range(4)",
            selection=repr(selection)[:80],
        )
    return chosen


def is_selected(selection: Selection, number: int) -> bool:
    """Whether a selection contains this number; `EVERY` contains all."""
    # the count, 0 here, would only be used for EVERY
    return selection is EVERY or number in numbers_of(selection, 0)
