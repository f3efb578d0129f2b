"""Parts of a run's screen that look over all layers and heads at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msgspec import UNSET

from attncli.analysis.documents.compare import CompareDocument
from attncli.analysis.documents.parts import TopLink
from attncli.analysis.documents.run import RunDocument
from attncli.render.head_grid import draw_grid, head_grid
from attncli.render.headings import remark
from attncli.render.lines import Lines, stack
from attncli.render.links import layer_and_head, links
from attncli.render.safe import safe
from attncli.render.screens.run_table import heads_of
from attncli.render.view import View

FEW = 3
"""Links below the grid of all layers and heads, where nobody asked for more: grid, links and answer fit a screen."""


def overview_part(document: RunDocument, view: View) -> Lines:
    """Layers × heads: the weight of each head's strongest link, of one query if the document is about one."""
    entries = document.overview or []
    grid = head_grid((entry.layer, entry.head, None if entry.link is None else entry.link.weight) for entry in entries)
    note = "strongest link in each head; rows: layers, columns: heads"
    if document.queries:
        token = document.tokens[document.queries[0]]
        token_name = f"{token.index} {safe(token.text, ascii=view.ascii)}"
        note = f"strongest link of {token_name} in each head; rows: layers, columns: heads"
    return draw_grid(grid, view, limits=(0.0, 1.0), title="overview", note=note)


def average_part(document: RunDocument, view: View) -> Lines:
    """Where the query looks on average over the layers and heads that ran."""
    assert document.queries, "an average is that of a query's rows"
    assert document.average is not UNSET
    query, average = document.queries[0], document.average
    texts = [token.text for token in document.tokens]
    order = sorted(range(len(texts)), key=lambda key: (-average[key], key))[: view.top]
    average_links = [TopLink(query=query, key=key, weight=float(average[key])) for key in order]
    note = "mean weight over all layers and heads that ran, every key counted"
    return links(average_links, texts, view, place=None, title="on average", note=note)


def links_part(document: RunDocument, view: View) -> Lines:
    """The strongest links, a few of them below a grid of all layers and heads."""
    texts = [token.text for token in document.tokens]
    place = None if len(document.overview or heads_of(document)) == 1 else layer_and_head
    row_count = FEW if view.few and view.show is None and several_layers(document) else view.top
    note = "weight of a key in its query's row; bars from 0 to 1"
    link_lines = links(
        document.links, texts, replace(view, top=row_count), place=place, title="strongest links", note=note
    )
    return stack((link_lines, remark(left_out_note(document), view)))


def several_layers(document: RunDocument) -> bool:
    """Whether the overview has more than one layer."""
    return len({entry.layer for entry in document.overview or ()}) > 1


def left_out_note(document: RunDocument | CompareDocument) -> str:
    """What kinds of link are left out, in words; "" if none are."""
    names: Sequence[str] = document.links_leave_out or ()
    words = {
        "special": "special tokens", "self": "self", "neighbours": "neighbours", "first": "the first token",
        "unknown": "unknown words",
    }  # fmt: skip
    return f"left out: {', '.join(words[name] for name in names)} (--all-links)" if names else ""
