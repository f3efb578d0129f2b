"""Answers of commands whose figure may be their screen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from attncli.cli import delivery as answer
from attncli.cli.options import OutputOptions
from attncli.cli.output import Environment

if TYPE_CHECKING:
    from attncli.analysis.documents.declaration import Document
    from attncli.render.lines import Lines
    from attncli.render.view import View

Kind = TypeVar("Kind", bound="Document")


def give(
    documents: Iterable[Kind],
    screen: Callable[[Kind, View], Lines],
    rows: Callable[[Kind], Iterable[Sequence[object]]],
    asked: OutputOptions,
    environment: Environment,
    how: View,
) -> None:
    """Draw the screens of the documents to `--svg` if it is given, then answer with the documents as `answer.give`
    does."""
    held = list(documents)
    if asked.svg is not None:
        from attncli.inputs.atomic import atomic_writer
        from attncli.render.figures.files import style_of, written
        from attncli.render.figures.of_document import figure
        from attncli.render.lines import spaced
        from attncli.render.picture import screen_svg

        style = style_of(asked.figure_style)
        drawing = figure(held[0], scale=asked.scale_colors, theme=style.theme) if len(held) == 1 else None
        if drawing is None:  # what is told in words and tables is drawn as it is told
            svg = screen_svg(spaced(screen(document, replace(how, color=True)) for document in held))
        else:
            svg = drawing.svg(mm=style.mm)
        data = written(svg, asked.svg.suffix, style)
        with atomic_writer(asked.svg) as file:
            file.write(data)
    answer.give(held, screen, rows, asked, environment, how)
