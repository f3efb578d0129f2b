"""`Lines`: a block of styled text, laid out to the cell, which Rich prints.

Every renderer returns `Lines`. Styles are Rich style strings ("bold", "black on #fde725"), so
nothing here imports Rich until something is printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from attncli.draw.safe import cells

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.measure import Measurement
    from rich.segment import Segment

Piece = tuple[str, str]
"""Safe text and its style ("" for none)."""

Line = tuple[Piece, ...]


class Lines(Struct, frozen=True):
    """A block of styled lines; a value that can be stacked, set beside others, compared and
    printed.
    """

    rows: tuple[Line, ...] = ()

    @property
    def width(self) -> int:
        """Cells of the widest line; 0 without lines."""
        return max((line_width(row) for row in self.rows), default=0)

    @property
    def plain(self) -> str:
        """The text alone, without styles and without blanks at line ends."""
        return "\n".join("".join(text for text, _ in row).rstrip() for row in self.rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment

        for row in self.rows:
            if not any(
                style for _, style in row
            ):  # one piece a line: a table of a million numbers has as many pieces
                yield Segment("".join(text for text, _ in row).rstrip(" "))
            else:
                yield from (
                    Segment(text, console.get_style(style) if style else None)
                    for text, style in row
                )
            yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        from rich.measure import Measurement

        return Measurement(self.width, self.width)


def line_width(row: Line) -> int:
    """Cells of one line."""
    return sum(cells(text) for text, _ in row)


def line(*pieces: Piece | str) -> Lines:
    """One line; a bare string is unstyled."""
    return Lines((tuple((piece, "") if isinstance(piece, str) else piece for piece in pieces),))
