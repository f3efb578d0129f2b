"""What the page of captured arrays shows."""

from __future__ import annotations

from pathlib import PurePath

from attncli.draw.page import PageFocus
from attncli.features.tensors.document import TensorsDocument
from attncli.measure.document_heads import DocumentHeads, no_facts
from attncli.measure.head_record import Sides, numbered_tokens


def tensors_document_heads(document: TensorsDocument) -> DocumentHeads:
    """The heads of every batch entry, as a page of heads takes them; an entry's index in the batch
    stands for the layer."""
    queries = numbered_tokens(document.queries)
    keys = numbered_tokens(document.keys)
    # the same list on both sides stands for one text that looks at itself
    if len(keys) == len(queries):
        keys = queries
    parts = [(layer, head) for layer, entry in enumerate(document.batch) for head in entry.heads]
    # a page is passed on: it does not tell where the file lies on this machine
    return DocumentHeads(PurePath(document.file).name, Sides(queries, keys), parts, no_facts)


def tensors_page_focus(document: TensorsDocument) -> PageFocus:
    """Where the page begins: as every page of heads does, whatever the document."""
    del document
    return PageFocus()
