"""Untrusted text made inert: what `safe` returns cannot move a cursor, hide or reorder its
neighbours.

Tokens, file names, tensor names, metadata and other libraries' messages all pass here before
they reach a terminal, HTML or SVG.

Right-to-left text is shown in its logical order and gets no invisible isolates: most terminals
do not reorder text, several print an isolate as a box, and those that do reorder (VTE) drop
isolates anyway. `--ascii` keeps such a terminal from reordering.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from pathlib import PurePath, PureWindowsPath

ZWJ, VS16, KEYCAP = "\u200d", "\ufe0f", "\u20e3"
CUT, CUT_ASCII = "…", "~"
"""What stands where a text was cut; a cell each."""
DOTTED_CIRCLE = "\u25cc"
"""What a combining mark sits on that has no letter."""
MARKS = 8
"""Combining marks kept on one letter; more would climb over the lines above."""

# Drawn as nothing although their category says letter or mark.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0") | frozenset(
    map(chr, (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10)))
)
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# the flags of England, Scotland and Wales: a black flag, then the region in tag characters, which
# stand 0xE0000 behind their letters, then the tag that ends it
_SUBDIVISION_FLAGS = tuple(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(c)) for c in tag) + "\U000e007f"
    for tag in ("gbeng", "gbsct", "gbwls")
)


def safe(text: str, *, ascii: bool = False) -> str:
    """The text as one line that is safe to print; the same text if it already was.

    Control characters become their pictures (ESC is ␛; in ASCII `\\x1b`, `\\n`). Invisible and
    format characters, bidi controls, unassigned and private code points, lone surrogates and line
    separators become `\\u{202e}`. Joiners and variation selectors stay inside emoji only. A
    combining mark with nothing to sit on gets a dotted circle. ascii: every other non-ASCII
    character is escaped too. Idempotent; for reading back exactly, use JSON.
    """
    if text.isascii() and text.isprintable():
        return text
    pieces = [
        _escape(piece, ascii) if must_be_escaped else piece
        for piece, must_be_escaped in _judge_characters(text, ascii)
    ]
    return "".join(pieces)


def _escape(char: str, ascii: bool) -> str:
    """A visible spelling of a character that must not reach a terminal: for a control character its
    picture, such as ␛ (in ASCII `\\x1b`); for any other an escape such as `\\u{202e}`."""
    code = ord(char)
    is_control = code < 0x20 or code == 0x7F
    if not is_control:
        return f"\\u{{{code:x}}}"
    if ascii:
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char, f"\\x{code:02x}")
    if code == 0x7F:
        return "\u2421"
    return chr(0x2400 + code)  # Unicode's control pictures stand in the order of the codes


def _judge_characters(text: str, ascii: bool) -> list[tuple[str, bool]]:
    """Pieces of the text with whether each must be escaped: characters, and whole emoji sequences. A
    combining mark without a letter to sit on gets a dotted circle before it.

    ascii: whether everything but printable ASCII must be escaped.
    """
    out: list[tuple[str, bool]] = []
    position = 0
    has_base = False  # whether the character before can carry a combining mark
    marks = 0  # combining marks on it so far
    while position < len(text):
        char = text[position]
        if ascii:
            out.append((char, not char.isascii() or not char.isprintable()))
            position += 1
            continue
        end = _emoji_end(text, position)
        if end > position + 1:
            out.append((text[position:end], False))
            position = end
            has_base = True
            marks = 0
            continue
        position += 1
        is_variation_selector = 0xE0100 <= ord(char) <= 0xE01EF
        is_skin_tone = 0x1F3FB <= ord(char) <= 0x1F3FF  # outside an emoji sequence
        is_hidden = unicodedata.category(char) in _HIDDEN or char in _BLANK
        if is_hidden or is_variation_selector or is_skin_tone:
            out.append((char, True))
            has_base = False
            marks = 0
        elif cells(char) == 0:
            marks += 1
            if not has_base:
                out.append((DOTTED_CIRCLE, False))
            out.append((char, marks > MARKS))
            has_base = True
        else:
            out.append((char, False))
            has_base = True
            marks = 0
    return out


def _is_pictographic(char: str) -> bool:
    """Whether a character can begin an emoji: one of the emoji blocks, an older symbol such as ☀, or
    one of a few signs."""
    code = ord(char)
    is_symbol = 0x2190 <= code <= 0x2BFF and unicodedata.category(char) in ("So", "Sm")
    is_emoji = 0x1F000 <= code <= 0x1FAFF
    return is_symbol or is_emoji or char in "©®‼⁉™ℹ〰〽㊗㊙"


def _emoji_end(text: str, start: int) -> int:
    """The index behind the emoji sequence that begins at `start`, such as a family of several joined
    emoji or the flag of Scotland; `start` + 1 where none begins there. Flags of countries, which are pairs
    of letters, are told by `clusters`."""
    char = text[start]
    if char < "\x80":  # a keycap: digit, selector, keycap
        if char in "#*0123456789" and text[start + 1 : start + 3] == VS16 + KEYCAP:
            return start + 3
        return start + 1
    for flag in _SUBDIVISION_FLAGS:
        if text.startswith(flag, start):
            return start + len(flag)
    is_skin_tone = "\U0001f3fb" <= char <= "\U0001f3ff"  # by itself it begins nothing
    if not _is_pictographic(char) or is_skin_tone:
        return start + 1
    # emoji, each with a variation selector or a skin tone if it has one, joined by ZWJ
    position = start + 1
    while True:
        modifier = text[position : position + 1]  # "" at the end
        if modifier == VS16 or "\U0001f3fb" <= modifier <= "\U0001f3ff":
            position += 1
        joiner = text[position : position + 1]
        next_char = text[position + 1 : position + 2]
        if joiner == ZWJ and next_char and _is_pictographic(next_char):
            position += 2
            continue
        return position


def cells(text: str) -> int:
    """Display width in terminal cells: CJK 2, combining marks 0, an emoji sequence 2. `text` must
    be safe.
    """
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def clusters(text: str) -> Iterator[str]:
    """The text in pieces that must not be torn: a base with its marks, an emoji sequence, a pair of
    flag letters.
    """
    position = 0
    while position < len(text):
        end = _emoji_end(text, position)
        pair = text[position : position + 2]
        is_flag = len(pair) == 2 and all("\U0001f1e6" <= char <= "\U0001f1ff" for char in pair)
        if is_flag:
            end = position + 2
        # the marks on it take no cell
        while end < len(text) and not text[end].isascii() and cells(text[end]) == 0:
            end += 1
        yield text[position:end]
        position = end


def cut(text: str, width: int, *, ascii: bool = False) -> str:
    """The text in at most `width` cells, ending in `…` (`~` in ASCII) if it was shortened; "" for
    width 0.
    """
    if cells(text) <= width:
        return text
    mark = CUT_ASCII if ascii else CUT
    if width <= len(mark):
        return mark[: max(width, 0)]
    pieces = []
    room = width - len(mark)
    for piece in clusters(text):
        room -= cells(piece)
        if room < 0:
            break
        pieces.append(piece)
    return "".join(pieces) + mark


def pad(text: str, width: int, align: str = "left") -> str:
    """The text filled with spaces to `width` cells; align "left", "right" or "center". Longer text
    is returned as it is."""
    space = max(width - cells(text), 0)
    match align:
        case "right":
            return " " * space + text
        case "center":
            return " " * (space // 2) + text + " " * (space - space // 2)
        case _:
            return text + " " * space


def label(text: str, *, ascii: bool = False) -> str:
    """A token's text for a table: `safe`, with blanks at its ends visible; an empty token is `""`,
    and one of nothing but other blanks their code points, such as U+00A0."""
    if not text:
        return '""'
    if text.strip(" ") and all(unicodedata.category(char) == "Zs" for char in text):
        return " ".join(f"U+{ord(char):04X}" for char in text)
    blank = "_" if ascii else "␣"
    inner = text.strip(" ")
    if not inner:
        return blank * len(text)
    leading = len(text) - len(text.lstrip(" "))
    trailing = len(text) - leading - len(inner)
    return blank * leading + safe(inner, ascii=ascii) + blank * trailing


def safe_html(text: str) -> str:
    """The text for HTML or XML, in an element or a quoted attribute: `safe`, then escaped."""
    import html

    return html.escape(safe(text), quote=True)


# The program's own marks (arrows, products, dashes) and how each is spelled in ASCII.

_PLAIN = {
    "′": "'",
    "→": "->", "←": "<-", "…": "...", "·": "*", "×": "x", "√": "sqrt", "−": "-", "–": "-", "—": "--", "∞": "inf",
    "ᵀ": "^T",
    "≤": "<=", "≥": ">=", "≈": "~", "Σ": "sum", "²": "^2", "Ã": "A~", "‖": "||", "▸": ">", "⋮": ":", "─": "-",
    "│": "|", "█": "#",
    "₀": "_0", "₁": "_1", "₂": "_2", "₃": "_3", "ₕ": "_h", "é": "e", "½": "1/2", "θ": "theta", "λ": "lambda",
    "σ": "sigma", "ε": "eps", "δ": "delta", "η": "eta", "∂": "d",
    "β": "beta", "γ": "gamma", "μ": "mu", "±": "+-", "≠": "!=", "∈": "in", "⊙": "(.)", "⌊": "floor(", "⌋": ")",
    "⁰": "0", "⁵": "^5", "°": " degrees", "↑": "^", "↓": "v", "✕": "x", "“": '"', "”": '"',
}  # fmt: skip
_TABLE = str.maketrans(_PLAIN)
_ROOT = re.compile(r"√([A-Za-z]\w*)")
"""A root of something with a name, which in ASCII needs brackets to be read."""


def spell(text: str, *, ascii: bool) -> str:
    """One of the program's own texts for a terminal: as written, or with its signs spelled in ASCII,
    such as `->` for →; the separator ` · ` then becomes ` | `. Always safe.
    """
    if ascii:
        return safe(_ROOT.sub(r"√(\1)", text.replace(" · ", " | ")).translate(_TABLE), ascii=True)
    return safe(text)


# Sentences broken into lines: at blanks, and between the characters of scripts that are written
# without them.

CLOSING = "，。；：！？、）」』】》”’…·,.;:!?)]}"
"""Signs that never begin a line."""
OPENING = "（「『【《“‘([{"
"""Signs that never end one."""

_WORD = r" +|[^ ]+"
# an ideograph, kana or full-width sign may stand alone; anything else keeps together up to a blank
_PIECE = (
    r" +|[\u2e80-\u9fff\uf900-\ufaff\uff00-\uff60]|[^ \u2e80-\u9fff\uf900-\ufaff\uff00-\uff60]+"
)


def wrap(text: str, width: int, *, ascii: bool = False) -> list[str]:
    """The text in lines of at most `width` cells; what cannot be broken is cut. `text` must be
    safe. No lines for ""."""
    breaks = [0, *line_breaks(text, width), len(text)]
    rows = [text[start:stop].strip(" ") for start, stop in pairwise(breaks)]
    return [cut(row, max(width, 1), ascii=ascii) for row in rows if row]


def line_breaks(text: str, width: int) -> list[int]:
    """The places before which a text is broken into lines of at most `width` cells, in rising
    order; a part that cannot be broken stays whole, however wide."""
    breaks: list[int] = []
    position = 0
    filled = 0  # cells of the line so far
    for piece in _unbroken_pieces(text):
        if filled and filled + cells(piece.rstrip(" ")) > width:
            breaks.append(position)
            filled = 0
        if filled:
            filled += cells(piece)
        else:
            filled = cells(piece.lstrip(" "))  # blanks at a line's begin are dropped
        position += len(piece)
    return breaks


def fold(text: str, width: int) -> list[str]:
    """All of a text that users copy, such as a path, in lines of at most `width` cells broken
    anywhere. `text` must be safe."""
    lines = [""]
    for piece in clusters(text):
        if lines[-1] and cells(lines[-1]) + cells(piece) > width:
            lines.append("")
        lines[-1] += piece
    return lines


def _unbroken_pieces(text: str) -> list[str]:
    """Cut a text into pieces between which a line may be broken. A closing sign stays with the
    piece before it, an opening one with the piece behind it; a straight quote opens and closes in
    turn."""
    # compiling _PIECE takes 2 ms, a fortieth of a start: only where there is an ideograph, which
    # begin at U+2E80
    pattern = _WORD
    if max(text, default="") >= "\u2e80":
        pattern = _PIECE

    out: list[str] = []
    is_quoted = False  # whether a straight quote is open
    for piece in re.findall(pattern, text):
        belongs_to_previous = False
        if out:
            last = out[-1][-1]
            belongs_to_previous = (
                piece[0] in CLOSING
                or last in OPENING
                or (piece[0] == " " and last != " ")  # blanks stay behind their word
                # behind an opening quote, or at the closing one
                or (is_quoted and '"' in (piece[0], last))
            )
        if belongs_to_previous:
            out[-1] += piece
        else:
            out.append(piece)
        if piece.count('"') % 2 == 1:
            is_quoted = not is_quoted
    return out


def path_of(text: str) -> PurePath:
    """The path that a text spells: a Windows path if it has a drive or a share, else a path of this
    system."""
    windows = PureWindowsPath(text)
    if windows.is_absolute():
        return windows
    return PurePath(text)


def last_part(path: str) -> str:
    """The last part of an absolute path; any other path as it is. So a page or a figure does not
    disclose the folders of its author's machine."""
    if path_of(path).is_absolute():
        return path_of(path).name
    return path
