"""The document of `attn heads`: every head on one text, with its metrics, and their average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attncli.analysis.document import Document, empty_rows, header, notes
from attncli.analysis.links import Links
from attncli.analysis.measure import Measured, measure
from attncli.analysis.metrics import DEFAULT
from attncli.inputs.token import Token
from attncli.models.model import Model


@dataclass(frozen=True)
class Compared:
    """What of a comparison goes into its document.

    layers, heads: which, None for all. metrics: names. maps: whether the weights themselves are held.
    all_links: whether a head's top link may be an uninformative one.
    """

    layers: Sequence[int] | None = None
    heads: Sequence[int] | None = None
    metrics: Sequence[str] = DEFAULT
    maps: bool = True
    all_links: bool = False


def heads_document(model: Model, text: str, tokens: Sequence[Token], wanted: Compared) -> Document:
    """Run a text and return its `attn.heads/1` document: metrics with rows used and uniform baseline, per head.

    `average` is the mean of the chosen heads' weights of the last layer that ran.
    """
    document = header("attn.heads/1", model, text, tokens)
    backend = model.backend
    everything = wanted.all_links or model.identity.source != "checkpoint"
    special = [token.special for token in tokens]
    found: list[Document] = []
    empty: list[Document] = []
    average: np.ndarray[Any, Any] | None = None
    for trace in model.trace(tokens, layers=wanted.layers, heads=wanted.heads, keep=("masked", "weights")):
        heads = list(range(model.spec.blocks[trace.layer].attention.heads)) if wanted.heads is None else list(wanted.heads)
        weights = backend.numpy(trace.stages["weights"])
        visible = backend.numpy(trace.stages["masked"]) != -np.inf
        keys = [token.text for token in tokens]
        named = keys if weights.shape[-1] == len(tokens) else None  # a learned extra key has no token
        measured = measure(weights, visible, metrics=wanted.metrics, tokens=named, special=special if named else None)
        links = Links(tokens, top=1, everything=everything)
        links.add(trace.layer, heads, weights)
        tops = [entry["link"] for entry in links.overview()]
        for place, head in enumerate(heads):
            part: Document = {"layer": trace.layer, "head": head}
            if wanted.maps:
                part["weights"] = weights[place]
            part |= {"metrics": _numbers(measured, place, "value"), "baseline": _numbers(measured, place, "baseline")}
            part["top_link"] = tops[place]
            found.append(part)
        empty += empty_rows(backend, trace, heads)
        average = weights.mean(0)
    shown = {"weights": average} if wanted.maps and average is not None else None
    return document | {"heads": found, "average": shown, "empty_rows": empty, "warnings": notes(model)}


def _numbers(measured: dict[str, Measured], place: int, which: str) -> Document:
    return {
        name: {"value": None if np.isnan(number := float(getattr(one, which)[place])) else number, "rows": int(one.rows[place])}
        for name, one in measured.items()
    }
