"""`EdgeGraph`: what writes to the residual stream of a decoder, what reads from it, and the edges
between them.

Source: Wang et al., Interpretability in the wild, 2022; Hanna et al., Have faith in faithfulness,
2024 (arXiv 2403.17806), with keys and values for each key-value head.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from msgspec import Struct

from attncli.arrays.numpy_backend import integers
from attncli.errors import UnsupportedError
from attncli.language import Message, message
from attncli.mechanism.spec import Attention, Block, Spec

Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
"""Edges of a circuit, booleans [reader, writer]."""
Floats = np.ndarray[Any, np.dtype[Any]]
Reads: TypeAlias = Literal["q", "k", "v", "mlp", "logits"]


class EdgeWriter(Struct, frozen=True):
    """A node that writes to the residual stream.

    layer, head: None where the node has none.
    """

    kind: Literal["embedding", "head", "mlp"]
    layer: int | None = None
    head: int | None = None

    @property
    def id(self) -> str:
        """The node's name in documents: embed, or such as L5H3 or L5MLP."""
        if self.layer is None:
            return "embed"
        if self.head is None:
            return f"L{self.layer}MLP"
        return f"L{self.layer}H{self.head}"


class EdgeReader(Struct, frozen=True):
    """What reads the residual stream: the queries of a head, the keys or values of a key-value
    head, a feed-forward part, or the logits.

    count: writers before it, whose numbers are 0..count-1.
    nodes: numbers of the writers that it belongs to; none for the logits.
    """

    reads: Reads
    id: str
    count: int
    nodes: tuple[int, ...] = ()


class EdgeGraph(Struct, frozen=True):
    """The writers and readers of a model in the order in which they run."""

    writers: tuple[EdgeWriter, ...]
    readers: tuple[EdgeReader, ...]

    @property
    def mask(self) -> Mask:
        """All edges of the model, booleans [reader, writer]: each reader reads every writer that
        runs before it."""
        counts = np.asarray([reader.count for reader in self.readers])
        return np.arange(len(self.writers)) < counts[:, None]


def edge_graph(spec: Spec) -> EdgeGraph:
    """List what writes to the residual stream of a decoder and what reads it, in the order of a run.
    Raises UnsupportedError for a model whose stream is no sum of what its parts write."""
    writers = [EdgeWriter("embedding")]
    readers: list[EdgeReader] = []
    for layer, block in enumerate(spec.blocks):
        reason = _obstacle(block)
        if reason is not None:
            raise UnsupportedError(
                "a circuit of this {family} model has no edges: {reason}",
                expected="a decoder of attention and feed-forward parts, each added to the stream",
                family=spec.family,
                reason=reason,
            )
        first = len(writers)
        heads = block.attention.heads
        readers += _attention_readers(layer, block.attention, first)
        writers += [EdgeWriter("head", layer, head) for head in range(heads)]
        if block.mlp is not None:
            # beside its attention, a feed-forward part reads what that reads; else its output, too
            count = first
            if not block.parallel:
                count = len(writers)
            node = len(writers)
            readers.append(EdgeReader("mlp", f"L{layer}MLP", count=count, nodes=(node,)))
            writers.append(EdgeWriter("mlp", layer))
    readers.append(EdgeReader("logits", "logits", count=len(writers)))
    return EdgeGraph(tuple(writers), tuple(readers))


def _attention_readers(layer: int, attention: Attention, first: int) -> list[EdgeReader]:
    """The readers of an attention: the queries of each head, then the keys of each key-value head,
    then their values.

    first: the number of its first head among the writers, and so how many writers run before it.
    """
    # heads that share keys and values, whose reader is named KV; a head of its own is named H
    group = attention.heads // attention.kv_heads
    letter = "H" if group == 1 else "KV"
    queries = [
        EdgeReader("q", f"L{layer}H{head}", count=first, nodes=(first + head,))
        for head in range(attention.heads)
    ]
    sides: tuple[Reads, Reads] = ("k", "v")
    shared = [
        EdgeReader(
            side,
            f"L{layer}{letter}{head}",
            count=first,
            nodes=tuple(range(first + head * group, first + (head + 1) * group)),
        )
        for side in sides
        for head in range(attention.kv_heads)
    ]
    return queries + shared


def _obstacle(block: Block) -> Message | str | None:
    """Why what a layer adds to the residual stream is no plain sum of what its heads and its
    feed-forward part write, each from projections of the stream; None where it is one."""
    attention = block.attention
    if block.mixer is not None or block.instead or block.convolution is not None:
        return message("a layer has a mixer or a convolution")
    if block.cross is not None:
        return message("a layer reads another text")
    if attention.latent is not None or attention.own_global is not None:
        return message("its queries, keys and values do not each come from one projection")
    if attention.hashing is not None or attention.shared is not None:
        return message("its keys are those of other vectors")
    norms_of_sums = ("attn.sum", "mlp.sum")
    has_norm_of_sum = any(place in block.norms for place in norms_of_sums)
    if block.normed or not block.residual or has_norm_of_sum:
        return message("a norm changes the sum of what earlier parts wrote")
    return None


def live_edges(graph: EdgeGraph, mask: Mask) -> Mask:
    """The edges of a circuit through which something flows: their writer is fed, from the embedding
    on, and their reader's node is read, up to the logits. The others change nothing.

    mask: the edges of the circuit, [reader, writer], as the result.
    """
    # forwards: a node is fed when one of its readers reads a writer that is fed
    is_fed = np.zeros(len(graph.writers), bool)
    is_fed[0] = True  # the embedding
    for number, reader in enumerate(graph.readers):
        if reader.nodes and (mask[number] & is_fed).any():
            is_fed[list(reader.nodes)] = True

    # backwards: an edge is live when its reader's node is read; the logits have no node
    is_read = np.zeros(len(graph.writers), bool)
    live = np.zeros_like(mask)
    for number in range(len(graph.readers) - 1, -1, -1):
        reader = graph.readers[number]
        if reader.nodes and not is_read[list(reader.nodes)].any():
            continue
        live[number] = mask[number] & is_fed
        is_read |= live[number]  # the writers of its live edges
    return live


def strongest_edges(graph: EdgeGraph, scores: Floats, count: int) -> Mask:
    """The circuit of the `count` edges of largest |score|; of equal ones the first.

    scores: [reader, writer].
    """
    edges = np.flatnonzero(graph.mask)
    order = np.argsort(-np.abs(scores.ravel()[edges]), kind="stable")
    return _edge_mask(graph, edges[order[:count]])


def random_edges(graph: EdgeGraph, count: int, seed: int) -> Mask:
    """A circuit of `count` edges drawn at random, always the same for a seed and a count."""
    edges = np.flatnonzero(graph.mask)
    order = integers(seed, f"edges\0{count}", len(edges)).argsort(kind="stable")
    return _edge_mask(graph, edges[order[:count]])


def _edge_mask(graph: EdgeGraph, places: Floats) -> Mask:
    """The mask [reader, writer] that is true at these indices into it as a flat array."""
    mask = np.zeros(len(graph.readers) * len(graph.writers), bool)
    mask[places] = True
    return mask.reshape(len(graph.readers), len(graph.writers))
