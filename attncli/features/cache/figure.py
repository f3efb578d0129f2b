"""The figure of `attn cache`: what each policy keeps."""

from __future__ import annotations

from attncli.draw.figures.charts import (
    Bar,
    draw_bars,
    draw_maps,
    draw_title,
)
from attncli.draw.figures.drawing import Drawing
from attncli.draw.figures.head_ranking import grid_map
from attncli.draw.numbers import percent
from attncli.draw.safe import safe
from attncli.draw.view import View
from attncli.features.cache.document import CacheDocument
from attncli.language import say


def cache_figure(document: CacheDocument, drawing: Drawing, view: View, scale: str) -> None:
    """Draw how much of the last token's attention each cache policy keeps, as bars; then layers ×
    heads of each policy.

    scale: not used: shares of 0 to 1 need no other scale than a linear one.
    """
    about = say(view, "what each policy keeps of what the last token looks at")
    top = draw_title(drawing, document.text, f"{about}; {say(view, 'layers × heads')}")
    names = [safe(policy.policy) for policy in document.policies]
    # a share that is not known is a bar of no length, with a dash
    bars = [
        Bar(name, policy.kept or 0.0, "–" if policy.kept is None else percent(policy.kept, 1))
        for name, policy in zip(names, document.policies, strict=True)
    ]
    top = draw_bars(drawing, bars, top, most=1.0) + 24  # points of a gap
    maps = [
        grid_map(name, ((row.layer, row.head, row.kept) for row in policy.heads))
        for name, policy in zip(names, document.policies, strict=True)
    ]
    draw_maps(drawing, maps, top, view, scale="linear", part="grid")
