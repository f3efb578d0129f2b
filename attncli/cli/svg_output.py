"""Answers of commands whose figure may be their screen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from attncli.cli import delivery as answer
from attncli.cli.options import OutputOptions
from attncli.cli.output import Environment

if TYPE_CHECKING:
    from attncli.analysis.documents.declaration import Document
    from attncli.render.view import View


def give(
    documents: Iterable[Document], asked: OutputOptions, environment: Environment, how: View, *, several: bool = False
) -> None:
    """Draw the screens of the documents to `--svg` if it is given, then answer with the documents as `answer.give`
    does."""
    if asked.svg is not None:
        documents = held = list(documents)
        from attncli.inputs.atomic import atomic_writer
        from attncli.render.figures.drawing import LIGHT
        from attncli.render.figures.files import style_of, written
        from attncli.render.figures.of_document import figure
        from attncli.render.figures.screen import draw_screen
        from attncli.render.lines import spaced
        from attncli.render.screens import screen_of

        style = style_of(asked.figure_style)
        drawing = (
            figure(held[0], scale=asked.scale_colors, theme=style.theme, lang=how.lang) if len(held) == 1 else None
        )
        if drawing is None:  # what is told in words and tables is drawn as it is told
            view = replace(how, color=True, light=style.theme is LIGHT)
            drawing = draw_screen(
                spaced(screen_of(document.schema).screen(document, view) for document in held), style.theme
            )
        title = str(getattr(held[0], "text", "")) if len(held) == 1 else ""
        data = written(drawing.svg(mm=style.mm, title=title), asked.svg.suffix, style)
        with atomic_writer(asked.svg) as file:
            file.write(data)
    answer.give(documents, asked, environment, how, several=several)
