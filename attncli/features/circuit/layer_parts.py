"""What the parts of one layer write to the residual stream, each from the inputs of its own readers:
the package's own attention and feed-forward part, with readers told apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from attncli.arrays.backend import Array, Backend
from attncli.arrays.gradient_backend import Variable, zeros_like
from attncli.mechanism.block import join_heads
from attncli.mechanism.context import ReadWeights, Weights
from attncli.mechanism.feed_forward import deviation
from attncli.mechanism.spec import Norm

Floats = np.ndarray[Any, np.dtype[Any]]


class OwnInputs(ReadWeights):
    """A layer's weights whose projections to queries, keys and values read another input for each
    head.

    inputs: [..., head, token, width] by projection, such as "attn.q".
    """

    def __init__(self, weights: Weights, inputs: Mapping[str, Array]) -> None:
        self._weights = weights
        self._inputs = inputs

    def __call__(self, role: str, /) -> Array | None:
        return self._weights(role)

    def product(self, name: str, x: Array, backend: Backend) -> Array | None:
        """Called by the layer for its product of a projection with x. Each head's rows of the matrix
        are multiplied with that head's own input instead, and the results joined, [..., token,
        head·dim]; None for projections without such inputs, which the layer then computes as
        usual."""
        del x
        if name not in self._inputs:
            return None
        inputs = self._inputs[name]
        matrix = by_head(self._weights, name, inputs.shape[-3])
        result = join_heads(backend, backend.matmul(inputs, backend.transpose(matrix)))
        bias = self._weights(f"{name}.bias")
        if bias is None:
            return result
        return result + bias


class SlopeWeights(ReadWeights):
    """A layer's weights whose projections of attention remember the gradients of what they give.
    slopes: the variables that have them, by projection, each of the shape of the result."""

    def __init__(self, weights: Weights, names: frozenset[str]) -> None:
        self._weights = weights
        self._names = names
        self.slopes: dict[str, Variable] = {}

    def __call__(self, role: str, /) -> Array | None:
        return self._weights(role)

    def product(self, name: str, x: Array, backend: Backend) -> Array | None:
        """Called by the layer for its product of a projection with x: the product plus a variable of
        zeros, whose gradient is that of the result; None for projections that are not watched, which
        the layer then computes as usual."""
        if name not in self._names:
            return None
        weight = self._weights(f"{name}.weight")
        assert weight is not None
        result = backend.affine(
            x.reshape((-1, x.shape[-1])), weight, self._weights(f"{name}.bias")
        ).reshape((*x.shape[:-1], weight.shape[0]))
        self.slopes[name] = zeros_like(result)
        return result + cast("Array", self.slopes[name])


def by_head(weights: Weights, name: str, heads: int) -> Array:
    """The matrix of a projection, such as "attn.q", with its rows divided among the heads,
    [head, dim, width]."""
    matrix = weights(f"{name}.weight")
    assert matrix is not None
    return matrix.reshape((heads, -1, matrix.shape[-1]))


def head_writes(weights: Weights, norm: Norm | None, mixed: Floats) -> Floats:
    """What each head writes to the stream, before the block's scale, [..., head, token, width].

    A norm that follows the attention is applied to the sum of all heads: each then writes its part
    with the deviation of that sum. The bias of the output projection, and the shift of the norm, are
    split evenly.

    Args:
        weights: Of the layer.
        norm: The norm of what the attention gives, None for none.
        mixed: What heads mix, [..., head, token, v_dim].

    Returns:
        Terms whose sum is what the attention adds.
    """
    matrix = weights("attn.o.weight")
    assert matrix is not None
    heads = mixed.shape[-3]
    # the columns of the output projection that belong to each head, [head, v_dim, width]
    maps = np.asarray(matrix).reshape(matrix.shape[0], heads, -1).transpose(1, 2, 0)
    writes = np.matmul(mixed, maps)
    bias = weights("attn.o.bias")
    if bias is not None:
        writes = writes + np.asarray(bias) / heads
    if norm is None:
        return writes
    divisor = deviation(norm, writes.sum(-3, keepdims=True)).astype(writes.dtype)
    writes = _scaled_by_norm(norm, weights, writes) / divisor
    shift = None
    if norm.affine:
        shift = weights("attn.out.bias")
    if shift is None:
        return writes
    return writes + np.asarray(shift) / heads


def _scaled_by_norm(norm: Norm, weights: Weights, writes: Floats) -> Floats:
    """Apply a norm to vectors except for its division: subtract their mean where it is a layer norm,
    and multiply by its weight, to which a norm with a unit offset adds 1."""
    if norm.kind == "layer":
        writes = writes - writes.mean(-1, keepdims=True)
    weight = None
    if norm.affine:
        weight = weights("attn.out.weight")
    if weight is None:
        return writes
    factors = np.asarray(weight)
    if norm.unit_offset:
        factors = factors + 1.0
    return writes * factors
