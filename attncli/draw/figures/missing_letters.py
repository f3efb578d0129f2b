"""Letters of a figure that no font of this machine has, of which a PNG or PDF shows boxes or nothing.

The library that draws tells nothing of it. A letter that it has no glyph for is drawn as code
points are that stand for no character; measured, one drawing takes 5 ms.
"""

from __future__ import annotations

import html
import re
import unicodedata
from importlib.util import find_spec
from typing import Any

from attncli.draw.figures.drawing import SANS, family
from attncli.language import Message, message

TEXTS = re.compile(r"<(?:text|tspan)[^>]*>([^<]+)")
"""The texts of an SVG."""
NOBODY = ("\U0010fffe", "\U00100000")
"""Code points that stand for no character and for no common one: drawn as nothing, and as a box."""
MOST_LETTERS = 64
"""Different letters that are looked at: 0.3 seconds."""
SHOWN = 8
"""Letters that a note names."""
OPTIONS: dict[str, Any] = {}
"""More arguments for the library that draws, such as other fonts."""


def missing_letters_note(svg: str, suffix: str) -> Message | None:
    """A note that names the letters which the fonts of this machine lack.

    Args:
        svg: The figure.
        suffix: Of the file that it was drawn to: ".png", or ".pdf", whose library has fonts of its
            own for all but wide letters. An .svg is drawn with the fonts of whoever reads it.

    Returns:
        The note; None where every letter is drawn, or where nothing here can tell.
    """
    if suffix.lower() not in (".png", ".pdf") or find_spec("resvg_py") is None:
        return None
    letters = sorted({letter for text in TEXTS.findall(svg) for letter in html.unescape(text)})
    others = [letter for letter in letters if _is_asked_for(letter, wide=suffix.lower() == ".pdf")]
    missing = [letter for letter in others[:MOST_LETTERS] if not _is_drawn(letter)]
    if not missing:
        return None
    return message(
        "no installed font has {letters}: neither {families} nor another; the figure shows boxes or"
        " gaps in their place; install a font that has them, of the Noto fonts, say, or draw an .svg,"
        " which takes the reader's",
        families=", ".join(dict.fromkeys(map(_families_asked, missing))),
        letters=" ".join(missing[:SHOWN]) + (" …" if len(missing) > SHOWN else ""),
    )


def _is_asked_for(letter: str, *, wide: bool) -> bool:
    """Whether to look if a font has this letter: not for ASCII, blanks, marks and control characters.

    wide: look only at letters of double width, such as Chinese ones.
    """
    if letter.isascii() or unicodedata.category(letter)[0] in "ZCM":  # separator, control, mark
        return False
    return not wide or unicodedata.east_asian_width(letter) in "WF"


def _families_asked(letter: str) -> str:
    """The font families that a figure names for a letter, as text."""
    families = (family(letter) or SANS).replace("'", "")
    return families.removesuffix(", sans-serif")


def _is_drawn(letter: str) -> bool:
    """Whether some font has a letter: its picture then differs from that of no text and from those
    of code points that no font has."""
    families = family(letter) or SANS
    picture = _picture(letter, families)
    return all(picture != _picture(absent, families) for absent in ("", *NOBODY))


def _picture(text: str, families: str) -> bytes:
    """A small PNG of a text in these font families."""
    from resvg_py import svg_to_bytes

    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="24" height="24"><text x="2" y="18"'
        f' font-size="16" font-family="{families}">{html.escape(text)}</text></svg>'
    )
    return bytes(svg_to_bytes(svg_string=svg, **OPTIONS))
