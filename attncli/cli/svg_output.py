"""Answers of commands whose picture (`--svg`) is their screen."""

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
        from attncli.render.lines import spaced
        from attncli.render.picture import screen_svg

        coloured = replace(how, color=True)
        with atomic_writer(asked.svg) as file:
            file.write(screen_svg(spaced(screen(document, coloured) for document in held)).encode())
    answer.give(held, screen, rows, asked, environment, how)
