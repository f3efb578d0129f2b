"""What the page of a run shows, and the record of its heads from a saved file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import UNSET

from attncli.documents.header import identities_of, tokens_of
from attncli.draw.page import PageFocus
from attncli.features.run.document import RunDocument
from attncli.measure.document_heads import (
    NUMPY,
    DocumentHeads,
    HeadFacts,
    links_of_head,
    record_of_document,
    text_sides,
)
from attncli.measure.head_record import HeadRecord, LayerRecords, Sides
from attncli.measure.run_record import RunRecord, arithmetic, feed_whole

Tensors = Mapping[str, np.ndarray[Any, Any]]


def run_document_heads(document: RunDocument) -> DocumentHeads:
    """The heads of a run as a page lists them: those whose weights it holds, or the small maps of
    all."""

    def facts(layer: int, head: Any) -> HeadFacts:
        """The links that the page shows for a head: those that the run lists."""
        return HeadFacts(links_of_head(document.links, layer, head.head))

    parts: list[tuple[int, Any]] = [
        (part.layer, head) for part in document.layers for head in part.heads
    ]
    if not parts:
        parts = [(map_part.layer, map_part) for map_part in document.maps or ()]
    return DocumentHeads(
        document.text, text_sides(document), parts, facts, document.queries or None
    )


def run_page_focus(document: RunDocument) -> PageFocus:
    """What a page of a run shows first: the query that the run was asked about, if there is one."""
    if document.queries is not UNSET and len(document.queries) == 1:
        return PageFocus({"query": str(document.queries[0])})
    return PageFocus()


def tensors_record(tensors: Tensors, document: RunDocument) -> RunRecord:
    """The record of a run, from the tensors of a file that `--save` wrote.

    document: the `attn.run/1` made of that file.
    """
    tokens = tokens_of(document.tokens)
    sides = Sides(tokens, tokens, names=identities_of(document, tokens))
    attention = document.attention
    is_learned = document.model.source == "checkpoint"

    def head_records() -> Iterator[HeadRecord]:
        """Yield records of the heads in the tensors, layer by layer."""
        for layer in (part.layer for part in document.layers):
            prefix = f"layers.{layer}."  # of the names of the layer's arrays
            stages = {
                name.removeprefix(prefix): np.asarray(array, np.float32)
                for name, array in tensors.items()
                if name.startswith(prefix)
            }
            records = LayerRecords(
                NUMPY, layer, sides, range(len(stages["weights"])), is_learned=is_learned
            )
            feed_whole(NUMPY, records, stages, words=None)
            # a page computes weights from q and k where the scale is known and no hash is needed
            recipe = None
            scale = attention.scale
            if scale is not None and attention.hashing is UNSET:
                recipe = arithmetic(NUMPY, stages, scale, attention.softcap)
            yield from records.records(recipe)

    return record_of_document(document, document.text, sides, head_records())
