"""A few rows times a large matrix: the product of a short text with a weight.

Such a product should take as long as reading the weight from memory. BLAS libraries repack the weight for it, which
is made for many rows and takes several times as long; on blocks small enough for their small-matrix kernels they do
not. Measured with OpenBLAS, [5, 4096] by [4096, 14336] in float32: 16 GB/s of weights in blocks and 4.4 whole on one
core with AVX-512, 7.7 and 6.2 with AVX2.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

NDArray = np.ndarray[Any, Any]
FEW_ROWS = 16
LARGE_MATRIX = 2**22
"""Numbers from which a weight does not fit the processor's caches."""
SMALL_PRODUCT = 900_000
"""Multiply-adds of one block: OpenBLAS takes its small-matrix kernel up to a million."""
LEAST_BLOCK = 8
FEW_CORES = 4
"""With more cores than this, BLAS's own threads win."""


def block_rows(a: NDArray, b: NDArray) -> int | None:
    """How many rows of the weight to take at a time in a·b; None where the whole product is as fast.

    a: [rows, in]. b: [in, out], the transposed view of a weight [out, in] in row-major order.
    """
    if a.ndim != 2 or b.ndim != 2 or not 1 < len(a) <= FEW_ROWS or b.size < LARGE_MATRIX or a.dtype != b.dtype:
        return None
    if not b.T.flags.c_contiguous or (os.cpu_count() or 1) > FEW_CORES:
        return None
    block = block_of(a)
    while block is not None and b.shape[1] % block:
        block = block // 2 if block > LEAST_BLOCK else None
    return block


def block_of(a: NDArray) -> int | None:
    """The most rows of a weight that make a small product with a, [rows, in]; None where none do."""
    block = LEAST_BLOCK
    while 2 * block * a.size <= SMALL_PRODUCT:
        block *= 2
    return block if block * a.size <= SMALL_PRODUCT else None


def product(a: NDArray, b: NDArray, block: int) -> NDArray:
    """a·b, [rows, out], by blocks of `block` columns of b."""
    weight = b.T
    parts = np.matmul(a, weight.reshape(len(weight) // block, block, -1).swapaxes(1, 2))
    return parts.swapaxes(0, 1).reshape(len(a), len(weight))


def product_of_any(a: NDArray, b: NDArray, block: int) -> NDArray:
    """a·b, [rows, out], with columns of b left over after the last whole block."""
    whole = b.shape[1] // block * block
    if whole == b.shape[1]:
        return product(a, b, block)
    rest = np.matmul(a, b[:, whole:])
    return rest if not whole else np.concatenate((product(a, b[:, :whole], block), rest), 1)
