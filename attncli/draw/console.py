"""The Rich console that prints every screen, plain and coloured alike, and lays Rich's own renderables out as lines."""

from __future__ import annotations

from functools import cache
from typing import IO, TYPE_CHECKING

from attncli.draw.lines import Line, Lines, Piece, line, stack
from attncli.draw.safe import CUT, CUT_ASCII, spell
from attncli.draw.view import View

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


FIXED_BLANK = "\ue000"
"""A blank that Rich does not strip; a private character, which no safe text holds."""


def console(view: View, stream: IO[str], *, deep: bool = True) -> Console:
    """A console on a stream, as wide as the view; it reads no markup, guesses no colours and adds no links.

    deep: whether the terminal has 24-bit colour, else 256 colours. Without colour in the view no escape is written.
    """
    from rich.console import Console

    return Console(
        file=stream,
        force_terminal=view.color,
        color_system=("truecolor" if deep else "256") if view.color else None,
        width=view.width,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )


@cache
def _measuring_console(width: int) -> Console:
    """A console that prints nowhere: it knows widths and styles."""
    from io import StringIO

    return console(View(width=width, color=True), StringIO())


def lay_out(renderable: RenderableType, view: View) -> Lines:
    """What Rich draws in the view's width, as lines that can be stacked, set beside others and compared.

    Texts in it must be safe. Where Rich cut one, ASCII shows its own mark.
    """
    measuring_console = _measuring_console(view.width)
    rows: list[Line] = []
    for segments in measuring_console.render_lines(renderable, measuring_console.options, pad=False):
        row: list[Piece] = []
        for segment in segments:
            text = segment.text.replace(FIXED_BLANK, " ")
            text = text.replace(CUT, CUT_ASCII) if view.ascii else text
            style = str(segment.style) if view.color and segment.style else ""
            row.append((text, "" if style == "none" else style))
        while row and not row[-1][0].strip(" ") and not row[-1][1]:
            row.pop()
        rows.append(tuple(row))
    return Lines(tuple(rows))


# Our own Markdown pages as screens, drawn by Rich. Only pages of the package come here, never text from elsewhere.

WIDEST = 100
"""Cells beyond which prose is tiring to read."""
FENCE = "```"
MARGIN = 2
"""Cells before a line of code, where an answer 80 cells wide still fits."""


def markdown(text: str, view: View) -> Lines:
    """A page in the view's width. Blocks of code stay as they are, so that what is copied from them runs."""
    from dataclasses import replace

    from rich.markdown import Markdown

    narrow = replace(view, width=min(view.width, WIDEST))
    blocks: list[Lines] = []
    for index, part in enumerate(text.split(f"\n{FENCE}")):
        if index % 2:
            blocks.append(_code(part.partition("\n")[2], view))
        elif part.strip():
            lines = lay_out(Markdown(part, hyperlinks=False), narrow)
            blocks.append(lines)
    return stack(blocks)


def _code(text: str, view: View) -> Lines:
    rows = [line("")]
    margin = " " * (MARGIN if view.width >= 80 + MARGIN else 0)
    for row in text.split("\n"):
        text_line = spell(row, ascii=view.ascii)
        rows.append(line((f"{margin}{text_line}", "bold" if text_line.startswith("$ ") else "bright_black")))
    return stack([*rows, line("")])
