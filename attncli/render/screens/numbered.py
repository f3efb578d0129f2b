"""The line above one of several texts."""

from __future__ import annotations

from attncli.analysis.documents.declaration import Document
from attncli.render.headings import heading
from attncli.render.lines import Lines, line
from attncli.render.phrases import say
from attncli.render.safe import cells, cut, safe
from attncli.render.view import View


def numbered_title(place: int, document: Document, view: View) -> Lines:
    """The number of a text, from 0, and the text itself where the screen below does not begin with it."""
    number = say(view, "text.number", place)
    if view.show is None and not view.brief:
        return heading(number, "", view)
    room = max(view.width - cells(number) - 2, 8)
    text = cut(safe(str(getattr(document, "text", "")), ascii=view.ascii), room, ascii=view.ascii)
    return line((number, "bold"), ("  " + text, ""))
