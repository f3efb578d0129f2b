"""The document of `attn run`: one text through the model, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attncli.analysis.document import Document, empty_rows, header, layer_part, notes, shape_rows
from attncli.analysis.links import LEFT_OUT, Links
from attncli.attention.trace import SQUARE, LayerTrace
from attncli.inputs.token import Token
from attncli.models.estimate import estimate
from attncli.models.model import Model


@dataclass(frozen=True)
class Wanted:
    """What of a run goes into its document.

    layers, heads: which, None for all. query: only this query's rows, None for all.
    matrices: whether scores, weights and outputs are held at all; stages: every stage by name.
    top: how many links; all_links: also the uninformative ones.
    """

    layers: Sequence[int] | None = None
    heads: Sequence[int] | None = None
    query: int | None = None
    matrices: bool = True
    stages: bool = False
    top: int = 10
    all_links: bool = False


@dataclass(frozen=True)
class Cost:
    """What a run will take, estimated before it starts. memory: bytes at the peak; numbers: in the document."""

    memory: int
    numbers: int


ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 4, "float16": 4}  # scores of low precision are kept in float32


def cost(model: Model, count: int, wanted: Wanted, *, saved: bool) -> Cost:
    """The cost of running `count` tokens. saved: whether all stages are kept to be saved."""
    layers = range(len(model.spec.blocks)) if wanted.layers is None else wanted.layers
    attentions = [model.spec.blocks[layer].attention for layer in layers]
    item, pairs, rows = ITEM_BYTES[model.backend.dtype], count * count, 1 if wanted.query is not None else count
    kept = len(SQUARE) if wanted.stages or saved else 2
    most = max(block.attention.heads for block in model.spec.blocks)
    numbers = held = 0
    for attention in attentions:
        heads = attention.heads if wanted.heads is None else len(wanted.heads)
        square = heads * rows * count * (2 + len(SQUARE) * wanted.stages)
        wide = rows * (heads * attention.v_dim * (1 + 4 * wanted.stages) + model.spec.d_model * (1 + 3 * wanted.stages))
        numbers += (square + wide) * wanted.matrices
        held += heads * pairs * len(SQUARE) * item * saved
    running = estimate(model.spec, count, layers=layers, kept=0, dtype=model.backend.dtype).peak
    return Cost(running + most * pairs * item * kept + numbers * item + held, numbers)


def run_document(
    model: Model, text: str, tokens: Sequence[Token], wanted: Wanted, *, see: Callable[[LayerTrace], None] | None = None
) -> Document:
    """Run a text and return its `attn.run/1` document. see: is handed each layer's trace, to save it."""
    document = header("attn.run/1", model, text, tokens)
    if wanted.query is not None:
        document["queries"] = [wanted.query]
    # only training makes heads rest on special tokens and neighbours; other weights have nothing to leave out
    learned = model.identity.source == "checkpoint"
    links = Links(tokens, top=wanted.top, query=wanted.query, everything=wanted.all_links or not learned)
    shapes: list[Document] = []
    layers: list[Document] = []
    empty: list[Document] = []
    overview: list[Document] = []
    averages: list[np.ndarray[Any, Any]] = []
    keep = SQUARE if wanted.stages or see is not None else ("masked", "weights")
    for trace in model.trace(tokens, layers=wanted.layers, heads=wanted.heads, keep=keep):
        heads = list(range(model.spec.blocks[trace.layer].attention.heads)) if wanted.heads is None else list(wanted.heads)
        shapes = shapes or shape_rows(trace, model.spec.blocks[trace.layer].attention)
        empty += empty_rows(model.backend, trace, heads)
        weights = model.backend.numpy(trace.stages["weights"])
        links.add(trace.layer, heads, weights)
        strongest = links.strongest(weights)
        overview += [{"layer": trace.layer, "head": head, "link": link} for head, link in zip(heads, strongest, strict=True)]
        if wanted.query is not None:
            averages.append(weights[:, wanted.query, : len(tokens)].mean(0, dtype=np.float64))
        if wanted.matrices:
            layers.append(_rows_of(layer_part(model.backend, trace, heads, stages=wanted.stages), wanted.query))
        if see is not None:
            see(trace)
    document |= {"shapes": shapes, "overview": overview, "layers": layers, "links": links.found()}
    if averages:
        document["average"] = np.mean(averages, 0)
    if learned and not wanted.all_links:
        document["links_leave_out"] = list(LEFT_OUT)
    document |= {"empty_rows": empty, "warnings": notes(model)}
    return document


def _rows_of(layer: Document, query: int | None) -> Document:
    """The layer with only one query's rows in what has a row per query."""
    if query is None:
        return layer

    def cut(part: Any) -> Any:
        return part[query : query + 1] if isinstance(part, np.ndarray) else part

    rows = {name: cut(part) for name, part in layer.items()}
    rows["heads"] = [{name: cut(part) for name, part in head.items()} for head in layer["heads"]]
    return rows
