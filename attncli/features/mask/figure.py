"""The figure of `attn mask`: a map of each mask."""

from __future__ import annotations

import numpy as np

from attncli.draw.figures.charts import (
    FigureMap,
    draw_maps,
    draw_title,
)
from attncli.draw.figures.drawing import Drawing
from attncli.draw.numbers import percent
from attncli.draw.shaded_matrix import as_matrix
from attncli.draw.view import View
from attncli.features.mask.document import MaskDocument
from attncli.language import contextual, say


def mask_figure(document: MaskDocument, drawing: Drawing, view: View, scale: str) -> None:
    """Draw a map of each mask and, of several, of what all show together.

    scale: not used: a share of visible pairs, mostly 0 or 1, needs a linear one.
    """
    masks = list(document.masks)
    if document.combined:  # of several masks
        masks.append(document.combined)
    if len(masks) > 1:
        title = say(view, "masks")
    else:
        title = masks[0].spec
    note = say(view, contextual("figure", "filled: visible; rows are queries, columns keys"))
    top = draw_title(drawing, title, note)
    maps = []
    for mask in masks:
        values = as_matrix(mask.map.share)
        rows, columns = ([str(index) for index in range(count)] for count in values.shape)
        name = mask.spec or say(view, contextual("figure", "all together"))
        maps.append(FigureMap(f"{name} · {percent(mask.share, 1)}", values, rows, columns))
    # cells that stand for several pairs have shares between 0 and 1, which need a legend
    is_shaded = any(not np.isin(figure_map.values, (0.0, 1.0)).all() for figure_map in maps)
    draw_maps(drawing, maps, top, view, scale="linear", legend=is_shaded)
