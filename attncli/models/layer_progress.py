"""`ProgressStore`: a checkpoint's weights, and someone who is told how far through its layers a run has come."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attncli.arrays.backend import Array, Backend
from attncli.inputs.token import Token
from attncli.mechanism.context import Weights
from attncli.models.run import Store


class ProgressStore:
    """A `Store` like the one given. progress: told the share of the expected layers that is behind; 1 at the last."""

    def __init__(self, store: Store, progress: Callable[[float], None]) -> None:
        self._store, self._progress = store, progress
        self._stop = 0

    def embed(self, backend: Backend, tokens: Sequence[Token]) -> Array:
        return self._store.embed(backend, tokens)

    def expect(self, layers: range) -> None:
        self._stop = layers.stop
        self._store.expect(layers)

    def layer(self, backend: Backend, index: int) -> Weights:
        if index < self._stop:
            self._progress(1.0 if index == self._stop - 1 else index / self._stop)
        return self._store.layer(backend, index)

    def outer(self, backend: Backend) -> Weights:
        return self._store.outer(backend)

    def bytes_read(self) -> int:
        return self._store.bytes_read()
