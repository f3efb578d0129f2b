"""Our own Markdown pages as screens, drawn by Rich. Only pages of the package come here, never text from elsewhere."""

from __future__ import annotations

from attncli.render.console import lay_out
from attncli.render.glyphs import spell
from attncli.render.lines import Lines, line, stack
from attncli.render.view import View

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
