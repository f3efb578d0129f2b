"""The figure of `attn heads --rules`: every head by its overlap and its strongest rule, and what the
model loses with rules in place of heads.
"""

from __future__ import annotations

import math

from msgspec import UNSET

from attncli.draw.figures.charts import draw_curves, draw_title
from attncli.draw.figures.drawing import Drawing, broken_to_fit
from attncli.draw.numbers import percent
from attncli.draw.safe import label
from attncli.draw.view import View
from attncli.features.rules.document import RulesDocument
from attncli.features.rules.screen import perplexity_factor, rule_label
from attncli.language import message, say

CELL, LEAST_CELL = 14.0, 4.0
"""Points: side of a cell, and the least where heads are many."""
LEAST_AREA = 0.01
"""Of a square, as a share of the largest: a head without overlap is a dot."""
WIDE = 440.0
COLOURS = 5
"""Rules with a colour of their own: the next one of the theme is as grey as all others."""


def rules_figure(document: RulesDocument, drawing: Drawing, view: View, scale: str) -> None:
    """Draw a square for each head, its area in proportion to the overlap, in the colour of its
    strongest rule; then the perplexity with rules in place of heads, and with baselines there."""
    name = label(document.model.name or document.model.family or document.model.source)
    subtitle = say(
        view,
        "heads as rules: {overlap} of the weights on texts not fitted to",
        overlap=percent(document.overlap.rules),
    )
    top = draw_title(drawing, name, subtitle)
    if drawing.shows("grid"):
        inks = _rule_inks(document, drawing)
        top = _draw_heads(drawing, document, inks, top + 4, view)
        top = _draw_legend(drawing, inks, top + 14, view)
    if not document.swapped:
        return

    # a curve for the rules and each baseline; older documents have no losses at the first token
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in document.swapped:
        losses = {
            message("rules"): row.loss,
            message("by distance"): row.loss_distance,
            message("even"): row.loss_even,
            message("drawn heads"): row.loss_drawn,
            message("first token"): row.loss_first,
        }
        for title, loss in losses.items():
            points = curves.setdefault(title, [])
            if loss is not UNSET:
                points.append((100 * row.share, perplexity_factor(row, loss)))
    series = [(say(view, title), points) for title, points in curves.items()]
    draw_curves(
        drawing,
        series,
        top + 16,
        say(view, "heads with rules in their place, %"),
        say(view, "times the model's perplexity"),
        dashed=True,
    )


def _rule_inks(document: RulesDocument, drawing: Drawing) -> dict[str, str]:
    """A colour for each of the rules that are the strongest of most heads, by rule; for as many as
    there are colours."""
    counts: dict[str, int] = {}
    for head in document.heads:
        counts[head.parts[0].rule] = counts.get(head.parts[0].rule, 0) + 1
    order = sorted(counts, key=lambda rule: -counts[rule])
    return dict(zip(order, drawing.theme.series[:COLOURS], strict=False))


def _draw_heads(
    drawing: Drawing, document: RulesDocument, inks: dict[str, str], top: float, view: View
) -> float:
    """Draw a square for each head, layers downward, heads to the right. Returns where they end.

    inks: colours by rule; a head of another strongest rule is grey.
    top: where the drawing is free, in points from above.
    """
    layers = sorted({head.layer for head in document.heads})
    most = 1 + max(head.head for head in document.heads)
    left = 34.0  # room for the layers' numbers; all lengths are in points
    side = max(min(CELL, (min(WIDE, drawing.room) - left) / most), LEAST_CELL)
    drawing.text(left, top + 8, say(view, "head →"), size=8, quiet=True)
    begin = top + 12
    for row, layer in enumerate(layers):
        if side >= 8 or row % 4 == 0:  # small rows have room for every fourth number
            y = begin + (row + 0.75) * side  # digits stand on a line below the row's middle
            drawing.text(left - 5, y, str(layer), size=7, anchor="end", quiet=True)
    for head in document.heads:
        size = 0.92 * side * math.sqrt(max(head.overlap, LEAST_AREA))  # 0.92: a gap between squares
        x = left + (head.head + 0.5) * side - size / 2
        y = begin + (layers.index(head.layer) + 0.5) * side - size / 2
        # parts are sorted by weight, and there is one at least
        ink = inks.get(head.parts[0].rule, drawing.theme.quiet)
        drawing.rectangle(x, y, size, size, ink)
    return begin + len(layers) * side


def _draw_legend(drawing: Drawing, inks: dict[str, str], top: float, view: View) -> float:
    """Name the rules in their colours, and say what a square is. Returns where it ends.

    inks: colours by rule.
    top: where the drawing is free, in points from above.
    """
    for rule, ink in inks.items():
        drawing.text(0, top, label(say(view, rule_label(rule))), size=8, ink=ink)
        top += 11
    note = message(
        "a row for each layer; square: its area in proportion to the overlap, in the colour of the"
        " strongest rule; grey: another rule"
    )
    for line in broken_to_fit(say(view, note), 8, min(WIDE, drawing.room)):
        drawing.text(0, top, line, size=8, quiet=True)
        top += 11
    return top
