"""What neighbouring tokens add to a layer: a convolution over the text."""

from __future__ import annotations

from attncli.arrays.backend import Array, Backend
from attncli.mechanism.context import Weights
from attncli.mechanism.feed_forward import activate
from attncli.mechanism.spec import Convolution


def convolve(backend: Backend, spec: Convolution, weights: Weights, x: Array) -> Array:
    """act(b + Σ_k W_k·x_{t + k − half}), the same shape as x [..., token, width]; zeros stand beyond the text.

    The roles are `conv.weight`, [out, in / groups, kernel], and `conv.bias`. Source: He et al., DeBERTa, 2021.
    """
    matrix, bias = weights("conv.weight"), weights("conv.bias")
    if matrix is None:
        raise KeyError("conv.weight")
    count, beyond = x.shape[-2], [*x.shape[:-2], spec.kernel // 2, x.shape[-1]]
    zeros = backend.full(beyond, 0.0, backend.dtype_of(x))
    wide = backend.concat([zeros, x, zeros], x.ndim - 2)
    width, parts = x.shape[-1] // spec.groups, []
    for first in range(0, x.shape[-1], width):
        own = slice(first, first + width)
        part, weight = wide[..., own], matrix[own]
        total = backend.matmul(part[..., :count, :], backend.transpose(weight[:, :, 0]))
        for step in range(1, spec.kernel):
            total = total + backend.matmul(part[..., step : step + count, :], backend.transpose(weight[:, :, step]))
        parts.append(total)
    total = backend.concat(parts, -1) if len(parts) > 1 else parts[0]
    return activate(backend, spec.activation, total if bias is None else total + bias)
