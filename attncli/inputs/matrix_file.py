"""One matrix from a file: a mask or embeddings, as .npy, .npz, .safetensors, .json or .csv."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attncli.errors import InputError
from attncli.inputs.file_opening import SIZE_LIMIT, nesting_error, read_regular
from attncli.inputs.tensors import read_tensors

# Numbers written out take many times their bytes in memory.
TEXT_LIMIT = 256 * 2**20
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
TRUTH = {"true": True, "false": False}
FORMATS = (".npy", ".npz", ".safetensors", ".json", ".csv", ".tsv")


def read_matrix(path: Path, what: str, *, limit: int = SIZE_LIMIT) -> np.ndarray[Any, Any]:
    """A matrix [row, column] with at least one row and column.

    what: what the matrix is, in a word ("mask"); also the name of the array to take from an .npz or .safetensors that
    holds several. A first axis of one entry, as of a batch, is taken off. Numbers keep the data type of these and .npy;
    .json (a list of rows) and .csv (comma, semicolon or tab; no header) give float64, or bool where every value is true
    or false.

    Raises InputError for a damaged file, another number of axes, no values, rows of different length, values that are
    no finite numbers (naming row and column, 0-based), and as `read_tensors`.
    """
    where = str(path)
    match path.suffix.lower():
        case ".npy" | ".npz" | ".safetensors":
            matrix = _only(read_tensors(path, limit=limit, allow_nonfinite=True), what, where)
        case ".json":
            matrix = _from_rows(
                _json_rows(read_regular(path, what=f"a {what} file", limit=min(limit, TEXT_LIMIT)), what, where),
                what,
                where,
            )
        case ".csv" | ".tsv":
            matrix = _from_rows(
                _csv_rows(read_regular(path, what=f"a {what} file", limit=min(limit, TEXT_LIMIT)), where), what, where
            )
        case kind:
            raise InputError(
                f"{kind or 'no ending'} is not a known kind of {what} file", where=where, expected=" ".join(FORMATS)
            )
    if matrix.ndim == 3 and len(matrix) == 1:
        matrix = matrix[0]
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InputError(
            f"the {what} has the shape {list(matrix.shape)}", where=where, expected="a matrix: rows and columns"
        )
    if matrix.dtype.kind not in "biu":
        _check_finite(matrix, what, where)
    return matrix


def _only(tensors: dict[str, np.ndarray[Any, Any]], what: str, where: str) -> np.ndarray[Any, Any]:
    if len(tensors) == 1:
        return next(iter(tensors.values()))
    if what in tensors:
        return tensors[what]
    names = ", ".join(tensors) or "none"
    raise InputError(
        f"the archive holds {len(tensors)} arrays: {names}", where=where, expected=f"one array, or one named {what}"
    )


def _json_rows(raw: bytes, what: str, where: str) -> Sequence[Sequence[object]]:
    import orjson

    try:
        rows = orjson.loads(raw.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        if error.msg.partition(" ")[0] in ("Recursion", "depth"):  # limit …
            raise nesting_error(where, "a list of rows of finite numbers") from error
        place = f"line {error.lineno}, column {error.colno}"
        raise InputError(
            f"this is not JSON at {place}: {error.msg}", where=where, expected="a list of rows of finite numbers"
        ) from error
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise InputError(f"the {what} is not a list of rows", where=where, expected="[[1, 0], [1, 1]]")
    return rows


def _csv_rows(raw: bytes, where: str) -> Sequence[Sequence[object]]:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"this file is not UTF-8 at byte {error.start}", where=where, expected="UTF-8 text") from error
    first = text.lstrip().partition("\n")[0]
    delimiter = next((sign for sign in "\t;," if sign in first), ",")
    try:
        rows = list(csv.reader(text.splitlines(), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise InputError(f"this file is not CSV: {error}", where=where, expected="rows of numbers") from error
    return [[_cell(cell.strip()) for cell in row] for row in rows if len(row) > 1 or "".join(row).strip()]


def _cell(cell: str) -> object:
    if NUMBER.fullmatch(cell):
        return float(cell)
    return TRUTH.get(cell.lower(), cell)


def _from_rows(rows: Sequence[Sequence[object]], what: str, where: str) -> np.ndarray[Any, Any]:
    width = len(rows[0]) if rows else 0
    for place, row in enumerate(rows):
        if len(row) != width:
            raise InputError(
                f"row {place} of the {what} has {len(row)} values, row 0 has {width}",
                where=where,
                expected="rows of one length",
            )
        for column, value in enumerate(row):
            if not isinstance(value, bool | int | float):
                raise InputError(
                    f"row {place}, column {column} of the {what} is {_cell_text(value)}",
                    where=where,
                    expected="a number, no header",
                )
    truth = all(isinstance(value, bool) for row in rows for value in row)
    return np.array(rows, dtype=np.bool_ if truth else np.float64).reshape(len(rows), width)


def _cell_text(value: object) -> str:
    match value:
        case None:
            return "null"
        case "":
            return "empty"
        case str():
            return repr(value[:40])
        case _:
            return "a list or an object"


def _check_finite(matrix: np.ndarray[Any, Any], what: str, where: str) -> None:
    finite = np.isfinite(matrix)
    if not finite.all():
        row, column = np.unravel_index(int(np.argmin(finite)), matrix.shape)
        value = float(matrix[row, column])
        raise InputError(f"row {row}, column {column} of the {what} is {value}", where=where, expected="finite numbers")
