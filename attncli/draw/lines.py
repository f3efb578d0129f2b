"""`Lines`: text with styles, laid out to the cell. What every renderer returns; Rich can print it.

Styles are Rich style strings ("bold", "black on #fde725"), so nothing here imports Rich until
something is printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attncli.draw.safe import cells, clusters, cut
from attncli.draw.view import View

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.measure import Measurement
    from rich.segment import Segment


Piece = tuple[str, str]
"""Safe text and its style ("" for none)."""

Line = tuple[Piece, ...]


@dataclass(frozen=True)
class Lines:
    """A block of styled lines; a value that can be stacked, set beside others, compared and printed."""

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
            if not any(style for _, style in row):  # one piece a line: a table of a million numbers has as many pieces
                yield Segment("".join(text for text, _ in row).rstrip(" "))
            else:
                yield from (Segment(text, console.get_style(style) if style else None) for text, style in row)
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


BLANK = Lines(((),))


def stack(blocks: Iterable[Lines]) -> Lines:
    """The blocks one below the other."""
    return Lines(tuple(row for block in blocks for row in block.rows))


def stack_spaced(blocks: Iterable[Lines]) -> Lines:
    """The blocks that hold something, one below the other with a blank line between."""
    blocks_with_rows = [block for block in blocks if block.rows]
    return stack(
        part for index, block in enumerate(blocks_with_rows) for part in ((block,) if index == 0 else (BLANK, block))
    )


def beside(
    blocks: Sequence[Lines], *, width: int, gap: int = 3, side: Lines | None = None, most: int | None = None
) -> Lines:
    """Blocks of like size in as few rows as `width` allows, the rows equally long but for the last.

    side: a block that begins every row. most: at most so many blocks in a row; None for as many as fit.
    """
    if not blocks:
        return Lines()
    edge = side.width + 1 if side is not None and side.rows else 0
    slot = max(block.width for block in blocks) + gap
    fitting = max((width - edge + gap) // slot, 1)
    if most is None:
        count = -(-len(blocks) // -(-len(blocks) // fitting))
        groups = [blocks[start : start + count] for start in range(0, len(blocks), count)]
    else:  # every `most` blocks belong together, and begin a row of their own
        groups = [
            blocks[first : min(first + fitting, start + most)]
            for start in range(0, len(blocks), most)
            for first in range(start, min(start + most, len(blocks)), fitting)
        ]
    begins = (side,) if side is not None and edge else ()
    return stack_spaced(
        _in_a_row((*begins, *group), [edge, *[slot] * len(group)] if edge else [slot] * len(group)) for group in groups
    )


def _in_a_row(blocks: Sequence[Lines], slots: Sequence[int]) -> Lines:
    rows = []
    for index in range(max(len(block.rows) for block in blocks)):
        row: list[Piece] = []
        for block, slot in zip(blocks, slots, strict=True):
            line = block.rows[index] if index < len(block.rows) else ()
            row += [*line, (" " * (slot - line_width(line)), "")]
        rows.append(tuple(row[:-1]))
    return Lines(tuple(rows))


def flow(pieces: Iterable[Piece], *, width: int, indent: int = 0, gap: str = "  ", ascii: bool = False) -> Lines:
    """Pieces one after the other, broken between pieces; later lines start at `indent`.

    A piece wider than the line is cut.
    """
    rows: list[Line] = []
    row: list[Piece] = []
    row_width = indent
    for text, style in pieces:
        piece = cut(text, max(width - indent, 1), ascii=ascii)
        if row and row_width + len(gap) + cells(piece) > width:
            rows.append(tuple(row))
            row = []
        if row:
            row += [(gap, ""), (piece, style)]
            row_width += len(gap) + cells(piece)
        else:
            row = [(" " * indent, ""), (piece, style)]
            row_width = indent + cells(piece)
    return Lines((*rows, tuple(row)) if row else tuple(rows))


def clip_lines(block: Lines, width: int, *, ascii: bool = False) -> Lines:
    """The block with every line cut to `width` cells."""
    return Lines(tuple(row if line_width(row) <= width else _clip(row, width, ascii) for row in block.rows))


def _clip(row: Line, width: int, ascii: bool) -> Line:
    out: list[Piece] = []
    for text, style in row:
        if cells(text) > width:
            return (*out, (cut(text, width, ascii=ascii), style))
        out.append((text, style))
        width -= cells(text)
    return tuple(out)


def strip_styles(block: Lines) -> Lines:
    """The block without styles, for a terminal without colour."""
    return Lines(tuple(tuple((text, "") for text, _ in row) for row in block.rows))


def fit_to_view(block: Lines, view: View) -> Lines:
    """The block as this view may see it: cut to its width, without styles if it has no colour."""
    fitting = clip_lines(block, view.width, ascii=view.ascii)
    return fitting if view.color else strip_styles(fitting)


def show(*blocks: Lines) -> None:
    """Print blocks to this terminal, with its own width and colour."""
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    for block in blocks:
        console.print(block)


# Sentences broken into lines: at blanks, and between the characters of scripts that are written without them.

CLOSING = "，。；：！？、）」』】》…·,.;:!?)]}"
"""Signs that never begin a line."""
OPENING = "（「『【《([{"
"""Signs that never end one."""

# an ideograph, kana or full-width sign may stand alone; anything else keeps together up to a blank
_PIECE = re.compile(r" +|[\u2e80-\u9fff\uf900-\ufaff\uff00-\uff60]|[^ \u2e80-\u9fff\uf900-\ufaff\uff00-\uff60]+")


def wrap(text: str, width: int, *, ascii: bool = False) -> list[str]:
    """The text in lines of at most `width` cells; what cannot be broken is cut. `text` must be safe. No lines for
    ""."""
    lines: list[str] = []
    row = ""
    for piece in _pieces(text):
        if row and cells(row) + cells(piece.rstrip(" ")) > width:
            lines.append(row.rstrip(" "))
            row = ""
        row += piece if row else piece.lstrip(" ")
    if row.strip(" "):
        lines.append(row.rstrip(" "))
    return [cut(line, max(width, 1), ascii=ascii) for line in lines]


def fold(text: str, width: int) -> list[str]:
    """A path or another text to be copied, whole, in lines of at most `width` cells broken anywhere. `text` must be
    safe."""
    lines = [""]
    for piece in clusters(text):
        if lines[-1] and cells(lines[-1]) + cells(piece) > width:
            lines.append("")
        lines[-1] += piece
    return lines


def _pieces(text: str) -> list[str]:
    """Parts between which a line may be broken; a closing sign stays with what it follows, an opening one with what it
    precedes."""
    out: list[str] = []
    for piece in _PIECE.findall(text):
        if out and (piece[0] in CLOSING or out[-1][-1] in OPENING or (piece[0] == " " and out[-1][-1] != " ")):
            out[-1] += piece
        else:
            out.append(piece)
    return out
