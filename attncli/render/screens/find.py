"""The screen of `attn.find/1`: the heads that send one token to another, strongest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET

from attncli.analysis.documents.find import FindDocument, FoundHead, Reverse
from attncli.render.bars import bar
from attncli.render.glyphs import spell
from attncli.render.headings import own, remark
from attncli.render.lines import Lines, clipped, spaced, stack
from attncli.render.numbers import writer
from attncli.render.safe import cells, cut, label
from attncli.render.screen_parts import PARTS_OF
from attncli.render.screens.effect_answer import found_cut, written
from attncli.render.screens.header import header, shown_tokens
from attncli.render.screens.sentence_answer import find_answer
from attncli.render.tables import GAP, table
from attncli.render.view import View

PARTS = PARTS_OF["find"]
"""Every part, in the order of the screen."""
DEFAULT = frozenset({"header", "heads", "answer"})
BAR, LOOKS, REVERSE, EFFECT = "", "looks most at", "reverse", "effect"
"""Names of columns."""
SHORTEST, LONGEST = 4, 24
"""Cells of a bar of weight 1."""
NAME = 14
"""Cells of the text of the key that is looked at most."""


def find_screen(document: FindDocument, view: View) -> Lines:
    """The whole screen of an `attn.find/1` document: `view.top` heads."""
    wanted = frozenset({"answer"}) if view.brief else DEFAULT if view.show is None else view.show
    blocks = []
    for part in PARTS:
        if part in wanted:
            match part:
                case "header":
                    blocks.append(header(document, view))
                case "tokens":
                    blocks.append(shown_tokens(document, view))
                case "answer":
                    cut = (remark(said, view, style="") for said in found_cut(document, view))
                    blocks.append(stack((find_answer(document, view), *cut)))
                case _:
                    blocks.append(_heads(document, view))
    return clipped(spaced(blocks), view.width, ascii=view.ascii)


def find_rows(document: FindDocument) -> Iterator[Sequence[object]]:
    """All heads as a table for `--plain`, its first row the names of the columns."""
    cut = document.effect_together is not UNSET
    names = ("layer", "head", "weight", "rank", "visible", "top_key", "reverse_weight", "reverse_rank")
    yield (*names, "effect") if cut else names
    for head in document.heads:
        back = head.reverse
        yield (
            *(getattr(head, name) for name in ("layer", "head", "weight", "rank", "visible", "top_key")),
            back.weight,
            back.rank,
            *((head.effect,) if cut else ()),
        )


def _heads(document: FindDocument, view: View) -> Lines:
    names = [_name(document, at, view) for at in (document.query, document.key)]
    arrow = spell("→", ascii=view.ascii)
    found = document.heads
    shown = found if view.full else found[: view.top]
    columns = _columns(document, shown, view)
    absent = [name for name in (LOOKS, REVERSE) if name not in columns]
    body = table(
        list(columns),
        [list(row) for row in zip(*columns.values(), strict=True)],
        view,
        align=["left" if name in (BAR, LOOKS) else "right" for name in columns],
        title=f"heads by weight, {names[0]} {arrow} {names[1]}",
        bars=list(columns).index(BAR) if BAR in columns else None,
        note="" if REVERSE in absent else f"reverse: {names[1]} {arrow} {names[0]}",
    )
    left = f"{len(shown)} of {len(found)} heads shown; --top {len(found)} shows all" if len(shown) < len(found) else ""
    narrow = f"a wider terminal also shows: {', '.join(absent)}" if absent else ""
    hidden = (
        "the mask hides this key from this query in every head"
        if found and all(head.rank is None for head in found)
        else ""
    )
    return stack((body, *(remark(said, view) for said in (left, narrow, hidden))))


def _columns(document: FindDocument, shown: Sequence[FoundHead], view: View) -> dict[str, list[str]]:
    """The columns by name, with a bar in what room is left; where there is too little, less is shown, never half a
    number."""
    write = writer(
        [getattr(head, side) for row in shown for head, side in ((row, "weight"), (row.reverse, "weight"))],
        view.precision,
    )
    texts = [label(token.text, ascii=view.ascii) for token in document.tokens]
    tops = ["-" if head.top_key is None else texts[head.top_key] for head in shown]
    columns = {
        "layer": [str(head.layer) for head in shown],
        "head": [str(head.head) for head in shown],
        "weight": [write(head.weight) for head in shown],
        BAR: [""] * len(shown),
        **(
            {EFFECT: [written(None if head.effect is UNSET else head.effect) for head in shown]}
            if document.effect_together is not UNSET
            else {}
        ),
        "rank of key": [_rank(head, view) for head in shown],
        LOOKS: [cut(top, NAME, ascii=view.ascii) for top in tops],
        REVERSE: [write(head.reverse.weight) for head in shown],
        "rank": [_rank(head.reverse, view) for head in shown],
    }
    for less in ((LOOKS,), (REVERSE, "rank")):
        if _width(columns) + SHORTEST > view.width:
            for name in less:
                del columns[name]
    room = min(max(view.width - _width(columns), SHORTEST), LONGEST)
    return columns | {BAR: [bar(head.weight, room, ascii=view.ascii) for head in shown]}


def _width(columns: dict[str, list[str]]) -> int:
    return sum(max(map(cells, (name, *column))) + GAP for name, column in columns.items()) - GAP


def _rank(place: FoundHead | Reverse, view: View) -> str:
    return own("hidden" if place.rank is None else f"{place.rank} of {place.visible}", view)


def _name(document: FindDocument, index: int, view: View) -> str:
    return f"{index} {label(document.tokens[index].text, ascii=view.ascii)}"
