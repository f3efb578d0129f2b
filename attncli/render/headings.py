"""Titles and remarks around a part of a screen, in our own words."""

from __future__ import annotations

from collections.abc import Iterable

from attncli.render.glyphs import spell
from attncli.render.lines import Lines, flow, line, stack
from attncli.render.prose import wrap
from attncli.render.safe import cells
from attncli.render.view import View

FAINT = "bright_black"


def localize(text: str, view: View) -> str:
    """Our own text for this view: in its language, in ASCII where it must be. Always safe."""
    if view.lang != "en" and not view.ascii:
        from attncli.render.phrases.translation import translate

        return spell(translate(text, view.lang), ascii=False)
    return spell(text, ascii=view.ascii)


def heading(title: str, note: str, view: View) -> Lines:
    """A part's title and what it shows; the note goes below when there is no room beside. Nothing without a title."""
    if not title:
        return Lines()
    name = localize(title, view)
    note_text = localize(note, view)
    if cells(name) + 2 + cells(note_text) <= view.width and note_text:
        return line((name, "bold"), ("  " + note_text, FAINT))
    return stack(
        (
            flow([(word, "bold") for word in name.split()], width=view.width, gap=" ", ascii=view.ascii),
            remark(note, view),
        )
    )


def sentences(texts: Iterable[str], view: View) -> Lines:
    """Sentences of an answer, each on a line of its own, not set back; "" is none."""
    return stack(remark(text, view, style="") for text in texts)


def remark(text: str, view: View, *, style: str = FAINT) -> Lines:
    """A sentence of ours, broken to the view's width at blanks and between ideographs. Nothing for ""."""
    rows = wrap(localize(text, view), view.width, ascii=view.ascii)
    return stack(line((row, style)) for row in rows)
