"""The Rich console that prints every screen, plain and coloured alike, and lays Rich's own renderables out as lines."""

from __future__ import annotations

from functools import cache
from typing import IO, TYPE_CHECKING

from attncli.render.lines import Line, Lines, Piece
from attncli.render.safe import CUT, CUT_ASCII
from attncli.render.view import View

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
