"""The figure of the weights of heads: a map of each; with one query its sentence; their metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np
from msgspec import UNSET, UnsetType

from attncli.analysis.documents.declaration import Numbers
from attncli.errors import InputError
from attncli.features.cross.document import CrossDocument
from attncli.features.heads.document import HeadMetrics, HeadsDocument, Metrics
from attncli.features.run.document import RunDocument
from attncli.features.tensors.document import TensorsDocument
from attncli.render.figures.charts import draw_links, draw_sentence
from attncli.render.figures.drawing import Drawing
from attncli.render.figures.maps import FigureMap, draw_maps
from attncli.render.figures.metrics import FigureHead, draw_metrics
from attncli.render.figures.titles import Say, draw_title, model_note, names_of
from attncli.render.matrix import as_matrix, visible
from attncli.render.token_names import key_names

WORDS = 60
"""Words of a text that is still written as a sentence, or as two columns."""
AboutHeads = RunDocument | HeadsDocument | CrossDocument | TensorsDocument


@dataclass(frozen=True)
class HeadWeights:
    """What a document holds of one head. layer: None where captured arrays have none. pool: tokens in a cell."""

    name: str
    layer: int | None
    weights: Numbers
    scores: Numbers | UnsetType = UNSET
    pool: int = 1


def draw_heads(drawing: Drawing, document: AboutHeads, scale: str, say: Say) -> None:
    """The weights of every head; with one query its sentence; the links of one head of a short text."""
    weights = list(_head_weights(document, say))
    head_metrics = document.heads if isinstance(document, HeadsDocument) else []
    if not weights and not head_metrics:
        raise InputError("this document holds no weights to draw", expected="one that was not shortened by --show")
    top = draw_title(drawing, _title(document), model_note(document, say) if weights else say("metrics"))
    if weights:
        top = _draw_maps(drawing, document, weights, top, scale, say)
    if head_metrics:
        titles = {name: say(f"metric.{name}") for name in head_metrics[0].metrics}
        heads = [_figure_head(metrics, say) for metrics in head_metrics]
        draw_metrics(drawing, heads, titles, top + (20 if weights else 0), line_note=say("uniform"))


def _mean_of_visible(weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The mean weight of each key over the heads that see it; 0 where none does. weights: [head, key], NaN is hidden."""
    visible = np.isfinite(weights)
    return np.where(visible, weights, 0.0).sum(0) / np.maximum(visible.sum(0), 1)


def _draw_maps(
    drawing: Drawing, document: AboutHeads, head_weights: list[HeadWeights], top: float, scale: str, say: Say
) -> float:
    first = visible(head_weights[0].weights, head_weights[0].scores)
    rows, keys = _sides(document)
    keys = key_names(keys, first)
    maps = [
        FigureMap(
            head.name + (say("pooled", head.pool) if head.pool > 1 else ""),
            visible(head.weights, head.scores),
            rows,
            keys,
        )
        for head in head_weights
    ]
    average = document.average if isinstance(document, HeadsDocument) else None
    if average and len(maps) > 1:
        maps.append(FigureMap(say("average"), as_matrix(average.weights), rows, keys))
    if isinstance(document, RunDocument) and document.queries and len(keys) <= WORDS:
        mean = _mean_of_visible(np.stack([head.values[0] for head in maps]))
        high = float(mean.max()) or 1.0
        shares = [float(weight) / high for weight in mean]
        follows_directly = _follows_directly(document, len(keys))
        top = draw_sentence(drawing, keys, follows_directly, shares, document.queries[0], top) + 14
    layers = [head.layer for head in head_weights if head.layer is not None]
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


def _head_weights(document: AboutHeads, say: Say) -> Iterator[HeadWeights]:
    """The heads whose weights the document holds."""
    match document:
        case RunDocument():
            for layer in document.layers:
                for head in layer.heads:
                    if head.weights is not UNSET:
                        name = say("head", layer.layer, head.head)
                        yield HeadWeights(name, layer.layer, head.weights, head.scores)
            for pooled_map in document.maps or () if not any(layer.heads for layer in document.layers) else ():
                yield HeadWeights(
                    say("head", pooled_map.layer, pooled_map.head),
                    pooled_map.layer,
                    pooled_map.weights,
                    pool=pooled_map.pool,
                )
        case CrossDocument():
            for part in document.layers:
                for cross_head in part.heads:
                    yield HeadWeights(
                        say("head", part.layer, cross_head.head), part.layer, cross_head.weights, cross_head.scores
                    )
        case HeadsDocument():
            for row in document.heads:
                if row.weights is not UNSET:
                    name = say("head", row.layer, row.head)
                    yield HeadWeights(name, row.layer, row.weights, pool=row.pool or 1)
        case TensorsDocument():
            for entry in document.batch:
                batch_index = ".".join(map(str, entry.index))
                for captured_head in entry.heads:
                    if captured_head.weights is not UNSET:
                        several = len(document.batch) > 1
                        name = (
                            say("batch", batch_index, captured_head.head)
                            if several
                            else say("of_layer", captured_head.head)
                        )
                        yield HeadWeights(name, None, captured_head.weights, captured_head.scores)
        case _:
            assert_never(document)


def _sides(document: AboutHeads) -> tuple[list[str], list[str]]:
    """The words of the rows and of the columns."""
    match document:
        case TensorsDocument():
            return [str(index) for index in range(document.queries)], [str(index) for index in range(document.keys)]
        case CrossDocument():
            return names_of(document.queries), names_of(document.keys)
        case _:
            keys = names_of(document.tokens)
            queries = document.queries if isinstance(document, RunDocument) else UNSET
            return [keys[index] for index in queries or range(len(keys))], keys


def _follows_directly(document: RunDocument, count: int) -> list[bool]:
    """Which words follow the one before without a space, of as many as are shown."""
    tokens = document.tokens[:count]
    ends = [None, *(token.end for token in tokens)]
    follows = [token.start is not None and token.start == end for token, end in zip(tokens, ends, strict=False)]
    return follows + [False] * (count - len(follows))


def _figure_head(head: HeadMetrics, say: Say) -> FigureHead:
    def values(metrics: Metrics | UnsetType) -> dict[str, float | None]:
        return {name: metric.value for name, metric in (metrics or {}).items()}

    name = say("head", head.layer, head.head)
    return FigureHead(head.layer, head.head, name, values(head.metrics), values(head.baseline))
