"""Answers of commands whose figure may be their screen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from attncli.cli import delivery
from attncli.cli.environment import Environment
from attncli.cli.options import OutputOptions

if TYPE_CHECKING:
    from attncli.documents.declaration import Document
    from attncli.draw.view import View


def write_with_figure(
    documents: Iterable[Document],
    options: OutputOptions,
    environment: Environment,
    view: View,
    *,
    several: bool = False,
) -> None:
    """Draw the screens of the documents to `--svg` if it is given, then answer with the documents as
    `delivery.write_documents` does."""
    if options.svg is not None:
        documents = all_documents = list(documents)
        from attncli.draw.figures.document_figures import figure
        from attncli.draw.figures.drawing import LIGHT
        from attncli.draw.figures.figure_files import draw_screen, figure_bytes, style_of
        from attncli.draw.lines import stack_spaced
        from attncli.draw.screens import screen_of
        from attncli.inputs.atomic import atomic_writer

        style = style_of(options.figure_style)
        drawing = (
            figure(all_documents[0], scale=options.scale_colors, theme=style.theme, lang=view.lang)
            if len(all_documents) == 1
            else None
        )
        if drawing is None:  # what is told in words and tables is drawn as it is told
            figure_view = replace(view, color=True, light=style.theme is LIGHT)
            drawing = draw_screen(
                stack_spaced(screen_of(document.schema).screen(document, figure_view) for document in all_documents),
                style.theme,
            )
        title = str(getattr(all_documents[0], "text", "")) if len(all_documents) == 1 else ""
        data = figure_bytes(drawing.svg(mm=style.mm, title=title), options.svg.suffix, style)
        with atomic_writer(options.svg) as file:
            file.write(data)
    delivery.write_documents(documents, options, environment, view, several=several)
