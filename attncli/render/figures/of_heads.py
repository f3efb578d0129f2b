"""The figure of the weights of heads: a map of each; with one query its sentence; their metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np
from msgspec import UNSET, UnsetType

from attncli.analysis.documents.cross import CrossDocument
from attncli.analysis.documents.declaration import Numbers
from attncli.analysis.documents.heads import HeadMetrics, HeadsDocument, Metrics
from attncli.analysis.documents.run import RunDocument
from attncli.analysis.documents.tensors import TensorsDocument
from attncli.errors import InputError
from attncli.render.figures.charts import draw_links, draw_sentence
from attncli.render.figures.drawing import Drawing
from attncli.render.figures.maps import Map, draw_maps
from attncli.render.figures.metrics import Measured, draw_metrics
from attncli.render.figures.titles import Say, names_of, ran, titled
from attncli.render.matrix import as_matrix, visible
from attncli.render.token_names import key_names

WORDS = 60
"""Words of a text that is still written as a sentence, or as two columns."""
AboutHeads = RunDocument | HeadsDocument | CrossDocument | TensorsDocument


@dataclass(frozen=True)
class HeldWeights:
    """What a document holds of one head. layer: None where captured arrays have none. pool: tokens in a cell."""

    name: str
    layer: int | None
    weights: Numbers
    scores: Numbers | UnsetType = UNSET
    pool: int = 1


def draw_heads(drawing: Drawing, document: AboutHeads, scale: str, say: Say) -> None:
    """The weights of every head; with one query its sentence; the links of one head of a short text."""
    held = list(_held(document, say))
    measured = document.heads if isinstance(document, HeadsDocument) else []
    if not held and not measured:
        raise InputError("this document holds no weights to draw", expected="one that was not shortened by --show")
    top = titled(drawing, _title(document), ran(document, say) if held else say("metrics"))
    if held:
        top = _draw_maps(drawing, document, held, top, scale, say)
    if measured:
        titles = {name: say(f"metric.{name}") for name in measured[0].metrics}
        heads = [_measured(one, say) for one in measured]
        draw_metrics(drawing, heads, titles, top + (20 if held else 0), said=say("uniform"))


def _mean_of_seen(weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The mean weight of each key over the heads that see it; 0 where none does. weights: [head, key], NaN is hidden."""
    seen = np.isfinite(weights)
    return np.where(seen, weights, 0.0).sum(0) / np.maximum(seen.sum(0), 1)


def _draw_maps(
    drawing: Drawing, document: AboutHeads, held: list[HeldWeights], top: float, scale: str, say: Say
) -> float:
    first = visible(held[0].weights, held[0].scores)
    rows, keys = _sides(document)
    keys = key_names(keys, first)
    maps = [
        Map(one.name + (say("pooled", one.pool) if one.pool > 1 else ""), visible(one.weights, one.scores), rows, keys)
        for one in held
    ]
    average = document.average if isinstance(document, HeadsDocument) else None
    if average and len(maps) > 1:
        maps.append(Map(say("average"), as_matrix(average.weights), rows, keys))
    if isinstance(document, RunDocument) and document.queries and len(keys) <= WORDS:
        mean = _mean_of_seen(np.stack([one.values[0] for one in maps]))
        high = float(mean.max()) or 1.0
        shares = [float(weight) / high for weight in mean]
        joined = _joined(document, len(keys))
        top = draw_sentence(drawing, keys, joined, shares, document.queries[0], top) + 14
    layers = [one.layer for one in held if one.layer is not None]
    across = max(map(layers.count, layers), default=3) if len(maps) > 3 else 3
    top = draw_maps(drawing, maps, top, say, scale=scale, across=across if 4 <= across <= 16 else 8)
    if len(maps) == 1 and max(len(rows), len(keys)) <= WORDS and len(rows) > 1:
        values = np.nan_to_num(maps[0].values)
        links = [(int(i), int(j), float(values[i, j])) for i, j in np.argwhere(values > 0.02)]
        top = draw_links(drawing, links, rows, keys, top + 16)
    return top


def _title(document: AboutHeads) -> str:
    match document:
        case CrossDocument():
            return document.query_text
        case TensorsDocument():
            return document.file
        case _:
            return document.text


def _held(document: AboutHeads, say: Say) -> Iterator[HeldWeights]:
    """The heads whose weights the document holds."""
    match document:
        case RunDocument():
            for layer in document.layers:
                for head in layer.heads:
                    if head.weights is not UNSET:
                        name = say("head", layer.layer, head.head)
                        yield HeldWeights(name, layer.layer, head.weights, head.scores)
            for one in document.maps or () if not any(layer.heads for layer in document.layers) else ():
                yield HeldWeights(say("head", one.layer, one.head), one.layer, one.weights, pool=one.pool)
        case CrossDocument():
            for part in document.layers:
                for found in part.heads:
                    yield HeldWeights(say("head", part.layer, found.head), part.layer, found.weights, found.scores)
        case HeadsDocument():
            for row in document.heads:
                if row.weights is not UNSET:
                    name = say("head", row.layer, row.head)
                    yield HeldWeights(name, row.layer, row.weights, pool=row.pool or 1)
        case TensorsDocument():
            for entry in document.batch:
                at = ".".join(map(str, entry.index))
                for captured in entry.heads:
                    if captured.weights is not UNSET:
                        several = len(document.batch) > 1
                        name = say("batch", at, captured.head) if several else say("of_layer", captured.head)
                        yield HeldWeights(name, None, captured.weights, captured.scores)
        case _:
            assert_never(document)


def _sides(document: AboutHeads) -> tuple[list[str], list[str]]:
    """The words of the rows and of the columns."""
    match document:
        case TensorsDocument():
            return [str(at) for at in range(document.queries)], [str(at) for at in range(document.keys)]
        case CrossDocument():
            return names_of(document.queries), names_of(document.keys)
        case _:
            keys = names_of(document.tokens)
            chosen = document.queries if isinstance(document, RunDocument) else UNSET
            return [keys[at] for at in chosen or range(len(keys))], keys


def _joined(document: RunDocument, count: int) -> list[bool]:
    """Which words follow the one before without a space, of as many as are shown."""
    tokens = document.tokens[:count]
    ends = [None, *(token.end for token in tokens)]
    found = [token.start is not None and token.start == end for token, end in zip(tokens, ends, strict=False)]
    return found + [False] * (count - len(found))


def _measured(head: HeadMetrics, say: Say) -> Measured:
    def values(metrics: Metrics | UnsetType) -> dict[str, float | None]:
        return {name: one.value for name, one in (metrics or {}).items()}

    name = say("head", head.layer, head.head)
    return Measured(head.layer, head.head, name, values(head.metrics), values(head.baseline))
