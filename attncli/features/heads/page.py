"""What the page of all heads of a text shows."""

from __future__ import annotations

from attncli.draw.page import PageFocus
from attncli.features.heads.document import HeadMetrics, HeadsDocument
from attncli.measure.document_heads import DocumentHeads, HeadFacts, text_sides
from attncli.measure.head_record import METRICS


def heads_document_heads(document: HeadsDocument) -> DocumentHeads:
    """The heads that the page of this document shows: all of it, each with its metrics, labels and
    strongest link beside it."""

    def facts(layer: int, head: HeadMetrics) -> HeadFacts:
        """What the page writes beside a head: its strongest link, metrics and labels."""
        del layer
        link = head.top_link
        links = []
        if link is not None:
            links = [(link.query, link.key, link.weight)]
        metrics = {
            name: metric.value for name in METRICS if (metric := head.metrics.get(name)) is not None
        }
        return HeadFacts(links, metrics, head.labels or ())

    parts = [(head.layer, head) for head in document.heads]
    return DocumentHeads(document.text, text_sides(document), parts, facts)


def heads_page_focus(document: HeadsDocument) -> PageFocus:
    """Where the page begins when it is opened: at no head or link in particular."""
    del document
    return PageFocus()
