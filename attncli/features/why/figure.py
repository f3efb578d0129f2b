"""The figure of `attn why`: both sides of a link ranked, and the earlier heads."""

from __future__ import annotations

from typing import Literal

from attncli.draw.figures.charts import (
    RANKED,
    bar_of,
    draw_bars,
    draw_title,
    text_note,
    write_shown_count,
)
from attncli.draw.figures.drawing import Drawing
from attncli.draw.figures.head_ranking import draw_grid
from attncli.draw.names import link_title
from attncli.draw.numbers import format_period, writer
from attncli.draw.safe import label
from attncli.draw.token_names import placed_token, with_word
from attncli.draw.view import View
from attncli.features.why.document import (
    WhyDocument,
    WhyPart,
    earlier_heads,
    part_title,
    ranked_parts,
    source_of,
)
from attncli.language import message, say

END_CELLS = 40
"""Cells of a link's word in titles."""


def why_figure(document: WhyDocument, drawing: Drawing, view: View, scale: str) -> None:
    """Draw why a head's query looks at a key: bars for the parts of the query and of the key, by
    what they add to the score, with the weight that the link would have without each; and the
    earlier heads by what they add. A score that was taken apart by entries of q and k shows only
    those."""
    # the title: the link, and how far its score stands above what it is compared with
    link = document.link
    query = placed_token(document.tokens, link.query, END_CELLS, view)
    key = placed_token(document.keys, link.key, END_CELLS, view)
    # with two digits after the point, in scientific notation where it is too small for these
    write = writer([document.total], 2)
    total = write(document.total)
    places = {
        "layer": link.layer,
        "head": link.head,
        "weight": f"{document.weight:.2f}",
        "total": total,
    }
    if isinstance(document.centred, str):
        template = message(
            "layer {layer} head {head}, weight {weight}: the score is {total} above what the row"
            " expects"
        )
    else:
        template = message(
            "layer {layer} head {head}, weight {weight}: the score is {total} above that of {other}"
        )
        places["other"] = placed_token(document.keys, document.centred.key, END_CELLS, view)
    subtitle = say(view, template, **places)
    top = draw_title(drawing, link_title(query, key), f"{subtitle}; {text_note(document, view)}")

    if not drawing.shows("bars"):
        _draw_earlier_heads(document, drawing, top, view, query=query, key=key)
        return

    # a score by entries of q and k: bars of these; distances are in points
    if document.dimensions:
        caption = message("by entries of q and k")
        if document.by == "frequency":
            caption = message("by pairs of entries that are rotated together")
        drawing.text(0, top + 9, say(view, caption), size=9, bold=True)
        bars = []
        for row in sorted(document.dimensions, key=lambda row: -abs(row.contribution))[:RANKED]:
            if row.period is None:
                period = ""
            else:
                period = say(view, "period {period}", period=format_period(row.period))
            bars.append(
                # a rotated pair has two entries; of the many that are not rotated two are named
                bar_of(
                    ", ".join(map(str, row.dimensions[:2])),
                    row.contribution,
                    signed=True,
                    more=period,
                )
            )
        draw_bars(drawing, bars, top + 16)
        return

    # else bars of the parts on either side, and the earlier heads
    titles = {
        "query": say(view, "what asks: parts of {query}", query=query),
        "key": say(view, "what answers: parts of {key}", key=key),
    }
    sides: tuple[Literal["query", "key"], ...] = ("query", "key")
    for side in sides:
        drawing.text(0, top + 9, titles[side], size=9, bold=True)
        bars = []
        ranking = ranked_parts(document, side)
        for part, value in ranking[: RANKED // 2]:
            if side == "query":
                without = part.weight_without.query
            else:
                without = part.weight_without.key
            if without is None:
                more = ""
            else:
                more = say(view, "without: {weight}", weight=f"{without:.2f}")
            bars.append(bar_of(_part_label(part, document, view), value, signed=True, more=more))
        top = write_shown_count(drawing, (len(bars), len(ranking)), top, view, heads=False)
        top = draw_bars(drawing, bars, top + 16) + 14
    _draw_earlier_heads(document, drawing, top, view, query=query, key=key)


def _draw_earlier_heads(
    document: WhyDocument, drawing: Drawing, top: float, view: View, *, query: str, key: str
) -> None:
    """Draw what earlier heads add to the advantage, as maps of layers × heads.

    query, key: the names of the link's ends.
    top: where it begins, in points.
    """
    if not drawing.shows("grid"):
        return
    heads = earlier_heads(document)
    grid_titles = {
        "self": say(view, "what earlier heads add to the advantage, both sides"),
        "cross": say(
            view, "what earlier heads of {query} add to the advantage: cross-attention", query=query
        ),
        "encoder": say(view, "what the encoder's heads of {key} add to the advantage", key=key),
    }
    if document.link.attention == "cross":
        grid_titles["self"] = say(
            view, "what earlier heads of {query} add to the advantage", query=query
        )
    # (layer, head, number), and None for a second number, which a grid does not draw; distances are
    # in points
    for kind in heads:
        drawing.text(0, top + 9, grid_titles[kind], size=9, bold=True)
        top = draw_grid(drawing, [(*row, None) for row in heads[kind]], top + 24, view) + 14


def _part_label(part: WhyPart, document: WhyDocument, view: View) -> str:
    """A part's name; for one that an earlier head carried from another token, with that token
    behind an arrow.
    """
    name = say(view, part_title(part, document))
    source = source_of(part, document)
    if source is None:
        return name
    token, place = source
    return f"{name} ← {label(with_word(token, view))}{place}"
