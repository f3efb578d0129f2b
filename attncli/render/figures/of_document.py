"""The figure of a document: maps, rankings and curves of what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attncli.analysis.documents.declaration import Document, Part
from attncli.analysis.documents.heads import AverageHead
from attncli.analysis.documents.parts import TokenRow
from attncli.errors import InputError
from attncli.render.column_names import key_names
from attncli.render.figures.charts import Bar, draw_bars, draw_curves, draw_links, draw_sentence
from attncli.render.figures.drawing import LIGHT, Drawing, Theme, fitted
from attncli.render.figures.maps import Map, draw_maps
from attncli.render.matrix import as_matrix, visible
from attncli.render.safe import label

RANKED = 20
"""Rows of a ranking, at most."""
WORDS = 60
"""Words of a text that is still written as a sentence, or as two columns."""


def figure(document: Document, *, scale: str = "linear", theme: Theme = LIGHT) -> Drawing | None:
    """What a document shows, drawn; None for one whose shape is its text. Raises InputError where it holds nothing to
    draw. scale: as for maps on a screen."""
    drawing = Drawing(theme)
    match document.schema:
        case "attn.run/1" | "attn.heads/1" | "attn.cross/1" | "attn.tensors/1":
            _heads(drawing, document, scale)
        case "attn.compare/1":
            _compare(drawing, document, scale)
        case "attn.find/1":
            _find(drawing, document)
        case "attn.ablate/1":
            _ablate(drawing, document)
        case "attn.mask/1":
            _masks(drawing, document)
        case "attn.cost/1":
            _cost(drawing, document)
        case _:
            return None
    return drawing


def names_of(tokens: Sequence[TokenRow]) -> list[str]:
    """The texts of tokens, safe to write."""
    return [label(token["text"]) for token in tokens]


def _title(drawing: Drawing, title: str, said: str) -> float:
    drawing.text(0, 10, fitted(title, 12, 400), size=12, bold=True)
    drawing.text(0, 25, fitted(said, 9, 460), quiet=True)
    return 44


def _said(document: Document) -> str:
    model, attention = document["model"], document["attention"]
    parts = [model.get("name") or model["source"]]
    parts += [f"seed {model['seed']}, not learned"] if model["source"] in ("seeded", "random") else []
    parts += [f"{name} {attention[name]}" for name in ("mask", "position") if attention.get(name) not in (None, "none")]
    return "; ".join(map(str, (*parts, "rows look, columns are looked at")))


def _heads(drawing: Drawing, document: Document, scale: str) -> None:
    """The weights of every head; with one query its sentence; the links of one head of a short text."""
    maps, rows, keys = _maps(document)
    if not maps:
        raise InputError("this document holds no weights to draw", expected="one that was not shortened by --show")
    title = document.get("text") or document.get("query_text") or document.get("file") or ""
    top = _title(drawing, str(title), _said(document))
    if document.get("queries") and document.schema == "attn.run/1" and len(keys) <= WORDS:
        chosen = document["queries"][0]
        mean = np.nanmean([one.values[0] for one in maps], 0)
        high = float(np.nanmax(mean)) or 1.0
        shares = [0.0 if np.isnan(weight) else float(weight) / high for weight in mean]
        top = draw_sentence(drawing, keys, shares, chosen, top) + 14
    layers = [head.caption.split(" head ")[0] for head in maps]
    across = max(map(layers.count, layers)) if len(maps) > 3 else 3
    top = draw_maps(drawing, maps, top, scale=scale, across=across if 4 <= across <= 16 else 8)
    if len(maps) == 1 and max(len(rows), len(keys)) <= WORDS and len(rows) > 1:
        values = np.nan_to_num(maps[0].values)
        links = [(int(i), int(j), float(values[i, j])) for i, j in np.argwhere(values > 0.02)]
        draw_links(drawing, links, rows, keys, top + 16)


def _maps(document: Document) -> tuple[list[Map], list[str], list[str]]:
    """The maps of a document's heads, and the words of either side."""
    held: list[tuple[str, Any]] = []
    if "layers" in document:
        held = [
            (f"layer {part['layer']} head {head['head']}", head)
            for part in document["layers"]
            for head in part["heads"]
        ]
        held = held or [(f"layer {one['layer']} head {one['head']}", one) for one in document.get("maps", ())]
    elif "batch" in document:
        several = len(document["batch"]) > 1
        held = [
            (
                f"batch {'.'.join(map(str, part['index']))} head {head['head']}" if several else f"head {head['head']}",
                head,
            )
            for part in document["batch"]
            for head in part["heads"]
        ]
    else:
        held = [(f"layer {head['layer']} head {head['head']}", head) for head in document["heads"]]
    found = [
        (name, head, visible(head["weights"], head.get("scores")))
        for name, head in held
        if head.get("weights") is not None
    ]
    if not found:
        return [], [], []
    if "keys" in document:
        sides = [document["queries"], document["keys"]]
        rows, keys = ([str(at) for at in range(side)] if isinstance(side, int) else names_of(side) for side in sides)
    else:
        keys = names_of(document["tokens"])
        rows = [keys[at] for at in document.get("queries") or range(len(keys))]
    keys = key_names(keys, found[0][2])
    maps = [
        Map(name + (f", pooled {head['pool']}×" if head.get("pool", 1) > 1 else ""), values, rows, keys)
        for name, head, values in found
    ]
    average = document.get("average")
    mean = average.get("weights") if isinstance(average, AverageHead) else None
    return (maps if mean is None or len(maps) < 2 else [*maps, Map("average", as_matrix(mean), rows, keys)]), rows, keys


def _compare(drawing: Drawing, document: Document, scale: str) -> None:
    """The head that differs most: either side and their signed difference; then the largest difference of each head."""
    heads = document["heads"]
    most = max(heads, key=lambda head: abs(head["max_difference"]["value"]))
    names = names_of(document["a"]["tokens"])
    words = [names[pair[0]] for pair in document["aligned"]]
    top = _title(
        drawing,
        f"{document['a']['name']}  →  {document['b']['name']}",
        f"layer {most['a']['layer']} head {most['a']['head']}, which differs most",
    )
    maps = [Map(name, as_matrix(most[key]), words, words) for name, key in (("A", "weights_a"), ("B", "weights_b"))]
    top = draw_maps(
        drawing, [*maps, Map("B − A", as_matrix(most["difference"]), words, words, signed=True)], top, scale=scale
    )
    ranked = sorted(heads, key=lambda head: -abs(head["max_difference"]["value"]))[:RANKED]
    if len(heads) > 1:
        bars = [
            _bar(f"layer {one['a']['layer']} head {one['a']['head']}", one["max_difference"]["value"], signed=True)
            for one in ranked
        ]
        draw_bars(drawing, bars, top + 16)


def _bar(name: str, value: float, *, signed: bool = False, mark: float | None = None, more: str = "") -> Bar:
    told = (f"{value:+.3f}" if signed else f"{value:.3f}").replace("-", "−")
    return Bar(name, value, f"{told}  {more}".rstrip(), mark)


def _find(drawing: Drawing, document: Document) -> None:
    names = names_of(document["tokens"])
    top = _title(drawing, f"{names[document['from']]}  →  {names[document['to']]}", _said(document))
    rows = document["heads"][:RANKED]
    bars = [
        _bar(
            f"layer {row['layer']} head {row['head']}",
            row["weight"],
            more="" if row["rank"] is None else f"rank {row['rank']}",
        )
        for row in rows
    ]
    draw_bars(drawing, bars, top)


def _ablate(drawing: Drawing, document: Document) -> None:
    """Layers × heads of the first measure, and its ranking; a mark where a random change of the same size lies."""
    measure = document["measures"][0]
    rows = [row for row in document["effects"] if row.get("attention", "self") == "self"]
    held = [(row["layer"], row["head"], _number(row.get(measure)), _number(row.get("random"))) for row in rows]
    top = _title(
        drawing,
        str(document.get("text", "")),
        f"what changes when one head is taken away ({document['by']}): {measure}",
    )
    layers, heads = sorted({row[0] for row in held}), sorted({row[1] for row in held})
    grid = np.full((len(layers), len(heads)), np.nan)
    for layer, head, value, _ in held:
        grid[layers.index(layer), heads.index(head)] = np.nan if value is None else value
    signed = bool((np.nan_to_num(grid) < 0).any())
    grid_map = Map("layers × heads", grid, [str(one) for one in layers], [str(one) for one in heads], signed=signed)
    top = draw_maps(drawing, [grid_map], top, scale="linear")
    ranked = sorted((row for row in held if row[2] is not None), key=lambda row: -abs(row[2] or 0))[:RANKED]
    bars = [_bar(f"layer {layer} head {head}", value or 0.0, mark=random) for layer, head, value, random in ranked]
    draw_bars(drawing, bars, top + 16)


def _number(value: Any) -> float | None:
    """A number, or the first inside an object of them."""
    if isinstance(value, Part):
        return next((found for one in value if (found := _number(value[one])) is not None), None)
    return float(value) if isinstance(value, int | float) else None


def _masks(drawing: Drawing, document: Document) -> None:
    shown = [*document["masks"], *([document["combined"]] if document.get("combined") else [])]
    top = _title(
        drawing,
        "masks" if len(shown) > 1 else str(shown[0]["spec"]),
        "filled: visible; rows are queries, columns keys",
    )
    maps = []
    for mask in shown:
        values = as_matrix(mask["map"]["share"])
        told = f"{mask.get('spec', 'all together')} · {mask['share']:.0%}"
        maps.append(
            Map(told, values, [str(at) for at in range(len(values))], [str(at) for at in range(values.shape[1])])
        )
    draw_maps(drawing, maps, top, scale="linear")


def _cost(drawing: Drawing, document: Document) -> None:
    top = _title(
        drawing,
        f"cost of attention, n = {document['n']:,}",
        f"d_model {document['d_model']}, {document['heads']} heads",
    )
    names = [variant["name"] for variant in document["variants"]]
    series = [
        (name, [(row["n"], row["multiply_adds"][name]) for row in document["growth"] if name in row["multiply_adds"]])
        for name in names
    ]
    top = draw_curves(drawing, series, top, "tokens", "multiply-adds per layer")
    bars = [
        Bar(row["name"], row["multiply_adds"], f"{row['multiply_adds']:.3g} · {row['grows']}")
        for row in document["variants"]
    ]
    draw_bars(drawing, bars, top + 16)
