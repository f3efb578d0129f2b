"""Normalization: of layers, of queries and keys, of narrow vectors."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import LOW_PRECISION, Array, Backend
from attncli.arrays.numpy_backend import by_rows


class Norm(Struct, frozen=True):
    """Layer normalization ("layer") or root-mean-square normalization ("rms").

    unit_offset: the stored weight w multiplies as 1 + w (Gemma). affine: whether there is a stored weight at all.
    """

    kind: Literal["layer", "rms"]
    eps: float
    unit_offset: bool = False
    affine: bool = True


Floats = np.ndarray[Any, np.dtype[Any]]


def deviation(norm: Norm, x: Floats) -> Floats:
    """What a norm divides each vector by, [..., 1], float64, of x, [..., width]: with it held fixed a norm is linear, a
    shift apart."""
    wide = np.asarray(x, np.float64)
    if norm.kind == "layer":
        wide = wide - wide.mean(-1, keepdims=True)
    result: Floats = np.sqrt((wide * wide).mean(-1, keepdims=True) + norm.eps)
    return result


def through_norm(norm: Norm, matrix: Floats, weight: Floats | None) -> Floats:
    """A linear map of what a norm gives as one of what enters it, before the division; both [dim, width]."""
    if norm.affine and weight is not None:
        matrix = matrix * (weight + 1.0 if norm.unit_offset else weight)
    return matrix - matrix.mean(-1, keepdims=True) if norm.kind == "layer" else matrix


@np.errstate(over="ignore", invalid="ignore")  # outside the layers, too: the embedding's norm and the final one
def normalise(backend: Backend, norm: Norm, x: Array, weight: Array | None, bias: Array | None) -> Array:
    """Layer or root-mean-square normalization over the last axis; statistics in float32 for low precision."""
    if weight is not None and weight.ndim > 1:  # every head has weights of its own
        return _normalise_rows(backend, norm, weight, bias, x)
    return by_rows(partial(_normalise_rows, backend, norm, weight, bias), x)


def _normalise_rows(backend: Backend, norm: Norm, weight: Array | None, bias: Array | None, x: Array) -> Array:
    dtype = backend.dtype_of(x)
    wide = backend.cast(x, "float32") if dtype in LOW_PRECISION else x
    if not norm.affine:
        weight = bias = None
    elif weight is not None and norm.unit_offset:
        weight = weight + 1.0
    if norm.kind == "layer" and (weight is None or weight.ndim == 1):
        wide_dtype = backend.dtype_of(wide)
        weight, bias = (
            None if parameter is None else backend.cast(parameter, wide_dtype) for parameter in (weight, bias)
        )
        return backend.cast(backend.layer_norm(wide, norm.eps, weight, bias), dtype)
    if norm.kind == "layer":
        scaled = backend.layer_norm(wide, norm.eps, None, None)
    else:
        scaled = wide / backend.sqrt(backend.sum(wide * wide, -1) / x.shape[-1] + norm.eps)
    if weight is not None:
        scaled = scaled * weight
    return backend.cast(scaled if bias is None else scaled + bias, dtype)
