"""`DerivedCheckpoint`: tensors that are computed as they are read, some rows at a time, from what a
file holds.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from attncli.arrays import backend as arrays
from attncli.arrays import numpy_backend
from attncli.errors import InputError
from attncli.inputs.checkpoint import WORTH_HELP, Array, Checkpoint, TensorInfo
from attncli.inputs.read_ahead import StoredMatrix
from attncli.inputs.safetensors_file import convert, dtype_of_name
from attncli.language import listing

AT_ONCE = 2**17
"""Numbers computed at a time: few enough that what is in between stays in the processor's cache."""
STRETCH = 2**19
"""Numbers of a matrix computed for a product at a time. Two threads that take turns at fewer spend
as long on the turns: 1.1 billion weights of Q4_K took 3.2 s with 2¹⁷, 2.1 s with 2¹⁹, 2.3 s with
2²⁰."""
FAVOURED = 16
"""Products are as fast as they can be with multiples of this many rows of a weight."""
WORTH_PIECES = 2**18
"""Bytes of a stored matrix from which multiplying it piece by piece repays."""
MOST_KINDS = 3
"""Kinds of numbers that are named, the rarer ones counted."""


class Recipe(Protocol):
    """How a tensor is computed from stored ones when it is read.

    unit: how many rows of its first axis are computed together; 0 for a tensor that is computed
        whole.
    """

    unit: int

    def rows(self, start: int, stop: int) -> Array:
        """The rows from `start` to before `stop`, whole units; floats that the caller may not
        change.
        """


class ProductRecipe(ABC):
    """A `Recipe` that can multiply by its tensor without making it."""

    @abstractmethod
    def product(self, x: Array) -> Array | None:
        """x·Wᵀ, float32 [row, out], of x, float32 [row, in]; None where `rows` must be used. What
        is not finite in W is not finite in the product.
        """


class ComputedPieces:
    """An iterator, shared by threads, over stretches of a computed matrix's rows: (first byte,
    float32 rows as bytes); each thread computes the stretch that it takes.

    No matrix is ever in memory: measured on a model of 150 million weights in Q4_K, 61 MiB in place
    of 72.

    count: how many stretches there are.
    """

    def __init__(self, recipe: Recipe, shape: tuple[int, ...]) -> None:
        """Divide a matrix into stretches of rows; none is computed yet.

        recipe: computes rows, `recipe.unit` of them at a time at least.
        shape: (rows, columns) of the matrix.
        """
        self._recipe = recipe
        self._row_bytes = shape[1] * 4  # of float32
        self._row_count = shape[0]
        # rows in a stretch: a multiple of `FAVOURED`, with which products are fastest, where there
        # are as many; and of the recipe's unit in any case
        rows = STRETCH // shape[1]
        if rows >= FAVOURED:
            rows -= rows % FAVOURED
        self._step = max(1, rows // recipe.unit) * recipe.unit
        self.count = -(-shape[0] // self._step)  # rounded up
        self._starts = iter(range(0, shape[0], self._step))
        self._lock = threading.Lock()

    def __iter__(self) -> ComputedPieces:
        return self

    def __next__(self) -> tuple[int, Array]:
        """The next stretch of rows, computed by the thread that asks: its first byte in the matrix,
        and its float32 numbers as bytes. Only taking a start is locked."""
        with self._lock:
            start = next(self._starts)
        rows = self._recipe.rows(start, min(start + self._step, self._row_count))
        stretch = np.ascontiguousarray(rows, np.float32).reshape(-1).view(np.uint8)
        return start * self._row_bytes, stretch


def is_plain(x: arrays.Array, backend: arrays.Backend) -> bool:
    """Whether x is a NumPy array [row, in] of float32 with at least one row, for a backend that
    computes in float32, too."""
    return (
        isinstance(x, np.ndarray)
        and x.ndim == 2
        and len(x) > 0
        and x.dtype == np.float32
        and backend.dtype == "float32"
    )


class DerivedCheckpoint(Checkpoint):
    """A `Checkpoint` some of whose tensors are computed from what lies in the files; the others are
    read as they are.

    recipes: by tensor, those that are computed.
    schemes: how many tensors lie there in each kind of numbers, the most frequent first.
    """

    def __init__(
        self,
        folder: Path,
        config: dict[str, Any],
        tensors: dict[str, TensorInfo],
        recipes: Mapping[str, Recipe],
        schemes: Sequence[str] = (),
    ) -> None:
        """A checkpoint whose tensors lie where `tensors` says, by name; those in `recipes` are
        computed when they are read. `schemes` names the kinds of numbers they are stored in."""
        super().__init__(folder, config, tensors)
        self.recipes = recipes
        self.schemes = tuple(schemes)

    @property
    def quantization(self) -> str | None:
        """The kinds of numbers in which its matrices are stored, as people name them: "Q4_K, Q6_K";
        None for plain floats."""
        if self.schemes:
            return listing(self.schemes[:MOST_KINDS], ", ")
        return None

    def read(self, name: str, dtype: str | None = None) -> Array:
        """A whole tensor, computed or read as stored; in its own type, or as the float type
        `dtype`.
        """
        recipe = self.recipes.get(name)
        if recipe is None:
            return super().read(name, dtype)
        info = self.info(name)
        target = self._pool.array(info.shape, dtype_of_name(dtype or info.dtype))
        count = info.shape[0]
        whole = not recipe.unit  # a unit of 0 rows: they cannot be computed apart
        if whole:
            step = count
        else:
            # as many whole units as have about `AT_ONCE` numbers
            step = max(1, AT_ONCE * count // (target.size * recipe.unit)) * recipe.unit
        starts = iter(range(0, count, step))
        finite: list[bool] = []

        def compute_rest() -> None:
            """Compute stretches of rows into `target` until none is left, and append to `finite`
            for each whether all of its numbers are finite.
            """
            for start in starts:  # threads share this iterator
                stop = min(start + step, count)
                finite.append(self._convert(recipe.rows(start, stop), target[start:stop]))

        threads = 2
        if whole or target.nbytes < WORTH_HELP:
            threads = 1
        numpy_backend.at_once([compute_rest] * threads)
        if not all(finite):
            raise self._first_fault(name, info, target)
        self.bytes_read += info.bytes
        return target

    def read_rows(self, name: str, rows: Sequence[int], dtype: str | None = None) -> Array:
        """The rows with these numbers on the first axis, in this order, computed or read as stored."""
        recipe = self.recipes.get(name)
        if recipe is None:
            return super().read_rows(name, rows, dtype)
        info = self.info(name)
        different, places = self._different_rows(name, info, rows)
        target = np.empty((different.size, *info.shape[1:]), dtype_of_name(dtype or info.dtype))
        if different.size and recipe.unit != 1:
            # single rows cannot be computed
            target[:] = self.read(name, dtype)[different]
        elif different.size:
            # rows side by side, such as 4, 5, 6, are computed at once, as a call costs as much as
            # many rows: cut where a number does not follow the one before
            cuts = np.flatnonzero(np.diff(different) != 1) + 1
            for begin, end in pairwise((0, *cuts.tolist(), different.size)):
                first = int(different[begin])
                part = target[begin:end]
                if not self._convert(recipe.rows(first, first + end - begin), part):
                    raise self._first_fault(name, info, part, first)
        # (a table without rows gives none)
        self.bytes_read += different.size * info.bytes // max(info.shape[0], 1)
        return target[places]

    def product(
        self,
        name: str,
        x: arrays.Array,
        backend: arrays.Backend,
        bias: arrays.Array | None = None,
        *,
        in_out: bool = False,
    ) -> arrays.Array | None:
        """x·Wᵀ + b, [row, out], computed for one stretch of W's rows after the other; None where
        `read` must be used instead.

        name: the tensor W, [out, in].
        x: [row, in].
        bias: b, [out]; None for none.
        in_out: whether W is stored as [in, out].
        """
        recipe = self.recipes.get(name)
        if recipe is None:
            return super().product(name, x, backend, bias, in_out=in_out)
        info = self.info(name)
        if isinstance(recipe, ProductRecipe) and not in_out and is_plain(x, backend):
            # a fault in W shows in the first row already; the code below then names its place
            direct = recipe.product(np.asarray(x))
            if direct is not None and bool(np.isfinite(direct[:1]).all()):
                self.bytes_read += info.bytes
                if bias is not None:
                    direct += np.asarray(bias)
                return direct
        matrix = StoredMatrix(np.dtype("<f4"), info.shape)  # computed pieces are float32
        has_stretches = bool(recipe.unit)  # 0 where only all rows together can be computed
        if (
            not has_stretches
            or in_out
            or info.bytes < WORTH_PIECES
            or not matrix.worth_pieces(x, backend)
        ):
            return None
        product, finite = matrix.multiply_pieces(
            ComputedPieces(recipe, info.shape), x, backend, bias
        )
        self.bytes_read += info.bytes
        if not finite:
            self.read(name, backend.dtype)  # raises an error that names the number's place
            raise self._not_finite(name, info, dtype_of_name(backend.dtype))
        return product

    def ahead(self, names: Sequence[str]) -> None:
        """Announce which tensors will be read next; only those that are stored as they are can be
        read ahead.
        """
        super().ahead([name for name in names if name not in self.recipes])

    def part(self, names: Mapping[str, str], config: dict[str, Any]) -> Checkpoint:
        """A checkpoint of some of these tensors under a config of its own, with their recipes.

        names: the old name of each new one.
        """
        recipes = {new: self.recipes[old] for new, old in names.items() if old in self.recipes}
        tensors = {new: self.info(old) for new, old in names.items()}
        part = DerivedCheckpoint(self.folder, config, tensors, recipes, self.schemes)
        part.notes = self.notes
        return part

    @staticmethod
    def _convert(source: Array, target: Array) -> bool:
        """Copy numbers into a contiguous part of the result, converted to its type; returns whether
        all are finite.
        """
        return convert(np.ascontiguousarray(source).reshape(-1), target.reshape(-1))

    def _first_fault(
        self, name: str, info: TensorInfo, target: Array, first: int = 0
    ) -> InputError:
        """The error, returned and not raised, that names the place and value of the first number
        in a tensor that is not finite.

        target: the tensor's rows from row `first` on.
        """
        with np.errstate(all="ignore"):
            bad = np.argwhere(~np.isfinite(target.astype(np.float64)))
        if not bad.size:
            return self._not_finite(name, info, target.dtype)
        place = bad[0].tolist()
        return InputError(
            "tensor {name} holds {value} at [{place}]",
            where=str(info.file),
            expected="finite weights in {dtype}",
            name=repr(name),
            value=float(target[tuple(place)]),
            place=", ".join(map(str, [place[0] + first, *place[1:]])),
            dtype=target.dtype.name,
        )


def kinds_by_size(kinds: Mapping[str, int]) -> list[str]:
    """The names of these kinds of numbers, those with the most bytes first.

    kinds: bytes by name.
    """
    return sorted(kinds, key=lambda kind: (-kinds[kind], kind))
