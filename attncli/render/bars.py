"""Bars: a number between 0 and 1 as a length on its track. Rich has progress bars, in halves of a cell; these have
eighths, and stay apart from row to row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attncli.render.headings import FAINT

if TYPE_CHECKING:
    from attncli.render.lines import Piece

ACCENT = "cyan"
FULL, TRACK, EIGHTHS = "▇", "╌", " ▏▎▍▌▋▊▉"
FULL_ASCII, TRACK_ASCII = "#", "."


def bar(fraction: float, width: int, *, ascii: bool) -> str:
    """`fraction` (clipped to [0, 1]) of `width` cells, to an eighth of a cell, then the track; `#` and `.` in ASCII.

    "" for a width of 0 or less. Anything above 0 shows at least an eighth.
    """
    if width <= 0:
        return ""
    share = min(max(fraction, 0.0), 1.0)
    if ascii:
        size = round(share * width)
        return FULL_ASCII * size + TRACK_ASCII * (width - size)
    whole, part = divmod(max(round(share * width * 8), 1 if share > 0 else 0), 8)
    return FULL * whole + EIGHTHS[part].strip() + TRACK * (width - whole - (part > 0))


def bar_pieces(text: str) -> list[Piece]:
    """A bar in two pieces: its length in colour, its track set back."""
    length = len(text.rstrip(TRACK + TRACK_ASCII))
    return [(text[:length], ACCENT), (text[length:], FAINT)]


if __name__ == "__main__":
    from attncli.render.lines import Lines, show

    show(Lines(tuple(tuple(bar_pieces(bar(index / 9, 20, ascii=False))) for index in range(10))))
