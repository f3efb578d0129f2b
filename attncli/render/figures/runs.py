"""Which families a text is in, and where it is cut so that its letters are found: emoji of several break off.

What draws PNG and PDF looks for the letters of a text in one other family at most, and fails where an emoji of several
stands among letters of different families; so such an emoji is a text of its own.
"""

from __future__ import annotations

import re
import unicodedata

FAMILIES = {
    "han": "'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', 'Noto Serif CJK SC', sans-serif",
    "emoji": "'Noto Color Emoji', 'Apple Color Emoji', 'Segoe UI Emoji', sans-serif",
}
"""Families of texts that have letters of one kind only; others are in the figure's own."""
EMOJI = "[\U0001f000-\U0001fbff][\U0001f3fb-\U0001f3ff\ufe0f\u20e3]*"
SEVERAL = re.compile(f"((?:{EMOJI}\u200d)+{EMOJI}|[\U0001f1e6-\U0001f1ff]{{2}}|{EMOJI[:-1]}+)")
"""Emoji that are made of several code points."""


ARROW = re.compile("( *→ *)")


def pieces(text: str) -> list[str]:
    """The text, cut where an emoji of several begins and ends, and at arrows between words that are written from right
    to left: in one text with them, "a → b" would stand as b → a."""
    parts = [text] if not any(map(_leftward, text)) else ARROW.split(text)
    return [piece for part in parts for piece in SEVERAL.split(part) if piece]


def from_right(text: str) -> bool:
    """Whether most letters of a text are written from right to left."""
    letters = [letter for letter in text if letter.isalpha()]
    return 2 * sum(map(_leftward, letters)) > len(letters)


def _leftward(letter: str) -> bool:
    return unicodedata.bidirectional(letter) in ("R", "AL")


def family(text: str) -> str:
    """The families of a text whose letters are all of one kind, else nothing."""
    kinds = {_kind(letter) for letter in text if not letter.isspace()} - {None}
    (kind,) = kinds if len(kinds) == 1 else ("",)
    return FAMILIES.get(str(kind), "")


def _kind(letter: str) -> str | None:
    """The kind of a letter; None for what belongs to the one before."""
    if unicodedata.category(letter) in ("Mn", "Me", "Cf", "Sk"):
        return None
    if 0x1F000 <= ord(letter) <= 0x1FBFF:
        return "emoji"
    return "han" if unicodedata.east_asian_width(letter) in "WF" else ""
