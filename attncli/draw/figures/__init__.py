"""The figure of a document as SVG, PNG and PDF: `features/<name>/figure.py` draws `attn.<name>/1`."""

from __future__ import annotations

import math
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any

from attncli.documents import WITHOUT_FIGURE, Document, folder_of, name_of
from attncli.draw.figures.drawing import LIGHT, Drawing, Style, Theme, figure_bytes
from attncli.draw.figures.figure_choice import NO_CHOICE, PARTS, FigureChoice
from attncli.draw.token_names import name_tokens
from attncli.draw.view import View
from attncli.errors import UsageError
from attncli.language import listing
from attncli.mechanism.spec import ARROW


def figure(
    document: Document,
    *,
    scale: str = "linear",
    theme: Theme = LIGHT,
    lang: str = "en",
    room: float = math.inf,
    choice: FigureChoice = NO_CHOICE,
) -> Drawing | None:
    """Draw a document's figure. Returns None for a kind of document that has none, as it is words
    and tables. Raises InputError where the document holds nothing to draw, and UsageError where the
    figure has nothing of what is chosen.

    scale: of colours, as `normalise` takes it.
    room: points from left to right that it may take (see `Style.room`).
    choice: what of it is drawn (see `Style.choice`).
    """
    name = name_of(document.schema)
    if name in WITHOUT_FIGURE:
        refuse_choice(choice)
        return None
    # documents of kind "run" are drawn by `run_figure` in the module `figure` of their folder
    draw = getattr(import_module(f"{folder_of(name)}.figure"), f"{name}_figure")
    drawing = Drawing(theme, room=room, choice=choice)
    draw(name_tokens(document), drawing, View(lang=lang), scale)
    _refuse_unused(drawing)
    return drawing


def refuse_choice(choice: FigureChoice) -> None:
    """Refuse a choice of parts, heads or rows for a figure that is only a picture of the screen and
    has none of these. Raises UsageError."""
    if choice != NO_CHOICE:
        raise UsageError(
            "this figure is a picture of the screen, of which no parts are chosen",
            expected="--figure-style with light or dark, 85mm, 300dpi alone",
        )


def figure_files(
    drawing: Drawing, style: Style, file: Path, *, title: str = "", description: str = ""
) -> dict[Path, bytes]:
    """The files of a figure with their bytes: one file, or, for an .svg or .png of several pages,
    one a page, as `figure-1.svg`.

    title, description: what it is called, and what it says, for those who do not see it.
    """
    # a drawing of one page is written whole, as `svg` does without a page
    pages = drawing.pages()
    if len(pages) == 1:
        svgs = [drawing.svg(mm=style.mm, title=title, description=description)]
    else:
        svgs = [
            drawing.svg(mm=style.mm, title=title, description=description, page=page)
            for page in pages
        ]
    if len(svgs) == 1 or file.suffix.lower() == ".pdf":
        return {file: figure_bytes(svgs[0], file.suffix, style, more=svgs[1:])}
    return {
        file.with_name(f"{file.stem}-{number}{file.suffix}"): figure_bytes(svg, file.suffix, style)
        for number, svg in enumerate(svgs, 1)
    }


def _refuse_unused(drawing: Drawing) -> None:
    """Raise UsageError where a figure has nothing of what was chosen: a part that it does not have,
    heads or rows where it has no maps of heads."""
    choice = drawing.choice
    for part in choice.parts:
        if part not in drawing.offered:
            has = [name for name in PARTS if name in drawing.offered]
            raise UsageError(
                "--figure-parts {part}: this figure has no such part",
                expected=listing(has),
                part=part,
            )
    for name, word in choice.words.items():
        if name not in drawing.offered:
            raise UsageError(
                "--figure-style {word} is about maps of heads, and this figure has none",
                expected="a figure of attn run, heads, cross or tensors",
                word=word,
            )


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
    """The title of a document's figure (what it is about), and its description (what it says), for
    readers who cannot see it."""
    from attncli.draw.screen_header import screen_of

    def member(path: str) -> str:
        """The document's text at a path such as "a.text"; "" where there is none."""
        value: Any = document
        for name in path.split("."):
            value = getattr(value, name, "")
        if not isinstance(value, str):
            return ""
        if path == "file":  # without its folder, which is of the author's machine
            return PurePath(value).name
        return value

    # the first of these groups of members of which the document has any
    title = str(document.schema)
    for paths in TITLES:
        texts = [text for text in map(member, paths) if text]
        if texts:
            # two equal texts are written once
            title = f" {ARROW} ".join(dict.fromkeys(texts))
            break

    screen = screen_of(document.schema)
    if screen.sentences is not None:
        sentences = screen.sentences(name_tokens(document), View(lang=lang))
        return title, " ".join(filter(None, sentences))
    # the answer of the screen, so wide that no line is broken; in colour, since without it marks
    # stand beside the words that are shaded
    answer = screen.screen(document, View(lang=lang, width=4000, brief=True, color=True))
    return title, " ".join(answer.plain.split())
