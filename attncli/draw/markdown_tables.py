"""Our own Markdown pages for Rich: a table's cell is broken, and never cut, also where a language
writes no spaces, and no line begins with a sign that closes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, OverflowMethod, RenderResult
from rich.containers import Lines
from rich.markdown import (
    Heading,
    Markdown,
    MarkdownContext,
    MarkdownElement,
    Paragraph,
    TableDataElement,
    TableElement,
)
from rich.table import Table
from rich.text import Text

from attncli.draw.safe import CLOSING, line_breaks

WIDE = "\u2e80"
"""The first of the signs that are written without blanks between words."""


class ProseText(Text):
    """Text that is broken between ideographs as well as at blanks, and never before a sign that
    closes; Rich breaks a text without blanks wherever the line is full."""

    def copy(self) -> ProseText:
        """The same text once more, as a table's head and a heading take it."""
        copied = ProseText(style=self.style, justify=self.justify, end=self.end)
        copied.append_text(self)
        return copied

    def wrap(
        self,
        console: Console,
        width: int,
        *,
        justify: JustifyMethod | None = None,
        overflow: OverflowMethod | None = None,
        tab_size: int = 8,
        no_wrap: bool | None = None,
    ) -> Lines:
        """The text in lines; arguments as of Rich's `Text.wrap`, which does it where every word
        stands between blanks."""
        if max(self.plain, default="") < WIDE:
            return super().wrap(
                console,
                width,
                justify=justify,
                overflow=overflow,
                tab_size=tab_size,
                no_wrap=no_wrap,
            )
        rows = [part for line in self.split(allow_blank=True) for part in _parts(line, width)]
        return (
            Text("\n")
            .join(rows)
            .wrap(
                console,
                width,
                justify=justify or self.justify,
                overflow=overflow or self.overflow,
                tab_size=tab_size,
                no_wrap=no_wrap,
            )
        )


def _parts(line: Text, width: int) -> list[Text]:
    """A line's parts of at most `width` cells, without the blanks at their ends."""
    text = line.plain
    places = line_breaks(text, width)
    folds: list[int] = []
    for start, stop in pairwise([0, *places, len(text)]):
        row = text[start:stop].rstrip(" ")
        if cell_len(row) > width:
            folds += [start + place for place in _folds(row, width)]
    parts = list(line.divide(sorted({*places, *folds})))
    for part in parts:
        part.rstrip()
    return parts


def _folds(text: str, width: int) -> list[int]:
    """The places at which a text without a break is folded to fit."""
    places: list[int] = []
    start = 0
    for place in range(1, len(text)):
        if cell_len(text[start : place + 1]) <= width:
            continue
        fold = place
        while fold > start + 1 and text[fold] in CLOSING:
            fold -= 1
        places.append(fold)
        start = fold
    return places


class ProseParagraph(Paragraph):
    """A paragraph of such text."""

    def on_enter(self, context: MarkdownContext) -> None:
        super().on_enter(context)
        self.text = ProseText(justify="left")


class ProseHeading(Heading):
    """A heading of such text."""

    def on_enter(self, context: MarkdownContext) -> None:
        super().on_enter(context)
        self.text = ProseText()


class ProseCell(TableDataElement):
    """A cell of such text."""

    def __init__(self, justify: JustifyMethod) -> None:
        super().__init__(justify)
        self.content = ProseText("", justify=justify)


class WholeCells(TableElement):
    """A table that shows the whole of every cell."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for drawn in super().__rich_console__(console, options):
            if isinstance(drawn, Table):
                for column in drawn.columns:
                    column.overflow = "fold"
            yield drawn


class GuidePage(Markdown):
    """A page with such paragraphs, headings and tables."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "paragraph_open": ProseParagraph,
        "heading_open": ProseHeading,
        "th_open": ProseCell,
        "td_open": ProseCell,
        "table_open": WholeCells,
    }
