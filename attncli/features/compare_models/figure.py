"""The figure of `attn.compare_models/1`: how far each head moved, and the heads that moved most."""

from __future__ import annotations

from attncli.draw.figures.charts import (
    RANKED,
    Bar,
    draw_bars,
    draw_maps,
    draw_title,
    write_shown_count,
)
from attncli.draw.figures.drawing import Drawing
from attncli.draw.figures.head_ranking import grid_map
from attncli.draw.safe import label, last_part
from attncli.draw.view import View
from attncli.features.compare_models.document import CompareModelsDocument
from attncli.features.compare_models.screen import SAME, divergence_text
from attncli.language import message, plural, say
from attncli.mechanism.spec import spoken_head


def compare_models_figure(
    document: CompareModelsDocument, drawing: Drawing, view: View, scale: str
) -> None:
    """Draw how far each head moved as a map of layers × heads, then the heads that moved most as
    bars with their intervals, and on each a line at the bound above which a head counts as moved."""
    change = document.change
    names = [label(last_part(side.name)) for side in (document.a, document.b)]
    read = plural(
        "{count:,} text of {tokens:,} tokens",
        "{count:,} texts of {tokens:,} tokens together",
        count=document.texts,
        tokens=document.tokens,
    )
    moved = message(
        "{moved} of {heads} heads moved by more than {beyond} (Jensen–Shannon, nats)",
        moved=change.moved,
        heads=len(change.heads),
        beyond=f"{change.beyond:g}",
    )
    top = draw_title(
        drawing, f"A: {names[0]}  →  B: {names[1]}", f"{say(view, read)}; {say(view, moved)}"
    )
    caption = say(view, "layers × heads")
    numbers = ((head.layer, head.head, head.js.mean) for head in change.heads)
    top = draw_maps(drawing, [grid_map(caption, numbers)], top, view, scale=scale)
    heads = change.heads[:RANKED]
    bars = [
        Bar(
            say(view, spoken_head(head.layer, head.head)),
            max(head.js.mean, 0.0),  # rounding can make it a little less than 0
            divergence_text(head.js),
            mark=change.beyond,
        )
        for head in heads
    ]
    # distances are in points: the note stands 20 below, the bars begin 12 below the note
    top = write_shown_count(drawing, (len(heads), len(change.heads)), top, view)
    note = say(
        view, "line: {beyond}, above which a head counts as moved", beyond=f"{change.beyond:g}"
    )
    drawing.text(0, top + 20, note, size=8.5, quiet=True)
    # the longest bar: that of the first head, which moved most, or the bound; never 0
    most = max(heads[0].js.mean, change.beyond, SAME)
    draw_bars(drawing, bars, top + 32, most=most)
