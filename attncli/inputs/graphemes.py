"""Characters as a reader sees them: extended grapheme clusters, from the standard library alone.

Follows Unicode Standard Annex 29 in what texts need: combining marks, variation selectors, joiners,
emoji modifiers and tags stay with their base; emoji joined by U+200D are one; two regional
indicators are one flag; Hangul jamo form syllables; CR LF is one. It leaves out the rules for
prepended marks and Indic conjuncts, and a mark with no base (at the start, after a control
character or whitespace) is a cluster of its own.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

ZWJ = "\u200d"
ZWNJ = "\u200c"
"""Unicode's zero-width joiner and non-joiner."""
MARKS = frozenset(("Mn", "Mc", "Me"))
CONTROLS = frozenset(("Cc", "Zl", "Zp", "Zs", "Cs"))
"""Categories of Unicode: combining marks; controls, separators and lone surrogates."""
# Letters and signs by category that extend what they follow: Thai and Lao AM, halfwidth kana
# voicing, emoji skin tones.
EXTENDING = frozenset(
    "\u0e33\u0eb3\uff9e\uff9f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff" + ZWJ + ZWNJ
)


def clusters(text: str) -> Iterator[tuple[int, int]]:
    """Start and end (exclusive) of every grapheme cluster (what a reader sees as one character), in
    order and without gaps; linear in the text. An empty text gives none.

    Source: Unicode Standard Annex 29, extended grapheme clusters (the departures are listed above).
    """
    if text.isascii():
        yield from (match.span() for match in re.finditer("\r\n|.", text, re.DOTALL))
        return
    start = 0
    # regional indicators, halves of a flag, at the end of the current cluster, up to and with the
    # character that is looked at
    flags = 0
    for place, char in enumerate(text):
        if _is_flag_half(char):
            flags += 1
        else:
            flags = 0
        if place and not _is_joined(text, start, place, flags):
            yield start, place
            start = place
            flags = int(_is_flag_half(char))
    if text:
        yield start, len(text)


def _is_joined(text: str, start: int, place: int, flags: int) -> bool:
    """Whether the character at `place` belongs to the cluster that begins at `start`.

    flags: how many regional indicators (halves of a flag) the cluster has, this one counted.
    """
    before = text[place - 1]
    char = text[place]
    if before == "\r" and char == "\n":
        return True
    if _stands_alone(before):
        return False
    if extends(char) or flags == 2:
        return True
    # emoji joined by U+200D, such as families
    if before == ZWJ and _is_pictograph(text[start]) and _is_pictograph(char):
        return True
    return _is_syllable(before, char)


def _stands_alone(char: str) -> bool:
    """Whether a character is always a cluster by itself: a control character, a separator, or the
    like.
    """
    kind = unicodedata.category(char)
    return kind in CONTROLS or (kind == "Cf" and not extends(char))


def extends(char: str) -> bool:
    """Whether a character always belongs to the cluster of the one before it, such as a combining
    mark.
    """
    is_tag = "\U000e0020" <= char <= "\U000e007f"  # spells a region behind a flag, such as Wales'
    return not char.isascii() and (
        char in EXTENDING or unicodedata.category(char) in MARKS or is_tag
    )


def _is_flag_half(char: str) -> bool:
    """Whether a character is a regional indicator, of which two make a flag."""
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _is_pictograph(char: str) -> bool:
    """Whether a character is an emoji or another picture, which a joiner may join."""
    # Unicode data of older Pythons leaves newer emoji unassigned, hence the block; arrows are signs
    # of mathematics by category.
    if _is_flag_half(char):
        return False
    return (
        unicodedata.category(char) == "So"
        or "\U0001f000" <= char <= "\U0001faff"
        or "\u2190" <= char <= "\u21ff"
    )


def _is_syllable(before: str, char: str) -> bool:
    """Whether two characters in a row belong to one Hangul syllable: rules GB6 to GB8 of Annex 29."""
    # GB6: a leading consonant, then another, a vowel or a whole syllable
    if "\u1100" <= before <= "\u115f" or "\ua960" <= before <= "\ua97c":
        return (
            "\u1100" <= char <= "\u11a7"
            or "\ua960" <= char <= "\ua97c"
            or "\uac00" <= char <= "\ud7a3"
        )
    # GB7: a vowel, or a syllable that ends in one, then a vowel or a trailing consonant; every 28th
    # whole syllable has no trailing consonant
    open_syllable = "\uac00" <= before <= "\ud7a3" and (ord(before) - 0xAC00) % 28 == 0
    if open_syllable or "\u1160" <= before <= "\u11a7" or "\ud7b0" <= before <= "\ud7c6":
        return "\u1160" <= char <= "\u11ff" or "\ud7b0" <= char <= "\ud7fb"
    # GB8: a trailing consonant, or a syllable that ends in one, then another
    closed_syllable = (
        "\uac00" <= before <= "\ud7a3"
        or "\u11a8" <= before <= "\u11ff"
        or "\ud7cb" <= before <= "\ud7fb"
    )
    return closed_syllable and ("\u11a8" <= char <= "\u11ff" or "\ud7cb" <= char <= "\ud7fb")
