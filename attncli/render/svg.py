"""A standalone SVG of weight maps: no scripts, no fonts or files from elsewhere, the same bytes for the same
document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attncli.analysis.documents.heads import AverageHead
from attncli.errors import InputError
from attncli.render.column_names import key_names
from attncli.render.heatmap import pool
from attncli.render.matrix import as_matrix, visible
from attncli.render.palette import SEQUENTIAL, normalise
from attncli.render.safe import cells, cut, label, safe_html

NDArray = np.ndarray[Any, Any]
Document = Any

CELLS = 40_000
"""Cells in the whole picture; more are pooled."""
NAMED = 40
"""Tokens that are still written beside a map."""
CELL, FONT, GAP, ACROSS = 14, 11, 28, 4


@dataclass(frozen=True)
class Panel:
    """One map: its caption, weights [query, key], and positions of its rows."""

    caption: str
    values: NDArray
    rows: Sequence[int]


def attention_svg(document: Document, *, scale: str = "linear") -> str:
    """The weights of every head in an `attn.run/1` or `attn.heads/1` document, as SVG text.

    One panel per head on one colour scale (see `normalise` for scale), token texts at the edges for up to
    `NAMED` tokens, each cell's query, key and weight as its tooltip. Masked cells are left out. Larger documents
    are pooled by their maximum, which the caption says. Every text is made safe and escaped. Raises InputError
    for a document without weights.
    """
    panels = _panels(document)
    if not panels:
        raise InputError("this document holds no weights to draw", expected="one that was not shortened by --show")
    texts = [cut(label(token["text"]), 16) for token in document["tokens"]]
    names = key_names(texts, panels[0].values)
    high = max((float(np.nanmax(panel.values)) for panel in panels if np.isfinite(panel.values).any()), default=1.0)
    room = max(int((CELLS / len(panels)) ** 0.5), 8)
    block = max(-(-size // room) for panel in panels for size in panel.values.shape)
    named = block == 1 and len(names) <= NAMED
    edge = 8 + (max(cells(name) for name in names) * FONT * 6 // 10 if named and names else 0)
    wide = edge + CELL * max(-(-panel.values.shape[1] // block) for panel in panels)
    tall = edge + 20 + CELL * max(-(-panel.values.shape[0] // block) for panel in panels)
    count = min(len(panels), ACROSS)
    width = max(count * (wide + GAP) + GAP, 480)
    height = 84 + -(-len(panels) // count) * (tall + GAP) + 20
    body = [_heading(document, high, width)]
    for at, panel in enumerate(panels):
        x, y = GAP + at % count * (wide + GAP), 84 + at // count * (tall + GAP)
        caption = panel.caption + (f", pooled {block}×{block}, max" if block > 1 else "")
        body.append(f'<g transform="translate({x},{y})">{_text(0, 12, caption, bold=True)}')
        body.append(
            f'<g transform="translate({edge},{edge + 20})">{_map(panel, names if named else [], block, scale, high)}</g></g>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="{FONT}" role="img">\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _panels(document: Document) -> list[Panel]:
    """The panels of either kind of document, and the average if there is one."""
    layers = document.get("layers")
    heads = (
        document["heads"]
        if layers is None
        else [
            {"layer": layer["layer"], **{name: head.get(name) for name in ("head", "weights", "scores")}}
            for layer in layers
            for head in layer["heads"]
        ]
    )
    rows = document.get("queries") or range(len(document["tokens"]))
    held = [head for head in heads if head.get("weights") is not None]
    panels = [
        Panel(f"layer {head['layer']} head {head['head']}", visible(head["weights"], head.get("scores")), rows)
        for head in held
    ]
    mean = document.get("average")  # of a run with --query it is one row, and no map
    average = mean.weights if isinstance(mean, AverageHead) else None
    return (
        panels
        if average is None or len(panels) < 2
        else [*panels, Panel("average of the heads", as_matrix(average), rows)]
    )


def _heading(document: Document, high: float, width: int) -> str:
    """Text, conventions and the colour scale."""
    model, attention = document["model"], document["attention"]
    source = f"{model['source']}" + (f" {model['name']}" if model.get("name") else "")
    source += f", seed {model['seed']}, not learned" if model["source"] in ("seeded", "random") else ""
    said = f"attention weights; {source}; mask {attention['mask']}; position {attention['position']}; rows: queries, columns: keys"
    ramp = "".join(
        f'<rect x="{GAP + 28 + at * 4}" y="56" width="4" height="10" fill="{SEQUENTIAL.colour(at / 31)}"/>'
        for at in range(32)
    )
    title = _text(GAP, 24, cut(document["text"][:400], max(width // 8, 20)), bold=True)
    ends = _text(GAP, 65, "0.00") + _text(GAP + 162, 65, f"{high:.2f}")
    return title + _text(GAP, 42, cut(said, max(width // 6, 40))) + ramp + ends


def _map(panel: Panel, names: Sequence[str], block: int, scale: str, high: float) -> str:
    values = pool(panel.values, block)
    fractions = normalise(values, scale, low=0.0, high=high)
    out = ['<g shape-rendering="crispEdges">']
    for row, column in zip(*np.nonzero(np.isfinite(fractions)), strict=True):
        colour = SEQUENTIAL.colour(float(fractions[row, column]))
        place = f'x="{column * CELL}" y="{row * CELL}" width="{CELL}" height="{CELL}" fill="{colour}"'
        if names:
            told = safe_html(f"{names[panel.rows[row]]} → {names[column]} {values[row, column]:.4f}")
            out.append(f"<rect {place}><title>{told}</title></rect>")
        else:
            out.append(f"<rect {place}/>")
    out.append("</g>")
    if names:
        out += [_text(-4, row * CELL + CELL - 4, names[at], anchor="end") for row, at in enumerate(panel.rows)]
        turned = [f"translate({column * CELL + CELL - 4},-4) rotate(-90)" for column in range(len(names))]
        out += [_text(0, 0, name, transform=turn) for name, turn in zip(names, turned, strict=True)]
    return "".join(out)


def _text(x: int, y: int, text: str, *, bold: bool = False, anchor: str = "", transform: str = "") -> str:
    """A text element; isolated, so that right-to-left text keeps its neighbours in place."""
    more = (' font-weight="bold"' if bold else "") + (f' text-anchor="{anchor}"' if anchor else "")
    more += f' transform="{transform}"' if transform else ""
    return f'<text x="{x}" y="{y}"{more} style="unicode-bidi:isolate">{safe_html(text)}</text>'
