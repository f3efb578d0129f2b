"""The product of rows with a stored matrix, made while the matrix is read.

Widened and written to memory, a matrix of 16-bit numbers is moved five times: written, read for the product, each at
twice its size. A tile that stays in the processor's cache is moved once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attncli.arrays import few_rows, threads
from attncli.arrays.backend import ITEM, Backend
from attncli.arrays.backend import Array as AnyArray
from attncli.inputs.read_ahead import PIECE, Pieces
from attncli.inputs.widening import STEP, all_finite

Array = np.ndarray[Any, Any]
MANY_ROWS_STEP = 2**19
"""Numbers of a matrix multiplied with many rows at once: what is done for each product with the rows then weighs
little."""


def worth_it(x: AnyArray, shape: Sequence[int], item: int, backend: Backend, *, in_out: bool = False) -> bool:
    """Whether x, [row, in], is rows of floats for a matrix of this shape, [out, in], that can be multiplied with in
    tiles. item: bytes of a stored number. in_out: whether the matrix is stored as [in, out]."""
    if len(shape) != 2 or x.ndim != 2 or x.shape[1] != shape[not in_out] or len(x) < 2 or backend.device != "cpu":
        return False
    if backend.dtype_of(x) != backend.dtype or shape[1] * max(item, ITEM[backend.dtype]) > PIECE:
        return False
    if backend.name != "numpy":
        return True
    rows = np.asarray(x)
    few = len(rows) <= few_rows.FEW_ROWS
    if in_out:  # each piece gives a part of every sum, which is much to hold where there are many
        return few and rows.dtype.itemsize >= 4
    return rows.dtype.itemsize >= 4 and rows.flags.c_contiguous and (not few or few_rows.block_of(rows) is not None)


def multiply_pieces(
    pieces: Pieces,
    stored_dtype: np.dtype[Any],
    shape: Sequence[int],
    x: AnyArray,
    backend: Backend,
    bias: AnyArray | None,
    *,
    in_out: bool = False,
) -> tuple[AnyArray, bool]:
    """x·Wᵀ + b, [row, out], and whether every number of W, [out, in], is finite in both types. pieces: whole rows of W,
    or of Wᵀ where it is stored turned.

    An infinite or undefined weight leaves no number of its column finite, so that only where the first row has such a
    number each weight is looked at.
    """
    if backend.name != "numpy":
        return _by_library(pieces, stored_dtype, shape, x, backend, bias)
    tiles = _by_turned_tiles if in_out else _by_tiles
    product, finite = tiles(pieces, stored_dtype, shape, np.asarray(x))
    if bias is not None:
        product += np.asarray(bias)
    return product, finite


def _by_library(
    pieces: Pieces,
    stored_dtype: np.dtype[Any],
    shape: Sequence[int],
    x: AnyArray,
    backend: Backend,
    bias: AnyArray | None,
) -> tuple[AnyArray, bool]:
    """`multiply_pieces` by a library that widens and adds the bias as part of its product."""
    rows, width = shape
    result = backend.full((len(x), rows), 0, backend.dtype)
    finite: list[bool] = []

    def take() -> None:
        for first, piece in pieces:
            numbers = piece.view(stored_dtype)
            weight = backend.array(numbers.reshape(-1, width))
            above = first // (width * stored_dtype.itemsize)
            part = slice(above, above + len(weight))
            product = backend.affine(x, weight, None if bias is None else bias[part])
            result[:, part] = product
            finite.append(
                bool(backend.isfinite(product[0]).all())
                or (all_finite(numbers) and bool(backend.isfinite(weight).all()))
            )

    with backend.shared_out(threads.MANY) as count:
        threads.at_once([take] * count)
    return result, all(finite)


def _by_tiles(pieces: Pieces, stored_dtype: np.dtype[Any], shape: Sequence[int], x: Array) -> tuple[Array, bool]:
    """`multiply_pieces` a tile at a time, without a bias."""
    rows, width = shape
    result = np.empty((len(x), rows), x.dtype)
    finite: list[bool] = []
    few = len(x) <= few_rows.FEW_ROWS
    block = few_rows.block_of(x) or 1 if few else 1
    many = max((STEP if few else MANY_ROWS_STEP) // width // block, 1) * block

    @np.errstate(over="ignore", invalid="ignore")
    def take() -> None:
        tile = np.empty((many, width), x.dtype)
        for first, piece in pieces:
            part = piece.view(stored_dtype).reshape(-1, width)
            above = first // (width * stored_dtype.itemsize)
            for row in range(0, len(part), many):
                here = tile[: min(many, len(part) - row)]
                here[:] = part[row : row + many]
                product = few_rows.product_of_any(x, here.T, block) if few else np.matmul(x, here.T)
                result[:, above + row : above + row + len(here)] = product
                finite.append(bool(np.isfinite(product[0]).all()) or all_finite(here))

    threads.at_once([take] * min(threads.cores(), 2, pieces.count))
    return result, all(finite)


def _by_turned_tiles(pieces: Pieces, stored_dtype: np.dtype[Any], shape: Sequence[int], x: Array) -> tuple[Array, bool]:
    """`_by_tiles` for a matrix stored as [in, out]: each piece gives every sum a part, and the parts are added in the
    order of the file, whichever thread made them."""
    width, columns = shape
    many = max(STEP // columns, 1)
    parts: dict[int, Array] = {}
    finite: list[bool] = []

    @np.errstate(over="ignore", invalid="ignore")
    def take() -> None:
        tile = np.empty((min(many, width), columns), x.dtype)
        for first, piece in pieces:
            part, above = piece.view(stored_dtype).reshape(-1, columns), first // (columns * stored_dtype.itemsize)
            sums = np.zeros((len(x), columns), x.dtype)
            for row in range(0, len(part), many):
                here = tile[: min(many, len(part) - row)]
                here[:] = part[row : row + many]
                product = np.matmul(x[:, above + row : above + row + len(here)], here)
                finite.append(bool(np.isfinite(product[0]).all()) or all_finite(here))
                sums += product
            parts[first] = sums

    threads.at_once([take] * min(threads.cores(), 2, pieces.count))
    with np.errstate(over="ignore", invalid="ignore"):
        return sum((parts[first] for first in sorted(parts)[1:]), start=parts[min(parts)]), all(finite)
