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
        """A copy that is a `ProseText` too: Rich copies the texts of headings and of tables' heads,
        and its own method returns a plain `Text`."""
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
        """The text in lines, with the arguments of Rich's `Text.wrap`. A text without ideographs is
        left to Rich; any other is broken here first, and Rich only aligns its lines."""
        if max(self.plain, default="") < WIDE:  # no character is an ideograph
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
    """Cut a line into parts of at most `width` cells, without the blanks at their ends."""
    text = line.plain
    breaks = line_breaks(text, width)
    folds: list[int] = []  # breaks inside a part that is too wide still
    for start, stop in pairwise([0, *breaks, len(text)]):
        row = text[start:stop].rstrip(" ")
        if cell_len(row) > width:
            folds += [start + place for place in _folds(row, width)]
    parts = list(line.divide(sorted({*breaks, *folds})))
    for part in parts:
        part.rstrip()
    return parts


def _folds(text: str, width: int) -> list[int]:
    """The indices at which to cut a text without blanks so that no part is wider than `width` cells
    and none begins with a sign that closes, such as a bracket or a full stop."""
    folds: list[int] = []
    start = 0
    for index in range(1, len(text)):
        if cell_len(text[start : index + 1]) <= width:
            continue
        # a sign that closes takes the one before it to the next part, unless nothing were left here
        fold = index
        while fold > start + 1 and text[fold] in CLOSING:
            fold -= 1
        folds.append(fold)
        start = fold
    return folds


class ProseParagraph(Paragraph):
    """A paragraph whose text is broken as `ProseText` is."""

    def on_enter(self, context: MarkdownContext) -> None:
        """Called by Rich where the paragraph begins; its text is then added to `self.text`."""
        super().on_enter(context)
        self.text = ProseText(justify="left")


class ProseHeading(Heading):
    """A heading whose text is broken as `ProseText` is."""

    def on_enter(self, context: MarkdownContext) -> None:
        """Called by Rich where the heading begins; its text is then added to `self.text`."""
        super().on_enter(context)
        self.text = ProseText()


class ProseCell(TableDataElement):
    """A cell of a table whose text is broken as `ProseText` is."""

    def __init__(self, justify: JustifyMethod) -> None:
        """Begin an empty cell; Rich then adds its text to `self.content`."""
        super().__init__(justify)
        self.content = ProseText("", justify=justify)


class WholeCells(TableElement):
    """A table that shows the whole of every cell."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What Rich draws for a table, with texts too wide for their column folded, not cut."""
        for drawn in super().__rich_console__(console, options):
            if isinstance(drawn, Table):
                for column in drawn.columns:
                    column.overflow = "fold"
            yield drawn


class GuidePage(Markdown):
    """A Markdown page whose paragraphs, headings and tables are those of this file."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "paragraph_open": ProseParagraph,
        "heading_open": ProseHeading,
        "th_open": ProseCell,
        "td_open": ProseCell,
        "table_open": WholeCells,
    }
