"""The figure of `attn find`: the weight of the link in each head."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from attncli.draw.figures.charts import (
    RANKED,
    bar_of,
    draw_bars,
    draw_title,
    names_of,
    text_note,
    write_shown_count,
)
from attncli.draw.figures.drawing import Drawing
from attncli.draw.names import link_title
from attncli.draw.numbers import percent
from attncli.draw.token_names import region_name
from attncli.draw.view import View
from attncli.features.find.document import FindDocument, PairLink, counted_weight
from attncli.language import say
from attncli.mechanism.spec import spoken_head


def find_figure(document: FindDocument, drawing: Drawing, view: View, scale: str) -> None:
    """Draw a bar for the weight of the link in each head, the largest first; over pairs, for how much
    more weight it has in the clean texts."""
    if document.pair_links is not UNSET:
        _draw_pair_links(drawing, document.pair_links, view)
        return
    # an end that is a region was joined to one token before the run
    regions = {row.tokens[0]: region_name(row.name, view) for row in document.regions or ()}
    names = dict(enumerate(names_of(document.tokens))) | regions
    top = draw_title(
        drawing, link_title(names[document.query], names[document.key]), text_note(document, view)
    )
    bars = []
    for row in document.heads[:RANKED]:
        if row.rank is None:
            rank = ""
        else:
            rank = say(view, "rank {rank}", rank=row.rank)
        bars.append(
            bar_of(say(view, spoken_head(row.layer, row.head)), counted_weight(row), more=rank)
        )
    # a line of text, 16 high, fits above the bars where not all heads are shown
    top = write_shown_count(drawing, (len(bars), len(document.heads)), top - 16, view)
    draw_bars(drawing, bars, top + 16)


def _draw_pair_links(drawing: Drawing, links: Sequence[PairLink], view: View) -> None:
    """Draw a bar for each head: how much more weight the link has in the clean texts of pairs than
    in the corrupt ones."""
    title = say(view, "weights of the link, means over pairs, the largest change first")
    top = draw_title(drawing, title, say(view, "clean less corrupt"))
    bars = [
        bar_of(say(view, spoken_head(row.layer, row.head)), row.change, more=percent(row.weight))
        for row in links[:RANKED]
    ]
    draw_bars(drawing, bars, top)
