"""What the page of two texts, one looking at the other, shows."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from attncli.documents.header import tokens_of
from attncli.draw.page import PageFocus
from attncli.features.cross.document import CrossDocument
from attncli.measure.document_heads import (
    DocumentHeads,
    HeadFacts,
    links_of_head,
)
from attncli.measure.head_record import Sides


def cross_document_heads(document: CrossDocument) -> DocumentHeads:
    """The heads with which one text looks at the other, as a page lists them."""

    def facts(layer: int, head: Any) -> HeadFacts:
        """The links that the page shows for a head: those that the document lists."""
        return HeadFacts(links_of_head(document.links, layer, head.head))

    queries = tokens_of(document.queries)
    keys = tokens_of(document.keys)
    if not keys and not queries:
        # without tokens (a shortened document) both sides count as one text, which is told by the
        # same list object
        keys = queries
    parts = [(part.layer, head) for part in document.layers for head in part.heads]
    rows = None
    if document.query is not UNSET:
        rows = [document.query]
    return DocumentHeads(
        text=document.query_text, sides=Sides(queries, keys), parts=parts, facts=facts, rows=rows
    )


def page_start(document: CrossDocument) -> dict[str, str]:
    """What the page shows first, as parameters of its address: the query that is asked about and,
    where a key is, too, the head that gives it most; {} without a query."""
    if document.query is UNSET:
        return {}
    start = {"query": str(document.query)}
    if document.key is not UNSET and document.key_heads:
        first = document.key_heads[0]
        start |= {"head": f"{first.layer}.{first.head}"}
    return start


def cross_page_focus(document: CrossDocument) -> PageFocus:
    """What a page of a saved document shows first; see `page_start`."""
    return PageFocus(page_start(document))
