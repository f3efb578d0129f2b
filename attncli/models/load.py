"""`attncli.load`: a checkpoint, a weight file or seeded weights as a `Model`; weights are read when
reached.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from importlib.util import find_spec
from math import prod
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from attncli.arrays.backend import ITEM, Array, ArrayKind, Backend, array_kind, choose
from attncli.errors import AttnError, InputError, UnsupportedError, UsageError
from attncli.extras import install_command
from attncli.inputs.checkpoint import (
    Checkpoint,
    TensorInfo,
    is_packed,
    no_family,
    without_packing,
)
from attncli.inputs.files import guarded_path, is_there, read_object
from attncli.inputs.hub import GENERATION, Fetch, Parts, Watch, gguf_file
from attncli.inputs.token import Token, Tokenizer, token_types
from attncli.inputs.tokenize import IdsOnly
from attncli.inputs.tokenize import tokenizer as tokenizer_named
from attncli.language import listing, message
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.context import ReadWeights, TableWeights, Weights
from attncli.mechanism.feed_forward import linear, normalise
from attncli.mechanism.spec import Spec
from attncli.models import transformers_model as library
from attncli.models.aliases import locate
from attncli.models.config import config_without, seen_both_ways, settle, with_stated_positions
from attncli.models.estimate import TILE, TILED_FROM, MemoryBudget, free_memory
from attncli.models.families import ALSO_CALLED, MODEL_TYPES, family
from attncli.models.family import Binding, Family, TensorBinding, bind, layer_roles
from attncli.models.model import Identity, Model
from attncli.models.run import EmbeddingVectors, Store, parts_through_norm, with_positions

if TYPE_CHECKING:
    from attncli.mechanism.mask import Mask
    from attncli.models.one_layer import Settings


class CheckpointStore:
    """Reads the weights of one side (encoder, decoder or whole model) from a checkpoint as a run
    asks for them; of the token table only the rows needed."""

    def __init__(self, spec: Spec, checkpoint: Checkpoint, binding: Binding) -> None:
        self.spec = spec
        self.checkpoint = checkpoint
        self.binding = binding
        # what is kept of the weights outside the layers and of those that all layers share, by role
        self._outer_arrays: dict[tuple[str, ArrayKind], Array] = {}
        # rows of embedding tables, by tensor and data type; None as long as no rows are kept
        self._tables: dict[tuple[str, str], RowCache] | None = None
        # the layer whose feed-forward part is not read ahead until it is asked for; -1 for none
        self._deferred_layer = -1

    def for_many(self) -> None:
        """From now on keep the rows of embedding tables that are read, for runs of many texts."""
        self._tables = {}

    @property
    def row_by_row(self) -> bool:
        """Whether a token's embedding depends on that token and its index alone; false where
        positions skip padding.
        """
        return self.spec.embedding.padding is None

    def embed(self, backend: Backend, tokens: Sequence[Token]) -> Array:
        """The vectors that enter layer 0, [token, width]: token, position and type vectors added up,
        normed and projected as the model does. Of the tables only the rows needed are read.
        """
        embedding = self.spec.embedding
        weights = self.outer(backend)
        x = self._token_vectors(backend, tokens)
        if embedding.projection == "tokens":
            x = linear(backend, weights, "embed.project", x)
        x = self._add_positions(backend, tokens, x)
        if embedding.types:
            x = x + self._type_vectors(backend, tokens)
        if embedding.norm is not None:
            x = normalise(
                backend, embedding.norm, x, weights("embed.norm.weight"), weights("embed.norm.bias")
            )
        if embedding.projection == "sum":
            x = linear(backend, weights, "embed.project", x)
        # NumPy's bfloat16 is wider after a product with a plain number
        return backend.cast(x, backend.dtype)

    def embed_parts(self, backend: Backend, tokens: Sequence[Token]) -> list[EmbeddingVectors]:
        """The parts that `embed` adds up: rows of the token table, position vectors, type vectors, the
        norm's shift and the bias of a projection to the layers' width.
        """
        embedding = self.spec.embedding
        weights = self.outer(backend)
        x = self._token_vectors(backend, tokens)
        matrix = weights("embed.project.weight")

        def project(vectors: Array) -> Array:
            """Vectors brought to the width of the layers; as they are without a projection."""
            if matrix is None:
                return vectors
            return backend.matmul(vectors, backend.transpose(matrix))

        # a projection is applied to the token vectors, or in the end to the sum of all parts
        parts = [EmbeddingVectors("token", project(x) if embedding.projection == "tokens" else x)]
        project_bias = weights("embed.project.bias")
        if embedding.projection == "tokens" and project_bias is not None:
            parts.append(EmbeddingVectors("bias", project_bias))
        if embedding.positions is not None:
            # what is added to vectors of zeros are the position vectors alone
            positions = self._add_positions(backend, tokens, parts[0].vectors * 0.0)
            parts.append(EmbeddingVectors("position", positions))
        if embedding.types:
            parts.append(EmbeddingVectors("type", self._type_vectors(backend, tokens)))
        if embedding.norm is not None:
            parts = parts_through_norm(backend, embedding.norm, parts, weights)
        if embedding.projection == "sum":
            parts = [EmbeddingVectors(part.kind, project(part.vectors)) for part in parts]
            if project_bias is not None:
                parts.append(EmbeddingVectors("bias", project_bias))
        return parts

    def _token_vectors(self, backend: Backend, tokens: Sequence[Token]) -> Array:
        """The tokens' rows of the token table, [token, width], scaled."""
        ids = []
        for token in tokens:
            if token.id is None or not 0 <= token.id < self.spec.vocabulary:
                raise InputError(
                    "token {token} has the id {id}, the embedding has {vocabulary:,} rows",
                    expected="a tokenizer that belongs to this checkpoint",
                    token=repr(token.text),
                    id=token.id,
                    vocabulary=self.spec.vocabulary,
                )
            ids.append(token.id)
        return self._table_rows(backend, "tokens.weight", ids) * self.spec.embedding.scale

    def _type_vectors(self, backend: Backend, tokens: Sequence[Token]) -> Array:
        """The vectors of the tokens' types, [token, width]."""
        rows = token_types(tokens, self.spec.embedding.types)
        return self._table_rows(backend, "types.weight", rows)

    def _add_positions(self, backend: Backend, tokens: Sequence[Token], x: Array) -> Array:
        """x, [token, width], with the tokens' position vectors added as the embedding says. In a
        family with a padding row (RoBERTa), padding tokens get that row and are not counted."""
        embedding = self.spec.embedding
        padding_count = 0
        rows = []
        for token in tokens:
            if embedding.padding is not None and token.id == embedding.padding:
                padding_count += 1
                rows.append(embedding.padding)
            else:
                rows.append(embedding.position_offset + token.index - padding_count)
        read_vectors = partial(self._table_rows, backend, "positions.weight", rows)
        # without a table in the checkpoint, sines are computed
        stored = "positions.weight" in self.binding.outer
        return with_positions(backend, embedding, x, rows, read_vectors, stored=stored)

    def expect(self, layers: range) -> None:
        """Start to read these layers' tensors ahead, all but the feed-forward part of the last,
        which a run may not need."""
        self._deferred_layer = layers.stop - 1
        bindings: list[TensorBinding] = []
        for layer in layers:
            is_last = layer == self._deferred_layer
            for bound in self._bindings_in_order(layer):
                if not (is_last and bound.feeds):  # feeds: it is of the feed-forward part
                    bindings.append(bound)
        self._read_ahead(bindings)

    def _expect_feed_forward(self, layer: int) -> None:
        """Start to read the feed-forward part of this layer ahead if `expect` left it out."""
        if layer == self._deferred_layer:
            self._deferred_layer = -1
            self._read_ahead(bound for bound in self._bindings_in_order(layer) if bound.feeds)

    def _read_ahead(self, bindings: Iterable[TensorBinding]) -> None:
        """Start to read the tensors of these bindings ahead, in this order."""
        self.checkpoint.ahead([name for bound in bindings for name in bound.tensors])

    def layer(self, backend: Backend, index: int) -> Weights:
        """The weights of a layer by role; a matrix is read when it is asked for and not kept, so that
        one at a time is in memory; asked for again it is read again.

        Vectors such as biases are kept, and so are the other roles of a tensor that holds several,
        until they are asked for.
        """
        return _LayerWeights(self, backend, index)

    def outer(self, backend: Backend) -> Weights:
        """The weights outside the layers by role, read when they are asked for."""
        return _OuterWeights(self, backend)

    def bytes_read(self) -> int:
        """How many bytes of the checkpoint have been read so far."""
        return self.checkpoint.bytes_read

    def _read_once(self, backend: Backend, name: str, bound: TensorBinding) -> Array:
        """A tensor outside the layers or shared by all, read once and kept.

        name: the role.
        """
        kind = array_kind(backend)
        if (name, kind) not in self._outer_arrays:
            arrays = self._read_roles(backend, bound)
            self._outer_arrays |= {(role, kind): array for role, array in arrays.items()}
        return self._outer_arrays[name, kind]

    def _bindings_in_order(self, layer: int) -> list[TensorBinding]:
        """A layer's tensors in the order in which `run_block` asks for them."""
        roles = layer_roles(self.spec, self.spec.blocks[layer])
        order = {role.name: place for place, role in enumerate(roles)}

        def first_use(bound: TensorBinding) -> int:
            """The place in the order of the first role that a tensor plays; behind all for one that
            the run never asks for."""
            return min(order.get(role.name, len(order)) for role in bound.roles)

        bindings = [bound for bound in self.binding.layers[layer] if not bound.shared]
        return sorted(bindings, key=first_use)

    def _read_roles(self, backend: Backend, bound: TensorBinding) -> dict[str, Array]:
        """Read a binding's tensors; returns the array of each role that they play, by role."""
        arrays = [self.checkpoint.read(name, backend.dtype) for name in bound.tensors]
        return {role: backend.array(part) for role, part in bound.parts(arrays).items()}

    def _table_rows(self, backend: Backend, role: str, rows: Sequence[int]) -> Array:
        """These rows of the table that plays a role, [row, width]: from memory where the table or
        the rows have been read and kept, else from the file."""
        bound = self.binding.outer[role]
        name = bound.tensors[0]  # a table is one tensor

        # predictions may have read the whole table: no second copy of Gemma's 671 MB; a row that is
        # not there raises where the file is read
        whole = self._outer_arrays.get((role, array_kind(backend)))
        is_plain = bound.form == "whole" and not bound.transposed
        if whole is not None and is_plain and max(rows, default=0) < len(whole):
            return whole[list(rows)]

        if self._tables is None:  # a single run: nothing is kept
            return backend.array(self.checkpoint.read_rows(name, rows, backend.dtype))
        key = (name, backend.dtype)
        if key not in self._tables:
            count = self.checkpoint.info(name).shape[0]
            self._tables[key] = RowCache(
                partial(self.checkpoint.read_rows, name, dtype=backend.dtype), count
            )
        return backend.array(self._tables[key].rows(rows))


class _OuterWeights(TableWeights):
    """The weights of a checkpoint outside its layers, read when they are asked for."""

    def __init__(self, store: CheckpointStore, backend: Backend) -> None:
        self._store = store
        self._backend = backend

    def __call__(self, role: str, /) -> Array | None:
        """The whole weight that plays a role, read once and kept; None where there is none."""
        bound = self._store.binding.outer.get(role)
        if bound is None:
            return None
        return self._store._read_once(self._backend, role, bound)

    def has(self, role: str) -> bool:
        """Whether the checkpoint has such a weight."""
        return role in self._store.binding.outer

    def product(self, role: str, x: Array) -> Array | None:
        """x·Wᵀ, [..., row], computed while the table W is read from the file; None for one that is
        kept in memory, shares a tensor, is stored transposed or has another width than x: the caller
        then multiplies."""
        bound = self._store.binding.outer.get(role)
        if bound is None or not self._is_apart(role, bound):
            return None
        checkpoint = self._store.checkpoint
        name = bound.tensors[0]  # a table is one tensor
        if checkpoint.info(name).shape[1:] != x.shape[-1:]:
            return None
        product = checkpoint.product(name, x.reshape((-1, x.shape[-1])), self._backend)
        if product is None:
            return None
        return product.reshape((*x.shape[:-1], product.shape[-1]))

    def tiles(self, role: str) -> Iterator[Array] | None:
        """The rows of a large table, some at a time (`TILE` bytes), [row, width]; None for a table
        that is kept in memory, shares a tensor, is stored transposed, or is small."""
        bound = self._store.binding.outer.get(role)
        if bound is None or not self._is_apart(role, bound):
            return None
        name = bound.tensors[0]  # a table is one tensor
        shape = self._store.checkpoint.info(name).shape
        row_bytes = prod(shape[1:]) * ITEM[self._backend.dtype]
        if shape[0] * row_bytes < TILED_FROM:
            return None
        step = max(TILE // row_bytes, 1)  # at least one row, however wide
        return (
            self._store._table_rows(self._backend, role, range(start, min(start + step, shape[0])))
            for start in range(0, shape[0], step)
        )

    def rows(self, role: str, numbers: Sequence[int]) -> Array:
        """These rows of a table, [row, width]; no others are read where the table is a tensor of its
        own and not transposed."""
        bound = self._store.binding.outer[role]
        if bound.form == "whole" and not bound.transposed:
            return self._store._table_rows(self._backend, role, numbers)
        matrix = self._store._read_once(self._backend, role, bound)
        return matrix[list(numbers)]

    def _is_apart(self, role: str, bound: TensorBinding) -> bool:
        """Whether the rows of a table can be read from the file alone: it is a tensor of its own,
        not transposed, and neither kept in memory nor to be kept for many runs.
        """
        store = self._store
        key = (role, array_kind(self._backend))
        is_kept = store._tables is not None or key in store._outer_arrays
        return not is_kept and bound.form == "whole" and not bound.transposed


class _LayerWeights(ReadWeights):
    """The weights of one layer of a checkpoint, read when they are asked for."""

    def __init__(self, store: CheckpointStore, backend: Backend, index: int) -> None:
        self._store = store
        self._backend = backend
        self._index = index
        # by role: the binding of the tensors that hold it
        self._bindings = {
            role.name: bound for bound in store.binding.layers[index] for role in bound.roles
        }
        # by role: what the family multiplies its weight by
        self._factors = store.spec.blocks[index].factors
        # by role: vectors, and matrices not asked for yet
        self._arrays: dict[str, Array] = {}
        # of the last product with a tensor of several roles: the vectors that were multiplied (None
        # before the first), and the columns of the result by role
        self._multiplied_vectors: Array | None = None
        self._columns: dict[str, Array] = {}

    def __call__(self, role: str, /) -> Array | None:
        """The weight that plays a role; None where the layer has none. A matrix is not kept: asked
        for again it is read again."""
        bound = self._bindings.get(role)
        arrays = self._arrays
        if bound is None:
            return None
        if bound.shared:
            return self._store._read_once(self._backend, role, bound)
        if role not in arrays:
            if bound.feeds:  # now the feed-forward part of the last layer is worth reading ahead
                self._store._expect_feed_forward(self._index)
            # a tensor may hold several roles: those not asked for yet wait in `arrays`
            for name, array in self._store._read_roles(self._backend, bound).items():
                arrays[name] = array if name not in self._factors else array * self._factors[name]
        if arrays[role].ndim == 2:
            return arrays.pop(role)
        return arrays[role]  # a vector is small and stays

    def product(self, name: str, x: Array, backend: Backend) -> Array | None:
        """x·Wᵀ + b, [row, out], computed while W is read from the file; None where W is shared by all
        layers, lies in a tensor for each expert or head, or is multiplied by a factor of the family:
        the caller then takes W as an array and multiplies itself.

        name: of the module, such as "attn.q". x: [..., row, in].
        """
        role = f"{name}.weight"
        bound = self._bindings.get(role)
        bias = self(f"{name}.bias")
        if bound is None or bound.shared or bound.form in ("stacked", "each"):
            return None
        if self._factors and any(part.name in self._factors for part in bound.roles):
            return None
        if bound.feeds:  # now the feed-forward part of the last layer is worth reading ahead
            self._store._expect_feed_forward(self._index)
        # one large product, not one for each entry of a batch
        flat = x.reshape((-1, x.shape[-1])) if x.ndim > 2 else x
        multiply = partial(
            self._store.checkpoint.product, bound.tensors[0], flat, backend, in_out=bound.transposed
        )
        if bound.form == "whole":
            return multiply(bias)

        # a tensor of several roles, as q, k and v: one product serves all that are asked for with
        # the same vectors; the columns of the roles not asked for yet are kept
        if self._multiplied_vectors is not x or role not in self._columns:
            product = multiply()
            if product is None:
                return None
            self._columns = bound.columns(product)
            self._multiplied_vectors = x
        result = self._columns.pop(role)
        if bias is None:
            return result
        return result + bias


# `RowCache`: the rows of a table that have been asked for, read once each and kept.

Rows = np.ndarray[Any, Any]


class RowCache:
    """Keeps rows of a table of `count` rows once they are read.

    read_rows: reads the rows with these numbers, in order; raises for one outside the table.
    """

    def __init__(self, read_rows: Callable[[Sequence[int]], Rows], count: int) -> None:
        self._read_rows = read_rows
        self._present = np.zeros(count, np.bool_)  # which rows have been read
        self._rows: Rows | None = None

    def rows(self, numbers: Sequence[int]) -> Rows:
        """The rows with these numbers, in this order."""
        indices = np.asarray(numbers, np.int64)
        # no rows, or one outside the table, for which reading raises
        if indices.size == 0 or indices.min() < 0 or indices.max() >= self._present.size:
            return self._read_rows(numbers)
        missing = np.unique(indices[~self._present[indices]])
        if missing.size:
            new = self._read_rows(missing.tolist())
            # as large as the table, but the system gives memory only where rows are written
            if self._rows is None:
                self._rows = np.empty((self._present.size, *new.shape[1:]), new.dtype)
            self._rows[missing] = new
            self._present[missing] = True
        assert self._rows is not None  # some row has been read by now
        result: Rows = self._rows[indices]
        return result


# `CachedStore`: a model's weights kept in memory, for many texts one after the other.


class CachedStore:
    """A `Store` around another that keeps every weight of a layer in memory once it is read.
    Threads may share it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # by layer and kind of array: the weights by role, and what multiplies by them by module
        self._layers: dict[
            tuple[int, ArrayKind], tuple[dict[str, Array | None], dict[str, Multiplier | None]]
        ] = {}
        self._reading = Lock()

    @property
    def row_by_row(self) -> bool:
        """Whether a token's embedding depends on that token and its index alone, as the wrapped
        store says.
        """
        return self._store.row_by_row

    def embed(self, backend: Backend, tokens: Sequence[Token]) -> Array:
        """The vectors that enter layer 0, from the wrapped store; one thread at a
        time.
        """
        with self._reading:
            return self._store.embed(backend, tokens)

    def embed_parts(self, backend: Backend, tokens: Sequence[Token]) -> list[EmbeddingVectors]:
        """The parts of what enters layer 0, from the wrapped store."""
        return self._store.embed_parts(backend, tokens)

    def expect(self, layers: range) -> None:
        """Does nothing: weights that are kept need no reading ahead."""

    def layer(self, backend: Backend, index: int) -> Weights:
        """The weights of a layer, each read from the store once for all runs."""
        arrays, multipliers = self._layers.setdefault((index, array_kind(backend)), ({}, {}))
        return _CachedWeights(self._store.layer(backend, index), arrays, multipliers, self._reading)

    def outer(self, backend: Backend) -> Weights:
        """The weights outside the layers, which the store keeps itself."""
        return self._store.outer(backend)

    def bytes_read(self) -> int:
        """How many bytes the wrapped store has read so far."""
        return self._store.bytes_read()


Multiplier = Callable[[Array, Array | None], Array]


class _CachedWeights(ReadWeights):
    """The weights of one layer, kept once they are read: as an array, or as an object that
    multiplies by the matrix.
    """

    def __init__(
        self,
        weights: Weights,
        arrays: dict[str, Array | None],
        multipliers: dict[str, Multiplier | None],
        reading: Lock,
    ) -> None:
        """The weights of a layer, of which those that were read are kept.

        weights: gives those that were not. arrays, multipliers: what is kept, for all runs, by role
            and by module.
        reading: held while a weight is read, as threads share these.
        """
        self._weights = weights
        self._arrays = arrays
        self._multipliers = multipliers
        self._reading = reading

    def __call__(self, role: str, /) -> Array | None:
        """The weight that plays a role, read at the first call; None where there is none."""
        if role not in self._arrays:
            with self._reading:
                if role not in self._arrays:  # another thread may have read it meanwhile
                    self._arrays[role] = self._weights(role)
        return self._arrays[role]

    def product(self, name: str, x: Array, backend: Backend) -> Array | None:
        """x·Wᵀ + b, [row, out], by a multiplier (the matrix laid out for fast products) made
        once for this weight; None where the backend has none: the caller then multiplies."""
        bias = self(f"{name}.bias")
        if name not in self._multipliers:
            with self._reading:
                if name not in self._multipliers:
                    self._multipliers[name] = self._multiplier(f"{name}.weight", backend)
        multiply = self._multipliers[name]
        if multiply is None:
            return None
        # one large product, not one for each entry of a batch
        if x.ndim > 2:
            x = x.reshape((-1, x.shape[-1]))
        return multiply(x, bias)

    def _multiplier(self, role: str, backend: Backend) -> Multiplier | None:
        """The backend's object that multiplies by a role's matrix; None where the role has no
        weight, or the backend has no such object. The matrix itself is then kept."""
        if role in self._arrays:
            weight = self._arrays[role]
        else:
            weight = self._weights(role)
        if weight is None:
            multiply = None
        else:
            multiply = backend.multiplier(weight)
        if multiply is None:
            self._arrays[role] = weight
        return multiply


def hold_weights(model: Model) -> Model:
    """The model with a store that keeps a checkpoint's weights in memory once they are read, for
    many runs; the model unchanged where it has no checkpoint, or keeps them already."""

    def with_kept_weights(store: Store | None) -> Store | None:
        """The store, wrapped so that weights stay in memory once they are read, if it reads a
        checkpoint; any other store, or None, unchanged.
        """
        if not isinstance(store, CheckpointStore):
            return store
        store.for_many()
        return CachedStore(store)

    store = with_kept_weights(model.store)
    assert store is not None  # for the type checker: a model has a store
    if store is model.store:
        return model
    return replace(
        model,
        store=store,
        decoder_store=with_kept_weights(model.decoder_store),
        kept_bytes=held_bytes(model),
    )


def held_bytes(model: Model) -> int:
    """How many bytes the weights of a model's checkpoint take in memory where they are kept, in the
    type that it computes in; 0 for other weights."""
    stores = [store for store in (model.store, model.decoder_store) if store is not None]
    checkpoints = {
        id(store.checkpoint): store.checkpoint
        for store in stores
        if isinstance(store, CheckpointStore)
    }
    # encoder and decoder of one model share a checkpoint, which counts once
    numbers = 0
    for checkpoint in checkpoints.values():
        numbers += sum(prod(info.shape) for info in checkpoint.names().values())
    return numbers * ITEM[model.backend.dtype]


TYPICAL_TOKENS = 16
"""Tokens of the short sentence for which "auto" weighs the backends: the text is not known yet."""
MANY_TEXTS = 100
"""Texts that weights are held for, as far as "auto" is concerned: torch repays its import."""


@checked
def load(
    name_or_dir: str | Path | None = None,
    *,
    weights: str | Path | None = None,
    seed: int | None = None,
    d_model: int | None = None,
    heads: int | None = None,
    d_k: int | None = None,
    d_v: int | None = None,
    mask: str | Array | None = None,
    scale: str | float | None = None,
    position: str = "none",
    embeddings: Array | None = None,
    tokenizer: str = "word",
    backend: str = "auto",
    device: str | None = None,
    dtype: str = "float32",
    ignore: Collection[str] = (),
    adapters: Sequence[str] = (),
    hold: bool = False,
    note: Callable[[str], None] | None = lambda message: None,
    watch: Watch | None = None,
    variables: Mapping[str, str] | None = None,
    limit: MemoryBudget | None = None,
) -> Model:
    """Load a model by name, folder or weight file, or make a one-layer model with seeded weights; a
    checkpoint's weights are read when it runs.

    Args:
        name_or_dir: A folder in Hugging Face layout, a hub id, or an alias such as "minilm".
            Without it and without `weights` the weights are seeded.
        weights: A weight file.
        seed: Of seeded weights, and of embeddings that a weight file does not hold; None for 0, or
            for the file's own.
        d_model: The width of seeded weights, and of a weight file's vectors.
        heads: How many heads seeded weights, or a weight file's matrices, have.
        d_k: The width of a head's queries and keys; None for d_model / heads, or the file's.
        d_v: The width of a head's values; None for d_model / heads, or the file's.
        mask: Of seeded weights and weight files, as `--mask` has it: "causal", "window:2", several
            joined by "&"; or a matrix [query, key] or [head, query, key], 0 or False where a key is
            hidden. None for no mask; a causal buffer in a file is told and not applied.
        scale: What q·k is multiplied by: "sqrt-dk" for 1/√d_k, "sqrt-dmodel", "none" or a number;
            None for 1/√d_k, or what the file's class uses.
        position: How seeded weights and weight files see order: "none", "sinusoidal", "learned",
            "alibi", "rope" or "rope:THETA".
        embeddings: The X of exactly the text that will run, [token, d_model], in place of vectors
            from the seed or the file.
        tokenizer: Of seeded weights and weight files: "word", "whitespace", "char", "byte", or a
            tokenizer.json.
        backend: "auto", "numpy" or "torch".
        device: A device of torch's, such as "cuda"; None for the CPU.
        dtype: "float32", "float64", "bfloat16" or "float16".
        ignore: Keys of config.json to run without.
        adapters: Folders of PEFT's adapters, each perhaps with a weight ("DIR:0.5"), merged in this
            order as layers are read.
        hold: Whether a checkpoint's weights stay in memory once they are read, for many texts one
            after the other (`Model.traces`), which "auto" takes torch for where it is installed;
            else each is let go when it has been used.
        note: Called with a sentence on what is being fetched; None for silence, of progress bars
            too.
        watch: Called with each file that is fetched and the share of it that is there, in place of
            progress bars.
        variables: Where HF_HUB_CACHE, HF_HUB_OFFLINE, HF_ENDPOINT and their like are looked up;
            None for the process's.
        limit: What the weights of a model that transformers runs may take of memory, all at once;
            None for what is free.

    Returns:
        The model, whose `trace(text)` yields its layers. Its `warnings` hold what the command prints
        as notes (how a weight file was read, what was assumed), and so do the `warnings` of every
        document made with it.

    Raises:
        InputError: For files that are damaged or do not fit together.
        UnsupportedError: For what is not implemented.
        UsageError: For a contradictory call.
        LimitError: For a model that transformers runs and that takes more memory than `limit`,
            before anything of it is read.
    """
    if name_or_dir is None and adapters:
        raise UsageError(
            "an adapter changes a checkpoint, and none is loaded",
            expected="a checkpoint's name as well",
        )
    if name_or_dir is None:
        return _one_layer_model(
            weights,
            seed,
            OwnSizes(d_model, heads, d_k, d_v),
            _attention_settings(mask, scale, position, seed or 0),
            _own_embeddings(embeddings),
            tokenizer_named(tokenizer),
            choose(backend, device=device, dtype=dtype),
        )

    # a checkpoint: options of the one-layer model contradict it
    one_layer_options = (weights, seed, d_model, heads, d_k, d_v, mask, scale, embeddings)
    if any(value is not None for value in one_layer_options) or position != "none":
        raise UsageError(
            "a checkpoint brings its own weights, sizes, mask, scale and positions",
            expected="a checkpoint's name alone, or weights=, seed=, d_model=",
        )
    # a model that cannot run is refused as soon as its config.json is there
    fetch = Fetch(note, lambda folder: refuse_unknown(folder, ignore), watch=watch)
    location = locate(str(name_or_dir), variables=variables, fetch=fetch)
    whole_checkpoint = open_checkpoint(location.folder)
    adapter_labels: tuple[str, ...] = ()
    if adapters:
        from attncli.inputs.adapter import merge_adapters, parse_adapter

        whole_checkpoint = merge_adapters(
            whole_checkpoint, [parse_adapter(adapter) for adapter in adapters]
        )
        adapter_labels = whole_checkpoint.adapters
    checkpoint = text_model(whole_checkpoint)

    # a family that attn does not implement itself, and the installed transformers does
    foreign_kind = foreign_family(checkpoint)
    if foreign_kind is not None:
        if backend == "numpy" or ignore:
            if backend == "numpy":
                what = message("the numpy backend")
            else:
                what = message("keys of config.json to ignore")
            raise UnsupportedError(
                "models of the family {foreign_kind} run through transformers, which has no use for"
                " {what}",
                foreign_kind=repr(foreign_kind),
                what=what,
            )
        library.refuse_held(checkpoint, foreign_kind, dtype, limit or free_memory())
        from attncli.models.transformers_engine import load_foreign

        return load_foreign(
            checkpoint,
            foreign_kind,
            location.name,
            tokenizer_of(checkpoint),
            device=device,
            dtype=dtype,
            adapters=adapter_labels,
        )

    spec, model_family, warnings = read_spec(checkpoint, ignore)
    binding, decoder_binding = bind(spec, model_family, checkpoint.names(), str(checkpoint.folder))
    # "auto" chooses by the multiply-adds: about one for each parameter and token; most checkpoints
    # store a parameter in two bytes
    parameters = sum(info.bytes for info in checkpoint.names().values()) // 2
    work = parameters * TYPICAL_TOKENS * (MANY_TEXTS if hold else 1)
    chosen_backend = choose(backend, device=device, dtype=dtype, work=work)

    decoder_store = None
    if spec.decoder is not None and decoder_binding is not None:
        decoder_store = CheckpointStore(spec.decoder, checkpoint, decoder_binding)
    model = Model(
        spec,
        CheckpointStore(spec, checkpoint, binding),
        tokenizer_of(checkpoint),
        chosen_backend,
        Identity(
            "checkpoint",
            location.name,
            spec.family,
            quantization=checkpoint.quantization,
            adapters=adapter_labels,
        ),
        warnings=(*checkpoint.notes, *warnings, *spec.layer_notes()),
        decoder_store=decoder_store,
        ends=end_token_ids(whole_checkpoint),  # the config of a part may not state them
    )
    if hold:
        return hold_weights(model)
    return model


def load_tokenizer(
    name: str,
    *,
    note: Callable[[str], None] | None = lambda message: None,
    watch: Watch | None = None,
    variables: Mapping[str, str] | None = None,
) -> Tokenizer:
    """A checkpoint's tokenizer, without its weights, which are neither fetched nor checked.

    Args:
        name: A folder in Hugging Face layout, a GGUF file, a hub id or an alias.
        note: Called with a sentence on what is being fetched; None for silence, of progress bars
            too.
        watch: Called with each file that is fetched and the share of it that is there.
        variables: The environment's variables; None for those of the process.

    Raises the errors of `load`.
    """
    location = locate(
        name, variables=variables, fetch=Fetch(note, parts=Parts.TOKENIZER, watch=watch)
    )
    file = gguf_file(location.folder)
    if file is not None:
        from attncli.models.gguf import vocabulary_of

        return vocabulary_of(file)
    # of config and tensors nothing is needed
    return tokenizer_of(Checkpoint(location.folder.resolve(), config={}, tensors={}))


def open_checkpoint(place: Path, tensors: Mapping[str, TensorInfo] | None = None) -> Checkpoint:
    """The checkpoint at a place: a folder in Hugging Face layout, or a GGUF file, in a folder or by
    itself. Quantised weights (GPTQ, AWQ and so on) are unpacked as they are read.

    tensors: names, types and shapes, where only the headers of the weight files were fetched; None
        for weights that are there. Raises as `Checkpoint.open` and `open_gguf`.
    """
    file = gguf_file(place)
    if file is None:
        described = Checkpoint.describe(place, packed=True)  # quantised weights are no error here
        if not is_packed(described.config):
            return _with_usual_names(Checkpoint.open(place, tensors))
        from attncli.inputs.packed_checkpoint import open_packed

        return _with_usual_names(open_packed(described.folder, described.config, tensors))
    from attncli.models.gguf import open_gguf

    return open_gguf(file)


def describe_checkpoint(place: Path) -> Checkpoint:
    """The checkpoint at a place without its tensors: of a folder only config.json is read; a GGUF
    file is opened as for a run. Raises as `open_checkpoint`.
    """
    if gguf_file(place) is not None:
        return open_checkpoint(place)
    described = Checkpoint.describe(place, packed=True)  # quantised weights are no error here
    if is_packed(described.config):
        from attncli.inputs.packed_checkpoint import check_method

        check_method(described.config, str(place))
        described.config = without_packing(described.config)
    return _with_usual_names(described)


WRAPPER = "module."
"""What torch puts before every name of a module that runs on several devices."""
INNER_MODEL = "model."
"""How the names of a model begin that another module holds, and a decoder's without its head."""
WRAPPED_PARTS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""What torch puts between the names of modules where one is compiled, spread over devices or
computed again: parts of a name that say nothing of the model."""


def _with_usual_names(checkpoint: Checkpoint) -> Checkpoint:
    """A checkpoint under its family's own name (`ALSO_CALLED`), with tensor names that lack the
    parts which wrapper modules add.
    """
    kind = checkpoint.config.get("model_type")
    if isinstance(kind, str) and kind in ALSO_CALLED:
        checkpoint.config = {**checkpoint.config, "model_type": ALSO_CALLED[kind]}

    short_names = {_without_wrappers(name): name for name in checkpoint.names()}
    if len(short_names) < len(checkpoint.names()):
        return checkpoint  # two tensors come to one name: leave all as they are
    # wrappers may be nested: "module.module.h.0.attn.c_attn.weight"
    while wrapper := _wrapper_of(short_names):
        short_names = {name.removeprefix(wrapper): old for name, old in short_names.items()}
    if all(name == old for name, old in short_names.items()):
        return checkpoint
    part = checkpoint.part(short_names, checkpoint.config)  # the file's name by the short one
    part.notes = checkpoint.notes
    return part


def _wrapper_of(names: Collection[str]) -> str:
    """The prefix that a wrapper module puts before the name of every tensor, such as "module."; ""
    for none. A training module that holds the whole model as `model`, as Lightning's do, is
    recognised by names that begin with "model." twice."""
    if names and all(name.startswith(WRAPPER) for name in names):
        return WRAPPER
    is_inside = all(name.startswith(INNER_MODEL) for name in names)
    if is_inside and any(name.startswith(2 * INNER_MODEL) for name in names):
        return INNER_MODEL
    return ""


def _without_wrappers(name: str) -> str:
    """The name of a tensor without the parts that torch's wrapper modules put into it, such as
    "_orig_mod"."""
    return ".".join(part for part in name.split(".") if part not in WRAPPED_PARTS)


def refuse_unknown(folder: Path, ignore: Collection[str] = ()) -> None:
    """Raise the error of `load` for a model that attn cannot run, judged by config.json alone, before
    its weights are fetched.

    folder: where config.json is. ignore: keys of it to leave out.
    """
    checkpoint = describe_checkpoint(folder)
    if foreign_family(checkpoint) is None:
        read_spec(checkpoint, ignore)


def read_spec(
    checkpoint: Checkpoint, ignore: Collection[str] = ()
) -> tuple[Spec, Family, tuple[str, ...]]:
    """The Spec that a checkpoint's config describes, its family, and warnings about keys that play
    no part.

    Raises UnsupportedError for a family or a setting that is not implemented, InputError for values
    that make no sense.
    """
    if checkpoint.format == "gguf":
        from attncli.models.gguf import GgufCheckpoint

        assert isinstance(checkpoint, GgufCheckpoint)  # which alone has this format
        return checkpoint.spec(ignore)
    where = str(checkpoint.folder / "config.json")
    kind = checkpoint.config.get("model_type")
    if not isinstance(kind, str):
        raise no_family(checkpoint.folder, _family_of_class(checkpoint.config))
    model_family = family(kind)
    if model_family is None:
        raise _family_refusal(kind, where)
    config = config_without(checkpoint.config, ignore, where)
    spec = model_family.spec(config)
    # settings that any family may have: no causal mask, and the number of positions
    spec = with_stated_positions(config, seen_both_ways(config, spec))
    if not spec.attending():
        raise UnsupportedError(
            "no layer of this {family} model attends",
            where=where,
            expected="layers with attention",
            family=repr(kind),
        )
    warnings = tuple(
        message("config.json's {key} was ignored, as asked", key=key) for key in ignore
    )
    # last, when all keys that play a part have been read: the others are refused or warned of
    return spec, model_family, warnings + settle(config, model_family.fixed)


def foreign_family(checkpoint: Checkpoint) -> str | None:
    """The checkpoint's `model_type` if only the installed transformers can run it, not attn's own
    code; else None.
    """
    kind = checkpoint.config.get("model_type")
    if isinstance(kind, str) and library.knows_family(kind) and family(kind) is None:
        return kind
    return None


def _family_of_class(config: Mapping[str, Any]) -> str:
    """The family that a config's class name tells, "llama" for LlamaForCausalLM; "" where it tells
    none."""
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else ""
    if not isinstance(name, str):
        return ""
    # LlamaForCausalLM → llama, GPT2LMHeadModel → gpt2, BertModel → bert
    short_name = re.sub(r"(For[A-Z]\w*|LMHeadModel|Model)$", "", name).lower()
    return next((kind for kind in MODEL_TYPES if kind.replace("_", "") == short_name), "")


def _family_refusal(kind: str, where: str) -> UnsupportedError:
    """Return, not raise, the UnsupportedError for a family that attn's own code does not run."""
    family_name = repr(kind)
    hint = ""
    if library.knows_family(kind):
        what = message(
            "models of the family {kind} run through transformers, which keeps what their layers do"
            " to itself",
            kind=family_name,
        )
        hint = message("attn run and attn heads run it")
    elif find_spec("transformers") is not None:
        what = message("neither attn nor transformers knows the family {kind}", kind=family_name)
    else:
        what = message("models of the family {kind} do not run natively", kind=family_name)
        hint = install_command("transformers")
    nearest = get_close_matches(kind.lower(), MODEL_TYPES, n=3, cutoff=0.6)
    expected = message("one of the {count} families of attn models list", count=len(MODEL_TYPES))
    if nearest:
        expected = message("{families}, the nearest", families=listing(nearest))
    return UnsupportedError(what, where=where, expected=expected, hint=hint or "attn models list")


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer:
    """The tokenizer of a checkpoint; if it has none, a tokenizer that accepts token ids only."""
    if checkpoint.format == "gguf":
        from attncli.models.gguf import GgufCheckpoint

        assert isinstance(checkpoint, GgufCheckpoint)  # which alone has this format
        return checkpoint.tokenizer()
    name = checkpoint.vocabulary_name
    if name is None:
        return IdsOnly(str(checkpoint.folder))
    if name == "tokenizer.json":
        return tokenizer_named(str(checkpoint.tokenizer_path))
    # vocab.txt, vocab.json with merges.txt, a SentencePiece model
    from attncli.inputs.separate_vocabulary import read_vocabulary

    return read_vocabulary(checkpoint.folder) or IdsOnly(str(checkpoint.folder))


class OwnSizes(Struct, frozen=True):
    """The sizes that `load` is given for seeded weights or a weight file, None where it is given
    none.
    """

    d_model: int | None
    heads: int | None
    d_k: int | None
    d_v: int | None


def _one_layer_model(
    weights: str | Path | None,
    seed: int | None,
    sizes: OwnSizes,
    attention_settings: Settings,
    embedding: np.ndarray[Any, Any] | None,
    tokenizer: Tokenizer,
    backend: Backend,
) -> Model:
    """The one-layer model with the weights of a file, or seeded ones.

    weights: the file; None for seeded weights.
    seed: of those, and of embeddings that a file does not hold; None for 0, or the file's own.
    sizes: what the caller states.
    attention_settings: the settings besides the sizes: mask, scale and positions.
    embedding: the vectors of exactly the text that will run, [token, d_model]; None for none.
    """
    stated = {name: size for name, size in asdict(sizes).items() if size is not None}
    settings = replace(attention_settings, **stated)
    if weights is not None:
        from attncli.models.layout import LayoutRequest
        from attncli.models.weight_file import model_of, read_weight_file

        request = LayoutRequest(**stated)
        if embedding is not None:
            request = replace(request, input_width=embedding.shape[-1])
        weight_file = read_weight_file(Path(weights), request)
        return model_of(
            weight_file,
            Path(weights).name,
            tokenizer,
            backend,
            settings,
            seed=seed,
            embedding=embedding,
        )
    from attncli.models.one_layer import seeded_model

    return seeded_model(settings, seed or 0, "seeded", tokenizer, backend, embedding=embedding)


def _attention_settings(
    mask: str | Array | None, scale: str | float | None, position: str, seed: int
) -> Settings:
    """The settings of a one-layer model's mask, scale and positions, as `load` is called with them;
    its sizes are not set yet.

    seed: of a mask's random parts.
    """
    from attncli.models.one_layer import Settings

    settings = Settings(position=position, mask=_mask_of(mask, seed))
    if scale is None:
        return settings
    return replace(settings, scale=str(scale))


def _mask_of(mask: str | Array | None, seed: int) -> Mask:
    """The Mask for the argument `mask` of `load`: a text such as "causal&window:2", or a matrix that
    is 0 or False where a key is hidden; None sees everything.

    seed: of a mask's random parts. Raises UsageError for a text that names no mask, InputError for
    a matrix of another shape.
    """
    from attncli.mechanism.mask import Everywhere, MatrixMask, intersection, parse_mask

    if mask is None:
        return Everywhere()
    if isinstance(mask, str):
        return intersection(*(parse_mask(part.strip(), seed=seed) for part in mask.split("&")))
    values = np.asarray(mask)
    if not 1 <= values.ndim <= 3 or values.size == 0:
        raise InputError(
            "mask has shape {shape}",
            expected="[query, key], [key] or [head, query, key]",
            shape=list(values.shape),
        )
    return MatrixMask(values != 0)


def _own_embeddings(embeddings: Array | None) -> np.ndarray[Any, Any] | None:
    """The argument `embeddings` of `load` as a matrix [token, d_model]; None for None. Raises
    InputError for another shape and for numbers that are not finite."""
    if embeddings is None:
        return None
    vectors = np.asarray(embeddings)
    if vectors.ndim != 2 or vectors.size == 0:
        raise InputError(
            "embeddings have shape {shape}", expected="[token, d_model]", shape=list(vectors.shape)
        )
    if not np.isfinite(vectors).all():
        raise InputError("embeddings hold NaN or an infinite number", expected="finite numbers")
    return vectors


# Models of text and images, of which the text model is what reads text: its config and its tensors
# by themselves.

TEXT_PREFIXES = (
    "model.language_model.",
    "language_model.model.",
    "language_model.",
    "model.text_model.",
)
"""Where the text model's tensors stand, the longest first; its output head may stand outside."""
OTHER_PREFIXES = ("visual.", "model.visual.")
"""Where, in models that keep the text model's tensors at the top, those of another part stand."""
HEAD_PREFIX = "lm_head."
NEEDED_KEYS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
"""What a config of a text model must say to be read without the library that wrote it."""


def text_model(checkpoint: Checkpoint) -> Checkpoint:
    """A checkpoint reduced to its text model, where that is one part of several (as with images);
    else the checkpoint itself.

    Its tensors go by the names that they have in the text model alone. `notes` say what was left
    out. Nothing is read.
    """
    kind = checkpoint.config.get("model_type")
    stored_names = checkpoint.names()
    # a config that describes a text model: its tensors may still go by the names of a larger model
    if kind in MODEL_TYPES or not {"vision_config", "text_config"} & checkpoint.config.keys():
        return _text_alone(checkpoint)

    # the tensors that belong to the text model: by the name there, the name in the checkpoint
    text_has_prefix = any(name.startswith(TEXT_PREFIXES) for name in stored_names)
    image_has_prefix = any(name.startswith(OTHER_PREFIXES) for name in stored_names)
    text_names: dict[str, str] = {}
    for name in stored_names:
        text_name = _name_in_text_model(
            name, text_has_prefix=text_has_prefix, image_has_prefix=image_has_prefix
        )
        if text_name is not None:
            text_names[text_name] = name

    config = None
    if text_names or not stored_names:  # (no tensors at all where only the config is there)
        config = text_config(checkpoint.config)
    if config is None:  # the caller refuses it by the name of the whole model
        return checkpoint
    part = checkpoint.part(text_names, config)
    unused_count = len(stored_names) - len(text_names)
    part.notes = (
        *checkpoint.notes,
        message(
            "this is the text model ({model_type}) of a {kind}; {unused_count:,} tensors of other"
            " parts are not used",
            model_type=config["model_type"],
            kind=kind,
            unused_count=unused_count,
        ),
    )
    return part


NESTED_PREFIX = "model.language_model."
"""Where whole models keep the text model, also in folders from which the rest was taken out."""


def _text_alone(checkpoint: Checkpoint) -> Checkpoint:
    """A text model's checkpoint with its tensors renamed where they stand under the name of a
    larger model, "model.language_model.layers.0…" as "model.layers.0…"; the checkpoint itself where
    any tensor but the output head's lies elsewhere.
    """
    stored_names = checkpoint.names()
    outside = [name for name in stored_names if not name.startswith((NESTED_PREFIX, HEAD_PREFIX))]
    if outside or not any(name.startswith(NESTED_PREFIX) for name in stored_names):
        return checkpoint
    short_names = {name.replace(NESTED_PREFIX, "model.", 1): name for name in stored_names}
    part = checkpoint.part(short_names, checkpoint.config)
    part.notes = checkpoint.notes
    return part


def text_config(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The config of the text model inside a multimodal model's config; None where there is none. One
    that leaves out sizes gets the defaults of the installed transformers.
    """
    # the config that the checkpoint states, if it says all that is needed
    inner = config.get("text_config")
    stated_config = dict(inner) if isinstance(inner, dict) else {}
    text_kind = stated_config.get("model_type")
    has_sizes = all(key in stated_config for key in NEEDED_KEYS)
    if has_sizes and isinstance(text_kind, str) and _is_known(text_kind):
        return _tie_embeddings(config, stated_config)

    # else the one that transformers makes of the whole model's config
    kind = config.get("model_type")
    if not isinstance(kind, str) or not library.knows_family(kind):
        return None
    transformers = library.import_transformers()
    try:
        settings = transformers.CONFIG_MAPPING[kind].from_dict(dict(config)).get_text_config()
        # with all keys, not only those that differ from the defaults
        full_config: dict[str, Any] = json.loads(settings.to_json_string(use_diff=False))
    except (AttnError, MemoryError):
        raise
    # transformers may raise any exception on a config that it does not expect; the user gets an
    # error when the model is built
    except Exception:
        return None
    if isinstance(full_config.get("model_type"), str):
        return _tie_embeddings(config, full_config)
    return None


def _is_known(kind: str) -> bool:
    """Whether attn or the installed transformers knows a `model_type`; imports nothing."""
    return kind in MODEL_TYPES or library.knows_family(kind) or family(kind) is not None


def _tie_embeddings(config: Mapping[str, Any], text: dict[str, Any]) -> dict[str, Any]:
    """The text model's config with `tie_word_embeddings` (whether the output head is the token table)
    true if it is true in this config or in the whole model's, else false; left unset if neither
    states it, as families have defaults of their own.

    config: the whole model's. text: the text model's.
    """
    stated_values = [
        part["tie_word_embeddings"] for part in (config, text) if "tie_word_embeddings" in part
    ]
    if stated_values:
        return {**text, "tie_word_embeddings": any(stated_values)}
    return text


def _name_in_text_model(name: str, *, text_has_prefix: bool, image_has_prefix: bool) -> str | None:
    """A tensor's name in the text model alone, from its name in a model of text and images; None for
    a tensor of another part.

    text_has_prefix: whether any of the model's tensors begins with the text model's prefix,
        "language_model." or so.
    image_has_prefix: whether any begins with the image model's, "visual." or so.
    """
    for prefix in TEXT_PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    if name.startswith(HEAD_PREFIX):  # the head belongs to the text model wherever it stands
        return name
    # without any prefix nothing tells whose tensor it is
    if text_has_prefix or not image_has_prefix or name.startswith(OTHER_PREFIXES):
        return None
    # the first Qwen-VL: only the image model has a prefix
    return name.removeprefix("model.")


# The tokens at which a checkpoint's own texts end.


def end_token_ids(checkpoint: Checkpoint) -> frozenset[int]:
    """The `eos_token_id` of generation_config.json, or of config.json where that says nothing: one
    id, several or none.

    What is no token id is passed over. Raises InputError for a generation_config.json that is no
    JSON object.
    """
    path = guarded_path(checkpoint.folder, GENERATION)
    if is_there(path):  # in which transformers writes infinity as a tag, {"__float__": "Infinity"}
        generation = read_object(path, what="how a model continues texts", with_tags=True)
    else:
        generation = {}
    for values in (generation, checkpoint.config):
        value = values.get("eos_token_id")
        if isinstance(value, list):
            ids = value
        else:
            ids = [value]
        # not isinstance: True and False are no token ids
        end_ids = frozenset(token_id for token_id in ids if type(token_id) is int)
        if end_ids:
            return end_ids
    return frozenset()
