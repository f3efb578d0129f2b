"""What the page of two texts, one looking at the other, shows."""

from __future__ import annotations

from typing import Any

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
    """The heads with which one text looks at the other."""

    def facts(layer: int, head: Any) -> HeadFacts:
        """The links of a head that the document lists."""
        return HeadFacts(links_of_head(document.links, layer, head.head))

    queries = tokens_of(document.queries)
    keys = tokens_of(document.keys)
    if not keys and not queries:  # the same list for both sides, as of one text
        keys = queries
    parts = [(part.layer, head) for part in document.layers for head in part.heads]
    return DocumentHeads(document.query_text, Sides(queries, keys), parts, facts)


def cross_page_focus(document: CrossDocument) -> PageFocus:
    """The page begins as every page of heads does."""
    del document
    return PageFocus()
