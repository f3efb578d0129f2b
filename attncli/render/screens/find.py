"""The screen of `attn.find/1`: the heads that send one token to another, strongest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attncli.render.glyphs import spell
from attncli.render.headings import remark
from attncli.render.lines import Lines, clipped, spaced, stack
from attncli.render.links import bar
from attncli.render.numbers import writer
from attncli.render.safe import cut, label
from attncli.render.screens.header import header, tokens_part
from attncli.render.tables import table
from attncli.render.view import View

Document = Mapping[str, Any]

PARTS = ("header", "tokens", "heads")
"""Every part, in the order of the screen."""
DEFAULT = frozenset({"header", "heads"})
BAR = 24
"""Cells of a weight of 1."""


def find_screen(document: Document, view: View) -> Lines:
    """The whole screen of an `attn.find/1` document: `view.top` heads."""
    wanted = DEFAULT if view.show is None else view.show
    blocks = []
    for part in PARTS:
        if part in wanted:
            match part:
                case "header":
                    blocks.append(header(document, view))
                case "tokens":
                    blocks.append(tokens_part(document["tokens"], view))
                case _:
                    blocks.append(_heads(document, view))
    return clipped(spaced(blocks), view.width, ascii=view.ascii)


def find_rows(document: Document) -> Iterator[Sequence[object]]:
    """All heads as a table for `--plain`, its first row the names of the columns."""
    yield ("layer", "head", "weight", "rank", "visible", "top_key", "reverse_weight", "reverse_rank")
    for head in document["heads"]:
        back = head["reverse"]
        yield (*(head[name] for name in ("layer", "head", "weight", "rank", "visible", "top_key")), back["weight"], back["rank"])


def _heads(document: Document, view: View) -> Lines:
    names = [_name(document, document[end], view) for end in ("from", "to")]
    arrow = spell("→", ascii=view.ascii)
    found = document["heads"]
    shown = found if view.full else found[: view.top]
    write = writer([head[side] for row in shown for head, side in ((row, "weight"), (row["reverse"], "weight"))], view.precision)
    texts = [token["text"] for token in document["tokens"]]
    room = max(min(BAR, view.width - 66), 4)
    rows = [
        [
            str(head["layer"]), str(head["head"]), write(head["weight"]), bar(head["weight"], room, ascii=view.ascii), _rank(head),
            "-" if head["top_key"] is None else cut(label(texts[head["top_key"]], ascii=view.ascii), 14, ascii=view.ascii),
            write(head["reverse"]["weight"]), _rank(head["reverse"]),
        ]
        for head in shown
    ]  # fmt: skip
    columns = ["layer", "head", "weight", "", "rank of key", "looks most at", "reverse", "rank"]
    align = ["right", "right", "right", "left", "right", "left", "right", "right"]
    body = table(
        columns,
        rows,
        view,
        align=align,
        title=f"heads by weight, {names[0]} {arrow} {names[1]}",
        note=f"reverse: {names[1]} {arrow} {names[0]}",
    )
    left = f"{len(shown)} of {len(found)} heads shown; --top {len(found)} shows all" if len(shown) < len(found) else ""
    merged = "pieces are merged to words: sums to a word, means from it" if document["words"] else ""
    hidden = "the mask hides this key from this query in every head" if found and all(head["rank"] is None for head in found) else ""
    return stack((body, *(remark(said, view) for said in (left, merged, hidden))))


def _rank(place: Document) -> str:
    return "hidden" if place["rank"] is None else f"{place['rank']} of {place['visible']}"


def _name(document: Document, index: int, view: View) -> str:
    return f"{index} {label(document['tokens'][index]['text'], ascii=view.ascii)}"
