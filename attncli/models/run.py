"""Running a model: layer after layer, each one's weights fetched when it is reached; then the head."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from msgspec.structs import replace

from attncli.arrays.backend import Array, Backend
from attncli.errors import InputError, UnsupportedError
from attncli.inputs.token import Token
from attncli.mechanism.block import run_block
from attncli.mechanism.context import Context, Weights
from attncli.mechanism.feed_forward import linear_if_any
from attncli.mechanism.norm import normalise
from attncli.mechanism.spec import Head, Spec
from attncli.mechanism.trace import LayerTrace


class Store(Protocol):
    """Where a model's weights come from, read by role, one layer at a time."""

    def embed(self, backend: Backend, tokens: Sequence[Token]) -> Array:
        """The vectors that enter layer 0, [token, width], each token at the position `index`; reads the rows needed."""

    def expect(self, layers: range) -> None:
        """Be told which layers will be asked for next, in order."""

    def layer(self, backend: Backend, index: int) -> Weights:
        """The weights of one layer by role."""

    def outer(self, backend: Backend) -> Weights:
        """The weights outside the layers by role."""

    def bytes_read(self) -> int:
        """How many bytes of weights have been read so far."""


def run(
    spec: Spec, store: Store, backend: Backend, tokens: Sequence[Token], context: Context, layers: Collection[int]
) -> Iterator[LayerTrace]:
    """Yield the traces of these layers, in order; what comes after the last of them is not read.

    Raises InputError for a layer that does not exist.
    """
    check("layer", sorted(set(layers)), len(spec.blocks))
    yield from run_layers(spec, store, backend, store.embed(backend, tokens), context, layers)


def run_layers(
    spec: Spec, store: Store, backend: Backend, hidden: Array, context: Context, layers: Collection[int]
) -> Iterator[LayerTrace]:
    """The same from the vectors that enter layer 0, [..., token, width]."""
    layer_numbers = sorted(set(layers))
    check("layer", layer_numbers, len(spec.blocks))
    store.expect(range(layer_numbers[-1] + 1))
    for index, block in enumerate(spec.blocks[: layer_numbers[-1] + 1]):
        quiet = context if index in layer_numbers else replace(context, keep=frozenset(), on_block=None)
        traces = [run_block(backend, block, store.layer(backend, index), hidden, quiet, index)]
        if index != layer_numbers[-1]:
            hidden = traces[0].after
        if index in layer_numbers:
            yield traces.pop()  # so that nothing here holds the layer while it is worked on
        traces.clear()


def check(what: str, indices: Sequence[int], count: int) -> None:
    """Raise InputError unless each index is one of `count` layers or heads."""
    for index in indices:
        if not 0 <= index < count:
            raise InputError(f"there is no {what} {index}", expected=f"0 to {count - 1} ({count} {what}s)")


def check_length(spec: Spec, count: int) -> None:
    """Raise InputError unless a text of `count` tokens has some, and no more than there are positions."""
    limit = spec.max_positions
    if count == 0:
        raise InputError("the text has no tokens", expected="at least one word")
    if limit is not None and count > limit:
        raise InputError(
            f"the text has {count} tokens, the model has {limit} positions", expected=f"at most {limit} tokens"
        )


def finish(spec: Spec, weights: Weights, backend: Backend, hidden: Array) -> Array:
    """The final norm over vectors that leave the last layer, [..., token, width]; they themselves if there is none."""
    if spec.final_norm is None:
        return hidden
    return normalise(backend, spec.final_norm, hidden, weights("final.weight"), weights("final.bias"))


def unembedding(head: Head, weights: Weights) -> Array | None:
    """The head's matrix, [vocabulary, width]: its own where there is one, else the token table if it is tied."""
    matrix = weights("head.weight")
    return weights("tokens.weight") if matrix is None and head.tied else matrix


def logits(spec: Spec, weights: Weights, backend: Backend, hidden: Array, entries: slice = slice(None)) -> Array:
    """The next token's logits, [..., token, vocabulary], of vectors that leave the last layer, [..., token, width].

    entries: which of the vocabulary; all by default. Raises UnsupportedError for a model, or a file of one, without an
    output head.
    """
    head = spec.head
    matrix = None if head is None else unembedding(head, weights)
    outputs: Array | None = hidden if head is None else finish(spec, weights, backend, hidden)
    if head is not None and head.projection and outputs is not None:
        outputs = linear_if_any(backend, weights, "head.project", outputs)
    if head is None or matrix is None or outputs is None or matrix.shape[-1] != outputs.shape[-1]:
        raise UnsupportedError(
            f"this {spec.family} model predicts no next token: it has no output head",
            expected="a decoder checkpoint saved with its language-model head",
        )
    scores = backend.matmul(outputs, backend.transpose(matrix[entries])) * head.scale
    for role in ("head.bias", "head.offsets"):
        bias = weights(role)
        scores = scores if bias is None else scores + bias[..., entries]
    return scores if head.softcap is None else backend.tanh(scores / head.softcap) * head.softcap
