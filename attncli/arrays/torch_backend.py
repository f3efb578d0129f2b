"""The torch backend: GPUs, low precision and large work. The only file that imports torch."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.nn import functional

from attncli.errors import InputError, LimitError, UnsupportedError, UsageError
from attncli.language import message

Tensor: TypeAlias = torch.Tensor
LEAST_EXPONENT = {torch.float32: -87.0, torch.float64: -708.0}
"""Of what the exponential is just above the least normal number."""
TYPICAL_ROWS = 640
"""Rows of a product for which the library chooses the order of a weight: tokens of some twenty
sentences.
"""
FEW_TIMES = 4
"""How many times a mask is used over and over from which it repays writing it as numbers."""


class TorchBackend:
    """`Backend` over torch tensors on one device. No gradients are recorded."""

    name = "torch"

    def __init__(self, dtype: str = "float32", device: str = "cpu") -> None:
        """A backend on a device such as "cpu", "cuda" or "mps". Raises UnsupportedError where torch
        cannot use that device here, or not with this float type."""
        self.dtype = dtype
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            what = message("torch cannot use the device {device} here", device=repr(device))
            expected = message("cpu, cuda or mps, present and working")
            raise UnsupportedError(what, expected=expected, hint="--backend torch") from error
        if device.startswith("mps") and dtype == "float64":
            raise UnsupportedError("the device 'mps' has no float64", hint="--dtype float32")
        self.device = device

    def array(self, values: Any) -> Tensor:
        """Values as a tensor on the device: floats in `dtype`, integers as int64, booleans as they
        are.
        """
        tensor = self.array_as_is(values)
        if tensor.dtype == torch.bool:
            return tensor
        if tensor.is_floating_point():
            return tensor.to(_torch_dtype(self.dtype))
        return tensor.long()

    def array_as_is(self, values: Any) -> Tensor:
        """Values as a tensor on the device, in the data type they already have, without gradients."""
        if torch.is_tensor(values):
            return values.detach().to(self.device)
        array = np.asarray(values)
        if array.dtype.name == "bfloat16":  # which torch does not take from NumPy: by its bits
            bits = torch.from_numpy(_shareable(array.view(np.uint16)))
            return bits.view(torch.bfloat16).to(self.device)
        return torch.from_numpy(_shareable(array)).to(self.device)

    def numpy(self, array: Tensor) -> np.ndarray[Any, Any]:
        """The tensor as a NumPy array on the CPU; bfloat16 widened to float32."""
        on_cpu = array.detach().cpu()
        if on_cpu.dtype == torch.bfloat16:
            on_cpu = on_cpu.float()
        result: np.ndarray[Any, Any] = on_cpu.numpy()
        return result

    def dtype_of(self, array: Tensor) -> str:
        """The name of the tensor's data type, such as "float32"."""
        return str(array.dtype).removeprefix("torch.")

    def cast(self, array: Tensor, dtype: str) -> Tensor:
        """The tensor in another data type; itself if it has that type already."""
        return array.to(_torch_dtype(dtype))

    def arange(self, start: int, stop: int) -> Tensor:
        """The integers start..stop-1 as int64 on the device."""
        return torch.arange(start, stop, device=self.device)

    def full(self, shape: Sequence[int], value: float, dtype: str) -> Tensor:
        """A tensor of one value on the device."""
        return torch.full(tuple(shape), value, dtype=_torch_dtype(dtype), device=self.device)

    def matmul(self, a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
        """a·b over the last two axes, leading axes broadcast, into `out` where there is one."""
        return torch.matmul(a, b, out=out)

    def transpose(self, array: Tensor) -> Tensor:
        """A view with the last two axes swapped."""
        return array.transpose(-1, -2)

    def permute(self, array: Tensor, axes: Sequence[int]) -> Tensor:
        """A view with all axes reordered."""
        return array.permute(*axes)

    def concat(self, arrays: Sequence[Tensor], axis: int) -> Tensor:
        """Tensors joined along one axis, as a new one."""
        return torch.cat(list(arrays), axis)

    def broadcast(self, array: Tensor, shape: Sequence[int]) -> Tensor:
        """A view of the tensor in a larger shape."""
        return array.expand(tuple(shape))

    def repeat(self, array: Tensor, times: int, axis: int) -> Tensor:
        """Every entry along an axis `times` times in a row."""
        return array.repeat_interleave(times, axis)

    def take(self, array: Tensor, indices: Tensor, axis: int) -> Tensor:
        """The entries at `indices` (one axis) along an axis."""
        return array.index_select(axis, indices)

    def where(self, condition: Tensor, a: Tensor | float, b: Tensor | float) -> Tensor:
        """a where the condition is true, else b."""
        return torch.where(condition, a, b)

    def hide(self, array: Tensor, visible: Tensor) -> Tensor:
        """The tensor itself with −inf written where `visible`, which broadcasts to it, is false."""
        if array.is_cpu and visible.numel() * FEW_TIMES <= array.numel():
            # the minimum with ±inf takes a third of the time of masked_fill_, but leaves NaN in a
            # hidden place, which then shows in the sum
            limits = torch.where(visible, float("inf"), -float("inf")).to(array.dtype)
            torch.minimum(array, limits, out=array)
            if not bool(array.sum().isnan()):
                return array
        return array.masked_fill_(~visible, -float("inf"))

    def at_least(self, array: Tensor, least: float) -> Tensor:
        """The tensor itself with every entry below `least` raised to it."""
        return array.clamp_min_(least)

    def exp_over(self, array: Tensor) -> Tensor:
        """The tensor itself with every entry overwritten by its exponential."""
        if array.is_cpu and array.dtype in LEAST_EXPONENT:
            return _exponential(array)
        return array.exp_()

    def exp(self, array: Tensor, *, out: Tensor | None = None) -> Tensor:
        return torch.exp(array, out=out)

    def log(self, array: Tensor) -> Tensor:
        return torch.log(array)

    def sqrt(self, array: Tensor) -> Tensor:
        return torch.sqrt(array)

    def tanh(self, array: Tensor) -> Tensor:
        return torch.tanh(array)

    def erf(self, array: Tensor) -> Tensor:
        return torch.erf(array)

    def isfinite(self, array: Tensor) -> Tensor:
        return torch.isfinite(array)

    def max(self, array: Tensor, axis: int) -> Tensor:
        """Maximum along an axis, which stays with size 1. Raises UsageError for an axis without
        entries.
        """
        if array.shape[axis] == 0:
            raise UsageError("there are no keys to take a maximum over")
        return array.amax(axis, keepdim=True)

    def sum(self, array: Tensor, axis: int) -> Tensor:
        """Sum along an axis, which stays with size 1."""
        return array.sum(axis, keepdim=True)

    def dot_over(self, a: Tensor, b: Tensor) -> Tensor:
        """Σ a·b along the last axis, which stays with size 1; nothing is overwritten."""
        return torch.einsum("...k,...k->...", a, b)[..., None]

    def any(self, array: Tensor, axis: int) -> Tensor:
        """Whether any entry along an axis is true; the axis stays with size 1."""
        return array.any(axis, keepdim=True)

    def affine(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x·Wᵀ + b, [row, out].

        x: [row, in].
        weight: [out, in].
        bias: [out].
        """
        return functional.linear(x, weight, bias)

    def multiplier(self, weight: Tensor) -> Callable[[Tensor, Tensor | None], Tensor] | None:
        """A function that gives x·Wᵀ + b, from x, [row, in], and b, [out] or None, for this weight
        W, [out, in], packed for oneDNN or laid out by columns; None off the CPU and for low
        precision."""
        if not weight.is_cpu or weight.dtype not in (torch.float32, torch.float64):
            return None
        # in oneDNN's own order; a row's result has the same bits beside any other rows, but perhaps
        # not alone
        if weight.dtype == torch.float32 and _can_pack():
            packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), TYPICAL_ROWS)
            return partial(_packed_product, packed)
        # stored column by column: a tenth less time for few rows of x than row by row
        columns = weight.t().contiguous().t()
        return lambda x, bias: functional.linear(x, columns, bias)

    def layer_norm(
        self, x: Tensor, eps: float, weight: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """(x − mean) / √(variance + eps) · weight + bias over the last axis."""
        return functional.layer_norm(x, x.shape[-1:], weight, bias, eps)

    def activation(self, kind: str, array: Tensor) -> Tensor | None:
        """GELU, its tanh form or SiLU in one step of torch, as a new tensor; None for another name."""
        match kind:
            case "gelu":
                return functional.gelu(array)
            case "gelu_tanh":
                return functional.gelu(array, approximate="tanh")
            case "silu":
                return functional.silu(array)
            case _:
                return None

    @contextmanager
    def shared_out(self, most: int) -> Iterator[int]:
        """A context manager in which torch's threads are divided among callers; gives how many
        callers are worth having, at most `most`, and one off the CPU.
        """
        count = torch.get_num_threads()
        if self.device == "cpu":
            threads = min(count, most)
        else:
            threads = 1
        torch.set_num_threads(count // threads)
        try:
            yield threads
        finally:
            torch.set_num_threads(count)

    def entropy(self, array: Tensor) -> Tensor:
        """−Σ x ln x over the last axis, which is dropped; an entry of 0 adds nothing."""
        # torch.special.entr is twice as slow; below the least normal number x ln x is 0 to the last
        # bit of a sum
        logs = array.clamp_min(torch.finfo(array.dtype).tiny).log_()
        logs *= array
        return -logs.sum(-1)


def _can_pack() -> bool:
    """Whether this torch can pack weights for oneDNN (its library for CPU products), by functions
    that torch's own layers do not offer. Products of two threads, 640 × 384 by 384 × 1536, give 175
    GFLOP/s so and 105 by `functional.linear` (AMD)."""
    names = ("_reorder_linear_weight", "_linear_pointwise")
    return torch.backends.mkldnn.is_available() and all(
        hasattr(torch.ops.mkldnn, name) for name in names
    )


def _packed_product(packed: Tensor, x: Tensor, bias: Tensor | None) -> Tensor:
    """x·Wᵀ + b, [row, out], with a weight that is packed in oneDNN's own order."""
    # no activation behind it: "none", with no arguments and no algorithm
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return product


def _exponential(array: Tensor) -> Tensor:
    """The array itself overwritten by its exponentials, 0 where they would be subnormal: the
    library for the CPU takes five times as long for −∞, and fifty times for a subnormal result."""
    # raised to `least`, such entries become just above the least normal number, then 0; the
    # library's exponential of `least` may lie above Python's in its last bits, for which 1.001 is
    # room enough
    least = LEAST_EXPONENT[array.dtype]
    return functional.threshold(
        array.clamp_min_(least).exp_(), math.exp(least) * 1.001, 0.0, inplace=True
    )


def map_state_dict(path: str, *, is_zip: bool) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors of a torch file by name as NumPy arrays, memory-mapped where the file's format
    allows it.

    is_zip: whether it is of the newer format, a zip archive, which does.

    bfloat16 comes as the type that ml_dtypes adds to NumPy. Read by torch's restricted unpickler,
    which calls nothing that the file names. Raises InputError for a file of anything but dense
    tensors by name, UnsupportedError for data types that are not plain numbers.
    """
    return {
        name: _map_tensor(name, tensor, path)
        for name, tensor in _load_state_dict(path, mmap=is_zip).items()
    }


def _map_tensor(name: str, tensor: Tensor, path: str) -> np.ndarray[Any, Any]:
    """The tensor of this name as a NumPy array over the same memory where it can be, bfloat16 as
    NumPy's own.
    """
    if tensor.dtype != torch.bfloat16 or tensor.layout != torch.strided:
        return _dense_array(name, tensor, path)
    from ml_dtypes import bfloat16

    array: np.ndarray[Any, Any] = (
        tensor.detach().contiguous().view(torch.int16).numpy().view(bfloat16)
    )
    return array


def read_state_dict(path: str, limit: int) -> Mapping[str, np.ndarray[Any, Any]]:
    """The tensors of a torch `state_dict` file (.pt, .pth), as NumPy arrays by name.

    Read with `weights_only=True`: torch's restricted unpickler rebuilds tensors and plain
    containers and calls nothing the file names. Raises InputError for any other content,
    UnsupportedError for data types that are not plain numbers, LimitError for tensors of more than
    `limit` bytes in all (a small file can repeat one number without end).
    """
    tensors = _load_state_dict(path)
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if total > limit:
        what = message("the tensors of this file take {total:,} bytes", total=total)
        raise LimitError(what, where=path, expected=message("at most {limit:,} bytes", limit=limit))
    return {name: _dense_array(name, tensor, path) for name, tensor in tensors.items()}


def _load_state_dict(path: str, *, mmap: bool = False) -> Mapping[str, Tensor]:
    """The tensors of a torch file by name, read by torch's restricted unpickler. Raises InputError
    for any other content.

    mmap: whether the file is mapped into memory, not read.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a damaged file, which is told below
            tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except Exception as error:  # torch raises many kinds for damaged or hostile files
        what = message("this file is not a plain torch state_dict")
        # the pickled function or class that the unpickler refused to call
        match = re.search(r"GLOBAL ([\w.]+)", str(error))
        if match is not None:
            what = message(
                "this torch file names {match}, which is not run: tensors and plain containers"
                " alone are read",
                match=repr(match[1]),
            )
        raise InputError(
            what,
            where=path,
            expected="a file written by torch.save(module.state_dict(), path)",
            hint="torch.save(module.state_dict(), 'weights.pt')",
        ) from error
    if not isinstance(tensors, Mapping) or not all(
        isinstance(name, str) and torch.is_tensor(tensor) for name, tensor in tensors.items()
    ):
        what = message("this torch file holds something other than named tensors")
        # such as {"model": state_dict, "epoch": 3}: the hint takes the state_dict out
        hint = ""
        entries: Mapping[Any, Any] = {}
        if isinstance(tensors, Mapping):
            entries = tensors
        for key, value in entries.items():
            if isinstance(value, Mapping) and value and all(map(torch.is_tensor, value.values())):
                hint = f"torch.save(torch.load(file)[{key!r}], file)"
                break
        raise InputError(what, where=path, expected="a state_dict: names to tensors", hint=hint)
    return tensors


def _dense_array(name: str, tensor: Tensor, path: str) -> np.ndarray[Any, Any]:
    """The tensor of this name as a NumPy array, bfloat16 as float32. Raises InputError and
    UnsupportedError.
    """
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_complex():
        raise InputError(
            "tensor {name} is sparse, quantised or complex",
            where=path,
            expected="dense float tensors",
            name=repr(name),
        )
    if tensor.dtype == torch.bfloat16:  # which NumPy itself does not have
        plain = tensor.detach().float()
    else:
        plain = tensor.detach()
    try:
        array: np.ndarray[Any, Any] = plain.contiguous().numpy()
    except TypeError as error:  # float8 and other data types that NumPy does not have
        what = message(
            "tensor {name} has the data type {dtype}",
            name=repr(name),
            dtype=str(tensor.dtype).removeprefix("torch."),
        )
        raise UnsupportedError(what, where=path) from error
    return array


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, causal: bool = False
) -> Tensor:
    """The mixed values of q, k and v, [head, token, width] each, by torch's own attention: `attn
    cost --measure` compares its time with that of `attend`; no result of attn comes from it."""
    # the fast kernels exist only for a batch
    return functional.scaled_dot_product_attention(
        q[None], k[None], v[None], is_causal=causal, scale=scale
    )[0]


def _torch_dtype(dtype: str) -> torch.dtype:
    """torch's data type of this name."""
    torch_dtype: torch.dtype = getattr(torch, dtype)
    return torch_dtype


def _shareable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array itself, or a copy where torch cannot share its memory (read-only, reversed or of
    foreign byte order)."""
    # torch shares NumPy's memory: it warns about read-only arrays (nothing here writes into
    # them) and refuses reversed views and foreign byte order.
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    if native.flags.writeable and all(stride >= 0 for stride in native.strides):
        return native
    return native.copy()


def capability() -> str:
    """The instruction set of torch's CPU kernels and torch's version, as a text; where these
    differ, numbers may differ in their last bits."""
    return f"{torch.backends.cpu.get_cpu_capability()} · torch {torch.__version__}"


def one_thread() -> None:
    """Make torch compute with one thread from now on."""
    torch.set_num_threads(1)
