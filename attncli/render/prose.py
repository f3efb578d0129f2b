"""Sentences broken into lines: at blanks, and between the characters of scripts that are written without them."""

from __future__ import annotations

import re

from attncli.render.safe import cells, clusters, cut

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
