"""Parts of a run's screen that look over all layers and heads at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import UNSET

from attncli.analysis.documents.parts import TopLink
from attncli.analysis.documents.run import RunDocument
from attncli.render.lines import Lines
from attncli.render.links import links
from attncli.render.matrix import matrix
from attncli.render.safe import safe
from attncli.render.view import View


def overview_part(document: RunDocument, view: View) -> Lines:
    """Layers × heads: the weight of each head's strongest link, of one query if the document is about one."""
    entries = document.overview or []
    layers, heads = (sorted({getattr(entry, name) for entry in entries}) for name in ("layer", "head"))
    grid = np.full((len(layers), len(heads)), np.nan)
    for entry in entries:
        if entry.link is not None:
            grid[layers.index(entry.layer), heads.index(entry.head)] = entry.link.weight
    of = ""
    if document.queries:
        token = document.tokens[document.queries[0]]
        of = f" of {token.index} {safe(token.text, ascii=view.ascii)}"
    note = f"weight of each head's strongest link{of}; rows: layers, columns: heads"
    return matrix(
        grid, None, None, view, limits=(0.0, 1.0), title="overview", note=note, row_numbers=layers, column_numbers=heads
    )


def average_part(document: RunDocument, view: View) -> Lines:
    """Where the query looks on average over the layers and heads that ran."""
    assert document.queries, "an average is that of a query's rows"
    assert document.average is not UNSET
    query, average = document.queries[0], document.average
    texts = [token.text for token in document.tokens]
    order = sorted(range(len(texts)), key=lambda key: (-average[key], key))[: view.top]
    found = [TopLink(query=query, key=key, weight=float(average[key])) for key in order]
    note = "mean weight over all layers and heads that ran, every key counted"
    return links(found, texts, view, place=None, title="on average", note=note)


def left_out(document: RunDocument) -> str:
    """What kinds of link are left out, in words; "" if none are."""
    names: Sequence[str] = document.links_leave_out or ()
    words = {
        "special": "special tokens",
        "self": "self",
        "neighbours": "immediate neighbours",
        "first": "the first token",
    }
    return f"left out: {', '.join(words[name] for name in names)} (--all-links shows all)" if names else ""
