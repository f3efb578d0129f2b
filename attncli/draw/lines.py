"""Blocks of lines side by side and one below the other; titles, remarks and notes; the parts of a
screen; the Rich console that prints them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from io import StringIO
from itertools import chain, zip_longest
from typing import IO, TYPE_CHECKING, Literal

from msgspec.structs import replace

from attncli.draw.safe import CUT, CUT_ASCII, cells, cut, safe, spell, wrap
from attncli.draw.view import Line as Line
from attncli.draw.view import Lines as Lines
from attncli.draw.view import Piece as Piece
from attncli.draw.view import ScreenPart, Shown, View, parts_shown
from attncli.draw.view import line as line
from attncli.draw.view import line_width as line_width
from attncli.language import Message, message, say, translate

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

BLANK = Lines(((),))


def stack(*blocks: Lines) -> Lines:
    """The blocks one below the other."""
    return Lines(tuple(row for block in blocks for row in block.rows))


def stack_spaced(*blocks: Lines) -> Lines:
    """The blocks that hold something, one below the other with a blank line between."""
    blocks_and_blanks: list[Lines] = []
    for block in blocks:
        if not block.rows:
            continue
        if blocks_and_blanks:
            blocks_and_blanks.append(BLANK)
        blocks_and_blanks.append(block)
    return stack(*blocks_and_blanks)


def beside(
    blocks: Sequence[Lines],
    *,
    width: int,
    gap: int = 3,
    side: Lines | None = None,
    most: int | None = None,
) -> Lines:
    """Blocks of like size side by side, in as few rows as `width` cells allow, with as many blocks
    in each row but the last.

    gap: cells between two blocks.
    side: a block that begins every row, such as the names of lines; None for none.
    most: at most so many blocks in a row; None for as many as fit.
    """
    if not blocks:
        return Lines()
    edge = 0  # cells of `side` and of a blank behind it
    first_blocks: list[Lines] = []
    if side is not None and side.rows:
        edge = side.width + 1
        first_blocks = [side]
    slot = max(block.width for block in blocks) + gap
    fitting = max((width - edge + gap) // slot, 1)  # the last needs no gap behind it
    if most is None:
        row_count = math.ceil(len(blocks) / fitting)
        count = math.ceil(len(blocks) / row_count)
        groups = [blocks[start : start + count] for start in range(0, len(blocks), count)]
    else:  # every `most` blocks belong together, and begin a row of their own
        groups = []
        for start in range(0, len(blocks), most):
            together = blocks[start : start + most]
            for first in range(0, len(together), fitting):  # in as many rows as they need
                groups.append(together[first : first + fitting])
    rows = []
    for group in groups:
        slots = [edge] * len(first_blocks) + [slot] * len(group)
        rows.append(_in_a_row([*first_blocks, *group], slots))
    return stack_spaced(*rows)


def _in_a_row(blocks: Sequence[Lines], slots: Sequence[int]) -> Lines:
    """The blocks side by side, each padded to its slot, a number of cells, but for the last."""
    rows = []
    for lines in zip_longest(*(block.rows for block in blocks), fillvalue=()):
        padded = [
            (*line, (" " * (slot - line_width(line)), ""))
            for line, slot in zip(lines, slots, strict=True)
        ]
        rows.append(tuple(chain(*padded))[:-1])  # without the padding of the last block
    return Lines(tuple(rows))


def flow(
    pieces: Iterable[Piece], *, width: int, indent: int = 0, gap: str = "  ", ascii: bool = False
) -> Lines:
    """Pieces of text one after the other, with `gap` between them, in lines of at most `width` cells;
    every line starts at `indent`. A piece wider than a line is cut.
    """
    room = max(width - indent, 1)
    groups = [((cut(text, room, ascii=ascii), style),) for text, style in pieces]
    return flow_groups(groups, width=width, indent=indent, gap=gap)


def flow_groups(groups: Iterable[Line], *, width: int, indent: int = 0, gap: str = "  ") -> Lines:
    """Groups of pieces one after the other, with `gap` between them, in lines of at most `width`
    cells; a line breaks only between groups, and starts at `indent`."""
    rows: list[Line] = []
    for group in groups:
        if rows and line_width(rows[-1]) + len(gap) + line_width(group) <= width:
            rows[-1] = (*rows[-1], (gap, ""), *group)
        else:
            rows.append(((" " * indent, ""), *group))
    return Lines(tuple(rows))


def clip_lines(block: Lines, width: int, *, ascii: bool = False) -> Lines:
    """The block with every line cut to `width` cells."""
    return Lines(
        tuple(
            row if line_width(row) <= width else _clip_line(row, width, ascii) for row in block.rows
        )
    )


def _clip_line(row: Line, width: int, ascii: bool) -> Line:
    """The line cut to `width` cells."""
    pieces: list[Piece] = []
    room = width
    for text, style in row:
        if cells(text) > room:
            return (*pieces, (cut(text, room, ascii=ascii), style))
        pieces.append((text, style))
        room -= cells(text)
    return tuple(pieces)


def strip_styles(block: Lines) -> Lines:
    """The block without styles, for a terminal without colour."""
    return Lines(tuple(tuple((text, "") for text, _ in row) for row in block.rows))


def fit_to_view(block: Lines, view: View) -> Lines:
    """The block cut to the width of the view, without styles if it has no colour."""
    fitting = clip_lines(block, view.width, ascii=view.ascii)
    if view.color:
        return fitting
    return strip_styles(fitting)


FAINT = "bright_black"


def localize(text: str, view: View) -> str:
    """One of the program's own texts in the view's language, in ASCII where the view needs that.
    Always safe."""
    own_text = text if view.ascii else translate(text, view.lang)  # an ASCII view is English
    return spell(own_text, ascii=view.ascii)


def message_or_safe(text: str, view: View) -> str:
    """A message as it is, since it is translated and made safe where it is shown; any other text,
    which may be a file's, as it is safe to print."""
    if isinstance(text, Message):
        return text
    return safe(text, ascii=view.ascii)


def heading(title: str, note: str, view: View) -> Lines:
    """A part's title and what it shows; the note goes below when there is no room beside. Nothing
    without a title.
    """
    if not title:
        return Lines()
    name = localize(title, view)
    note_text = localize(note, view)
    if cells(name) + 2 + cells(note_text) <= view.width and note_text:
        return line((name, "bold"), ("  " + note_text, FAINT))
    return stack(remark(title, view, style="bold"), remark(note, view))


def sentences(texts: Iterable[str], view: View) -> Lines:
    """The sentences of an answer, each on a line of its own, in ordinary (not faint) type; "" is
    left out.
    """
    return stack(*(remark(text, view, style="") for text in texts))


def join_sentences(texts: Iterable[str], view: View) -> str:
    """Sentences one after the other in one text, "" left out; not every language has a space
    between them.
    """
    joined = ""
    for text in filter(None, texts):
        if joined:
            joined = say(view, "{sentence} {next_sentence}", sentence=joined, next_sentence=text)
        else:
            joined = text
    return joined


def remark(text: str, view: View, *, style: str = FAINT) -> Lines:
    """One of the program's own sentences, broken to the view's width at blanks and between
    ideographs. Nothing for ""."""
    rows = wrap(localize(text, view), view.width, ascii=view.ascii)
    return stack(*(line((row, style)) for row in rows))


# Errors and notes as a person reads them: in colour at a terminal, in the language asked for.

BEGINNINGS = {
    "error": (message("error: "), "bold red"),
    "where": (message("where: "), FAINT),
    "expected": (message("expected: "), FAINT),
    "try": (message("try: "), "bold cyan"),
}
"""What an error's lines begin with, and its style."""


def error_lines(fields: Sequence[tuple[str, str]], view: View) -> Lines:
    """The lines of an error, from (name, text) of each field, in which the name is "error", "where",
    "expected" or "try"; fields with an empty text are left out."""
    rows = []
    for name, value in fields:
        if value:
            beginning, style = BEGINNINGS[name]
            text = safe(translate(value, view.lang), ascii=view.ascii)
            rows.append(((say(view, beginning), style if view.color else ""), (text, "")))
    return Lines(tuple(rows))


def draw_parts(
    parts: Iterable[ScreenPart[Shown]],
    document: Shown,
    view: View,
    *,
    title: Callable[[Shown, View], Lines] | None = None,
) -> Lines:
    """Draw the parts of a screen that are shown, one below the other, cut to the width of the view.
    A part that was asked for by name and is empty says so, unless all parts were asked for.

    title: the title above the parts, left out in a brief view.
    """
    parts = tuple(parts)
    some_are_chosen = not view.brief and view.show is not None and len(view.show) < len(parts)
    blocks = []
    for part in parts_shown(parts, document, view):
        block = part.draw(document, view)
        if some_are_chosen and not block.rows:
            block = remark(say(view, "{part}: this result has no such part", part=part.name), view)
        blocks.append(block)
    if title is not None and not view.brief:
        blocks.insert(0, title(document, view))
    return clip_lines(stack_spaced(*blocks), view.width, ascii=view.ascii)


def note_line(message: str, view: View) -> Lines:
    """A note in faint type, broken at blanks to the view's width; left on one line where a word of it,
    such as a path, is wider than that, so that it can be copied.
    """
    text = safe(translate(message, view.lang), ascii=view.ascii)
    is_unbreakable = max(map(cells, text.split()), default=0) > view.width
    if is_unbreakable:
        rows = [text]
    else:
        rows = wrap(text, view.width, ascii=view.ascii)
    return stack(*(line((row, FAINT if view.color else "")) for row in rows))


FIXED_BLANK = "\ue000"
"""A blank that Rich does not strip; a private character, which no safe text holds."""


COLOR_SYSTEMS: dict[str, Literal["truecolor", "256", "standard"]] = {
    "truecolor": "truecolor",
    "256": "256",
    "16": "standard",
}
"""What Rich calls the numbers of colours of a view."""


def console(view: View, stream: IO[str]) -> Console:
    """A console on a stream, as wide as the view, with as many colours; it reads no markup, guesses
    no colours and adds no links. Without colour in the view no escape is written.
    """
    from rich.console import Console

    return Console(
        file=stream,
        force_terminal=view.color,
        color_system=COLOR_SYSTEMS[view.colors] if view.color else None,
        width=view.width,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},  # else variables such as COLUMNS and NO_COLOR would overrule the view
    )


def as_text(block: Lines, view: View) -> str:
    """A screen as text, with escapes for colour if the view says so."""
    stream = StringIO()
    console(view, stream).print(block, crop=False)
    return stream.getvalue()


@cache
def _measuring_console(width: int) -> Console:
    """A Rich console that prints nowhere: it only measures and styles text, at this width."""
    return console(View(width=width, color=True), StringIO())


def lay_out(renderable: RenderableType, view: View) -> Lines:
    """What Rich draws in the view's width, as lines that can be stacked, set beside others and
    compared.

    Texts in it must be safe. Where Rich cut one with "…", an ASCII view shows its own mark.
    """
    measuring_console = _measuring_console(view.width)
    rows: list[Line] = []
    for segments in measuring_console.render_lines(
        renderable, measuring_console.options, pad=False
    ):
        row: list[Piece] = []
        for segment in segments:
            text = segment.text.replace(FIXED_BLANK, " ")
            if view.ascii:
                text = text.replace(CUT, CUT_ASCII)
            style = ""
            if view.color and segment.style and str(segment.style) != "none":
                style = str(segment.style)
            row.append((text, style))
        # without unstyled blanks at the end
        while row:
            last_text, last_style = row[-1]
            if last_text.strip(" ") or last_style:
                break
            row.pop()
        rows.append(tuple(row))
    return Lines(tuple(rows))


# Our own Markdown pages as screens, drawn by Rich. Only pages of the package come here, never text
# from elsewhere.

WIDEST = 100
"""Cells beyond which prose is tiring to read."""
FENCE = "```"
MARGIN = 2
"""Cells before a line of code, where an answer 80 cells wide still fits."""


def markdown(text: str, view: View) -> Lines:
    """Draw a page of Markdown in the view's width. Blocks of code are never wrapped, so that
    commands copied from them run."""
    from attncli.draw.markdown_tables import GuidePage

    narrow = replace(view, width=min(view.width, WIDEST))
    blocks: list[Lines] = []
    # prose and code in turn: each block of code stands between two fences
    for index, part in enumerate(text.split(f"\n{FENCE}")):
        is_code = index % 2 == 1
        if is_code:
            code = part.partition("\n")[2]  # behind the line with the language
            blocks.append(_code_block(code, view))
        elif part.strip():
            blocks.append(lay_out(GuidePage(_joined_lines(part), hyperlinks=False), narrow))
    return stack(*blocks)


SOFT_BREAK = (
    r"(?:(?<=[，。；：？！、）”》])|(?<=[\u3400-\u9fff])(?=\n {0,3}[\u3400-\u9fff“（《]))"
    r"\n {0,3}(?!\s|[-*+>#|]|\d+\. |$)"
)
"""A line end in a paragraph where the language writes no space: Markdown makes one of it. Compiled
when it is first used: ideographs take 3 ms."""


def _joined_lines(text: str) -> str:
    """A page's text with the lines of a paragraph joined where no space belongs between them, as in
    Chinese, where Markdown would write one; a heading stays a line of its own."""
    # a group in the expression: the headings are the parts of odd number, the text the others
    parts = re.split(r"(?m)^(#{1,6} .*\n)", text)
    parts[::2] = [re.sub(SOFT_BREAK, "", part) for part in parts[::2]]
    return "".join(parts)


def _code_block(text: str, view: View) -> Lines:
    """A block of code as it is, between blank lines, its commands ("$ attn …") in bold."""
    rows = [line("")]
    margin = ""  # there is one only where 80 cells remain beside it
    if view.width >= 80 + MARGIN:
        margin = " " * MARGIN
    for row in text.split("\n"):
        text_line = spell(row, ascii=view.ascii)
        style = FAINT
        if text_line.startswith("$ "):
            style = "bold"
        rows.append(line((f"{margin}{text_line}", style)))
    return stack(*rows, line(""))
