"""`CachedStore`: a model's weights kept in memory, for many texts one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from attncli.arrays.backend import Array, Backend
from attncli.inputs.token import Token
from attncli.mechanism.context import Weights
from attncli.models.run import Store


class CachedStore:
    """`Store` that asks another one for each weight of a layer once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._layers: dict[tuple[int, str], dict[str, Array | None]] = {}

    def embed(self, backend: Backend, tokens: Sequence[Token]) -> Array:
        return self._store.embed(backend, tokens)

    def expect(self, layers: range) -> None:
        """Nothing is read ahead: what is held is not read again."""

    def layer(self, backend: Backend, index: int) -> Weights:
        arrays = self._layers.setdefault((index, backend.dtype), {})
        weights = self._store.layer(backend, index)

        def role(name: str) -> Array | None:
            if name not in arrays:
                arrays[name] = weights(name)
            return arrays[name]

        return role

    def outer(self, backend: Backend) -> Weights:
        return self._store.outer(backend)

    def bytes_read(self) -> int:
        return self._store.bytes_read()
