"""Titles and remarks around a part of a screen, in our own words."""

from __future__ import annotations

from attncli.render.glyphs import spell
from attncli.render.lines import Lines, flow, line, stack
from attncli.render.prose import wrap
from attncli.render.safe import cells
from attncli.render.view import View

FAINT = "bright_black"


def heading(title: str, note: str, view: View) -> Lines:
    """A part's title and what it shows; the note goes below when there is no room beside. Nothing without a title."""
    if not title:
        return Lines()
    name = spell(title, ascii=view.ascii)
    said = spell(note, ascii=view.ascii)
    if cells(name) + 2 + cells(said) <= view.width and said:
        return line((name, "bold"), ("  " + said, FAINT))
    return stack(
        (
            flow([(word, "bold") for word in name.split()], width=view.width, gap=" ", ascii=view.ascii),
            remark(note, view),
        )
    )


def remark(text: str, view: View, *, style: str = FAINT) -> Lines:
    """A sentence of ours, broken to the view's width at blanks and between ideographs. Nothing for ""."""
    rows = wrap(spell(text, ascii=view.ascii), view.width, ascii=view.ascii)
    return stack(line((row, style)) for row in rows)
