"""What the page of a link in all heads shows."""

from __future__ import annotations

from typing import Any

from attncli.draw.page import PageFocus
from attncli.features.find.document import FindDocument, counted_weight
from attncli.measure.document_heads import DocumentHeads, HeadFacts, text_sides
from attncli.measure.head_record import HIDDEN


def find_document_heads(document: FindDocument) -> DocumentHeads:
    """Every head, as a page lists them, with the link that was looked for."""

    def facts(layer: int, head: Any) -> HeadFacts:
        """The link that the page shows for a head, with its weight; `HIDDEN` in place of that where
        the mask hides the key."""
        del layer  # the head has it
        if head.rank is None:
            weight = HIDDEN
        else:
            weight = counted_weight(head)
        return HeadFacts([(document.query, document.key, weight)])

    parts = [(head.layer, head) for head in document.heads]
    return DocumentHeads(document.text, text_sides(document), parts, facts)


def find_page_focus(document: FindDocument) -> PageFocus:
    """What a page of a search shows first: the search, with the link's ends."""
    place = {"from": f"#{document.query}", "to": f"#{document.key}"}
    return PageFocus({"view": "search"} | place)
