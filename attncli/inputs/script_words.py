"""Words of any script: where they begin and end in a text that is not all ASCII. In scripts written
without spaces each character is a word.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from enum import Enum, auto
from itertools import pairwise

from attncli.inputs.graphemes import ZWJ, ZWNJ, clusters, extends

UNSPACED = (
    *(
        ("\u0e01", "\u0eff"),
        ("\u1000", "\u109f"),
        ("\u1780", "\u17ff"),
        ("\u19e0", "\u19ff"),
        ("\ua9e0", "\ua9ff"),
    ),
    *(
        ("\uaa60", "\uaa7f"),
        ("\u2e80", "\u2fdf"),
        ("\u3005", "\u3007"),
        ("\u3021", "\u3029"),
        ("\u3031", "\u3035"),
    ),
    *(
        ("\u3038", "\u303b"),
        ("\u3041", "\u30ff"),
        ("\u31f0", "\u31ff"),
        ("\u3400", "\u4dbf"),
        ("\u4e00", "\u9fff"),
    ),
    *(
        ("\uf900", "\ufaff"),
        ("\uff66", "\uff9f"),
        ("\U0001aff0", "\U0001b16f"),
        ("\U00020000", "\U000323af"),
    ),
)
"""First and last code points of scripts written without spaces. Source: Unicode's blocks and
Scripts.txt.
"""
BETWEEN_LETTERS = frozenset("'’‘＇·\u05f3\u05f4")
"""Apostrophes, the middle dot (`col·lega`), and Hebrew's geresh and gershayim."""
BETWEEN_DIGITS = frozenset(".,．，\u066b\u066c")
"""Points and commas, also full-width and Arabic ones."""
ZERO_WIDTH_SPACE = "\u200b"
# An emoji presentation selector or keycap makes a sign of any character, even of a digit.
SIGN_MAKERS = frozenset("\ufe0f\u20e3")


class ClusterKind(Enum):
    """What a grapheme cluster is when words are cut: blank, part of a word, a word by itself
    (scripts without spaces), or a sign."""

    SPACE = auto()
    WORD = auto()
    ALONE = auto()
    SIGN = auto()


def script_words(text: str) -> Iterator[tuple[int, int]]:
    """Start and end (exclusive) of every word and sign, in order; linear in the text. Blank text
    gives none."""
    start: int | None = None  # of the word under way
    for begin, end in clusters(text):
        kind = _cluster_kind(text, begin, end)
        if kind is ClusterKind.WORD:
            if start is None:
                start = begin
            continue
        if start is not None and kind is ClusterKind.SIGN and _is_inside(text, begin, end):
            continue
        if start is not None:
            yield start, begin
            start = None
        if kind in (ClusterKind.SIGN, ClusterKind.ALONE):
            yield begin, end
    if start is not None:
        yield start, len(text)


def _cluster_kind(text: str, begin: int, end: int) -> ClusterKind:
    """The kind, for the cutting of words, of the grapheme cluster of characters begin..end-1."""
    char = text[begin]
    is_several = end - begin > 1
    if is_several and any(maker in text[begin:end] for maker in SIGN_MAKERS):
        return ClusterKind.SIGN
    if char.isspace() or char == ZERO_WIDTH_SPACE:
        return ClusterKind.SPACE
    if (
        char.isalnum()
        or char == "_"
        or (extends(char) and char not in (ZWJ, ZWNJ))  # a joiner that joins nothing is a sign
        or unicodedata.category(char)[0] in "LNM"  # letters, numbers, marks
    ):
        if is_unspaced(char):
            return ClusterKind.ALONE
        return ClusterKind.WORD
    return ClusterKind.SIGN


def is_unspaced(char: str) -> bool:
    """Whether a character is of a script that is written without spaces."""
    # most characters come before the first range: one comparison decides
    return char >= UNSPACED[0][0] and any(first <= char <= last for first, last in UNSPACED)


def _is_inside(text: str, begin: int, end: int) -> bool:
    """Whether the sign at begin..end-1 is inside a word: an apostrophe between letters, a point or
    comma between digits."""
    if end - begin != 1 or begin == 0 or end == len(text):
        return False
    before = text[begin - 1]
    char = text[begin]
    after = text[end]
    if char in BETWEEN_DIGITS:
        return before.isdigit() and after.isdigit()
    return char in BETWEEN_LETTERS and _is_letter(before) and _is_letter(after)


def _is_letter(char: str) -> bool:
    """Whether a character is a letter, or a mark that belongs to the one before."""
    return char.isalpha() or extends(char)


def set_apart(text: str) -> bool:
    """Whether a text in a script without spaces is already cut into words by blanks, such as
    今天 我 的 计划: a blank stands between two of its characters, and a part has several."""
    parts = text.split()
    has_blank_within = any(
        is_unspaced(part[-1]) and is_unspaced(following[0]) for part, following in pairwise(parts)
    )
    has_words = any(len(part) > 1 and any(map(is_unspaced, part)) for part in parts)
    return has_blank_within and has_words
