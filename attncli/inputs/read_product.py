"""The product of a few rows with a stored matrix, made while the matrix is read.

Widened and written to memory, a matrix of 16-bit numbers is moved five times: written, read for the product, each at
twice its size. A tile that stays in the processor's cache is moved once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attncli.arrays import few_rows, threads
from attncli.inputs.read_ahead import PIECE, Pieces
from attncli.inputs.widening import STEP, all_finite

Array = np.ndarray[Any, Any]


def worth_it(x: Array, shape: Sequence[int]) -> bool:
    """Whether x, [row, in], is few rows of floats for a matrix of this shape, [out, in], with rows short enough."""
    return (
        len(shape) == 2
        and x.ndim == 2
        and x.shape[1] == shape[1]
        and 1 < len(x) <= few_rows.FEW_ROWS
        and x.dtype.itemsize >= 4
        and x.flags.c_contiguous
        and few_rows.block_of(x) is not None
        and shape[1] * x.dtype.itemsize <= PIECE
    )


def multiplied(pieces: Pieces, stored: np.dtype[Any], shape: Sequence[int], x: Array) -> tuple[Array, bool]:
    """x·Wᵀ, [row, out], and whether every number of W, [out, in], is finite in both types. pieces: whole rows of W."""
    rows, width = shape
    found = np.empty((len(x), rows), x.dtype)
    finite: list[bool] = []
    block = few_rows.block_of(x) or 1
    many = max(STEP // width // block, 1) * block

    @np.errstate(over="ignore", invalid="ignore")
    def take() -> None:
        tile = np.empty((many, width), x.dtype)
        for first, piece in pieces:
            part = piece.view(stored).reshape(-1, width)
            above = first // (width * stored.itemsize)
            for at in range(0, len(part), many):
                here = tile[: min(many, len(part) - at)]
                here[:] = part[at : at + many]
                product = few_rows.product_of_any(x, here.T, block)
                found[:, above + at : above + at + len(here)] = product
                # an infinite or undefined weight leaves no number of its column finite
                finite.append(bool(np.isfinite(product).all()) or all_finite(here))

    threads.at_once([take, take] if threads.cores() > 1 else [take])
    return found, all(finite)
