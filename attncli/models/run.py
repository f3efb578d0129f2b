"""Running a model: embeddings, then layer after layer with the weights fetched when each is
reached, then the head.

Branches are runs of one text that differ from its own from some layer's attention on. They share
what lies below their change, and each layer's weights. Where a text is read from left to right,
tokens before the first changed one are not computed again: their keys and values are those of the
text's own run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Literal, NamedTuple, Protocol, assert_never

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import Array, Backend
from attncli.arrays.numpy_backend import NumpyBackend, cores, share_work
from attncli.errors import InputError, UnsupportedError
from attncli.inputs.token import Token
from attncli.language import message
from attncli.mechanism.attend import rows_within
from attncli.mechanism.block import run_block
from attncli.mechanism.context import (
    Context,
    Intervention,
    Interventions,
    Kind,
    Past,
    ReadWeights,
    Replace,
    TableWeights,
    Weights,
    hold_weights,
)
from attncli.mechanism.feed_forward import LayerPart, activate, linear_if_any, normalise
from attncli.mechanism.projection import keeps_angles, sinusoidal, timescales
from attncli.mechanism.spec import Block, Embedding, Head, Norm, Spec
from attncli.mechanism.trace import LayerTrace


class EmbeddingVectors(NamedTuple):
    """A part of what enters layer 0: vectors [token, width], or one for all tokens, [width]. "norm"
    is the shift of the embeddings' norm, "bias" that of their projection."""

    kind: Literal["token", "position", "type", "bias", "norm"]
    vectors: Array


class Store(Protocol):
    """Where a model's weights come from, read by role, one layer at a time."""

    @property
    def row_by_row(self) -> bool:
        """Whether a token's embedding depends on that token and its `index` alone, so that `embed`
        can take several texts in one call."""

    def embed(self, backend: Backend, tokens: Sequence[Token]) -> Array:
        """The vectors that enter layer 0, [token, width], each token at the position `index`; reads
        the rows needed.
        """

    def embed_parts(self, backend: Backend, tokens: Sequence[Token]) -> list[EmbeddingVectors]:
        """The parts that `embed` adds up; where the embedding is normed, each is divided by the
        deviation of their sum."""

    def expect(self, layers: range) -> None:
        """Announce the layers that will be asked for next, in order, so that they can be read
        ahead.
        """

    def layer(self, backend: Backend, index: int) -> Weights:
        """The weights of one layer by role."""

    def outer(self, backend: Backend) -> Weights:
        """The weights outside the layers by role."""

    def bytes_read(self) -> int:
        """How many bytes of weights have been read so far."""


def run_layers(
    spec: Spec,
    store: Store,
    backend: Backend,
    hidden: Array,
    context: Context,
    layers: Collection[int],
) -> Iterator[LayerTrace]:
    """Run a model layer by layer, and yield the traces of these layers, in order.

    hidden: the vectors that enter layer 0, [..., token, width].
    layers: at least one; the weights of layers after the last of them are not read. Raises
        InputError for a layer that does not exist.
    """
    layer_numbers = sorted(set(layers))
    last = layer_numbers[-1]
    check_indices("layer", layer_numbers, len(spec.blocks))
    store.expect(range(last + 1))
    for index, block in enumerate(spec.blocks[: last + 1]):
        # a layer on the way keeps no stages, and computes all queries: the next one reads them
        if index in layer_numbers:
            layer_context = context
        else:
            layer_context = replace(context, keep=frozenset(), on_block=None)
        if index != last:
            layer_context = replace(layer_context, last_queries=None)

        # kept in a list, from which it is taken as it is yielded: so nothing here holds the layer's
        # arrays while the caller works on them
        traces = [
            run_block(backend, block, store.layer(backend, index), hidden, layer_context, index)
        ]
        if index != last:
            hidden = traces[0].after
        if index in layer_numbers:
            yield traces.pop()
        traces.clear()


def check_indices(what: Literal["layer", "head"], indices: Sequence[int], count: int) -> None:
    """Raise InputError unless each index is one of `count` layers or heads."""
    for index in indices:
        if not 0 <= index < count:
            raise InputError(
                "there is no layer {number}" if what == "layer" else "there is no head {number}",
                expected=(
                    "0 to {last} ({count} layers)"
                    if what == "layer"
                    else "0 to {last} ({count} heads)"
                ),
                number=index,
                last=count - 1,
                count=count,
            )


def check_length(spec: Spec, count: int) -> None:
    """Raise InputError unless a text of `count` tokens has some, and no more than there are
    positions.
    """
    limit = spec.max_positions
    if count == 0:
        raise InputError("the text has no tokens", expected="at least one word")
    if limit is not None and count > limit:
        what = message(
            "the text has {count} tokens, the model has {limit} positions", count=count, limit=limit
        )
        raise InputError(what, expected=message("at most {limit} tokens", limit=limit))


def keeps_past(spec: Spec, before: int, after: int) -> bool:
    """Whether the keys and values of the first `before` tokens stay the same when the text grows to
    `after` tokens. Rotations that depend on the length of the text may change all of them."""
    return all(keeps_angles(block.attention.position, before, after) for block in spec.blocks)


def finish(spec: Spec, weights: Weights, backend: Backend, hidden: Array) -> Array:
    """The vectors after the final norm, [..., token, width]; unchanged in a model without one.

    weights: those outside the layers, by role. hidden: what leaves the last layer.
    """
    if spec.final_norm is None:
        return hidden
    return normalise(
        backend, spec.final_norm, hidden, weights("final.weight"), weights("final.bias")
    )


def unembedding(head: Head, weights: Weights) -> Array | None:
    """The head's matrix, [vocabulary, width]: its own where there is one, else the token table if
    it is tied; None where the file has neither.
    """
    matrix = weights("head.weight")
    if matrix is None and head.tied:
        return weights("tokens.weight")
    return matrix


def unembedding_rows(head: Head, weights: Weights, entries: Sequence[int]) -> list[Array]:
    """The rows of the head's matrix, each [width], whose products with a vector are the logits of
    these vocabulary entries; of a table that is read row by row, no other rows are read."""
    if isinstance(weights, TableWeights):
        rows = weights.rows(_table_role(head, weights), entries)
        return [rows[place] for place in range(len(entries))]
    matrix = unembedding(head, weights)
    assert matrix is not None, "a model that predicts tokens has the matrix"
    return [matrix[entry] for entry in entries]


def _table_role(head: Head, weights: TableWeights) -> str:
    """The role of the table that holds the head's matrix: its own, else the tokens' where the two
    are tied."""
    if head.tied and not weights.has("head.weight"):
        return "tokens.weight"
    return "head.weight"


def _matrix_role(head: Head, weights: Weights) -> str:
    """The role whose matrix `unembedding` returns: "head.weight", or "tokens.weight" where the head
    is tied and has no matrix of its own."""
    if isinstance(weights, TableWeights):
        return _table_role(head, weights)
    if head.tied and weights("head.weight") is None:
        return "tokens.weight"
    return "head.weight"


def has_unembedding(head: Head, weights: Weights) -> bool:
    """Whether the head's matrix is there; a file need not have it. No table is read to tell."""
    if isinstance(weights, TableWeights):
        return weights.has(_table_role(head, weights))
    return unembedding(head, weights) is not None


def no_output_head(spec: Spec, hint: str = "") -> UnsupportedError:
    """Return, not raise, the UnsupportedError for next-token predictions of a model without an
    output head.

    hint: what needs none.
    """
    what = message(
        "this {family} model predicts no next token: it has no output head", family=spec.family
    )
    return UnsupportedError(
        what, expected="a decoder checkpoint saved with its language-model head", hint=hint
    )


def logits(
    spec: Spec, weights: Weights, backend: Backend, hidden: Array, entries: slice = slice(None)
) -> Array:
    """The next token's logits, [..., token, vocabulary], of vectors that leave the last layer,
    `hidden` [..., token, width].

    weights: those outside the layers, by role.
    entries: which entries of the vocabulary; all by default.

    Raises UnsupportedError for a model, or a file of one, without an output head.
    """
    head = spec.head
    if head is None:
        raise no_output_head(spec)
    normed = finish(spec, weights, backend, hidden)
    projected: Array | None = normed
    if head.projection:  # a linear map before the matrix; None where the file lacks it
        projected = linear_if_any(backend, weights, "head.project", normed)
    if projected is None:
        raise no_output_head(spec)
    role = _matrix_role(head, weights)  # the head's own matrix, or the token table of a tied one
    product = _unembed(role, weights, backend, projected, entries)
    if product is None:
        raise no_output_head(spec)
    scores = product * head.scale
    for name in ("head.bias", "head.offsets"):
        bias = weights(name)
        if bias is not None:
            scores = scores + bias[..., entries]
    if head.softcap is None:
        return scores
    return backend.tanh(scores / head.softcap) * head.softcap


def _unembed(
    role: str, weights: Weights, backend: Backend, outputs: Array, entries: slice
) -> Array | None:
    """The product of vectors, [..., token, width], and the output matrix of a role: logits, [...,
    token, entry]. None where the file has no such matrix, or one of another width.

    entries: of the vocabulary. Where all are asked for, a table in quantised blocks is multiplied
        as it is read.
    """
    if entries == slice(None) and isinstance(weights, TableWeights):
        product = weights.product(role, outputs)
        if product is not None:
            return product
    # tile by tile, whose logits stand side by side
    parts = []
    for matrix in _unembedding_tiles(role, weights, entries):
        if matrix.shape[-1] != outputs.shape[-1]:
            return None
        parts.append(backend.matmul(outputs, backend.transpose(matrix)))
    if not parts:
        return None
    if len(parts) > 1:
        return backend.concat(parts, -1)
    return parts[0]


FEW_ENTRIES = 16
"""Entries of a vocabulary up to which their rows alone are read, where the table is not in memory:
the two of a difference of logits."""


def _unembedding_tiles(role: str, weights: Weights, entries: slice) -> Iterator[Array]:
    """Yield the rows of an output matrix for these vocabulary entries, [entry, width]: in tiles
    where the matrix is large and all of it is asked for, so that it is never in memory as a whole;
    else all at once.

    entries: all, or from a start to a stop within the vocabulary.
    """
    if isinstance(weights, TableWeights) and weights.has(role):
        tiles = weights.tiles(role)  # None for a matrix that is small, or not read by its rows
        if entries == slice(None):
            if tiles is not None:
                yield from tiles
                return
        # few entries, or some of a large matrix: their rows alone are read
        elif tiles is not None or entries.stop - entries.start <= FEW_ENTRIES:
            yield weights.rows(role, range(entries.start, entries.stop))
            return
    matrix = weights(role)
    if matrix is not None:
        yield matrix[entries]


MASKED_TABLE = "masked.decoder.weight"
"""The role of the matrix of the head that tells masked words, where it has one of its own."""


def no_masked_head(spec: Spec) -> UnsupportedError:
    """Return, not raise, the UnsupportedError for a model that does not predict masked words, or
    whose file lacks the head for it.
    """
    if spec.masked is None:
        what = message(
            "this {family} model tells no next word and no masked word", family=spec.family
        )
        return UnsupportedError(what, expected="a decoder, or an encoder with a masked-word head")
    what = message(
        "this {family} model was saved without the head that tells a masked word",
        family=spec.family,
    )
    return UnsupportedError(
        what,
        expected=(
            "a checkpoint saved for masked words, such as BertForMaskedLM's; a decoder, such as attn"
            " learn saves of what it trains with a causal mask"
        ),
        hint="attn run --model MODEL TEXT shows where it looks, without that head",
    )


def masked_logits(spec: Spec, weights: Weights, backend: Backend, hidden: Array) -> Array:
    """An encoder's logits for which word stands at each token, [..., token, vocabulary], from the
    vectors that leave its last layer, `hidden` [..., token, width].

    weights: those outside the layers, by role. Raises UnsupportedError for a model, or a file of
    one, without the head that predicts masked words.
    """
    head = spec.masked
    outputs = finish(spec, weights, backend, hidden)

    # a linear map, an activation and a norm, then the output matrix
    mapped = None
    if head is not None:
        mapped = linear_if_any(backend, weights, "masked.dense", outputs)
    if head is None or mapped is None:
        raise no_masked_head(spec)
    normed = normalise(
        backend,
        head.norm,
        activate(backend, head.activation, mapped),
        weights("masked.norm.weight"),
        weights("masked.norm.bias"),
    )

    # the head's own matrix where the file has one, else the token table, to which it is tied
    role = "tokens.weight"
    if isinstance(weights, TableWeights) and weights.has(MASKED_TABLE):
        role = MASKED_TABLE
    scores = _unembed(role, weights, backend, normed, entries=slice(None))
    if scores is None:
        raise no_masked_head(spec)
    bias = weights("masked.decoder.bias")
    if bias is None:
        return scores
    return scores + bias


# Long texts: how long they are, and by how many query rows at a time attention then runs.

LONG = 2048
"""Tokens above which attention runs by blocks of query rows, and a screen shows pooled maps in
place of tables.
"""


def rows_for(spec: Spec, count: int) -> int:
    """How many query rows a model should compute at a time on `count` tokens, all heads of a layer
    together.
    """
    heads = max(block.attention.heads for block in spec.blocks)
    return rows_within(heads, queries=count, keys=count)


# `ProgressStore`: a checkpoint's weights, and someone who is told how far through its layers a run
# has come.


class ProgressStore:
    """A `Store` around another that calls `progress` with the share of the layers read, 1 at the
    last.
    """

    def __init__(self, store: Store, progress: Callable[[float], None]) -> None:
        self._store = store
        self._progress = progress
        self._stop = 0

    @property
    def row_by_row(self) -> bool:
        """Whether a token's embedding depends on that token and its index alone, as the wrapped
        store says.
        """
        return self._store.row_by_row

    def embed(self, backend: Backend, tokens: Sequence[Token]) -> Array:
        """The vectors that enter layer 0, from the wrapped store."""
        return self._store.embed(backend, tokens)

    def embed_parts(self, backend: Backend, tokens: Sequence[Token]) -> list[EmbeddingVectors]:
        """The parts of what enters layer 0, from the wrapped store."""
        return self._store.embed_parts(backend, tokens)

    def expect(self, layers: range) -> None:
        """Announce these layers to the wrapped store; progress is the share of them that is read."""
        self._stop = layers.stop
        self._store.expect(layers)

    def layer(self, backend: Backend, index: int) -> Weights:
        """The weights of a layer from the wrapped store; calls `progress`."""
        if index < self._stop:
            # the last layer counts as read when it is reached, so that the bar ends full
            self._progress(1.0 if index == self._stop - 1 else index / self._stop)
        return self._store.layer(backend, index)

    def outer(self, backend: Backend) -> Weights:
        """The weights outside the layers, from the wrapped store."""
        return self._store.outer(backend)

    def bytes_read(self) -> int:
        """How many bytes the wrapped store has read so far."""
        return self._store.bytes_read()


# The vectors that enter layer 0: where each token stands, added to what it is.


def embed_texts(store: Store, backend: Backend, texts: Sequence[Sequence[Token]]) -> Array:
    """The vectors with which several texts enter layer 0, one text after the other, [token, width]."""
    if store.row_by_row:
        return store.embed(backend, [token for tokens in texts for token in tokens])
    return backend.concat([store.embed(backend, tokens) for tokens in texts], 0)


def parts_through_norm(
    backend: Backend, norm: Norm, parts: Sequence[EmbeddingVectors], weights: Weights
) -> list[EmbeddingVectors]:
    """The terms of the embedding after its norm, which divides each by the deviation of their sum;
    the norm's shift becomes a term of its own."""
    weight = None
    bias = None
    if norm.affine:
        weight = weights("embed.norm.weight")
        bias = weights("embed.norm.bias")
    # the norm is of the sum: its deviation divides every term
    total = sum((part.vectors for part in parts[1:]), start=parts[0].vectors)

    def centre(x: Array) -> Array:
        """Vectors less their mean where the norm takes it away (LayerNorm), else as they are."""
        if norm.kind == "layer":
            return x - backend.sum(x, -1) / x.shape[-1]
        return x

    centred = centre(total)
    divisor = backend.sqrt(backend.sum(centred * centred, -1) / total.shape[-1] + norm.eps)
    gain: Array | float = 1.0  # with `unit_offset` the file stores how far it is from 1
    if weight is not None and norm.unit_offset:
        gain = weight + 1.0
    elif weight is not None:
        gain = weight
    normed = [EmbeddingVectors(part.kind, centre(part.vectors) / divisor * gain) for part in parts]
    if bias is None:
        return normed
    return [*normed, EmbeddingVectors("norm", bias)]


def with_positions(
    backend: Backend,
    embedding: Embedding,
    x: Array,
    positions: Sequence[int],
    learned_rows: Callable[[], Array],
    *,
    stored: bool = False,
) -> Array:
    """Token vectors, [token, width], with position vectors added as the embedding says; unchanged
    where it adds none.

    positions: the row of each token in a table of positions; at the row `embedding.padding`, that
        of padding tokens, nothing is added.
    learned_rows: called, where the model has a table of position vectors, for their rows, [token,
        width].
    stored: whether the file has a table of vectors that could be computed; its numbers are then
        taken, which may be rounded.
    """
    match embedding.positions:
        case "learned":
            return x + learned_rows()
        case "sinusoidal":
            return x + backend.array(sinusoidal(np.asarray(positions), x.shape[-1]))
        case "halves" if stored:
            return x + learned_rows()
        case "halves":
            # all sines, then all cosines, in float32, as the models that use it hold their table
            vectors = sinusoidal(np.asarray(positions), x.shape[-1])
            halves = np.concatenate([vectors[:, 0::2], vectors[:, 1::2]], -1)
            return x + backend.array(halves.astype(np.float32))
        case "timescales":  # the same order, with wavelengths as Tensor2Tensor has them
            vectors = timescales(np.asarray(positions), x.shape[-1])
            if embedding.padding is not None:
                vectors[np.asarray(positions) == embedding.padding] = 0.0
            return x + backend.array(vectors.astype(np.float32))
        case None:
            return x
        case _:
            assert_never(embedding.positions)


class LeavingBranches(Struct, frozen=True, eq=False):
    """Changed runs ("branches") that part from a text's own run at one attention.

    kind: of the attention, "self" or "cross".
    values: replace that attention's mixed values in each branch, [branch, head, token, v_dim].
    """

    kind: Kind
    values: Array


KINDS: tuple[Kind, ...] = ("self", "cross")
PART_ROWS = 256
"""Vectors from which a product is about as fast as one of more: OpenBLAS on one core (AVX2) gives 37
GFLOP/s with 14, 70 with 108, 75 to 85 with 432 or more."""


class Trunk(Struct, frozen=True, eq=False):
    """A text's own run, from which changed runs ("branches") part at some attention, and which
    tokens of them are computed.

    context: of the text's own run.
    first: the layer to begin with.
    start: the first token that a branch computes; those before it are as they were.
    asking: the tokens whose last vectors are wanted, None where none are singled out.
    at_once: how many branches run together.
    joint: of one run with every change, what is changed in a layer; None for no such run.
    hold: whether every changed run attends with the trunk's own weights.
    """

    spec: Spec
    store: Store
    backend: Backend
    context: Context
    first: int = 0
    start: int = 0
    asking: slice | None = None
    at_once: int = 64
    joint: Callable[[LayerTrace], Interventions] | None = None
    hold: bool = False

    @property
    def threads(self) -> int:
        """How many threads run parts of the branches side by side: one for each core where the
        parts are still large, else 1, where the cores share each product instead.
        """
        if not isinstance(self.backend, NumpyBackend):
            return 1
        count = cores()
        rows = self.at_once * (len(self.context.positions) - self.start)
        # not enough branches for all cores, or too few rows for each
        if count > self.at_once or rows < count * PART_ROWS:
            return 1
        return count

    @property
    def part_size(self) -> int:
        """The most branches of a part."""
        return self.at_once // self.threads

    def with_hold(
        self, block: Block, trace: LayerTrace, interventions: Interventions, asking: slice | None
    ) -> Interventions:
        """The interventions of a layer; if `hold` is set, changed so that its attention weights stay
        as they are in this trace of the unchanged run.

        asking: the query rows that are computed; None for all.
        """
        if not self.hold or block.instead:  # nothing to hold, or a layer without attention
            return interventions
        rows = asking
        if asking is None:
            rows = slice(None)
        by_kind = {"self": (block.attention, trace), "cross": (block.cross, trace.cross)}
        changes: dict[tuple[int, Kind], Sequence[Intervention]] = {}
        for kind in KINDS:
            attention, trace_of_kind = by_kind[kind]
            if attention is None or trace_of_kind is None:
                continue
            # those of this attention, with one that keeps its weights in place of knock-outs
            changes[trace.layer, kind] = hold_weights(
                self.backend,
                interventions.get((trace.layer, kind), ()),
                trace_of_kind.stages["weights"][..., rows, :],
                self.context.positions[rows],
                sinks=attention.sinks,
            )
        return changes


def values_of_rows(interventions: Interventions, asking: slice | None) -> Interventions:
    """The interventions for a run that computes only the query rows `asking`: the values of each
    `Replace` are cut to these rows. Unchanged where all rows are computed (None)."""
    if asking is None:
        return interventions

    def cut(change: Intervention) -> Intervention:
        """The intervention with its values, if it has any, for these rows alone."""
        if isinstance(change, Replace):
            return replace(change, values=change.values[..., asking, :])
        return change

    return {place: [cut(change) for change in changes] for place, changes in interventions.items()}


class BranchResult(Struct, frozen=True, eq=False):
    """Vectors that leave the last layer, before the final norm.

    hidden: of the unchanged run, [token, width].
    branches: of each branch in order, in pieces [branch, token, width].
    joint: of the run with every change at once, [token, width]; None without such a run.
    """

    hidden: Array
    branches: Sequence[Array]
    joint: Array | None


def run_branches(
    trunk: Trunk,
    hidden: Array,
    leave: Callable[[LayerTrace, Weights], Iterator[LeavingBranches]],
    on_layer: Callable[[int, Array], None] = lambda layer, hidden: None,
) -> BranchResult:
    """Run a text from the vectors that enter `trunk.first`, [token, width], and every changed run
    ("branch") that `leave` yields at a layer.

    leave: called for each layer with its trace in the text's own run and its weights; yields the
        branches that begin there, in parts of at most `trunk.part_size`.
    on_layer: called before each layer with its number and the vectors that enter it.
    """
    spec = trunk.spec
    backend = trunk.backend
    last = len(spec.blocks) - 1
    trunk.store.expect(range(trunk.first, last + 1))
    # what enters the layer: in the branches so far, and, where `trunk.joint` asks for it, in the one
    # run that has every change at once
    branches: list[Array] = []
    joint_hidden: Array | None = hidden if trunk.joint is not None else None
    for index in range(trunk.first, last + 1):
        # layers before the last compute all tokens, as the next layer attends to them
        asking = trunk.asking if index == last else None

        # the text's own run through the layer
        on_layer(index, hidden)
        block = spec.blocks[index]
        weights = cache_weights(trunk.store.layer(backend, index))
        trace = run_block(backend, block, weights, hidden, trunk.context, index)
        layer_context = replace(trunk.context, keep=frozenset(), asking=asking)
        if asking is None:
            after = trace.after
        else:
            # once more for the same queries as in the branches, which are compared with it: sums of
            # another shape may round otherwise
            after = run_block(backend, block, weights, hidden, layer_context, index).after

        # every weight of the layer has been read above, so that threads only look it up
        branch_layer = _BranchLayer(trunk, block, weights, trace, index, asking)
        branches = branch_layer.run_all(hidden, branches, leave(trace, weights))

        # `trunk.joint` gives the changes of this layer from its trace
        if trunk.joint is not None and joint_hidden is not None:
            interventions = values_of_rows(trunk.joint(trace), asking)
            interventions = trunk.with_hold(block, trace, interventions, asking)
            joint_context = replace(layer_context, interventions=interventions)
            joint_hidden = run_block(
                backend, block, weights, joint_hidden, joint_context, index
            ).after
        hidden = after
    return BranchResult(hidden, branches, joint_hidden)


class _BranchLayer(Struct, frozen=True, eq=False):
    """Runs all branches (changed runs of one text) through one layer.

    block, weights, layer: what the layer does, its weights, and its number.
    trace: the layer's in the text's own run.
    asking: the tokens whose vectors are computed; None for all.
    """

    trunk: Trunk
    block: Block
    weights: Weights
    trace: LayerTrace
    layer: int
    asking: slice | None

    def run_all(
        self, hidden: Array, parts: Sequence[Array], leaving: Iterator[LeavingBranches]
    ) -> list[Array]:
        """Run all branches (changed runs of the text) through the layer, those that began below and
        those that begin here; returns what leaves it, in pieces [branch, token, width].

        hidden: what enters the layer in the unchanged run, [token, width].
        parts: what enters it in the branches that began below, [branch, token, width].
        leaving: the branches that begin here.
        """
        trunk = self.trunk
        # the first of `leaving`, if any begins here; the others are made while the work goes on
        first_leaving = list(islice(leaving, 1))
        entering = hidden[trunk.start :]
        works: Iterator[Callable[[], Array]] = chain(
            (partial(self.run, part) for part in parts),
            (partial(self.run, entering, new) for new in chain(first_leaving, leaving)),
        )
        # threads only where, by what is known so far, each has a part to run
        if trunk.threads > 1 and len(parts) + len(first_leaving) >= trunk.threads:
            outputs = share_work(works, trunk.threads)
        else:
            outputs = [work() for work in works]

        # the outputs of new branches are joined to the last piece up to the size of a part, for
        # large products in the next layer
        pieces = outputs[: len(parts)]
        for output in outputs[len(parts) :]:
            if pieces and len(pieces[-1]) + len(output) <= trunk.part_size:
                pieces[-1] = trunk.backend.concat([pieces[-1], output], 0)  # along the branches
            else:
                pieces.append(output)
        return pieces

    def run(self, hidden: Array, leaving: LeavingBranches | None = None) -> Array:
        """Run a part of the branches (changed runs of the text) through the layer; returns what leaves
        it, [branch, token, width].

        hidden: what enters it, the same axes; no branch axis at the layer where branches begin.
        leaving: the branches that begin here, with the mixed values that make them differ; None
            for branches that began below.
        """
        trunk = self.trunk
        start = self.trunk.start
        # the query rows of the text that are computed, and the same counted from `start`
        if self.asking is None:
            rows = slice(start, None)
            asking = None
        else:
            rows = slice(self.asking.start, self.asking.stop)
            asking = slice(self.asking.start - start, self.asking.stop - start)

        changes: Interventions = {}
        if leaving is not None:
            attention = self.block.attention if leaving.kind == "self" else self.block.cross
            assert attention is not None  # a branch of kind "cross" only begins where there is one
            # of all heads, as each of their mixed values is given
            changes = {
                (self.layer, leaving.kind): (
                    Replace(tuple(range(attention.heads)), leaving.values[..., rows, :]),
                )
            }
        changes = trunk.with_hold(self.block, self.trace, changes, rows)

        context = replace(
            trunk.context,
            positions=trunk.context.positions[start:],
            keep=frozenset(),
            interventions=changes,
            past=self._past(hidden) if start else None,
            asking=asking,
        )
        return run_block(trunk.backend, self.block, self.weights, hidden, context, self.layer).after

    def _past(self, hidden: Array) -> Past:
        """Keys and values (or a mixer's state) of the tokens before `trunk.start`, which no branch
        computes, repeated for each branch of `hidden`."""
        backend = self.trunk.backend
        lead = tuple(hidden.shape[:-2])  # (branches,), or () where branches begin

        def trunk_stages(*names: str) -> tuple[Array, ...]:
            """These stages of the tokens before `trunk.start`, repeated for each branch."""
            arrays = [self.trace.stages[name][..., : self.trunk.start, :] for name in names]
            return tuple(backend.broadcast(array, (*lead, *array.shape)) for array in arrays)

        if self.block.instead:  # no attention, so no keys and values
            past: Past = {}
        else:
            past = {self.layer: trunk_stages("k", "v")}
        if self.block.mixer is not None:
            from attncli.mechanism.mixer import Carry, mix  # few models have one

            # running the mixer over those tokens leaves its state in `carry.after`
            carry = Carry()
            part = LayerPart(backend, self.weights, "mixer")
            mix(part, self.block.mixer, self.trace.stages["hidden"][: self.trunk.start], carry)
            past[self.layer, "mixer"] = tuple(
                backend.broadcast(kept, (*lead, *kept.shape)) for kept in carry.after
            )
        return past


class HeldOutput(ReadWeights):
    """A layer's weights by role, of which the attentions' output matrices are kept once read,
    because they are used twice."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._matrices: dict[str, Array | None] = {}

    def __call__(self, role: str, /) -> Array | None:
        """The weight that plays a role, None where there is none; an output matrix is kept."""
        if role not in OUTPUT_ROLES:
            return self._weights(role)
        if role not in self._matrices:
            self._matrices[role] = self._weights(role)
        return self._matrices[role]

    def product(self, name: str, x: Array, backend: Backend) -> Array | None:
        """The product of `x` and a linear layer's matrix as the wrapped weights compute it while
        reading; None where they do not, and for an output matrix, which is kept as an array: the
        caller then multiplies."""
        if f"{name}.weight" in OUTPUT_ROLES or not isinstance(self._weights, ReadWeights):
            return None
        return self._weights.product(name, x, backend)


OUTPUT_ROLES = ("attn.o.weight", "cross.o.weight")


def cache_weights(weights: Weights) -> Weights:
    """A layer's weights as a function that reads each role once and keeps it; freed with the
    function.
    """
    arrays: dict[str, Array | None] = {}

    def weight_of(role: str, /) -> Array | None:
        """The weight that plays a role, read at the first call; None where there is none."""
        if role not in arrays:
            arrays[role] = weights(role)
        return arrays[role]

    return weight_of
