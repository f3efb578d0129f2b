"""`GradientBackend`: a `Backend` over NumPy whose arrays remember how they came about, so that they
have gradients.

The forward pass that is trained is the one that every command runs, written with the Backend:
nothing is written a second time for training. NumPy in place of torch's autograd because a small
model learns within seconds, and torch's imports alone take as long: an induction circuit (300 steps
of 32 texts of 24 tokens) takes 2.3 s from a cold start here, 4.5 s written plainly with torch, of
which 2.4 s are imports (one idle core at 2.5 GHz). Its steps by themselves are faster there: 1.1 s,
and 1.6 s here.
Source: Baydin et al., Automatic differentiation in machine learning, 2018, for the reverse mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import count, pairwise
from typing import Any, TypeAlias, cast

import numpy as np

from attncli.arrays.backend import Array, Backend
from attncli.arrays.numpy_backend import NDArray, NumpyBackend

Pull = Callable[[NDArray], NDArray]
"""From the gradient of a result to that of what it was computed from."""
_order = count()
"""Numbers variables as they are made: what a variable was computed from has a lower number."""


class Variable:
    """A node of reverse-mode differentiation: an array, the variables that it was computed from,
    and how their gradients follow from its own.

    What is compared or shown of it is its `value`. Operations never write into it: `x += y` makes a
    new one.
    """

    __slots__ = ("gradient", "number", "parents", "value")
    __array_ufunc__ = None  # so that NumPy leaves array + variable to `__radd__`

    def __init__(self, value: NDArray, parents: Sequence[tuple[Variable, Pull]] = ()) -> None:
        self.value = value
        # what it was computed from, each with the function that gives that variable's gradient
        self.parents = parents
        self.number = next(_order)  # higher than those of all its parents
        self.gradient: NDArray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def ndim(self) -> int:
        return self.value.ndim

    @property
    def dtype(self) -> Any:
        """NumPy's data type of the value."""
        return self.value.dtype

    def __len__(self) -> int:
        return len(self.value)

    def reshape(self, shape: tuple[int, ...], /) -> Variable:
        """The same entries in another shape; the gradient is put back into the shape of now."""
        before = self.value.shape
        return Variable(self.value.reshape(shape), ((self, lambda g: g.reshape(before)),))

    def __getitem__(self, index: Any) -> Variable:
        """The entries at this index, as NumPy has them; the gradient goes back to their places."""
        whole_array = self.value
        part = self.value[index]
        # slices give views of the same memory, lists of indices give copies
        is_view = np.may_share_memory(part, whole_array)
        same_layout = part.shape == whole_array.shape and part.strides == whole_array.strides
        if (
            is_view
            and same_layout
            and part.__array_interface__["data"] == whole_array.__array_interface__["data"]
        ):
            return self  # a slice of everything

        def pull(g: NDArray) -> NDArray:
            """The gradient of the whole array: the part's at its place, 0 elsewhere."""
            whole = np.zeros_like(whole_array)
            if is_view:
                whole[index] = g
            else:
                np.add.at(whole, index, g)  # an entry may be picked more than once
            return whole

        return Variable(part, ((self, pull),))

    def __neg__(self) -> Variable:
        return Variable(-self.value, ((self, np.negative),))

    def __add__(self, operand: Any) -> Variable:
        return _variable_of(self.value + _value(operand), (self, _identity), (operand, _identity))

    def __radd__(self, operand: Any) -> Variable:
        return self + operand

    def __sub__(self, operand: Any) -> Variable:
        return _variable_of(self.value - _value(operand), (self, _identity), (operand, np.negative))

    def __rsub__(self, operand: Any) -> Variable:
        return _variable_of(_value(operand) - self.value, (self, np.negative))

    def __mul__(self, operand: Any) -> Variable:
        a = self.value
        b = _value(operand)
        return _variable_of(a * b, (self, lambda g: g * b), (operand, lambda g: g * a))

    def __rmul__(self, operand: Any) -> Variable:
        return self * operand

    def __truediv__(self, operand: Any) -> Variable:
        b = _value(operand)
        result = self.value / b
        return _variable_of(result, (self, lambda g: g / b), (operand, lambda g: -g * result / b))

    def __rtruediv__(self, operand: Any) -> Variable:
        b = self.value
        result = _value(operand) / b
        return _variable_of(result, (self, lambda g: -g * result / b))

    def __lt__(self, operand: Any) -> Any:
        return self.value < _value(operand)

    def __le__(self, operand: Any) -> Any:
        return self.value <= _value(operand)

    def __gt__(self, operand: Any) -> Any:
        return self.value > _value(operand)

    def __ge__(self, operand: Any) -> Any:
        return self.value >= _value(operand)

    def __eq__(self, operand: object) -> Any:
        return self.value == _value(operand)

    def __ne__(self, operand: object) -> Any:
        return self.value != _value(operand)

    __hash__ = None  # type: ignore[assignment]


AnyArray: TypeAlias = NDArray | Variable


def _value(operand: Any) -> Any:
    """The NumPy array of a variable; anything else unchanged."""
    if isinstance(operand, Variable):
        return operand.value
    return operand


def _identity(g: NDArray) -> NDArray:
    """The gradient unchanged: what a sum passes back to each operand."""
    return g


def _variable_of(value: Any, *operands: tuple[Any, Pull]) -> Variable:
    """A variable with this value, which remembers the variables that it was computed from. Each
    comes with the function that turns the gradient of the result into the gradient of that operand,
    in the operand's shape."""
    parents = (
        _summed_pull(operand, pull) for operand, pull in operands if isinstance(operand, Variable)
    )
    return Variable(np.asarray(value), tuple(parents))


def _result(value: Any, *operands: tuple[Any, Pull]) -> AnyArray:
    """The result of an operation: a variable with this value where an operand is a variable, else
    the value itself.

    operands: each with the function that turns the gradient of the result into its own.
    """
    if any(isinstance(operand, Variable) for operand, _ in operands):
        return _variable_of(value, *operands)
    return value


def _summed_pull(operand: Variable, pull: Pull) -> tuple[Variable, Pull]:
    """The operand with its gradient function, whose result is summed to the operand's shape where
    it was broadcast.
    """
    shape = operand.value.shape
    return operand, lambda g: _sum_to(pull(g), shape)


def _sum_to(g: NDArray, shape: tuple[int, ...]) -> NDArray:
    """A gradient g summed over the axes along which its operand, of this shape, was broadcast: those
    before the operand's own, and its own of size 1."""
    if g.shape == shape:
        return g
    if g.ndim > len(shape):
        g = g.sum(tuple(range(g.ndim - len(shape))))
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1 < g.shape[axis])
    if axes:
        return g.sum(axes, keepdims=True)
    return g


def zeros_like(array: Array) -> Variable:
    """A variable of zeros in the shape and type of an array: added to that array, it gets the
    array's gradient without changing its numbers."""
    return Variable(np.zeros(tuple(array.shape), str(array.dtype)))


def gradients(loss: Array, parameters: Iterable[Variable]) -> list[NDArray]:
    """The gradient of a loss (an array of one number) with respect to each parameter, in its shape;
    0 for one that it does not depend on. The graph behind the loss is freed."""
    result = cast("Variable", loss)
    result.gradient = np.ones_like(result.value)
    # from the loss back: a variable has a higher number than all that it was computed from, so its
    # gradient is complete when its turn comes
    for variable in sorted(_ancestors(result), key=lambda node: -node.number):
        gradient = variable.gradient
        variable.gradient = None
        if gradient is None:
            continue
        for parent, pull in variable.parents:
            part = pull(gradient)
            if parent.gradient is None:
                parent.gradient = part
            else:
                parent.gradient = parent.gradient + part
        variable.parents = ()
    results = []
    for parameter in parameters:
        gradient = parameter.gradient
        if gradient is None:
            gradient = np.zeros_like(parameter.value)
        results.append(gradient)
        parameter.gradient = None
    return results


def _ancestors(result: Variable) -> Iterator[Variable]:
    """The result and the variables that it was computed from, each once, without the parameters
    (variables without parents)."""
    numbers = {result.number}
    waiting = [result]
    while waiting:
        variable = waiting.pop()
        if variable.parents:
            yield variable
        for parent, _ in variable.parents:
            if parent.number not in numbers:
                numbers.add(parent.number)
                waiting.append(parent)


class GradientBackend:
    """A `Backend` over NumPy arrays on the CPU with reverse-mode gradients: operations on variables
    are recorded, all others are NumPy's own."""

    name = "gradients"
    device = "cpu"

    def __init__(self, dtype: str = "float32") -> None:
        self.dtype = dtype
        self._plain = NumpyBackend(dtype)

    def array(self, values: Any) -> AnyArray:
        """Values as a NumPy array, floats in `dtype`; a variable as it is."""
        if isinstance(values, Variable):
            return values
        return self._plain.array(values)

    def array_as_is(self, values: Any) -> AnyArray:
        """Values as a NumPy array in the data type they already have; a variable as it is."""
        if isinstance(values, Variable):
            return values
        return self._plain.array_as_is(values)

    def numpy(self, array: AnyArray) -> NDArray:
        """The numbers of an array or a variable."""
        return self._plain.numpy(_value(array))

    def dtype_of(self, array: AnyArray) -> str:
        """The name of the data type of an array or a variable."""
        return self._plain.dtype_of(_value(array))

    def cast(self, array: AnyArray, dtype: str) -> AnyArray:
        """The array in another data type; the gradient of a variable is put back into its type of
        now."""
        if not isinstance(array, Variable):
            return self._plain.cast(array, dtype)
        before = array.dtype
        if before.name == dtype:
            return array
        return _variable_of(
            self._plain.cast(array.value, dtype), (array, lambda g: g.astype(before))
        )

    def arange(self, start: int, stop: int) -> NDArray:
        """The integers start..stop-1 as int64, which have no gradient."""
        return self._plain.arange(start, stop)

    def full(self, shape: Sequence[int], value: float, dtype: str) -> NDArray:
        """An array of one value, which has no gradient."""
        return self._plain.full(shape, value, dtype)

    def matmul(self, a: AnyArray, b: AnyArray, *, out: AnyArray | None = None) -> AnyArray:
        """a·b over the last two axes; the gradient of a is g·bᵀ, that of b is aᵀ·g.

        out: not used.
        """
        del out
        x = _value(a)
        y = _value(b)
        product = self._plain.matmul(x, y)

        def to_second(g: NDArray) -> NDArray:
            """The gradient of b, aᵀ·g."""
            if y.ndim == 2 and x.ndim > 2:  # one product in place of one for each text
                return x.reshape(-1, x.shape[-1]).T @ g.reshape(-1, g.shape[-1])
            return np.matmul(np.swapaxes(x, -1, -2), g)

        return _result(product, (a, lambda g: np.matmul(g, np.swapaxes(y, -1, -2))), (b, to_second))

    def transpose(self, array: AnyArray) -> AnyArray:
        """The last two axes swapped; the gradient swaps them back."""
        value = self._plain.transpose(_value(array))
        return _result(value, (array, self._plain.transpose))

    def permute(self, array: AnyArray, axes: Sequence[int]) -> AnyArray:
        """All axes reordered; the gradient puts them back."""
        value = self._plain.permute(_value(array), axes)
        back = np.argsort(axes)
        return _result(value, (array, lambda g: np.transpose(g, back)))

    def concat(self, arrays: Sequence[AnyArray], axis: int) -> AnyArray:
        """Arrays joined along one axis; each has its own part of the gradient."""
        value = self._plain.concat([_value(array) for array in arrays], axis)
        ends = np.cumsum([0, *(array.shape[axis] for array in arrays)])
        axis %= value.ndim  # counted from the front, as `cut` needs it

        def cut(first: int, last: int) -> Pull:
            """A function that cuts the entries first..last-1 along the axis out of a gradient."""
            place = (slice(None),) * axis + (slice(first, last),)
            return lambda g: g[place]

        pulls = [cut(first, last) for first, last in pairwise(ends)]
        return _result(value, *zip(arrays, pulls, strict=True))

    def broadcast(self, array: AnyArray, shape: Sequence[int]) -> AnyArray:
        """A view of the array in a larger shape; the gradient is summed over the axes that grew."""
        value = self._plain.broadcast(_value(array), shape)
        return _result(value, (array, _identity))

    def repeat(self, array: AnyArray, times: int, axis: int) -> AnyArray:
        """Every entry along an axis `times` times in a row; the gradient is the sum over them."""
        value = self._plain.repeat(_value(array), times, axis)
        # the copies of an entry lie side by side: with an axis of their own, they can be summed
        place = axis % value.ndim
        with_copies = (*array.shape[: place + 1], times, *array.shape[place + 1 :])
        return _result(value, (array, lambda g: g.reshape(with_copies).sum(place + 1)))

    def take(self, array: AnyArray, indices: AnyArray, axis: int) -> AnyArray:
        """The entries at `indices` (one axis) along an axis; the gradient of each entry is summed
        over the places that it was taken to."""
        places = _value(indices)
        value = self._plain.take(_value(array), places, axis)
        if not isinstance(array, Variable):
            return value
        # 1 where an entry was taken to a place, [entry, place]: a product with it sums over places
        hits = (np.arange(array.shape[axis])[:, None] == places[None, :]).astype(array.dtype)

        def pull(g: NDArray) -> NDArray:
            """The gradient of the array from g, that of the entries taken: for each entry the sum
            over the places along `axis` to which it was taken.

            `hits`, [entry, place], is 1 where the entry was taken to the place.
            """
            flat = np.moveaxis(g, axis, 0)  # [place, all other axes]
            back = hits @ flat.reshape(len(places), -1)  # [entry, all other numbers]
            return np.moveaxis(back.reshape((-1, *flat.shape[1:])), 0, axis)

        return _variable_of(value, (array, pull))

    def where(self, condition: AnyArray, a: AnyArray | float, b: AnyArray | float) -> AnyArray:
        """a where the condition is true, else b; the gradient goes to the side that was selected."""
        mask = _value(condition)
        value = self._plain.where(mask, _value(a), _value(b))
        return _result(
            value, (a, lambda g: np.where(mask, g, 0)), (b, lambda g: np.where(mask, 0, g))
        )

    def hide(self, array: AnyArray, visible: AnyArray) -> AnyArray:
        """The array with −inf where `visible` is false: a new variable, or the array itself where
        it is none.
        """
        if not isinstance(array, Variable):
            return self._plain.hide(array, _value(visible))
        return self.where(visible, array, -math.inf)

    def at_least(self, array: AnyArray, least: float) -> AnyArray:
        """A new array with every entry below `least` raised to it; those have no gradient."""
        return self.where(_value(array) < least, least, array)

    def exp_over(self, array: AnyArray) -> AnyArray:
        """The exponential of every entry as a new array: what has a gradient is never overwritten."""
        return self.exp(array)

    def exp(self, array: AnyArray, *, out: AnyArray | None = None) -> AnyArray:
        del out
        value = self._plain.exp(_value(array))
        return _result(value, (array, lambda g: g * value))

    def log(self, array: AnyArray) -> AnyArray:
        x = _value(array)
        return _result(self._plain.log(x), (array, lambda g: g / x))

    def sqrt(self, array: AnyArray) -> AnyArray:
        value = self._plain.sqrt(_value(array))
        return _result(value, (array, lambda g: g * 0.5 / value))

    def tanh(self, array: AnyArray) -> AnyArray:
        value = self._plain.tanh(_value(array))
        return _result(value, (array, lambda g: g * (1 - value * value)))

    def erf(self, array: AnyArray) -> AnyArray:
        """The error function, entrywise; its gradient is 2/√π · exp(−x²)."""
        x = _value(array)
        value = self._plain.erf(x)
        slope = 2 / math.sqrt(math.pi)
        return _result(value, (array, lambda g: g * slope * np.exp(-x * x)))

    def isfinite(self, array: AnyArray) -> NDArray:
        return self._plain.isfinite(_value(array))

    def max(self, array: AnyArray, axis: int) -> NDArray:
        """Maximum along an axis, which stays with size 1, as plain numbers without a gradient: that
        is enough for a softmax, which is the same whatever number is subtracted."""
        return self._plain.max(_value(array), axis)

    def sum(self, array: AnyArray, axis: int) -> AnyArray:
        """Sum along an axis, which stays with size 1; every entry has the gradient of its sum."""
        value = self._plain.sum(_value(array), axis)
        shape = array.shape
        return _result(value, (array, lambda g: np.broadcast_to(g, shape)))

    def dot_over(self, a: AnyArray, b: AnyArray) -> AnyArray:
        """Σ a·b along the last axis, which stays with size 1; nothing is overwritten."""
        return self.sum(cast("NDArray", a) * cast("NDArray", b), -1)

    def any(self, array: AnyArray, axis: int) -> NDArray:
        """Whether any entry along an axis is true, without a gradient; the axis stays with size 1."""
        return self._plain.any(_value(array), axis)

    def affine(self, x: AnyArray, weight: AnyArray, bias: AnyArray | None) -> AnyArray:
        """x·Wᵀ + b, with gradients of all three.

        x: [row, in].
        weight: [out, in].
        bias: [out].
        """
        rows = _value(x)
        matrix = _value(weight)
        product = self._plain.affine(rows, matrix, None if bias is None else _value(bias))
        return _result(
            product,
            (x, lambda g: g @ matrix),
            (weight, lambda g: g.T @ rows),
            (bias, lambda g: g.sum(0)),
        )

    def multiplier(self, weight: AnyArray) -> None:
        """None: packing a weight would not pay, as it changes with each step of training."""

    def layer_norm(
        self, x: AnyArray, eps: float, weight: AnyArray | None, bias: AnyArray | None
    ) -> AnyArray:
        """(x − mean) / √(variance + eps) · weight + bias over the last axis, with gradients of x,
        weight and bias.
        """
        wide = _value(x)
        if weight is None:
            scale = None
        else:
            scale = _value(weight)
        centred = wide - wide.mean(-1, keepdims=True)
        deviation = np.sqrt((centred * centred).mean(-1, keepdims=True) + eps)
        normed = centred / deviation
        if scale is None:
            value = normed
        else:
            value = normed * scale
        if bias is not None:
            value = value + _value(bias)

        def pull(g: NDArray) -> NDArray:
            """The gradient of x from that of the result: without what a norm takes away, the mean
            and the part along the normed vector."""
            if scale is None:
                inner = g
            else:
                inner = g * scale
            along = (inner * normed).mean(-1, keepdims=True)
            result: NDArray = (inner - inner.mean(-1, keepdims=True) - normed * along) / deviation
            return result

        # `_result` sums the gradients of weight and bias over the rows, which share them
        return _result(value, (x, pull), (weight, lambda g: g * normed), (bias, _identity))

    def activation(self, kind: str, array: AnyArray) -> None:
        """None: activation functions are put together from operations that have gradients."""
        del kind, array

    def shared_out(self, most: int) -> AbstractContextManager[int]:
        """A context manager in which threads share the cores as they do for NumPy; gives how many
        threads are worth having, at most `most`.
        """
        return self._plain.shared_out(most)

    def entropy(self, array: AnyArray) -> AnyArray:
        """−Σ x ln x over the last axis, which is dropped; where x is 0, 0 with gradient 0."""
        x = cast("NDArray", array)
        inside = self.where(_value(array) > 0, array, 1)
        return -self.sum(x * cast("NDArray", self.log(inside)), -1)[..., 0]


def gradient_backend(dtype: str = "float32") -> Backend:
    """NumPy whose variables have gradients."""
    return cast("Backend", GradientBackend(dtype))
