"""Records of what was saved: the stages of a tensor file, or the weights and links of a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from attncli.arrays.backend import choose
from attncli.documents import Document, ModelPart
from attncli.documents.header import identities_of, tokens_of
from attncli.features.compare.document import CompareDocument
from attncli.features.cross.document import CrossDocument
from attncli.features.effects.document import AblateDocument, EffectRow, LogitsDocument, PatchDocument
from attncli.features.find.document import FindDocument
from attncli.features.heads.document import HeadMetrics, HeadsDocument
from attncli.features.run.document import RunDocument
from attncli.features.tensors.document import TensorsDocument
from attncli.features.why.document import WhyDocument, WhyLink
from attncli.measure.head_record import (
    HIDDEN,
    METRICS,
    Absent,
    Floats,
    HeadRecord,
    LayerRecords,
    Sides,
    numbered_tokens,
)
from attncli.measure.row_facts import Bools
from attncli.measure.row_stream import kinds_left_out
from attncli.measure.run_record import RunRecord, arithmetic, feed_whole

Tensors = Mapping[str, np.ndarray[Any, Any]]
EffectDocuments = AblateDocument | PatchDocument | LogitsDocument
AboutHeads = (
    RunDocument | HeadsDocument | FindDocument | CrossDocument | TensorsDocument | EffectDocuments | WhyDocument
)
NUMPY = choose("numpy", device=None, dtype="float32")


def tensors_record(tensors: Tensors, document: RunDocument) -> RunRecord:
    """A file that `--save` wrote. document: the `attn.run/1` made of it."""
    tokens = tokens_of(document.tokens)
    sides = Sides(tokens, tokens, names=identities_of(document, tokens))
    attention, leave_out = document.attention, _left_out(sides, document.model)

    def head_records() -> Iterator[HeadRecord]:
        for layer in (part.layer for part in document.layers):
            prefix = f"layers.{layer}."
            stages = {
                name.removeprefix(prefix): np.asarray(array, np.float32)
                for name, array in tensors.items()
                if name.startswith(prefix)
            }
            records = LayerRecords(NUMPY, layer, sides, range(len(stages["weights"])), leave_out=leave_out)
            feed_whole(NUMPY, records, stages, None)
            scale, cap = attention.scale, attention.softcap
            has_recipe = scale is not None and attention.hashing is UNSET
            yield from records.records(
                arithmetic(NUMPY, stages, scale, cap) if has_recipe and scale is not None else None
            )

    return _record(document, document.text, sides, head_records())


def document_record(document: Document) -> RunRecord | None:
    """What a document holds of its heads; None for one that is not about heads. Where it holds no weights, the links
    that it names."""
    rows: Sequence[int] | None = None
    parts: list[tuple[int, Any]] = []
    match document:
        case RunDocument():
            parts = [(part.layer, head) for part in document.layers for head in part.heads]
            parts = parts or [(map_part.layer, map_part) for map_part in document.maps or ()]
            rows = document.queries or None
        case HeadsDocument() | FindDocument():
            parts = [(head.layer, head) for head in document.heads]
        case AblateDocument() | PatchDocument():
            parts = [(row.layer, row) for row in document.effects if row.attention == "self"]
        case LogitsDocument():
            parts = [(part.layer or 0, part) for part in document.parts if part.attention == "self"]
        case WhyDocument(link=link):
            parts = [(link.layer, link), *_earlier_heads(document)]
        case CrossDocument():
            parts = [(part.layer, head) for part in document.layers for head in part.heads]
        case TensorsDocument():
            parts = [(layer, head) for layer, part in enumerate(document.batch) for head in part.heads]
        case _:
            return None
    parts.sort(key=lambda part: (part[0], part[1].head or 0))  # a ranking lists heads by what it ranks
    match document:
        case TensorsDocument():
            # where a file lies on this machine is nothing for a page
            text, queries, keys = (
                PurePath(document.file).name,
                numbered_tokens(document.queries),
                numbered_tokens(document.keys),
            )
            sides = Sides(queries, queries if len(keys) == len(queries) else keys)
        case CrossDocument():
            text, queries, keys = document.query_text, tokens_of(document.queries), tokens_of(document.keys)
            sides = Sides(queries, queries if len(keys) == len(queries) == 0 else keys)
        case WhyDocument() if document.source_tokens is not UNSET:
            text, queries, keys = document.text, tokens_of(document.tokens), tokens_of(document.source_tokens)
            sides = Sides(queries, keys)
        case _:
            text, queries = document.text, tokens_of(document.tokens)
            sides = Sides(queries, queries, names=identities_of(document, queries))
    return _record(document, text, sides, _heads(document, parts, sides, rows))


def _earlier_heads(document: WhyDocument) -> list[tuple[int, EarlierHead]]:
    """The heads before a link's that look at the same text: each is a part of it."""
    if document.link.attention == "cross":  # the page of a link to another text has that text's words
        return []
    places = {
        (part.layer, part.head)
        for part in document.parts
        if part.kind == "head" and part.layer is not None and part.head is not None
    }
    return [(layer, EarlierHead(head)) for layer, head in places]


class EarlierHead(NamedTuple):
    """A head of which only its number is known."""

    head: int


def compared_records(document: CompareDocument) -> list[RunRecord]:
    """The two sides of a comparison, on the tokens that both have; a head's partner stands at the same place."""

    def head_records(first: bool, sides: Sides) -> Iterator[HeadRecord]:
        for compared_head in document.heads:
            place, values = (
                (compared_head.a, compared_head.weights_a) if first else (compared_head.b, compared_head.weights_b)
            )
            weights = _single(values)
            visibility = np.isfinite(weights)
            leave_out = _left_out(sides, (document.a, document.b)[not first].model)
            yield _of_weights(place.layer, place.head, sides, np.nan_to_num(weights), visibility, leave_out)

    records = []
    for side_index, side in enumerate((document.a, document.b)):
        tokens = tokens_of([side.tokens[pair[side_index]] for pair in document.aligned])
        sides = Sides(tokens, tokens)
        heads = head_records(side_index == 0, sides)
        records.append(RunRecord(side.name, side.text, sides, side.model, side.attention, heads, document.warnings))
    return records


def _heads(
    document: AboutHeads, parts: Sequence[tuple[int, Any]], sides: Sides, rows: Sequence[int] | None
) -> Iterator[HeadRecord]:
    for layer, head in parts:
        values = getattr(head, "weights", UNSET)
        weights = None if values is UNSET else _single(values)
        pooled = (getattr(head, "pool", UNSET) or 1) > 1
        if weights is None or pooled or not len(weights):
            yield _links_record(document, layer, head, sides, weights if pooled else None)
            continue
        scores = getattr(head, "scores", UNSET)
        visibility = np.ones(weights.shape, bool) if scores is UNSET else np.isfinite(_single(scores))
        if rows is not None:  # only some queries are held: the others are as if they saw nothing
            whole = np.zeros((2, len(sides.queries), weights.shape[1]), np.float32)
            whole[0, list(rows)], whole[1, list(rows)] = weights, visibility
            weights, visibility = whole[0], whole[1] > 0
        yield _of_weights(layer, head.head, sides, weights, visibility, _left_out(sides, document.model))


def _single(values: Any) -> Floats:
    """Numbers of a document in float32. One that is too large for it becomes infinite, which is no news of ours."""
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float32)


def _left_out(sides: Sides, model: ModelPart) -> Sequence[str]:
    """Which links the run itself left out."""
    return kinds_left_out((*sides.queries, *sides.keys), is_learned=model.source == "checkpoint")


def _of_weights(
    layer: int, head: int, sides: Sides, weights: Floats, visibility: Bools, leave_out: Sequence[str]
) -> HeadRecord:
    """A head of which nothing but the weights is known, [query, key]. visibility: what is not hidden, booleans of that
    shape. leave_out: which links do not count, as for `LayerRecords`."""
    records = LayerRecords(NUMPY, layer, sides, [0], leave_out=leave_out)
    masked = np.where(visibility, np.float32(0), np.float32(-np.inf))
    feed_whole(NUMPY, records, {"weights": weights[None], "masked": masked[None]}, None)
    return replace(next(records.records(None)), head=head)


def _links_record(
    document: AboutHeads, layer: int, head: Any, sides: Sides, small: np.ndarray[Any, Any] | None
) -> HeadRecord:
    """A head of which no weights are held: its metrics, and the links that the document names."""
    links: list[tuple[int, int, float]] = []
    if isinstance(document, RunDocument | CrossDocument):
        links = [
            (link.query, link.key, link.weight)
            for link in document.links
            if (link.layer, link.head) == (layer, head.head)
        ]
    metrics: dict[str, float | None] = dict.fromkeys(METRICS)
    labels: Sequence[str] = ()
    match document:
        case FindDocument():
            links = [(document.query, document.key, HIDDEN if head.rank is None else head.weight)]
        case AblateDocument():
            links = _looks(document, head)
        case WhyDocument(link=link) if isinstance(head, WhyLink):
            links = [(link.query, row.key, row.weight) for row in document.row if row.key < len(sides.keys)]
            links.sort(key=lambda row: (row[1] != link.key, -row[2]))
        case _:
            pass
    if isinstance(head, HeadMetrics):
        links = [] if head.top_link is None else [(head.top_link.query, head.top_link.key, head.top_link.weight)]
        metrics |= {name: metric.value for name in METRICS if (metric := head.metrics.get(name)) is not None}
        labels = head.labels or ()
    strongest = max((weight for *_, weight in links if weight != HIDDEN), default=0.0)
    map_values = np.full((1, 1), strongest, np.float32) if small is None else small
    return HeadRecord(
        layer, head.head, len(sides.keys), map_values, metrics, labels, links, None, Absent(), None, 0.0, 0
    )


def _looks(document: AblateDocument, row: EffectRow) -> list[tuple[int, int, float]]:
    """What a document of effects tells of where a head looks: the link that was cut, or what the token measured at
    looks at most. Nothing where several tokens are meant."""
    cut_link, place = document.link, document.place
    if cut_link is not None:
        if cut_link.attention == "cross":  # its keys are another text's
            return []
        if isinstance(cut_link.query, int) and isinstance(cut_link.key, int) and row.weight is not None:
            return [(cut_link.query, cut_link.key, row.weight)]
        return []
    if row.looks is None or isinstance(place, str) or place.last not in (UNSET, place.token):
        return []
    return [(place.token, row.looks.key, row.looks.weight)]


def _record(document: AboutHeads, text: str, sides: Sides, heads: Iterator[HeadRecord]) -> RunRecord:
    return RunRecord("", text, sides, document.model, document.attention, heads, document.warnings)
