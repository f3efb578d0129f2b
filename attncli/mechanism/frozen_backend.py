"""`FrozenBackend`: gradients through values alone, with what depends on the input besides held as it
was in this run: attention weights, the statistics of norms, and gates.

A model computed with it is linear in what enters it, but for its biases, so that a logit is the sum
of gradient times input over all inputs, plus what the biases add. Source: Golden et al., Equivalent
linear mappings of large language models, 2025 (arXiv 2505.24293): the detached Jacobian.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from attncli.arrays.backend import Backend, numpy_backend
from attncli.arrays.gradient_backend import AnyArray, GradientBackend, Variable
from attncli.arrays.numpy_backend import NDArray
from attncli.mechanism.feed_forward import activate


class GateMatrix(np.ndarray[Any, Any]):
    """A matrix whose products are held as they were: that of a gate."""


class FrozenBackend(GradientBackend):
    """A `GradientBackend` whose non-linear operations give numbers without a gradient."""

    name = "gradients"

    def exp(self, array: AnyArray, *, out: AnyArray | None = None) -> AnyArray:
        """The exponential as plain numbers: attention weights, whose softmax uses it, count as
        constants and have no gradient."""
        del out  # the result is a new array either way
        return self._plain.exp(self.numpy(array))

    def sqrt(self, array: AnyArray) -> AnyArray:
        """The root as plain numbers: the deviations of norms count as constants."""
        return self._plain.sqrt(self.numpy(array))

    def tanh(self, array: AnyArray) -> AnyArray:
        """The hyperbolic tangent as plain numbers: gates and soft caps count as constants."""
        return self._plain.tanh(self.numpy(array))

    def affine(self, x: AnyArray, weight: AnyArray, bias: AnyArray | None) -> AnyArray:
        """x·Wᵀ + b; of a gate's matrix as a variable of its own, to which no gradient of x goes."""
        if not isinstance(weight, GateMatrix):
            return super().affine(x, weight, bias)
        plain_bias = None
        if bias is not None:
            plain_bias = self.numpy(bias)
        return Variable(self._plain.affine(self.numpy(x), np.asarray(weight), plain_bias))

    def layer_norm(
        self, x: AnyArray, eps: float, weight: AnyArray | None, bias: AnyArray | None
    ) -> AnyArray:
        """(x − mean) / deviation · weight + bias over the last axis, with the deviation held."""
        # the deviation comes of plain numbers; the difference from the mean has a gradient
        wide = self.numpy(x)
        centred = wide - wide.mean(-1, keepdims=True)
        deviation = np.sqrt((centred * centred).mean(-1, keepdims=True) + eps)
        linear = cast("NDArray", x) - cast("NDArray", self.sum(x, -1)) / wide.shape[-1]
        result = linear / deviation
        if weight is not None:
            result = result * cast("NDArray", weight)
        if bias is not None:
            result = result + cast("NDArray", bias)
        return result

    def activation(self, kind: Any, array: AnyArray) -> Any:
        """act(x) as x · s, where s = act(x) / x is held as it is in this run, so that the gradient is
        linear in x; None for a plain array, whose activation is computed by its formula."""
        if not isinstance(array, Variable):
            return None
        entries: NDArray = array.value
        value = np.asarray(activate(numpy_backend(self.dtype), kind, entries))
        share = np.divide(value, entries, out=np.zeros_like(value), where=entries != 0)
        return array * share


def frozen_backend() -> Backend:
    """NumPy in float64 whose variables have gradients through values alone."""
    return cast("Backend", FrozenBackend("float64"))
