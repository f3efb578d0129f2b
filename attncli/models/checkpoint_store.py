"""`CheckpointStore`: a checkpoint's weights, read when they are reached and let go, or kept in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from attncli.arrays.backend import Array, Backend
from attncli.errors import InputError
from attncli.inputs.checkpoint import Checkpoint
from attncli.inputs.token import Token
from attncli.mechanism.context import ReadWeights, Weights
from attncli.mechanism.feed_forward import linear
from attncli.mechanism.norm import normalise
from attncli.mechanism.spec import Spec
from attncli.models.bind import Binding, TensorBinding, layer_roles
from attncli.models.run import Store, with_positions


class CheckpointStore:
    """`Store` of one side of a checkpoint. Of the token table only the rows needed are read."""

    def __init__(self, spec: Spec, checkpoint: Checkpoint, binding: Binding) -> None:
        self.spec = spec
        self.checkpoint = checkpoint
        self.binding = binding
        self._outer_arrays: dict[tuple[str, str], Array] = {}
        self._tables: dict[tuple[str, str], RowCache] | None = None
        self._deferred_layer = -1  # the layer whose feed-forward part is read when it is asked for

    def for_many(self) -> None:
        """Prepare for many texts one after the other: rows of embedding tables are kept from now on, and matrices lie
        in memory as products want them."""
        self._tables = {}

    def embed(self, backend: Backend, tokens: Sequence[Token]) -> Array:
        embedding = self.spec.embedding
        x = self._rows(backend, "tokens.weight", [self._id(token) for token in tokens]) * embedding.scale
        weights = self.outer(backend)
        if embedding.projection == "tokens":
            x = linear(backend, weights, "embed.project", x)
        places, stored = self._places(tokens), "positions.weight" in self.binding.outer
        table = partial(self._rows, backend, "positions.weight", places)
        x = with_positions(backend, embedding, x, places, table, stored=stored)
        if embedding.types:
            x = x + self._rows(backend, "types.weight", [min(token.part, embedding.types - 1) for token in tokens])
        if embedding.norm is not None:
            x = normalise(backend, embedding.norm, x, weights("embed.norm.weight"), weights("embed.norm.bias"))
        x = linear(backend, weights, "embed.project", x) if embedding.projection == "sum" else x
        return backend.cast(x, backend.dtype)  # NumPy's bfloat16 is wider after a product with a plain number

    def expect(self, layers: range) -> None:
        self._deferred_layer = layers.stop - 1
        self._announce(
            bound
            for layer in layers
            for bound in self._in_order(layer)
            if layer < self._deferred_layer or not bound.feeds
        )

    def _feed(self, layer: int) -> None:
        """Have the feed-forward part of the last layer expected read ahead: it is asked for after all."""
        if layer == self._deferred_layer:
            self._deferred_layer = -1
            self._announce(bound for bound in self._in_order(layer) if bound.feeds)

    def _announce(self, bounds: Iterable[TensorBinding]) -> None:
        self.checkpoint.ahead([name for bound in bounds for name in bound.tensors])

    def layer(self, backend: Backend, index: int) -> Weights:
        """A matrix is read when it is asked for and let go with its product: one at a time is in memory, not the layer.

        Other roles are held, as is what shares a tensor until it is asked for. A matrix asked for again is read again.
        """
        return _LayerWeights(self, backend, index)

    def outer(self, backend: Backend) -> Weights:
        def role(name: str) -> Array | None:
            return self._keep(backend, name, self.binding.outer[name]) if name in self.binding.outer else None

        return role

    def bytes_read(self) -> int:
        return self.checkpoint.bytes_read

    def _keep(self, backend: Backend, name: str, bound: TensorBinding) -> Array:
        """A tensor that belongs to no single layer: read once and held."""
        if (name, backend.dtype) not in self._outer_arrays:
            self._outer_arrays |= {(role, backend.dtype): array for role, array in self._read(backend, bound).items()}
        return self._outer_arrays[name, backend.dtype]

    def _in_order(self, layer: int) -> list[TensorBinding]:
        """A layer's tensors in the order in which `run_block` asks for them."""
        order = {role.name: place for place, role in enumerate(layer_roles(self.spec, self.spec.blocks[layer]))}
        bindings = [bound for bound in self.binding.layers[layer] if not bound.shared]
        return sorted(bindings, key=lambda bound: min(order.get(role.name, len(order)) for role in bound.roles))

    def _read(self, backend: Backend, bound: TensorBinding) -> dict[str, Array]:
        arrays = [self.checkpoint.read(name, backend.dtype) for name in bound.tensors]
        by_role = {role: backend.array(part) for role, part in bound.parts(arrays).items()}
        if self._tables is None:
            return by_role
        return {role: backend.by_columns(part) if part.ndim == 2 else part for role, part in by_role.items()}

    def _rows(self, backend: Backend, role: str, rows: Sequence[int]) -> Array:
        name = self.binding.outer[role].tensors[0]
        if self._tables is None:
            return backend.array(self.checkpoint.read_rows(name, rows, backend.dtype))
        key = (name, backend.dtype)
        if key not in self._tables:
            count = self.checkpoint.info(name).shape[0]
            self._tables[key] = RowCache(partial(self.checkpoint.read_rows, name, dtype=backend.dtype), count)
        return backend.array(self._tables[key].rows(rows))

    def _places(self, tokens: Sequence[Token]) -> list[int]:
        """The row of the position table for each token."""
        embedding, padding_count, rows = self.spec.embedding, 0, []
        for token in tokens:
            if embedding.padding is not None and token.id == embedding.padding:
                padding_count += 1
                rows.append(embedding.padding)
            else:
                rows.append(embedding.position_offset + token.index - padding_count)
        return rows

    def _id(self, token: Token) -> int:
        if token.id is None or not 0 <= token.id < self.spec.vocabulary:
            raise InputError(
                f"token {token.text!r} has the id {token.id}, the embedding has {self.spec.vocabulary:,} rows",
                expected="a tokenizer that belongs to this checkpoint",
            )
        return token.id


class _LayerWeights(ReadWeights):
    """The weights of one layer."""

    def __init__(self, store: CheckpointStore, backend: Backend, index: int) -> None:
        self._store, self._backend, self._index = store, backend, index
        self._places = {role.name: bound for bound in store.binding.layers[index] for role in bound.roles}
        self._arrays: dict[str, Array] = {}
        self._product_parts: tuple[Array, dict[str, Array]] | None = None

    def __call__(self, role: str, /) -> Array | None:
        bound, arrays = self._places.get(role), self._arrays
        if bound is None:
            return None
        if bound.shared:
            return self._store._keep(self._backend, role, bound)
        if role not in arrays:
            if bound.feeds:
                self._store._feed(self._index)
            arrays.update(self._store._read(self._backend, bound))
        return arrays.pop(role) if arrays[role].ndim == 2 else arrays[role]

    def product(self, name: str, x: Array, backend: Backend) -> Array | None:
        role = f"{name}.weight"
        bound, bias = self._places.get(role), self(f"{name}.bias")
        if bound is None or bound.shared or bound.form in ("stacked", "each"):
            return None
        if bound.feeds:
            self._store._feed(self._index)
        flat = x.reshape((-1, x.shape[-1])) if x.ndim > 2 else x  # one large product, not one for each entry of a batch
        multiply = partial(self._store.checkpoint.product, bound.tensors[0], flat, backend, in_out=bound.transposed)
        if bound.form == "whole":
            return multiply(bias)
        # one product gives what several roles make of the same vectors
        if self._product_parts is None or self._product_parts[0] is not x or role not in self._product_parts[1]:
            product = multiply()
            if product is None:
                return None
            self._product_parts = x, bound.columns(product)
        result = self._product_parts[1].pop(role)
        return result if bias is None else result + bias


# `RowCache`: the rows of a table that have been asked for, read once each and kept.

Rows = np.ndarray[Any, Any]


class RowCache:
    """Rows of a table of `count` rows. read_rows: gives the rows with these numbers, in order, and raises for one
    outside the table."""

    def __init__(self, read_rows: Callable[[Sequence[int]], Rows], count: int) -> None:
        self._read_rows, self._present = read_rows, np.zeros(count, np.bool_)
        self._rows: Rows | None = None

    def rows(self, numbers: Sequence[int]) -> Rows:
        """The rows with these numbers, in this order."""
        indices = np.asarray(numbers, np.int64)
        if indices.size == 0 or indices.min() < 0 or indices.max() >= self._present.size:
            return self._read_rows(numbers)
        missing = np.unique(indices[~self._present[indices]])
        if missing.size:
            new = self._read_rows(missing.tolist())
            if self._rows is None:  # as large as the table, of which memory is taken where rows are written
                self._rows = np.empty((self._present.size, *new.shape[1:]), new.dtype)
            self._rows[missing] = new
            self._present[missing] = True
        assert self._rows is not None
        result: Rows = self._rows[indices]
        return result


# `CachedStore`: a model's weights kept in memory, for many texts one after the other.


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
