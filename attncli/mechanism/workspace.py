"""Memory that blocks of query rows take turns to use: asking the system for it anew would cost as much as a product."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from attncli.arrays.backend import Array, Backend


class ScoreBuffer:
    """Named flat arrays of one data type, each big enough for `size` numbers."""

    def __init__(self, backend: Backend, dtype: str, size: int) -> None:
        self._backend, self._dtype, self._size = backend, dtype, size
        self._arrays: dict[str, Array] = {}

    def take(self, name: str, shape: Sequence[int]) -> Array:
        """The array of that name in this shape, with whatever was left in it."""
        if name not in self._arrays:
            self._arrays[name] = self._backend.full((self._size,), 0, self._dtype)
        return self._arrays[name][: prod(shape)].reshape(tuple(shape))
