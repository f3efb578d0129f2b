"""Layers × heads: one metric of all heads at a glance, and what the numbers leave out."""

from __future__ import annotations

from msgspec import UNSET

from attncli.analysis.documents.heads import HeadMetrics, HeadsDocument
from attncli.render.head_grid import draw_grid, head_grid
from attncli.render.lines import Lines
from attncli.render.screens.heads_table import metric_value
from attncli.render.view import View

KINDS = {
    "first": "the first token", "special": "special tokens", "self": "the query itself",
    "neighbours": "immediate neighbours",
    "unknown": "unknown words",
    "punctuation": "punctuation",
}  # fmt: skip


def grid_part(document: HeadsDocument, view: View) -> Lines:
    """The weight of every head's strongest link, or the metric that orders the heads, by layer and head; nothing for
    one layer, or where heads were cut off.
    """
    heads = document.heads
    if len({head.layer for head in heads}) < 2 or (document.heads_in_all or 0) > len(heads):
        return Lines()
    sort = document.sort
    if not sort and any(head.top_link for head in heads):
        grid = head_grid((head.layer, head.head, head.top_link.weight if head.top_link else None) for head in heads)
        note = "rows: layers, columns: heads; --sort NAME shows a metric"
        return draw_grid(grid, view, limits=(0.0, 1.0), title="strongest link of each head", note=note)
    name = sort.metric if sort else next(iter(heads[0].metrics))
    values = (_sorted_by(head) if sort else metric_value(head.metrics.get(name)) for head in heads)
    grid = head_grid((head.layer, head.head, value) for head, value in zip(heads, values, strict=True))
    return draw_grid(grid, view, title=name, note="rows: layers, columns: heads; --sort NAME shows another metric")


def _sorted_by(head: HeadMetrics) -> float | None:
    return None if head.sorted_by is UNSET else head.sorted_by


def settings_note(document: HeadsDocument) -> str:
    """What these numbers leave out, and in which order the heads come; "" for nothing to say."""
    notes = []
    excluded, sort = document.excluded, document.sort
    if excluded:
        scaling_note = (
            "rows scaled to sum to 1 again" if excluded.renormalised else "weights as they were, rows sum to less"
        )
        notes.append(f"excluded from every number: {', '.join(KINDS[name] for name in excluded.names)}; {scaling_note}")
    if sort:
        notes.append(f"sorted by {sort.metric}, {'smallest' if sort.rising else 'largest'} first")
    if document.links_leave_out:
        notes.append(
            f"top links leave out {', '.join(KINDS[name] for name in document.links_leave_out)} (--all-links "
            f"counts all)"
        )
    return "; ".join(notes)
