"""Layers × heads: one metric of all heads at a glance, and what the numbers leave out."""

from __future__ import annotations

import numpy as np

from attncli.analysis.documents.heads import HeadsDocument
from attncli.render.lines import Lines
from attncli.render.matrix import matrix
from attncli.render.view import View

KINDS = {
    "first": "the first token", "special": "special tokens", "self": "the query itself",
    "neighbours": "immediate neighbours",
    "punctuation": "punctuation",
}  # fmt: skip


def grid_part(document: HeadsDocument, view: View) -> Lines:
    """The metric that orders the heads, or the first one, of every layer and head; nothing for one layer, or where
    heads were cut off.
    """
    heads = document.heads
    layers, numbers = (sorted({getattr(head, name) for head in heads}) for name in ("layer", "head"))
    if len(layers) < 2 or (document.heads_in_all or 0) > len(heads):
        return Lines()
    sort = document.sort
    name = sort.metric if sort else next(iter(heads[0].metrics))
    grid = np.full((len(layers), len(numbers)), np.nan)
    for head in heads:
        found = head.metrics.get(name)
        value = head.sorted_by if sort else None if found is None else found.value
        grid[layers.index(head.layer), numbers.index(head.head)] = value if isinstance(value, float) else np.nan
    return matrix(
        grid, None, None, view, title=name, note="rows: layers, columns: heads; --sort NAME shows another metric",
        row_numbers=layers,
        column_numbers=numbers,
    )  # fmt: skip


def stated(document: HeadsDocument) -> str:
    """What these numbers leave out, and in which order the heads come; "" for nothing to say."""
    said = []
    excluded, sort = document.excluded, document.sort
    if excluded:
        how = "rows scaled to sum to 1 again" if excluded.renormalised else "weights as they were, rows sum to less"
        said.append(f"excluded from every number: {', '.join(KINDS[name] for name in excluded.names)}; {how}")
    if sort:
        said.append(f"sorted by {sort.metric}, {'smallest' if sort.rising else 'largest'} first")
    if document.links_leave_out:
        said.append(
            f"top links leave out {', '.join(KINDS[name] for name in document.links_leave_out)} (--all-links "
            f"counts all)"
        )
    return "; ".join(said)
