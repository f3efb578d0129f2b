"""Figures of effects: what heads change, what they bring back, what they add to a logit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attncli.features.ablate.document import AblateDocument, reading_of
from attncli.features.effects.document import readings_of
from attncli.features.logits.document import LogitsDocument
from attncli.features.patch.document import PatchDocument
from attncli.render.figures.charts import draw_bars
from attncli.render.figures.drawing import Drawing
from attncli.render.figures.maps import FigureMap, draw_maps
from attncli.render.figures.titles import RANKED, Say, bar_of, draw_title
from attncli.render.head_grid import head_grid
from attncli.render.safe import label

Row = tuple[int, int, float | None, float | None]
"""Layer, head, number, and what it is beside."""


def draw_ablation(drawing: Drawing, document: AblateDocument, say: Say) -> None:
    """Layers × heads of the first measure, and its ranking; a line where a random change of the same size lies."""
    name = readings_of(document.measures)[0]
    rows = [
        (row.layer, row.head, reading_of(row, name), None if row.random is None else reading_of(row.random, name))
        for row in document.effects
        if row.attention == "self"
    ]
    top = draw_title(drawing, document.text, say("ablate", document.by, name))
    _draw_ranking(drawing, rows, top, say)


def draw_patching(drawing: Drawing, document: PatchDocument, say: Say) -> None:
    """Layers × heads of what each brings back, and the ranking."""
    top = draw_title(drawing, f"{document.clean}  →  {document.corrupt}", say("patch", document.measure))
    rows = [(row.layer, row.head, row.recovered, None) for row in document.effects if row.attention == "self"]
    _draw_ranking(drawing, rows, top, say)


def draw_logits(drawing: Drawing, document: LogitsDocument, say: Say) -> None:
    """Layers × heads of what each adds, and the ranking of all parts."""
    heads = [
        (part.layer, part.head, part.value, None)
        for part in document.parts
        if part.attention == "self" and part.layer is not None and part.head is not None
    ]
    source_text, target = label(document.tokens[document.position].text), label(document.target.text)
    top = draw_title(drawing, document.text, say("logits", target, source_text, f"{document.logit:.3f}"))
    top = _grid(drawing, heads, top, say)
    parts = sorted(document.parts, key=lambda part: -abs(part.value))[:RANKED]
    bars = [bar_of(say(f"part.{part.part}", part.layer, part.head), part.value, signed=True) for part in parts]
    draw_bars(drawing, bars, top + 16)


def _draw_ranking(drawing: Drawing, rows: Sequence[Row], top: float, say: Say) -> None:
    """Layers × heads, then the heads by the size of their number."""
    top = _grid(drawing, rows, top, say)
    ranking = sorted((row for row in rows if row[2] is not None), key=lambda row: -abs(row[2] or 0))[:RANKED]
    bars = [bar_of(say("head", layer, head), value or 0.0, mark=random) for layer, head, value, random in ranking]
    if any(bar.mark is not None for bar in bars):
        drawing.text(0, top + 20, say("random"), size=8.5, quiet=True)
        top += 16
    draw_bars(drawing, bars, top + 16)


def _grid(drawing: Drawing, rows: Sequence[Row], top: float, say: Say) -> float:
    grid = head_grid(row[:3] for row in rows)
    is_signed = bool((np.nan_to_num(grid.values) < 0).any())
    figure_map = FigureMap(
        say("grid"), grid.values, [*map(str, grid.layers)], [*map(str, grid.heads)], signed=is_signed
    )
    return draw_maps(drawing, [figure_map], top, say, scale="linear")
