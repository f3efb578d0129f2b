"""The shares of regions as bars and maps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attncli.documents import RegionRow, TokenRow
from attncli.documents.parts import RegionPart
from attncli.draw.figures.charts import Bar, FigureMap, draw_bars, draw_maps
from attncli.draw.figures.drawing import Drawing
from attncli.draw.numbers import percent
from attncli.draw.region_tables import part_beyond_rest, region_order
from attncli.draw.token_names import quoted_token, region_name, rest_names
from attncli.draw.view import View
from attncli.inputs.regions import REST
from attncli.language import message, say


def named_regions(regions: Sequence[RegionRow], view: View) -> list[tuple[str, list[int]]]:
    """The regions as (name, positions of tokens), for the bands at the edges of maps; without the
    region of the tokens that are in no other."""
    return [(region_name(row.name, view), row.tokens) for row in regions if row.name != REST]


def draw_regions(
    drawing: Drawing,
    regions: Sequence[RegionRow],
    tokens: Sequence[TokenRow],
    part: RegionPart,
    top: float,
    view: View,
) -> float:
    """Draw how much of the query's attention goes to each region (a named set of tokens), the
    largest first, beside uniform attention; then maps of layers × regions and regions × regions.

    top: where the drawing begins, in points. Returns where it ends.
    """
    if not drawing.shows("regions"):
        return top

    # a line that says whose attention this is, and the bars; shares are of the weight that is not
    # on keys where heads put it when they look for nothing, such as the first token
    part = part_beyond_rest(part)
    names = [region_name(region.name, view) for region in regions]
    token = quoted_token(tokens, part.query, view)
    what = message("of what {token} looks at; line: even attention")
    if part.rest:
        what = message(
            "of what {token} looks at beside {rest}, where {share} rests; line: even attention"
        )
    # not named by the sentence where nothing rests
    rest_share = percent(part.rest or 0.0, 1)
    sentence = say(view, what, token=token, rest=rest_names(tokens), share=rest_share)
    drawing.text(0, top + 10, sentence, quiet=True)
    bars = []
    for index in region_order(part):
        share = float(part.share[index])
        if np.isfinite(share):
            uniform = float(part.even[index])
            bars.append(Bar(names[index], share, label=percent(share, 1), mark=uniform))
    top = draw_bars(drawing, bars, top + 20, most=1.0, part="regions") + 24

    # the maps
    maps = [FigureMap(say(view, "region to region"), part.between, names, names, row_positions=())]
    if len(part.layers) > 1:
        layers = [say(view, "layer {layer}", layer=layer) for layer in part.layers]
        maps.insert(
            0,
            FigureMap(
                say(view, "regions by layer"), part.by_layer, layers, names, row_positions=()
            ),
        )
    return draw_maps(drawing, maps, top, view, scale="linear", part="regions")
