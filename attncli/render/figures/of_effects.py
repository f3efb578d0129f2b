"""Figures of effects: what heads change, what they bring back, what they add to a logit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attncli.analysis.documents.declaration import Document, Part
from attncli.render.figures.charts import draw_bars
from attncli.render.figures.drawing import Drawing
from attncli.render.figures.maps import Map, draw_maps
from attncli.render.figures.titles import RANKED, Say, bar_of, titled
from attncli.render.safe import label


def draw_ablation(drawing: Drawing, document: Document, say: Say) -> None:
    """Layers × heads of the first measure, and its ranking; a line where a random change of the same size lies."""
    measure = document["measures"][0]
    rows = [row for row in document["effects"] if row["attention"] == "self"]
    held = [(row["layer"], row["head"], _number(row.get(measure)), _number(row.get("random"))) for row in rows]
    title = str(document.get("text") or "")
    top = titled(drawing, title, say("ablate", document["by"], "cosine" if measure == "vector" else measure))
    _ranked(drawing, held, top, say)


def draw_patching(drawing: Drawing, document: Document, say: Say) -> None:
    """Layers × heads of what each brings back, and the ranking."""
    rows = [row for row in document["effects"] if row["attention"] == "self"]
    top = titled(drawing, f"{document['clean']}  →  {document['corrupt']}", say("patch", document["measure"]))
    _ranked(drawing, [(row["layer"], row["head"], row["recovered"], None) for row in rows], top, say)


def draw_logits(drawing: Drawing, document: Document, say: Say) -> None:
    """Layers × heads of what each adds, and the ranking of all parts."""
    parts = document["parts"]
    heads = [(part["layer"], part["head"], part["value"], None) for part in parts if part["part"] == "head"]
    at = label(document["tokens"][document["at"]]["text"])
    target = label(document["target"]["text"])
    top = titled(drawing, str(document.get("text") or ""), say("logits", target, at, f"{document['logit']:.3f}"))
    top = _grid(drawing, heads, top, say)
    ranked = sorted(parts, key=lambda part: -abs(part["value"]))[:RANKED]
    bars = [bar_of(say(f"part.{one['part']}", one["layer"], one["head"]), one["value"], signed=True) for one in ranked]
    draw_bars(drawing, bars, top + 16)


def _ranked(
    drawing: Drawing, held: Sequence[tuple[int, int, float | None, float | None]], top: float, say: Say
) -> None:
    """Layers × heads, then the heads by the size of their number. held: layer, head, number, and what it is beside."""
    top = _grid(drawing, held, top, say)
    ranked = sorted((row for row in held if row[2] is not None), key=lambda row: -abs(row[2] or 0))[:RANKED]
    bars = [bar_of(say("head", layer, head), value or 0.0, mark=random) for layer, head, value, random in ranked]
    if any(bar.mark is not None for bar in bars):
        drawing.text(0, top + 20, say("random"), size=8.5, quiet=True)
        top += 16
    draw_bars(drawing, bars, top + 16)


def _grid(drawing: Drawing, held: Sequence[tuple[int, int, float | None, float | None]], top: float, say: Say) -> float:
    layers, heads = sorted({row[0] for row in held}), sorted({row[1] for row in held})
    grid = np.full((len(layers), len(heads)), np.nan)
    for layer, head, value, _ in held:
        grid[layers.index(layer), heads.index(head)] = np.nan if value is None else value
    signed = bool((np.nan_to_num(grid) < 0).any())
    one = Map(say("grid"), grid, [str(layer) for layer in layers], [str(head) for head in heads], signed=signed)
    return draw_maps(drawing, [one], top, scale="linear")


def _number(value: Any) -> float | None:
    """A number, or the first inside an object of them."""
    if isinstance(value, Part):
        return next((found for one in value if (found := _number(value[one])) is not None), None)
    return float(value) if isinstance(value, int | float) else None
