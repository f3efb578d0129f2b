"""Runs of a pair of texts for circuits: one that leaves what each node writes and the gradient at
each reader, and exact ones with edges outside a circuit replaced by the corrupt text's.

Source: Hanna et al., Have faith in faithfulness, 2024 (arXiv 2403.17806) for the scores; Goldowsky-Dill
et al., Localizing model behavior with path patching, 2023, for the replacement of edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import Array, Backend, numpy_backend
from attncli.arrays.gradient_backend import Variable, gradient_backend, gradients, zeros_like
from attncli.features.circuit.edge_graph import EdgeGraph, Mask
from attncli.features.circuit.layer_parts import (
    OwnInputs,
    SlopeWeights,
    by_head,
    head_writes,
)
from attncli.measure.pair_measure import TokenPair
from attncli.mechanism.block import mix_heads
from attncli.mechanism.context import Context, Weights
from attncli.mechanism.feed_forward import feed_forward, linear_if_any, normalise
from attncli.mechanism.projection import LayerAttention
from attncli.mechanism.spec import Block, Norm
from attncli.mechanism.trace import head_outputs
from attncli.models.model import Model
from attncli.models.run import cache_weights, finish, unembedding_rows

Floats = np.ndarray[Any, np.dtype[Any]]


class PairGradients(Struct, frozen=True, eq=False):
    """What EAP-IG needs of a pair.

    change: what each node writes in the corrupt text less what it writes in the clean one, [writer,
        token, width].
    slopes: of m at each reader, the mean over steps, [reader, token, width].
    """

    change: Floats
    slopes: Floats

    def scores(self, graph: EdgeGraph) -> Floats:
        """Estimate for each edge how much m, the logit difference, changes where the edge carries the
        corrupt text's value: Σ change · slope over tokens and entries, [reader, writer]; 0 where
        there is no edge."""
        # both [·, token, width]
        scores = np.tensordot(self.slopes, self.change, ((1, 2), (1, 2)))
        return np.where(graph.mask, scores, 0.0)

    def scores_by_position(self, graph: EdgeGraph) -> Floats:
        """The terms of `scores` of each token, [token, reader, writer]: Σ over entries alone."""
        scores = np.matmul(self.slopes.transpose(1, 0, 2), self.change.transpose(1, 2, 0))
        return np.where(graph.mask, scores, 0.0)


class CircuitModel:
    """A model whose readers are run apart, over NumPy.

    dtype: float32, or float64.
    """

    def __init__(self, model: Model, graph: EdgeGraph, dtype: str) -> None:
        self.model = model
        self.graph = graph
        self.plain = numpy_backend(dtype)
        self.dtype = np.dtype(dtype)
        self._outer = model.store.outer(self.plain)  # of large tables it reads single rows
        self._reading = Lock()

    def pair_gradients(self, pair: TokenPair, steps: int) -> PairGradients:
        """Run both texts and inputs between them, and take the gradient of m, the logit difference,
        at what each reader reads.

        steps: how many inputs, evenly spaced from the corrupt text's embedding (not included) to the
            clean one's (included), the gradients are averaged over.
        """
        clean = self.embed(pair, pair.clean)
        corrupt = self.embed(pair, pair.corrupt)
        shares = np.arange(steps + 1, dtype=self.dtype) / self.dtype.type(steps)
        batch = corrupt + shares[:, None, None] * (clean - corrupt)
        run = _GradientRun(self, pair, batch)
        # what each node writes in the corrupt text, the first input, less the clean one, the last
        slopes = run.slopes()
        change = np.stack([vectors[0] - vectors[-1] for vectors in run.writes])
        return PairGradients(change, slopes)

    def measure_circuits(self, pair: TokenPair, masks: Mask) -> Floats:
        """Measure m, the logit difference, when only the edges of a circuit carry what they carry in
        the clean text, and every other edge carries what it does in the corrupt text.

        Args:
            pair: The clean and the corrupt text, and the two answers.
            masks: The edges of each circuit, [circuit, reader, writer].

        Returns:
            m of the corrupt text itself, then for each circuit, [1 + circuit], float64.
        """
        run = _ReplacedRun(self, pair, masks)
        for layer, block in enumerate(self.model.spec.blocks):
            run.attend(layer, block)
            if block.mlp is not None:
                run.feed_forward(block)
        # what the logits, the last reader, read at the last token
        last = run.inputs(run.every, readers=1)[:, 0, -1]
        return np.asarray(self.measure(self.plain, last, pair), np.float64)

    def context(self, pair: TokenPair) -> Context:
        """What layers need to run texts of this pair's length, such as positions; no stages of
        attention are kept."""
        return replace(self.model.context(pair.clean, self.plain, ()), keep=frozenset())

    def measure(self, backend: Backend, hidden: Array, pair: TokenPair) -> Array:
        """m, the logit of the pair's answer minus that of the other, [...], from vectors that leave
        the last layer, [..., width]. A soft cap of the logits is not applied."""
        with self._reading:  # threads share the table of the vocabulary: one reads at a time
            return self._measure(backend, hidden, pair)

    def _measure(self, backend: Backend, hidden: Array, pair: TokenPair) -> Array:
        """Compute m, the logit of the pair's answer minus that of the other, [...], from vectors that
        leave the last layer, [..., width]; called by one thread at a time."""
        head = self.model.spec.head
        assert head is not None
        outputs = finish(self.model.spec, self._outer, backend, hidden)
        if head.projection:
            projected = linear_if_any(backend, self._outer, "head.project", outputs)
            assert projected is not None
            outputs = projected
        # the difference of two logits is one product with the difference of their two rows
        answer, versus = unembedding_rows(head, self._outer, [pair.answer, pair.versus])
        matrix = (np.asarray(answer) - np.asarray(versus))[None, :].astype(self.dtype)
        flat = outputs.reshape((-1, outputs.shape[-1]))
        scores = (
            backend.affine(flat, matrix, bias=None).reshape(tuple(outputs.shape[:-1])) * head.scale
        )
        for role in ("head.bias", "head.offsets"):
            bias = self._outer(role)
            if bias is not None:
                scores = scores + float(bias[pair.answer] - bias[pair.versus])
        return scores

    def embed(self, pair: TokenPair, tokens: Sequence[Any]) -> Floats:
        """The vectors that enter layer 0 for `tokens`, one of the pair's two texts, [token, width]."""
        embedding = self.plain.numpy(self.model.store.embed(self.plain, tokens))
        return np.asarray(embedding, self.dtype)


class _ReplacedRun:
    """Runs of several circuits at once, layer by layer. Run 0 is the corrupt text itself; in each
    other run the edges outside its circuit carry what they carry there.

    masks: the edges that each run keeps, [run, reader, writer]; none in run 0.
    every: the numbers of all runs.
    stream: of the corrupt text, [token, width], up to the present layer.
    moved: how far what each writer writes in a run differs from the corrupt text, [run, writer,
        token from `first` on, width].
    reader, writer: the numbers of the next reader and of the next writer.
    """

    def __init__(self, circuit: CircuitModel, pair: TokenPair, masks: Mask) -> None:
        """Begin with what the embedding writes in either text; no layer has run yet.

        masks: the edges of each circuit, [circuit, reader, writer].
        """
        graph = circuit.graph
        self.circuit = circuit
        self.pair = pair
        # run 0, the corrupt text, keeps no edge of the clean one
        self.masks = np.concatenate([np.zeros_like(masks[:1]), masks])
        self.every = np.arange(len(self.masks))
        self.context = circuit.context(pair)
        self.stream = circuit.embed(pair, pair.corrupt)
        count, width = self.stream.shape
        # tokens before the first that differs are the same in both texts
        self.first = pair.first_difference
        shape = (len(self.masks), len(graph.writers), count - self.first, width)
        self.moved = np.zeros(shape, circuit.dtype)
        # the embedding, writer 0, differs by the difference of the two texts
        clean = circuit.embed(pair, pair.clean)
        self.moved[1:, 0] = (clean - self.stream)[self.first :]
        # the numbers of the next reader and of the next writer
        self.reader = 0
        self.writer = 1
        # those of the layer that runs: `attend` sets them; these are read by nobody
        self.weights: Weights = circuit.model.store.outer(circuit.plain)

    def attend(self, layer: int, block: Block) -> None:
        """Run the attention of a layer in those runs where one of its readers keeps an edge. A
        feed-forward part that runs beside the attention, not after it, is run here, too."""
        circuit = self.circuit
        self.weights = cache_weights(circuit.model.store.layer(circuit.plain, layer))
        # the readers: queries of each head, keys and values of each key-value head
        readers = block.attention.heads + 2 * block.attention.kv_heads
        runs = self._runs(readers)
        inputs = self.inputs(runs, readers)
        before = self.stream
        mixed = _attend(circuit.plain, block, self.weights, inputs, self.context, layer)
        vectors = head_writes(self.weights, block.norms.get("attn.out"), mixed)
        self._write(runs, vectors * circuit.dtype.type(block.branch_scale))
        self.reader += readers
        if block.parallel and block.mlp is not None:
            # the feed-forward part reads the stream from before the attention
            runs = self._runs(readers=1)
            x = self.inputs(runs, readers=1, stream=before)[:, 0]
            self._write(runs, self._mlp(block, x))
            self.reader += 1

    def feed_forward(self, block: Block) -> None:
        """Run the feed-forward part of a layer in the runs in which it keeps an edge; where it runs
        beside the attention, `attend` has done so."""
        if block.parallel:
            return
        runs = self._runs(readers=1)
        x = self.inputs(runs, readers=1)[:, 0]
        self._write(runs, self._mlp(block, x))
        self.reader += 1

    def inputs(self, runs: Floats, readers: int, stream: Floats | None = None) -> Floats:
        """What each of the next readers reads, [run, reader, token, width]: the corrupt text's
        stream, plus the change of every writer whose edge to it is kept.

        runs: the numbers of the runs.
        readers: how many readers; all read the same writers.
        stream: of the corrupt text where they read; None for the present one.
        """
        base = self.stream
        if stream is not None:
            base = stream
        count = self.circuit.graph.readers[self.reader].count
        kept = self.masks[runs, self.reader : self.reader + readers, :count]
        moved = self.moved[runs, :count]
        # [run, reader, writer] · [run, writer, token·width]; before `first`, nothing changes
        changes = np.matmul(kept.astype(self.circuit.dtype), moved.reshape((len(runs), count, -1)))
        inputs = np.empty((len(runs), readers, *base.shape), self.circuit.dtype)
        inputs[:] = base
        inputs[:, :, self.first :] += changes.reshape((len(runs), readers, -1, base.shape[-1]))
        return inputs

    def _runs(self, readers: int) -> Floats:
        """The numbers of run 0, the corrupt text itself, and of those in which one of the next
        `readers` readers keeps an edge; in all others these parts give what they give in run 0."""
        keeps = np.asarray(self.masks[:, self.reader : self.reader + readers].any((1, 2)))
        return np.union1d([0], np.flatnonzero(keeps))

    def _mlp(self, block: Block, x: Floats) -> Floats:
        """The output of the layer's feed-forward part for x, [run, token, width], with an axis for
        its one node: [run, 1, token, width]."""
        vectors = run_mlp(self.circuit.plain, block, self.weights, cast("Array", x))
        return np.asarray(vectors)[:, None]

    def _write(self, runs: Floats, vectors: Floats) -> None:
        """Take in what the next nodes write: add the corrupt text's vectors to its stream, and keep
        by how much those of the other runs differ.

        runs: the numbers of the runs; the first is 0, the corrupt text itself.
        vectors: [run, node, token, width], of all tokens.
        """
        nodes = slice(self.writer, self.writer + vectors.shape[1])
        # run 0 comes first: its nodes' vectors are the corrupt text's
        self.stream = self.stream + vectors[0].sum(0)
        # `moved` begins at token `first`: before the texts differ, all runs are alike
        self.moved[runs, nodes] = vectors[:, :, self.first :] - vectors[0, :, self.first :]
        self.writer = nodes.stop


class _GradientRun:
    """One run with gradients of a batch of inputs, [input, token, width], the corrupt one first and
    the clean one last.

    writes: what each node writes, [input, token, width] each, the embedding first.
    streams: the residual stream as it enters each layer.
    variables: zeros added to what projections, feed-forward parts and the logits read or give; their
        gradients are those of m there.
    total: m, the logit difference, summed over all inputs but the corrupt one.
    """

    def __init__(self, circuit: CircuitModel, pair: TokenPair, batch: Floats) -> None:
        """Run all layers, and compute m for each input. batch: the inputs, [input, token, width]."""
        self.circuit = circuit
        self.pair = pair
        self.backend = gradient_backend(str(circuit.dtype))
        self.context = circuit.context(pair)
        self.writes: list[Floats] = [batch]  # by each node, the embedding first
        self.streams: list[Floats] = []  # as they enter each layer
        self.variables: list[Variable] = []  # those whose gradients are taken
        self.hidden: Array = cast("Array", batch)
        for layer, block in enumerate(circuit.model.spec.blocks):
            self._run_layer(layer, block)
        # zeros added to what the logits read, whose gradient is that of m there
        slope = zeros_like(self.hidden)
        self.variables.append(slope)
        measures = circuit.measure(self.backend, (self.hidden + cast("Array", slope))[:, -1], pair)
        # the corrupt text's own run is there for what its nodes write, not for gradients
        self.total = self.backend.sum(measures[1:], -1)

    def slopes(self) -> Floats:
        """The gradient of m at what each reader reads, a mean over all inputs but the corrupt one,
        [reader, token, width], readers in the order of the graph."""
        # in the order in which `_run_layer` made the variables, [input, token, …] each; [1:] leaves
        # out the corrupt text's own run, and [None] adds the axis of the one reader
        slopes = iter(gradients(self.total, self.variables))
        rows: list[Floats] = []
        for layer, block in enumerate(self.circuit.model.spec.blocks):
            by_name = {name: next(slopes) for name in projections(block)}
            rows.append(self._attention_slopes(layer, block, by_name, self.streams[layer]))
            if block.mlp is not None:
                rows.append(next(slopes)[1:].mean(0)[None])
        # the logits
        rows.append(next(slopes)[1:].mean(0)[None])
        return np.concatenate(rows)

    def _value(self, array: Array) -> Floats:
        """An array of the run as NumPy numbers, without the graph of its gradients."""
        return np.asarray(self.backend.numpy(array), self.circuit.dtype)

    def _run_layer(self, layer: int, block: Block) -> None:
        """Run a layer, and keep the stream that enters it, what its nodes write, and the variables
        whose gradients `slopes` takes."""
        backend = self.backend
        weights = cache_weights(self.circuit.model.store.layer(self.circuit.plain, layer))
        self.streams.append(self._value(self.hidden))

        # the heads, up to what they mix
        names = projections(block)
        # zeros are added to what these projections give, and their gradients are those of m there
        watched = SlopeWeights(weights, frozenset(names))
        attention = LayerAttention(backend, watched, "attn", block.attention)
        entering = normalise_at(backend, block, weights, "attn.in", self.hidden)
        # self-attention, which has no memory; which rows see no key does not matter here
        stages, _ = mix_heads(attention, entering, None, self.context, layer)
        mixed = head_outputs(stages)
        self.variables += [watched.slopes[name] for name in names]

        # what each head writes, [input, head, token, width]
        scale = block.branch_scale
        vectors = head_writes(weights, block.norms.get("attn.out"), self._value(mixed))
        self.writes += list(np.moveaxis(vectors * self.circuit.dtype.type(scale), -3, 0))

        # their sum, through the output projection, which gradients go back through
        # [input, token, head · v_dim]
        joined = backend.permute(mixed, [0, 2, 1, 3]).reshape((*entering.shape[:-1], -1))
        out = linear_if_any(backend, weights, "attn.o", joined)
        assert out is not None
        out = normalise_at(backend, block, weights, "attn.out", out) * scale
        before = self.hidden
        after = before + out
        if block.mlp is None:
            self.hidden = after
            return

        # the feed-forward part, beside the attention or after it
        x = after
        if block.parallel:
            x = before
        # zeros added to what it reads, whose gradient is that of m there
        slope = zeros_like(x)
        self.variables.append(slope)
        added = run_mlp(backend, block, weights, x + cast("Array", slope))
        self.writes.append(self._value(added))
        self.hidden = after + added

    def _attention_slopes(
        self, layer: int, block: Block, slopes: dict[str, Floats], stream: Floats
    ) -> Floats:
        """The gradient of m at what each reader of an attention reads from the stream, a mean over
        inputs, [reader, token, width]: the gradients at the results of its projections are taken
        back through the projection's matrix, head by head, and through the norm before it.

        slopes: the gradient at each projection's result, [input, token, head·dim], by name.
        stream: the vectors that enter the layer, [input, token, width].
        """
        weights = cache_weights(self.circuit.model.store.layer(self.circuit.plain, layer))
        attention = block.attention
        sizes = {"q": attention.heads, "k": attention.kv_heads, "v": attention.kv_heads}
        parts = []
        for side, heads in sizes.items():
            part = self._through_rows(weights, f"attn.{side}", heads, slopes)
            # a gate of the heads reads what their queries read
            if side == "q" and "attn.gate" in slopes:
                part = part + self._through_rows(weights, "attn.gate", heads, slopes)
            parts.append(part)
        entering = np.concatenate(parts, 1)  # [input, reader, token, width]
        norm = block.norms.get("attn.in")
        if norm is not None:
            # `entering` has no row of the corrupt text's own run, which is input 0
            entering = self._through_norm(norm, weights, stream[1:], entering)
        return entering.mean(0)

    def _through_rows(
        self, weights: Weights, name: str, heads: int, slopes: dict[str, Floats]
    ) -> Floats:
        """The gradient at what each head reads, [input, head, token, width], from that at the result
        of the projection `name`. The first input, the corrupt text, is left out.
        """
        slope = slopes[name][1:]
        # [input, head, token, dim]
        apart = slope.reshape((*slope.shape[:-1], heads, -1)).transpose(0, 2, 1, 3)
        return np.matmul(apart, np.asarray(by_head(weights, name, heads)))

    def _through_norm(self, norm: Norm, weights: Weights, stream: Floats, slopes: Floats) -> Floats:
        """The gradient before a norm, [input, reader, token, width], from that behind it.

        stream: what enters the norm, [input, token, width].
        slopes: the gradient behind it, [input, reader, token, width].
        """
        backend = self.backend
        entering = Variable(np.ascontiguousarray(np.broadcast_to(stream[:, None], slopes.shape)))
        leaving = normalise(
            backend,
            norm,
            cast("Array", entering),
            weights("attn.in.weight"),
            weights("attn.in.bias"),
        )
        # the gradient of Σ leaving · slopes with respect to what enters is the one wanted
        total = (leaving * cast("Array", slopes)).reshape((1, -1))
        (result,) = gradients(backend.sum(total, -1), [entering])
        return result


def projections(block: Block) -> tuple[str, ...]:
    """The names of the projections of a layer's attention that read the residual stream."""
    sides = ("attn.q", "attn.k", "attn.v")
    if block.attention.gated:
        return (*sides, "attn.gate")
    return sides


def normalise_at(backend: Backend, block: Block, weights: Weights, place: Any, x: Array) -> Array:
    """x after the layer's norm at `place`, such as "attn.in"; x itself where it has no norm there."""
    norm = block.norms.get(place)
    if norm is None:
        return x
    return normalise(backend, norm, x, weights(f"{place}.weight"), weights(f"{place}.bias"))


def run_mlp(backend: Backend, block: Block, weights: Weights, x: Array) -> Array:
    """What a layer's feed-forward part adds to the residual stream, norms included, for the stream x
    that it reads, [..., token, width]."""
    assert block.mlp is not None
    # beside the attention, it may share the attention's norm
    if block.parallel and "mlp.in" not in block.norms:
        place = "attn.in"
    else:
        place = "mlp.in"
    entering = normalise_at(backend, block, weights, place, x)
    output = feed_forward(backend, block.mlp, weights, entering)
    if not block.parallel:
        output = normalise_at(backend, block, weights, "mlp.out", output)
    return output * block.branch_scale


def _attend(
    backend: Backend, block: Block, weights: Weights, inputs: Floats, context: Context, layer: int
) -> Floats:
    """The weighted sums of values of each head, [run, head, token, v_dim], where each reader of the
    attention has an input of its own.

    inputs: [run, reader, token, width], readers in the order queries of each head, keys of each
        key-value head, values of each.
    """
    attention = block.attention
    entering = np.asarray(normalise_at(backend, block, weights, "attn.in", cast("Array", inputs)))
    heads, kv_heads = attention.heads, attention.kv_heads
    sides: dict[str, Array] = {
        "attn.q": cast("Array", entering[:, :heads]),
        "attn.k": cast("Array", entering[:, heads : heads + kv_heads]),
        "attn.v": cast("Array", entering[:, heads + kv_heads :]),
    }
    # a gate of the heads reads what their queries read
    if attention.gated:
        sides["attn.gate"] = sides["attn.q"]
    # `OwnInputs` gives each reader its own input, so the one that is handed over, that of the first
    # reader, only tells the shape; there is no memory, as this is self-attention
    part = LayerAttention(backend, OwnInputs(weights, sides), "attn", attention)
    stages, _ = mix_heads(part, cast("Array", entering[:, 0]), None, context, layer)
    return np.asarray(head_outputs(stages))
