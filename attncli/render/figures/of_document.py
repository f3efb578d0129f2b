"""The figure of a document: maps, rankings and curves of what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from attncli.analysis.documents.declaration import Document, Part
from attncli.analysis.documents.heads import AverageHead
from attncli.analysis.documents.parts import TokenRow
from attncli.errors import InputError
from attncli.render.column_names import key_names
from attncli.render.figures.charts import Bar, draw_bars, draw_curves, draw_links, draw_sentence
from attncli.render.figures.drawing import LIGHT, Drawing, Theme
from attncli.render.figures.maps import Map, draw_maps
from attncli.render.figures.metrics import Measured, draw_metrics
from attncli.render.figures.of_effects import draw_ablation, draw_logits, draw_patching
from attncli.render.figures.titles import RANKED, Say, bar_of, titled
from attncli.render.matrix import as_matrix, visible
from attncli.render.phrases.figures import told
from attncli.render.safe import label

WORDS = 60
"""Words of a text that is still written as a sentence, or as two columns."""


def figure(document: Document, *, scale: str = "linear", theme: Theme = LIGHT, lang: str = "en") -> Drawing | None:
    """What a document shows, drawn; None for one whose shape is its text. Raises InputError where it holds nothing to
    draw. scale: as for maps on a screen."""
    drawing, say = Drawing(theme), partial(told, lang)
    match document.schema:
        case "attn.run/1" | "attn.heads/1" | "attn.cross/1" | "attn.tensors/1":
            _heads(drawing, document, scale, say)
        case "attn.compare/1":
            _compare(drawing, document, scale, say)
        case "attn.find/1":
            _find(drawing, document, say)
        case "attn.ablate/1":
            draw_ablation(drawing, document, say)
        case "attn.patch/1":
            draw_patching(drawing, document, say)
        case "attn.logits/1":
            draw_logits(drawing, document, say)
        case "attn.mask/1":
            _masks(drawing, document, say)
        case "attn.cost/1":
            _cost(drawing, document, say)
        case _:
            return None
    return drawing


def names_of(tokens: Sequence[TokenRow]) -> list[str]:
    """The texts of tokens, safe to write."""
    return [label(token["text"]) for token in tokens]


def _said(document: Document, say: Say) -> str:
    model, attention = document["model"], document["attention"]
    parts = [model.get("name") or model["source"]]
    parts += [say("seed", model["seed"])] if model["source"] in ("seeded", "random") else []
    parts += [say(name, attention[name]) for name in ("mask", "position") if attention.get(name) not in (None, "none")]
    return "; ".join(map(str, (*parts, say("sides"))))


def _heads(drawing: Drawing, document: Document, scale: str, say: Say) -> None:
    """The weights of every head; with one query its sentence; the links of one head of a short text."""
    maps, rows, keys = _maps(document, say)
    measured = document["heads"] if document.schema == "attn.heads/1" else ()
    if not maps and not measured:
        raise InputError("this document holds no weights to draw", expected="one that was not shortened by --show")
    said = _said(document, say) if maps else say("metrics")
    title = document.get("text") or document.get("query_text") or document.get("file") or ""
    top = titled(drawing, str(title), said)
    if document.get("queries") and document.schema == "attn.run/1" and len(keys) <= WORDS:
        chosen = document["queries"][0]
        mean = np.nanmean([one.values[0] for one in maps], 0)
        high = float(np.nanmax(mean)) or 1.0
        shares = [0.0 if np.isnan(weight) else float(weight) / high for weight in mean]
        top = draw_sentence(drawing, keys, _joined(document, len(keys)), shares, chosen, top) + 14
    layers = [
        part["layer"] for part in document.get("layers", document.get("heads", ())) for _ in part.get("heads", "1")
    ]
    across = max(map(layers.count, layers), default=3) if len(maps) > 3 else 3
    top = draw_maps(drawing, maps, top, scale=scale, across=across if 4 <= across <= 16 else 8)
    if len(maps) == 1 and max(len(rows), len(keys)) <= WORDS and len(rows) > 1:
        values = np.nan_to_num(maps[0].values)
        links = [(int(i), int(j), float(values[i, j])) for i, j in np.argwhere(values > 0.02)]
        top = draw_links(drawing, links, rows, keys, top + 16)
    if measured:
        titles = {name: say(f"metric.{name}") for name in measured[0]["metrics"]}
        heads = [_measured(one, say) for one in measured]
        draw_metrics(drawing, heads, titles, top + (20 if maps else 0), said=say("uniform"))


def _joined(document: Document, count: int) -> list[bool]:
    """Which words follow the one before without a space, of as many as are shown."""
    tokens = document["tokens"][:count]
    ends = [None, *(token["end"] for token in tokens)]
    found = [token["start"] is not None and token["start"] == end for token, end in zip(tokens, ends, strict=False)]
    return found + [False] * (count - len(found))


def _measured(head: Part, say: Say) -> Measured:
    values, uniform = (
        {name: one["value"] for name, one in head.get(key, {}).items()} for key in ("metrics", "baseline")
    )
    return Measured(head["layer"], head["head"], say("head", head["layer"], head["head"]), values, uniform)


def _maps(document: Document, say: Say) -> tuple[list[Map], list[str], list[str]]:
    """The maps of a document's heads, and the words of either side."""
    held: list[tuple[str, Any]] = []
    if "layers" in document:
        held = [
            (say("head", part["layer"], head["head"]), head) for part in document["layers"] for head in part["heads"]
        ]
        held = held or [(say("head", one["layer"], one["head"]), one) for one in document.get("maps", ())]
    elif "batch" in document:
        several = len(document["batch"]) > 1
        held = [
            (
                say("batch", ".".join(map(str, part["index"])), head["head"])
                if several
                else say("of_layer", head["head"]),
                head,
            )
            for part in document["batch"]
            for head in part["heads"]
        ]
    else:
        held = [(say("head", head["layer"], head["head"]), head) for head in document["heads"]]
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
        Map(name + (say("pooled", head["pool"]) if head.get("pool", 1) > 1 else ""), values, rows, keys)
        for name, head, values in found
    ]
    average = document.get("average")
    mean = average.get("weights") if isinstance(average, AverageHead) else None
    return (
        (maps if mean is None or len(maps) < 2 else [*maps, Map(say("average"), as_matrix(mean), rows, keys)]),
        rows,
        keys,
    )


def _compare(drawing: Drawing, document: Document, scale: str, say: Say) -> None:
    """The head that differs most: either side and their signed difference; then the largest difference of each head."""
    heads = document["heads"]
    most = max(heads, key=lambda head: abs(head["max_difference"]["value"]))
    names = names_of(document["a"]["tokens"])
    words = [names[pair[0]] for pair in document["aligned"]]
    top = titled(
        drawing,
        f"{document['a']['name']}  →  {document['b']['name']}",
        say("differs", say("head", most["a"]["layer"], most["a"]["head"])),
    )
    maps = [Map(name, as_matrix(most[key]), words, words) for name, key in (("A", "weights_a"), ("B", "weights_b"))]
    top = draw_maps(
        drawing, [*maps, Map("B − A", as_matrix(most["difference"]), words, words, signed=True)], top, scale=scale
    )
    ranked = sorted(heads, key=lambda head: -abs(head["max_difference"]["value"]))[:RANKED]
    if len(heads) > 1:
        bars = [
            bar_of(say("head", one["a"]["layer"], one["a"]["head"]), one["max_difference"]["value"], signed=True)
            for one in ranked
        ]
        draw_bars(drawing, bars, top + 16)


def _find(drawing: Drawing, document: Document, say: Say) -> None:
    names = names_of(document["tokens"])
    top = titled(drawing, f"{names[document['from']]}  →  {names[document['to']]}", _said(document, say))
    rows = document["heads"][:RANKED]
    bars = [
        bar_of(
            say("head", row["layer"], row["head"]),
            row["weight"],
            more="" if row["rank"] is None else say("rank", row["rank"]),
        )
        for row in rows
    ]
    draw_bars(drawing, bars, top)


def _masks(drawing: Drawing, document: Document, say: Say) -> None:
    shown = [*document["masks"], *([document["combined"]] if document.get("combined") else [])]
    top = titled(
        drawing,
        say("masks") if len(shown) > 1 else str(shown[0]["spec"]),
        say("visible"),
    )
    maps = []
    for mask in shown:
        values = as_matrix(mask["map"]["share"])
        told = f"{mask.get('spec') or say('together')} · {mask['share']:.0%}"
        maps.append(
            Map(told, values, [str(at) for at in range(len(values))], [str(at) for at in range(values.shape[1])])
        )
    draw_maps(drawing, maps, top, scale="linear")


def _cost(drawing: Drawing, document: Document, say: Say) -> None:
    top = titled(
        drawing,
        say("cost", f"{document['n']:,}"),
        say("sizes", document["d_model"], document["heads"]),
    )
    names = [variant["name"] for variant in document["variants"]]
    series = [
        (name, [(row["n"], row["multiply_adds"][name]) for row in document["growth"] if name in row["multiply_adds"]])
        for name in names
    ]
    top = draw_curves(drawing, series, top, say("tokens"), say("operations"))
    bars = [
        Bar(row["name"], row["multiply_adds"], f"{row['multiply_adds']:.3g} · {row['grows']}")
        for row in document["variants"]
    ]
    draw_bars(drawing, bars, top + 16)
