"""Records of the heads that a document holds: what `attn view` opens, and what a page shows.

`features/<name>/page.py` tells by `<name>_document_heads` what a document of its kind holds of heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from attncli.arrays.backend import choose
from attncli.documents import ABOUT_HEADS, Document, Header, LinkRow, folder_of, name_of
from attncli.documents.header import identities_of, tokens_of
from attncli.measure.head_record import (
    HIDDEN,
    METRICS,
    Absent,
    Floats,
    HeadRecord,
    LayerRecords,
    Sides,
)
from attncli.measure.row_facts import Bools
from attncli.measure.run_record import RunRecord, check_heads, feed_whole

NUMPY = choose("numpy", device=None, dtype="float32")
LinkTriple = tuple[int, int, float]
"""Query, key and weight."""


class HeadFacts(NamedTuple):
    """What a document says of a head whose weights it does not hold: links, metrics and labels."""

    links: Sequence[LinkTriple] = ()
    metrics: Mapping[str, float | None] = {}
    labels: Sequence[str] = ()


class DocumentHeads(NamedTuple):
    """What a document holds of heads.

    parts: Each head with the number of its layer; a part has its number `head`, and where they are
        known `weights`, `scores` and `pool`.
    rows: The queries whose weights it holds; None for all.
    facts: What else is known of a head, by its layer and its part.
    """

    text: str
    sides: Sides
    parts: Sequence[tuple[int, Any]]
    facts: Callable[[int, Any], HeadFacts]
    rows: Sequence[int] | None = None


def no_facts(layer: int, part: object) -> HeadFacts:
    """A `DocumentHeads.facts` for a document that holds weights and nothing else of its heads."""
    del layer, part
    return HeadFacts()


def links_of_head(links: Iterable[LinkRow], layer: int, head: int) -> list[LinkTriple]:
    """The links that a document lists of one head."""
    return [
        (link.query, link.key, link.weight)
        for link in links
        if (link.layer, link.head) == (layer, head)
    ]


def text_sides(document: Header) -> Sides:
    """The tokens of a document's text as both sides of its attention, queries and keys."""
    tokens = tokens_of(document.tokens)
    return Sides(tokens, tokens, names=identities_of(document, tokens))


def heads_of(document: Document) -> DocumentHeads | None:
    """The heads that a document holds, as the feature that made it reads them out of it
    (`<name>_document_heads` in its page.py); None for a document that is not about heads.
    """
    name = name_of(document.schema)
    if name not in ABOUT_HEADS:
        return None
    module = import_module(f"{folder_of(name)}.page")
    heads: DocumentHeads = getattr(module, f"{name}_document_heads")(document)
    return heads


def document_record(document: Document) -> RunRecord | None:
    """The record of a document's heads; None for a document that is not about heads. Where it holds
    no weights, a head's record has the links that the document names."""
    heads = heads_of(document)
    if heads is None:
        return None
    check_heads(len(heads.parts))
    return record_of_document(document, heads.text, heads.sides, _head_records(document, heads))


def _head_records(document: Any, heads: DocumentHeads) -> Iterator[HeadRecord]:
    """Yield the records of a document's heads, layer by layer, also where the document lists them
    in another order, as a ranking does."""
    is_learned = document.model.source == "checkpoint"
    sides = heads.sides
    # a part without the number of a head (None) counts as head 0 in the order
    for layer, part in sorted(heads.parts, key=lambda entry: (entry[0], entry[1].head or 0)):
        # a head without weights, or with pooled ones: a record of what else the document says
        values = getattr(part, "weights", UNSET)
        if values is UNSET:
            weights = None
        else:
            weights = as_float32(values)
        # `pool`: how many rows and columns a cell of the weights stands for; left out (UNSET, which
        # is false) for 1
        is_pooled = (getattr(part, "pool", UNSET) or 1) > 1
        if weights is None or is_pooled or not len(weights):
            small = weights if is_pooled else None
            yield _facts_record(layer, part.head, sides, heads.facts(layer, part), small)
            continue

        # scores tell which keys are hidden: theirs are -inf
        scores = getattr(part, "scores", UNSET)
        if scores is UNSET:
            visibility = np.ones(weights.shape, bool)
        else:
            visibility = np.isfinite(as_float32(scores))
        # the document holds some queries only: the others are as if they saw nothing
        if heads.rows is not None:
            row_numbers = list(heads.rows)
            shape = (len(sides.queries), weights.shape[1])
            all_weights = np.zeros(shape, np.float32)
            all_weights[row_numbers] = weights
            all_visibility = np.zeros(shape, bool)
            all_visibility[row_numbers] = visibility
            weights = all_weights
            visibility = all_visibility
        yield weights_record(layer, part.head, sides, weights, visibility, is_learned)


def as_float32(values: Any) -> Floats:
    """Numbers of a document as float32; one that is too large becomes infinite, without a warning."""
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float32)


def weights_record(
    layer: int, head: int, sides: Sides, weights: Floats, visibility: Bools, is_learned: bool
) -> HeadRecord:
    """The record of a head of which only the weights, [query, key], are known.

    visibility: booleans of that shape, false where hidden.
    is_learned: whether the weights are trained: then links to special tokens and the like do not
        count.
    """
    # as a layer of one head, number 0, whose rows all come at once
    records = LayerRecords(NUMPY, layer, sides, [0], is_learned=is_learned)
    masked = np.where(visibility, np.float32(0), np.float32(-np.inf))
    stages = {"weights": weights[None], "masked": masked[None]}
    feed_whole(NUMPY, records, stages, words=None)
    return replace(next(records.records(arithmetic=None)), head=head)


def _facts_record(
    layer: int, head: int, sides: Sides, facts: HeadFacts, small: np.ndarray[Any, Any] | None
) -> HeadRecord:
    """The record of a head whose weights the document does not hold, or only pooled.

    small: its pooled map, [row, column]; None where there is none: then one cell stands for it,
        with the weight of the strongest link.
    """
    strongest = max((weight for *_, weight in facts.links if weight != HIDDEN), default=0.0)
    if small is None:
        map_values = np.full((1, 1), strongest, np.float32)
    else:
        map_values = small
    metrics: dict[str, float | None] = dict.fromkeys(METRICS)
    metrics |= facts.metrics
    return HeadRecord(
        layer=layer,
        head=head,
        columns=len(sides.keys),
        small=map_values,
        metrics=metrics,
        labels=facts.labels,
        links=list(facts.links),
        visibility_bits=None,
        recipe=Absent(),
        terms=None,
        error=0.0,
        checked_rows=0,
    )


def record_of_document(
    document: Any, text: str, sides: Sides, heads: Iterator[HeadRecord]
) -> RunRecord:
    """A `RunRecord` with a document's model, attention and warnings, and this text and its heads."""
    return RunRecord(
        name="",
        text=text,
        sides=sides,
        model=document.model,
        attention=document.attention,
        heads=heads,
        warnings=document.warnings,
    )
