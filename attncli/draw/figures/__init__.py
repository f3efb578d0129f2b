"""The figure of a document as SVG, PNG and PDF: `features/<name>/figure.py` draws `attn.<name>/1`."""

from __future__ import annotations

import math
from importlib import import_module
from pathlib import PurePath
from typing import Any

from attncli.documents import WITHOUT_FIGURE, Document, folder_of, name_of
from attncli.draw.figures.drawing import LIGHT, Drawing, Theme
from attncli.draw.token_names import name_tokens
from attncli.draw.view import View


def figure(
    document: Document,
    *,
    scale: str = "linear",
    theme: Theme = LIGHT,
    lang: str = "en",
    room: float = math.inf,
) -> Drawing | None:
    """A document's figure as a drawing; None for a kind of document that is words and tables and
    has none. Raises InputError where it holds nothing to draw.

    scale: of colours, as `normalise` takes it.
    room: points from left to right that it may take (see `Style.room`).
    """
    name = name_of(document.schema)
    if name in WITHOUT_FIGURE:
        return None
    draw = getattr(import_module(f"{folder_of(name)}.figure"), f"{name}_figure")
    drawing = Drawing(theme, room=room)
    draw(name_tokens(document), drawing, View(lang=lang), scale)
    return drawing


TITLES = (
    ("text",),
    ("query_text", "key_text"),
    ("clean", "corrupt"),
    ("a.text", "b.text"),
    ("file",),
    ("task",),
)
"""Members of documents that they are about."""


def title_and_description(document: Document, lang: str) -> tuple[str, str]:
    """A title (what a document is about) and a description (what it says), for those who do not see
    its figure.
    """
    from attncli.draw.screen_header import screen_of

    def member(path: str) -> str:
        """The text of a member of the document, found by its path; "" where it has none."""
        value: Any = document
        for name in path.split("."):
            value = getattr(value, name, "")
        if not isinstance(value, str):
            return ""
        if path == "file":
            return PurePath(value).name
        return value

    names = [[text for path in paths if (text := member(path))] for paths in TITLES]
    title = next(
        (" → ".join(dict.fromkeys(texts)) for texts in names if texts), str(document.schema)
    )
    screen = screen_of(document.schema)
    if screen.sentences is not None:
        return title, " ".join(
            filter(None, screen.sentences(name_tokens(document), View(lang=lang)))
        )
    answer = screen.screen(document, View(lang=lang, width=4000, brief=True, color=True))
    return title, " ".join(answer.plain.split())
