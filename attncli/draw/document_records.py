"""Records of a saved run, from the documents that are about heads: what `attn view` opens, and
what a page of a document shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple, assert_never

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from attncli.arrays.backend import choose
from attncli.documents import Document
from attncli.documents.header import identities_of, tokens_of
from attncli.features.compare.document import CompareDocument
from attncli.features.cross.document import CrossDocument
from attncli.features.effects.document import (
    AblateDocument,
    EffectRow,
    LogitsDocument,
    PatchDocument,
)
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
from attncli.measure.run_record import RunRecord, arithmetic, check_heads, feed_whole

Tensors = Mapping[str, np.ndarray[Any, Any]]
EffectDocuments = AblateDocument | PatchDocument | LogitsDocument
AboutHeads = (
    RunDocument
    | HeadsDocument
    | FindDocument
    | CrossDocument
    | TensorsDocument
    | EffectDocuments
    | WhyDocument
)
NUMPY = choose("numpy", device=None, dtype="float32")


def tensors_record(tensors: Tensors, document: RunDocument) -> RunRecord:
    """The record of a run from the tensors of a file that `--save` wrote. document: the
    `attn.run/1` made of that file."""
    tokens = tokens_of(document.tokens)
    sides = Sides(tokens, tokens, names=identities_of(document, tokens))
    attention = document.attention
    is_learned = document.model.source == "checkpoint"

    def head_records() -> Iterator[HeadRecord]:
        """Records of the heads in the tensors, layer by layer."""
        for layer in (part.layer for part in document.layers):
            prefix = f"layers.{layer}."
            stages = {
                name.removeprefix(prefix): np.asarray(array, np.float32)
                for name, array in tensors.items()
                if name.startswith(prefix)
            }
            records = LayerRecords(
                NUMPY, layer, sides, range(len(stages["weights"])), is_learned=is_learned
            )
            feed_whole(NUMPY, records, stages, None)
            scale = attention.scale
            cap = attention.softcap
            has_recipe = scale is not None and attention.hashing is UNSET
            yield from records.records(
                arithmetic(NUMPY, stages, scale, cap) if has_recipe and scale is not None else None
            )

    return _record_of_document(document, document.text, sides, head_records())


def document_record(document: Document) -> RunRecord | None:
    """The record of a document's heads; None for a document that is not about heads. Where it holds
    no weights, a head's record has the links that the document names."""
    if not isinstance(document, AboutHeads):
        return None
    parts = _heads_of(document)
    check_heads(len(parts))
    parts.sort(key=lambda part: (part[0], part[1].head or 0))  # a ranking lists them by its measure
    rows = None
    if isinstance(document, RunDocument):
        rows = document.queries or None
    text, sides = _text_of(document)
    return _record_of_document(document, text, sides, _head_records(document, parts, sides, rows))


def _heads_of(document: AboutHeads) -> list[tuple[int, Any]]:
    """The heads of a document, each with the number of its layer."""
    match document:
        case CrossDocument():
            return [(part.layer, head) for part in document.layers for head in part.heads]
        case RunDocument():
            parts: list[tuple[int, Any]] = [
                (part.layer, head) for part in document.layers for head in part.heads
            ]
            return parts or [(map_part.layer, map_part) for map_part in document.maps or ()]
        case HeadsDocument() | FindDocument():
            return [(head.layer, head) for head in document.heads]
        case AblateDocument() | PatchDocument():
            return [(row.layer, row) for row in document.effects if row.attention == "self"]
        case LogitsDocument():
            return [(part.layer or 0, part) for part in document.parts if part.attention == "self"]
        case WhyDocument(link=link):
            return [(link.layer, link), *_earlier_heads(document)]
        case TensorsDocument():
            return [
                (layer, head) for layer, part in enumerate(document.batch) for head in part.heads
            ]
        case _:
            assert_never(document)


def _text_of(document: AboutHeads) -> tuple[str, Sides]:
    """The text that a document's heads ran on, and its tokens as queries and as keys."""
    match document:
        case TensorsDocument():
            # where a file lies on this machine is nothing for a page
            text = PurePath(document.file).name
            queries = numbered_tokens(document.queries)
            keys = numbered_tokens(document.keys)
            if len(keys) == len(queries):
                keys = queries
            return text, Sides(queries, keys)
        case CrossDocument():
            queries = tokens_of(document.queries)
            keys = tokens_of(document.keys)
            if len(keys) == len(queries) == 0:
                keys = queries
            return document.query_text, Sides(queries, keys)
        case WhyDocument() if document.source_tokens is not UNSET:
            return document.text, Sides(
                tokens_of(document.tokens), tokens_of(document.source_tokens)
            )
        case _:
            tokens = tokens_of(document.tokens)
            return document.text, Sides(tokens, tokens, names=identities_of(document, tokens))


def _earlier_heads(document: WhyDocument) -> list[tuple[int, EarlierHead]]:
    """The heads (layer, head) before a link's own that are parts of its explanation and attend to
    the same text.
    """
    if (
        document.link.attention == "cross"
    ):  # the page of a link to another text has that text's words
        return []
    places = {
        (part.layer, part.head)
        for part in document.parts
        if part.kind == "head" and part.layer is not None and part.head is not None
    }
    return [(layer, EarlierHead(head)) for layer, head in places]


class EarlierHead(NamedTuple):
    """A head before the one that a link belongs to, of which only its number is known."""

    head: int


def compared_records(document: CompareDocument) -> list[RunRecord]:
    """The records of the two sides of a comparison, cut to the tokens that both have; paired heads
    stand at the same place in both."""

    def head_records(first: bool, sides: Sides) -> Iterator[HeadRecord]:
        """Records of one side's heads, in the order of the pairs. first: whether the side is a."""
        is_learned = (document.a if first else document.b).model.source == "checkpoint"
        for pair in document.heads:
            place, values = (pair.a, pair.weights_a) if first else (pair.b, pair.weights_b)
            weights = _as_float32(values)
            visibility = np.isfinite(weights)
            yield _weights_record(
                place.layer, place.head, sides, np.nan_to_num(weights), visibility, is_learned
            )

    check_heads(2 * len(document.heads))
    records = []
    for side_index, side in enumerate((document.a, document.b)):
        tokens = tokens_of([side.tokens[pair[side_index]] for pair in document.aligned])
        sides = Sides(tokens, tokens)
        heads = head_records(side_index == 0, sides)
        records.append(
            RunRecord(
                side.name, side.text, sides, side.model, side.attention, heads, document.warnings
            )
        )
    return records


def _head_records(
    document: AboutHeads, parts: Sequence[tuple[int, Any]], sides: Sides, rows: Sequence[int] | None
) -> Iterator[HeadRecord]:
    """The records of a document's heads. parts: each head with the number of its layer. rows: the
    queries whose weights the document has, None for all."""
    for layer, head in parts:
        values = getattr(head, "weights", UNSET)
        if values is UNSET:
            weights = None
        else:
            weights = _as_float32(values)
        pooled = (getattr(head, "pool", UNSET) or 1) > 1
        if weights is None or pooled or not len(weights):
            yield _links_record(document, layer, head, sides, weights if pooled else None)
            continue
        scores = getattr(head, "scores", UNSET)
        if scores is UNSET:
            visibility = np.ones(weights.shape, bool)
        else:
            visibility = np.isfinite(_as_float32(scores))
        if rows is not None:  # only some queries are held: the others are as if they saw nothing
            whole = np.zeros((2, len(sides.queries), weights.shape[1]), np.float32)
            whole[0, list(rows)], whole[1, list(rows)] = weights, visibility
            weights = whole[0]
            visibility = whole[1] > 0
        is_learned = document.model.source == "checkpoint"
        yield _weights_record(layer, head.head, sides, weights, visibility, is_learned)


def _as_float32(values: Any) -> Floats:
    """Numbers of a document as float32; one that is too large becomes infinite, without a warning."""
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float32)


def _weights_record(
    layer: int, head: int, sides: Sides, weights: Floats, visibility: Bools, is_learned: bool
) -> HeadRecord:
    """The record of a head of which only the weights, [query, key], are known. visibility: booleans
    of that shape, false where hidden. is_learned: as for `LayerRecords`."""
    records = LayerRecords(NUMPY, layer, sides, [0], is_learned=is_learned)
    masked = np.where(visibility, np.float32(0), np.float32(-np.inf))
    feed_whole(NUMPY, records, {"weights": weights[None], "masked": masked[None]}, None)
    return replace(next(records.records(None)), head=head)


def _links_record(
    document: AboutHeads, layer: int, head: Any, sides: Sides, small: np.ndarray[Any, Any] | None
) -> HeadRecord:
    """The record of a head whose weights the document does not hold: its metrics, and the links
    that the document names. small: its pooled map, None without."""
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
            links = _looked_at(document, head)
        case WhyDocument(link=link) if isinstance(head, WhyLink):
            links = [
                (link.query, row.key, row.weight)
                for row in document.row
                if row.key < len(sides.keys)
            ]
            links.sort(key=lambda row: (row[1] != link.key, -row[2]))
        case _:
            pass
    if isinstance(head, HeadMetrics):
        if head.top_link is None:
            links = []
        else:
            links = [(head.top_link.query, head.top_link.key, head.top_link.weight)]
        metrics |= {
            name: metric.value for name in METRICS if (metric := head.metrics.get(name)) is not None
        }
        labels = head.labels or ()
    strongest = max((weight for *_, weight in links if weight != HIDDEN), default=0.0)
    if small is None:
        map_values = np.full((1, 1), strongest, np.float32)
    else:
        map_values = small
    return HeadRecord(
        layer,
        head.head,
        len(sides.keys),
        map_values,
        metrics,
        labels,
        links,
        None,
        Absent(),
        None,
        0.0,
        0,
    )


def _looked_at(document: AblateDocument, row: EffectRow) -> list[tuple[int, int, float]]:
    """The links (query, key, weight) of a head that a document of effects tells: the link that was
    cut, or the strongest of the token measured at; [] where several tokens are meant."""
    cut_link = document.link
    place = document.place
    if cut_link is not None:
        if cut_link.attention == "cross":  # its keys are another text's
            return []
        if (
            isinstance(cut_link.query, int)
            and isinstance(cut_link.key, int)
            and row.weight is not None
        ):
            return [(cut_link.query, cut_link.key, row.weight)]
        return []
    if row.looks is None or isinstance(place, str) or place.last not in (UNSET, place.token):
        return []
    return [(place.token, row.looks.key, row.looks.weight)]


def shown_link(
    document: AblateDocument | PatchDocument | LogitsDocument, head: tuple[int, int] | None
) -> tuple[int, int]:
    """The (query, key) link of a head (layer, head) that a page shows first: one that the document
    names, else that of
    a token to itself: the one measured at, or the first in which two texts differ."""
    word = next((place for place, token in enumerate(document.tokens) if not token.special), 0)
    match document:
        case AblateDocument(place=place):
            rows = [
                row
                for row in document.effects
                if row.attention == "self" and (row.layer, row.head) == head
            ]
            links = [(query, key) for row in rows for query, key, _ in _looked_at(document, row)]
            word = word if isinstance(place, str) else place.token
        case PatchDocument():
            pairs = enumerate(zip(document.tokens, document.corrupt_tokens, strict=False))
            links = []
            if len(document.query) < len(document.tokens):
                word = document.query[-1]
            else:
                word = next(
                    (at for at, (clean, corrupt) in pairs if clean.text != corrupt.text), word
                )
        case LogitsDocument(position=word):
            parts = [
                part
                for part in document.parts
                if part.attention == "self" and (part.layer, part.head) == head
            ]
            links = [(word, part.looks.key) for part in parts if part.looks is not UNSET]
        case _:
            assert_never(document)
    if links:
        return links[0]
    return (word, word)


def _record_of_document(
    document: AboutHeads, text: str, sides: Sides, heads: Iterator[HeadRecord]
) -> RunRecord:
    """A `RunRecord` with a document's model, attention and warnings, and these texts and heads."""
    return RunRecord("", text, sides, document.model, document.attention, heads, document.warnings)
