"""The residual stream as a sum of parts, read by linear maps on its way through the layers.

What enters an attention is a norm of a sum: of the embeddings and of what each earlier head and
feed-forward part wrote. With the mean and the deviation that a norm had in this run it is linear,
so that any linear map of what enters is the sum of what it makes of each part. Parts are mapped as
they arise: of a part only what a map makes of it is kept, [token, dim], never its vectors.
Source: Elhage et al., A mathematical framework for transformer circuits, 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from attncli.arrays.backend import Array, Backend
from attncli.inputs.token import Token
from attncli.mechanism.block import mix_heads, run_block
from attncli.mechanism.context import Kind, Weights
from attncli.mechanism.feed_forward import deviation, normalise, through_norm
from attncli.mechanism.projection import LayerAttention
from attncli.mechanism.spec import Attention, Block, Norm, Spec
from attncli.mechanism.trace import LayerTrace, head_outputs
from attncli.models.model import Model
from attncli.models.run import LONG, HeldOutput, rows_for

Floats = np.ndarray[Any, np.dtype[Any]]

PartKind: TypeAlias = Literal[
    "token",
    "position",
    "type",
    "states",
    "head",
    "heads",
    "bias",
    "feed_forward",
    "convolution",
    "mixer",
    "norm",
]
"""What wrote a part: the embeddings of a token, its position and its type; captured states that a
decoder reads; one head, or all heads of a layer; a bias; a feed-forward or expert part; a
convolution beside the layer; what a layer has beside its heads or in their place; a norm's
shift."""


class StreamPart(Struct, frozen=True):
    """A term of the residual stream, which is a sum of what embeddings, heads and feed-forward
    parts write.

    kind: what wrote it.
    layer: that wrote it; None for embeddings.
    attention, head: for a head's term.

    place: of a norm, where it sits.
    source: the token whose values a head carried; None for all of them.
    """

    kind: PartKind
    layer: int | None = None
    attention: Kind | None = None
    head: int | None = None
    place: str | None = None
    source: int | None = None


class Receiver(Struct, frozen=True, eq=False):
    """A linear map that reads the residual stream where it enters an attention, after that
    attention's norm.

    layer, kind: which attention; a layer beyond the last stands for what the final norm gives.
    matrix: [dim, width].
    rows: the tokens that are read.
    """

    layer: int
    kind: Kind
    matrix: Floats
    rows: slice


class Reading(Struct, frozen=True, eq=False):
    """What a receiver's map makes of each term of the stream, [part, token, dim]; summed over
    parts, what it makes of the whole stream.

    entering: what enters the attention, [token, width], of all tokens.
    tails: by how many norms of the stream came before a part, what it is multiplied with in the
        end, [norm, token].
    room: where the values lie, and some more room after them: who needs no values any more writes
        there, in place of a second array of that size.
    """

    parts: tuple[StreamPart, ...]
    values: Floats
    entering: Array
    tails: Floats
    room: Floats | None = None


class HeadEvent(Struct, frozen=True, eq=False):
    """What `on_heads` is called with when the heads of an attention write to the residual stream.

    trace: what they did.
    matrices: from each head's values to what a receiver reads, [head, v_dim, dim].
    norm_count: how many norms of the stream came before, for `Reading.tails`.
    factors: of each token that is read, [token, 1].
    apart: tokens whose values come from a projection to themselves.
    """

    kind: Kind
    trace: LayerTrace
    matrices: Floats
    norm_count: int
    factors: Floats
    apart: tuple[int, ...] = ()


OnHeads: TypeAlias = Callable[[int, HeadEvent], None]
"""Handed the number of a receiver and the heads of each attention before it, in order."""
HeadSplit: TypeAlias = Literal["head", "layer", "none"]
"""Whether each head is a part of its own, or all heads of an attention together, or none of them
is.
"""


class Follower(Protocol):
    """Callbacks that `read_stream` calls through all layers, those after the last receiver
    included.
    """

    def on_activation(self, layer: int, what: str, array: Array) -> None:
        """Called with each activation, as `Context.on_activation` is."""

    def on_layer(self, block: Block, weights: Weights, trace: LayerTrace) -> None:
        """Called with each layer after it has run, its weights and its trace."""

    def on_end(self, hidden: Array) -> None:
        """Called once with what leaves the last layer, before the final norm, [token, width]."""


class _StreamNorm(Struct, frozen=True, eq=False):
    """A norm applied to the whole stream, not to a copy that a branch reads, with its weight."""

    norm: Norm
    weight: Floats | None


def stream_norms(spec: Spec, layer: int, kind: Kind) -> Iterator[tuple[int, str, Norm]]:
    """The norms applied to the whole residual stream before an attention reads it, its own included,
    in order: (layer, place, norm). In a model with norms before each part, that is the attention's
    own alone. A layer beyond the last stands for the final norm.

    layer, kind: which attention, "self" or "cross".
    """
    for index, block in enumerate(spec.blocks[: layer + 1]):
        if index == layer:  # the norms up to the attention itself
            if kind == "self":
                places = ["attn.in"]
            else:
                places = ["attn.sum", "cross.in"]
        elif block.parallel and block.mlp is not None:
            # parallel parts are added to the stream together, and no norm acts on it
            places = []
        else:
            # a norm before attention acts on the stream only if branches are added to its result
            if block.normed:
                places = ["attn.in"]
            else:
                places = []
            places += ["attn.sum", "cross.sum", "mlp.sum"]
        yield from ((index, place, block.norms[place]) for place in places if place in block.norms)  # type: ignore[index]
        if index < layer and block.convolution is not None:
            yield index, "conv.norm", block.convolution.norm
    if layer == len(spec.blocks) and spec.final_norm is not None:
        yield layer, "final", spec.final_norm


def numbers(backend: Backend, array: Array | None) -> Floats | None:
    """An array in NumPy, float64 where the backend computes in it, else float32; None for None."""
    if array is None:
        return None
    return np.asarray(
        backend.numpy(array), np.float64 if backend.dtype == "float64" else np.float32
    )


class _Tap:
    """A receiver during the run: its linear map moved back through each norm of the stream, and the
    values of the parts so far.

    number: the receiver's, among those that are read in this run.
    norms: those of the stream before the receiver, in order.
    size: the most parts.
    """

    def __init__(
        self, number: int, receiver: Receiver, norms: Sequence[_StreamNorm], size: int, dtype: Any
    ) -> None:
        """Move the receiver's map back through the norms, and make room for `size` parts.

        number: the receiver's. norms: those of the stream before it, in order.
        """
        self.number = number
        self.receiver = receiver
        # maps[i]: the map of the stream before norm i, with the weights of it and all later norms
        maps = [receiver.matrix]
        for stream_norm in reversed(norms):
            maps.append(through_norm(stream_norm.norm, maps[-1], stream_norm.weight))
        self._maps = [np.ascontiguousarray(matrix, dtype) for matrix in reversed(maps)]
        # what each norm passed so far divided by, [token, 1]; the parts, the number of norms passed
        # before each was added, and their values, [part, token, dim]
        self._passed: list[Floats] = []
        self._parts: list[StreamPart] = []
        self._norm_counts: list[int] = []
        rows = receiver.rows.stop - receiver.rows.start
        # `size` may be far too many: the system gives memory only to the parts that are written
        self._values = np.empty((size, rows, receiver.matrix.shape[0]), dtype)

    @property
    def norm_count(self) -> int:
        """How many norms of the stream have been passed so far."""
        return len(self._passed)

    @property
    def map(self) -> Floats:
        """The receiver's linear map of the stream at this point of the run, [dim, width], without
        the divisions of later norms."""
        return self._maps[self.norm_count]

    def forget(self) -> None:
        """Drop all parts so far, for a layer without a residual connection."""
        self._parts.clear()
        self._norm_counts.clear()

    def add_parts(self, *parts: StreamPart) -> Floats:
        """Add parts, and return the array for their values, [part, token, dim], which the caller
        fills.
        """
        first = len(self._parts)
        self._parts += parts
        self._norm_counts += [len(self._passed)] * len(parts)
        return self._values[first : first + len(parts)]

    def add(
        self, part: StreamPart, vectors: Floats, matrix: Floats, factors: Floats | float = 1.0
    ) -> None:
        """Add a part: its vectors, [token, width], or one for all tokens, [width], mapped by
        `matrix` and times a factor for each token, [token, 1], or one for all."""
        # of the tokens that the receiver reads
        rows = self.receiver.rows
        if vectors.ndim == 2:
            vectors = vectors[rows]
        if not isinstance(factors, float):
            factors = factors[rows]
        values = self.add_parts(part)  # [1, token, dim], to be filled
        values[0] = (vectors @ matrix.T) * factors

    def divide(self, deviations: Floats) -> None:
        """Pass a norm of the stream: note what it divides each token's vector by, [token, 1], for
        all parts so far.
        """
        self._passed.append(deviations[self.receiver.rows])

    def close(self, entering: Array) -> Reading:
        """The finished Reading: each part divided by what the norms after it divided the stream by.

        entering: what enters the attention, [token, width].
        """
        # factors[i]: the product of the divisions by norm i and all later ones, [token]
        factors = [np.ones(self._values.shape[1])]
        for deviations in reversed(self._passed):
            factors.append(factors[-1] / deviations[:, 0])
        factors.reverse()
        values = self._values[: len(self._parts)]
        for index, norm_count in enumerate(self._norm_counts):
            values[index] *= factors[norm_count][:, None]
        return Reading(tuple(self._parts), values, entering, np.stack(factors), self._values)


def most_parts(spec: Spec, layer: int, *, by_layer: bool) -> int:
    """An upper bound on the number of parts of the stream before an attention of this layer.

    by_layer: the heads of a layer count as one part.
    """
    count = 8  # of the embeddings: token, position, type, bias, norm, and some to spare
    for block in spec.blocks[: layer + 1]:
        heads = block.attention.heads
        if block.cross is not None:
            heads += block.cross.heads
        # beside the heads at most twelve: biases, norms' shifts, feed-forward part, mixer,
        # convolution
        count += (2 if by_layer else heads) + 12  # 2: of self- and of cross-attention
    return count


def read_stream(
    model: Model,
    tokens: Sequence[Token],
    backend: Backend,
    receivers: Sequence[Receiver],
    *,
    keep: frozenset[str] = frozenset(),
    split: HeadSplit = "head",
    on_heads: OnHeads | None = None,
    follower: Follower | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> list[Reading]:
    """Run a text, and map each part that is written to the residual stream as the receivers read it:
    one reading for each receiver, in their order. Norms count with the mean and deviation that
    they have in this run.

    receivers: what reads; layers after the last of them are not run unless there is a `follower`.
    split: whether each head is a part, or all heads of a layer together, or none.
    on_heads: called with the heads of each attention before a receiver.
    follower: called through all layers, those after the last receiver included; None for none.
    keep: the n × n stages that traces hold.
    progress: called with the share of the run that is done.
    """
    spec = model.spec
    store = model.store
    last = max(receiver.layer for receiver in receivers)
    taps = _taps(model, backend, receivers, split)

    # the n × n stages of a long text are computed some rows at a time, unless they are kept
    if keep or len(tokens) <= LONG:
        rows = None
    else:
        rows = rows_for(spec, len(tokens))
    context = model.context(tokens, backend, keep, rows)

    # the last receiver's layer itself runs only where its cross-attention is read, or for a follower
    reads_cross = any(receiver.layer == last and receiver.kind == "cross" for receiver in receivers)
    stop = last + 1 if reads_cross else last
    if follower is not None or stop > len(spec.blocks):  # (a layer beyond the last: the final norm)
        stop = len(spec.blocks)
    store.expect(range(stop))  # so that their weights are read ahead

    # the first parts: embeddings of tokens, positions and so on
    hidden = store.embed(backend, tokens)
    for kind, vectors in store.embed_parts(backend, tokens):
        array = numpy_floats(backend, vectors)
        place = "embed.norm" if kind == "norm" else None
        for tap in taps:
            tap.add(StreamPart(kind, place=place), array, tap.map)

    readings: dict[int, Reading] = {}  # by the receiver's number
    waiting = list(taps)  # the taps of receivers that are not reached yet

    def enter(
        layer: int, kind: Kind, norm: Norm | None, place: str, weights: Weights, x: Array
    ) -> None:
        """Finish the taps of the receivers at this attention, and note their readings.

        norm, place: the attention's norm and where it sits, "attn.in"; None for no norm.
        x: what enters the norm, [token, width].
        """
        arrived = [
            tap for tap in waiting if (tap.receiver.layer, tap.receiver.kind) == (layer, kind)
        ]
        for tap in arrived:
            readings[tap.number] = _enter(backend, tap, norm, place, weights, x)
            waiting.remove(tap)

    # each layer: receivers at its attentions get their readings, the others its parts
    for index, block in enumerate(spec.blocks):
        progress(index / max(stop, 1))  # no layer runs where what enters layer 0 is read alone
        # the layer and the taps both need its output matrices, which are kept from one to the other
        weights = HeldOutput(store.layer(backend, index))
        enter(index, "self", block.norms.get("attn.in"), "attn.in", weights, hidden)
        if not waiting and follower is None:
            break
        writer = _LayerWriter(
            backend, block, index, len(tokens), waiting, split, on_heads, follower
        )
        watched = replace(context, on_activation=writer.on_activation)
        trace = run_block(backend, block, weights, hidden, watched, index)
        writer.attend("self", trace, weights)
        if block.cross is not None and trace.cross is not None:
            enter(
                index, "cross", block.norms.get("cross.in"), "cross.in", weights, trace.cross.before
            )
            writer.attend("cross", trace.cross, weights)
        writer.feed_forward(weights)
        if follower is not None:
            follower.on_layer(block, weights, trace)
        hidden = trace.after
    enter(len(spec.blocks), "self", spec.final_norm, "final", store.outer(backend), hidden)
    if follower is not None:
        follower.on_end(hidden)
    progress(1.0)
    return [readings[number] for number in range(len(receivers))]


def mix_again(
    model: Model, tokens: Sequence[Token], backend: Backend, layer: int, kind: Kind, entering: Array
) -> dict[str, Array]:
    """The stages of one attention, computed again after a run has passed it; reads only the weights
    of its queries, keys and values.

    layer, kind: which attention. entering: what entered it in the run, [token, width].
    """
    block = model.spec.blocks[layer]
    context = model.context(tokens, backend, ("weights",))
    if kind == "self":
        attention: Attention | None = block.attention
        prefix = "attn"
        memory = None
    else:
        attention = block.cross
        prefix = "cross"
        memory = context.memory
    assert attention is not None  # the caller's run has passed it
    part = LayerAttention(backend, model.store.layer(backend, layer), prefix, attention)
    stages, _ = mix_heads(part, entering, memory, context, layer)
    return stages


def _taps(
    model: Model, backend: Backend, receivers: Sequence[Receiver], split: HeadSplit
) -> list[_Tap]:
    """A tap for each receiver: it holds the receiver's linear map, moved back through every norm of
    the stream, whose weights are read before the run."""
    spec = model.spec
    store = model.store
    dtype = np.float64 if backend.dtype == "float64" else np.float32
    read_norms: dict[tuple[int, str], _StreamNorm] = {}  # by layer and place

    def read_norm(layer: int, place: str, norm: Norm) -> _StreamNorm:
        """The norm at a place with its weight, which is read once."""
        if (layer, place) not in read_norms:
            if place == "final":
                weights = store.outer(backend)
            else:
                weights = store.layer(backend, layer)
            weight = None
            if norm.affine:
                weight = numbers(backend, weights(f"{place}.weight"))
            read_norms[layer, place] = _StreamNorm(norm, weight)
        return read_norms[layer, place]

    taps = []
    for number, receiver in enumerate(receivers):
        norms = [
            read_norm(layer, place, norm)
            for layer, place, norm in stream_norms(spec, receiver.layer, receiver.kind)
        ]
        size = most_parts(spec, receiver.layer, by_layer=split != "head")
        taps.append(_Tap(number, receiver, norms, size, dtype))
    return taps


def _enter(
    backend: Backend, tap: _Tap, norm: Norm | None, place: str, weights: Weights, x: Array
) -> Reading:
    """The Reading of a tap (what one receiver reads of the stream) at its attention, after the
    attention's norm, whose shift is a part, too.

    x: what enters that norm, [token, width].
    place: where it sits, "attn.in", "cross.in" or "final".
    """
    if norm is None:
        return tap.close(x)
    weight = weights(f"{place}.weight")
    bias = weights(f"{place}.bias")
    tap.divide(deviation(norm, numpy_floats(backend, x)))
    if norm.affine:
        shift = numbers(backend, bias)
    else:
        shift = None
    if shift is not None:
        tap.add(
            StreamPart("norm", None if place == "final" else tap.receiver.layer, place=place),
            shift,
            tap.map,
        )
    return tap.close(normalise(backend, norm, x, weight, bias))


def numpy_floats(backend: Backend, array: Array) -> Floats:
    """An array in NumPy, float64 where the backend computes in it, else float32."""
    values = numbers(backend, array)
    assert values is not None
    return values


class _LayerWriter(Struct, frozen=True, eq=False):
    """Adds the parts that one layer writes to the residual stream to each tap, in the order in which
    `run_block` adds its branches.

    block, layer: what the layer does, and its number.
    count: tokens of the text.
    taps: of the receivers that are not reached yet.
    split: whether each head is a part, or all heads of a layer together, or none.
    on_heads, follower: as of `read_stream`.
    deviations: what norms divide each token's vector by, [token, 1], by place.
    branch_outputs: what branches other than attention write, [token, width], by place.
    """

    backend: Backend
    block: Block
    layer: int
    count: int
    taps: Sequence[_Tap]
    split: HeadSplit
    on_heads: OnHeads | None
    follower: Follower | None
    deviations: dict[str, Floats] = field(default_factory=dict)
    branch_outputs: dict[str, Floats] = field(default_factory=dict)

    def on_activation(self, layer: int, what: str, array: Array) -> None:
        """Called with each activation of the layer: keep what its parts need of it (of a norm's
        input the divisor, of a branch the output), and pass it on to the follower.

        what: a branch ("mlp", "conv", "mixer"), with its output, or a norm's place such as
            "attn.in", with the norm's input.
        """
        if what in ("mlp", "conv", "mixer"):
            self.branch_outputs[what] = numpy_floats(self.backend, array)
        # a norm on the stream or on a branch's result, not one on the copy that a branch reads
        elif not what.endswith(".in") or self._passes(what):
            norm = self._norm(what)
            assert norm is not None
            self.deviations[what] = deviation(norm, numpy_floats(self.backend, array))
        if self.follower is not None:
            self.follower.on_activation(layer, what, array)

    def attend(self, kind: Kind, trace: LayerTrace, weights: Weights) -> None:
        """Add to the taps, one for each receiver of the stream, what an attention writes to it: a part
        for each head and one for the bias; and a mixer's part.

        kind, trace: which of the layer's attentions, and what it did.
        """
        if not self.taps:
            return
        backend = self.backend
        block = self.block
        if kind == "self" and self._passes("attn.in"):
            self._pass_norm("attn.in", weights)
        if kind == "self" and block.mixer is not None:
            for tap in self.taps:
                part = StreamPart("mixer", self.layer)
                tap.add(part, self.branch_outputs["mixer"], tap.map * block.branch_scale)
        if block.instead:  # without attention
            self._pass_norm("attn.sum", weights)
            return

        prefix = "attn" if kind == "self" else "cross"
        attention = block.attention if kind == "self" else block.cross
        assert attention is not None  # its trace is here
        mixed = numpy_floats(backend, head_outputs(trace.stages))
        matrix = numbers(backend, weights(f"{prefix}.o.weight"))
        bias = numbers(backend, weights(f"{prefix}.o.bias"))
        if matrix is None:  # the heads' outputs side by side are the attention's output
            matrix = np.eye(attention.heads * attention.v_dim, dtype=mixed.dtype)

        for tap in self.taps:
            # without a residual connection the attention's output takes the stream's place
            if not block.residual:
                tap.forget()
            branch, factors = self._branch(tap, f"{prefix}.out", weights, residual=block.residual)
            # the map from all heads' values, [dim, head · v_dim], and head by head, [head, v_dim, dim]
            heads_map = branch @ matrix
            by_head = heads_map.reshape(-1, attention.heads, attention.v_dim).transpose(1, 2, 0)
            if self.on_heads is not None:
                factors_of_rows = factors[tap.receiver.rows]
                global_tokens = attention.own_global or ()  # None and () are both none
                event = HeadEvent(
                    kind, trace, by_head, tap.norm_count, factors_of_rows, global_tokens
                )
                self.on_heads(tap.number, event)
            self._add_heads(tap, kind, mixed, heads_map, by_head, factors)
            if bias is not None:
                tap.add(StreamPart("bias", self.layer, kind), bias, branch, factors)
        if not self._is_parallel:
            self._pass_norm(f"{prefix}.sum", weights)

    def _add_heads(
        self,
        tap: _Tap,
        kind: Kind,
        mixed: Floats,
        heads_map: Floats,
        by_head: Floats,
        factors: Floats,
    ) -> None:
        """Add to a tap (what one receiver reads of the stream) what the heads write: one part for all
        of them with the split "layer", one for each with "head", none with "none".

        mixed: each head's weighted sum of values, [head, token, v_dim].
        heads_map: the receiver's map taken back through the output projection, [dim, head · v_dim].
        by_head: the same as [head, v_dim, dim].
        factors: by which the norm behind the attention scales each token, [token, 1].
        """
        rows = tap.receiver.rows
        if self.split == "layer":
            # [token, head, v_dim] → [token, head · v_dim]: the heads side by side
            by_token = mixed[:, rows].swapaxes(0, 1)
            joined = by_token.reshape(len(by_token), -1)
            part = StreamPart("heads", self.layer, kind)
            tap.add_parts(part)[0] = joined @ heads_map.T * factors[rows]
        elif self.split == "head":
            heads = [StreamPart("head", self.layer, kind, head) for head in range(len(by_head))]
            values = tap.add_parts(*heads)
            np.matmul(mixed[:, rows], by_head, out=values)
            values *= factors[rows]

    def feed_forward(self, weights: Weights) -> None:
        """Add to the taps, one for each receiver of the stream, what the feed-forward part, and a
        convolution if any, write to it.
        """
        if self.block.mlp is not None:
            for tap in self.taps:
                branch, factors = self._branch(tap, "mlp.out", weights)
                tap.add(
                    StreamPart("feed_forward", self.layer),
                    self.branch_outputs["mlp"],
                    branch,
                    factors,
                )
            if not self._is_parallel:
                self._pass_norm("mlp.sum", weights)
        if self.block.convolution is not None:
            for tap in self.taps:
                tap.add(StreamPart("convolution", self.layer), self.branch_outputs["conv"], tap.map)
            self._pass_norm("conv.norm", weights)

    def _passes(self, place: str) -> bool:
        """Whether the norm at `place` is applied to the stream itself (its result carries on as the
        stream), not to a copy that a branch reads."""
        return self.block.normed and place == "attn.in"

    @property
    def _is_parallel(self) -> bool:
        """Whether attention and feed-forward part read the same vectors (a parallel block)."""
        return self.block.parallel and self.block.mlp is not None

    def _norm(self, place: str) -> Norm | None:
        """The layer's norm at a place, that of its convolution at "conv.norm"; None where there is
        none.
        """
        if place == "conv.norm":
            if self.block.convolution is None:
                return None
            return self.block.convolution.norm
        return self.block.norms.get(place)  # type: ignore[call-overload]

    def _branch(
        self, tap: _Tap, place: str, weights: Weights, *, residual: bool = True
    ) -> tuple[Floats, Floats]:
        """The map by which a tap's receiver reads what a branch computes, [dim, width], and a factor
        for each token, [token, 1]: with a norm on the branch's result, the map is taken through it
        and the factor is its division. Adds that norm's shift to the tap as a part.

        place: of that norm, such as "attn.out".
        residual: whether the result is added to the stream, perhaps scaled, not put in its place.
        """
        # no norm follows a feed-forward part that runs beside the attention
        if self._is_parallel and place == "mlp.out":
            norm = None
        else:
            norm = self._norm(place)
        scaled_map = tap.map
        if residual:
            scaled_map = tap.map * self.block.branch_scale
        if norm is None:
            return scaled_map, np.ones((self.count, 1))
        weight = numbers(self.backend, weights(f"{place}.weight"))
        bias = numbers(self.backend, weights(f"{place}.bias"))
        if norm.affine and bias is not None:
            tap.add(StreamPart("norm", self.layer, place=place), bias, scaled_map)
        return through_norm(norm, scaled_map, weight), 1.0 / self.deviations[place]

    def _pass_norm(self, place: str, weights: Weights) -> None:
        """Take all taps, one for each receiver of the stream, through the norm of the stream at
        `place`, if there is one: note its division, and add its shift as a part."""
        norm = self._norm(place)
        if norm is None:
            return
        if norm.affine:
            bias = numbers(self.backend, weights(f"{place}.bias"))
        else:
            bias = None
        for tap in self.taps:
            tap.divide(self.deviations[place])
            if bias is not None:
                tap.add(StreamPart("norm", self.layer, place=place), bias, tap.map)
