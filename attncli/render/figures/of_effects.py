"""Figures of effects: what heads change, what they bring back, what they add to a logit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attncli.analysis.documents.ablate import AblateDocument, reading_of
from attncli.analysis.documents.effects import readings_of
from attncli.analysis.documents.logits import LogitsDocument
from attncli.analysis.documents.patch import PatchDocument
from attncli.render.figures.charts import draw_bars
from attncli.render.figures.drawing import Drawing
from attncli.render.figures.maps import Map, draw_maps
from attncli.render.figures.titles import RANKED, Say, bar_of, titled
from attncli.render.head_grid import head_grid
from attncli.render.safe import label

Row = tuple[int, int, float | None, float | None]
"""Layer, head, number, and what it is beside."""


def draw_ablation(drawing: Drawing, document: AblateDocument, say: Say) -> None:
    """Layers × heads of the first measure, and its ranking; a line where a random change of the same size lies."""
    name = readings_of(document.measures)[0]
    held = [
        (row.layer, row.head, reading_of(row, name), None if row.random is None else reading_of(row.random, name))
        for row in document.effects
        if row.attention == "self"
    ]
    top = titled(drawing, document.text, say("ablate", document.by, name))
    _ranked(drawing, held, top, say)


def draw_patching(drawing: Drawing, document: PatchDocument, say: Say) -> None:
    """Layers × heads of what each brings back, and the ranking."""
    top = titled(drawing, f"{document.clean}  →  {document.corrupt}", say("patch", document.measure))
    held = [(row.layer, row.head, row.recovered, None) for row in document.effects if row.attention == "self"]
    _ranked(drawing, held, top, say)


def draw_logits(drawing: Drawing, document: LogitsDocument, say: Say) -> None:
    """Layers × heads of what each adds, and the ranking of all parts."""
    heads = [
        (part.layer, part.head, part.value, None)
        for part in document.parts
        if part.attention == "self" and part.layer is not None and part.head is not None
    ]
    at, target = label(document.tokens[document.position].text), label(document.target.text)
    top = titled(drawing, document.text, say("logits", target, at, f"{document.logit:.3f}"))
    top = _grid(drawing, heads, top, say)
    ranked = sorted(document.parts, key=lambda part: -abs(part.value))[:RANKED]
    bars = [bar_of(say(f"part.{one.part}", one.layer, one.head), one.value, signed=True) for one in ranked]
    draw_bars(drawing, bars, top + 16)


def _ranked(drawing: Drawing, held: Sequence[Row], top: float, say: Say) -> None:
    """Layers × heads, then the heads by the size of their number."""
    top = _grid(drawing, held, top, say)
    ranked = sorted((row for row in held if row[2] is not None), key=lambda row: -abs(row[2] or 0))[:RANKED]
    bars = [bar_of(say("head", layer, head), value or 0.0, mark=random) for layer, head, value, random in ranked]
    if any(bar.mark is not None for bar in bars):
        drawing.text(0, top + 20, say("random"), size=8.5, quiet=True)
        top += 16
    draw_bars(drawing, bars, top + 16)


def _grid(drawing: Drawing, held: Sequence[Row], top: float, say: Say) -> float:
    grid = head_grid(row[:3] for row in held)
    signed = bool((np.nan_to_num(grid.values) < 0).any())
    one = Map(say("grid"), grid.values, [*map(str, grid.layers)], [*map(str, grid.heads)], signed=signed)
    return draw_maps(drawing, [one], top, say, scale="linear")
