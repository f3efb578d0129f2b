"""Drawing: shapes and texts in points, written as one standalone SVG; and a drawing, or any screen,
as a file.

Cells of a map are one embedded image.
"""

from __future__ import annotations

import json
import math
import re
import struct
import unicodedata
import zlib
from base64 import b64encode
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from msgspec import Struct, field

from attncli.draw.figures.figure_choice import (
    MM,
    NO_CHOICE,
    STYLE_WORDS,
    FigureChoice,
    chosen_columns,
    chosen_heads,
    chosen_height,
    chosen_rows,
    figure_parts,
)
from attncli.draw.lines import Line, Lines
from attncli.draw.numbers import EIGHTHS, FULL
from attncli.draw.safe import cells, safe, safe_html
from attncli.draw.shaded_matrix import Palette
from attncli.errors import UnsupportedError, UsageError
from attncli.extras import install_command
from attncli.language import listing, message
from attncli.mechanism.spec import parse_head

# Which families a text is in, and where it is cut so that its letters are found: emoji of several
# break off.

FAMILIES = {
    "han": "'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', 'Noto Serif CJK SC', sans-serif",
    "emoji": "'Noto Color Emoji', 'Apple Color Emoji', 'Segoe UI Emoji', sans-serif",
}
"""Families of texts that have letters of one kind only; others are in the figure's own."""
PICTURE = "[\U0001f000-\U0001fbff]"
MODIFIER = "[\U0001f3fb-\U0001f3ff\ufe0f\u20e3]"
"""What changes the picture before it: a skin tone, the sign for "in colour", a key around it."""
EMOJI = f"{PICTURE}{MODIFIER}*"
SEVERAL = re.compile(
    f"((?:{EMOJI}\u200d)+{EMOJI}"  # several joined to one, as a family is
    "|[\U0001f1e6-\U0001f1ff]{2}"  # a flag: the two letters of its country
    f"|{PICTURE}{MODIFIER}+)"
)
"""Emoji that are made of several code points."""


ARROW = re.compile("( *→ *)")


def text_runs(text: str) -> list[str]:
    """Cut a text into the pieces that are drawn one by one: emoji of several characters apart from
    the rest, since a library that draws takes one font for a piece; and a text with right-to-left
    letters at its arrows, since it would draw "a → b" as "b → a"."""
    if not any(map(_is_leftward, text)):
        parts = [text]
    else:
        parts = ARROW.split(text)
    return [piece for part in parts for piece in SEVERAL.split(part) if piece]


def is_from_right(text: str) -> bool:
    """Whether most letters of a text are written from right to left."""
    letters = [letter for letter in text if letter.isalpha()]
    return 2 * sum(map(_is_leftward, letters)) > len(letters)


def _is_leftward(letter: str) -> bool:
    """Whether a letter is written from right to left."""
    return unicodedata.bidirectional(letter) in ("R", "AL")


def family(text: str) -> str:
    """The font families to name for a text that is all Chinese or all emoji, or Chinese with Latin
    letters; "" where the figure's own families do. A library that draws takes one font for the
    whole text, and a serif one for Chinese where none is named.
    """
    letters = [letter for letter in text if not letter.isspace()]
    kinds = {_letter_kind(letter) for letter in letters} - {None}
    if kinds == {"han", ""} and all(_is_plain(letter) for letter in letters):
        return FAMILIES["han"]
    for kind, families in FAMILIES.items():
        if kinds == {kind}:
            return families
    return ""


def _is_plain(letter: str) -> bool:
    """Whether Chinese fonts have a letter: Chinese, or Latin with its signs."""
    is_latin = ord(letter) < 0x250  # where Unicode's blocks of Latin letters and signs end
    return _letter_kind(letter) == "han" or is_latin or letter in SIGNS


SIGNS = "→←↓↑…–—−×·•“”‘’∞≤≥≈√"
"""Signs of ours that Chinese fonts have as well."""


def _letter_kind(letter: str) -> str | None:
    """The key in `FAMILIES` of a letter's fonts: "han" or "emoji"; "" for a letter that the figure's
    own fonts have; None for a mark that is drawn on the letter before.
    """
    # accents, joiners, and the skin tones of emoji (Sk)
    if unicodedata.category(letter) in ("Mn", "Me", "Cf", "Sk"):
        return None
    if 0x1F000 <= ord(letter) <= 0x1FBFF:
        return "emoji"
    if unicodedata.east_asian_width(letter) in "WF":
        return "han"
    return ""


SANS = (
    "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', 'Noto Sans', 'Noto Sans CJK SC',"
    " sans-serif"
)
"""Families that papers accept, and the ones that stand in for them."""
MONO = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', 'Noto Sans Mono CJK SC', monospace"
"""Families of one width, for screens."""
MARGIN = 10.0
"""Points around a drawing."""
SHORTEST = 60.0
"""Points that a page has at least."""
WIDER = 1.08
"""How much wider than Helvetica the families are that stand in for it."""
BOLD = 1.08
"""How much wider bold text is."""
FIRST_EMOJI = 0x1F000
"""Signs of double width after this code point are mostly emoji, wider than a Chinese character."""
NARROW, WIDE = frozenset("iljtfrI.,:;'|!()[]{} "), frozenset("mwMW@%—")


class Theme(Struct, frozen=True):
    """The colours of a figure.

    ground: behind bars.
    weights: from low to high.
    signed: below 0, 0, above 0.
    """

    paper: str
    ink: str
    quiet: str
    line: str
    ground: str
    series: tuple[str, ...]
    weights: Palette
    signed: Palette


LIGHT = Theme(
    "#ffffff", "#1c1d20", "#5f636b", "#d9d6cf", "#f0eeea", ("#2f6fb4", "#d5761f", "#3c8d5a", "#9b59a6", "#c0483a", "#6a6d74"),
    Palette("blues", ("ffffff", "e4eef8", "a9cbe8", "5a9bd4", "2568ad", "0d3166")),
    Palette("brown-blue", ("8c3b12", "dd8a4e", "f6dcc6", "ffffff", "cfe0f2", "5a9bd4", "17497f")),
)  # fmt: skip
DARK = Theme(
    "#16181b", "#eceae4", "#a3a6ad", "#3a3e44", "#23262b", ("#7db8f0", "#f0a05e", "#7fd19b", "#d3a3df", "#f08f7f", "#a3a6ad"),
    Palette("dark blues", ("1d2126", "1c3550", "225a8f", "3f8ccb", "86bfee", "eaf5ff")),
    Palette("dark brown-blue", ("f7b27c", "b5622a", "4d3222", "1d2126", "1f3a58", "3f83bf", "a8d4fb")),
)  # fmt: skip


class Box(Struct, frozen=True):
    """Where a text lies: left, top, right, bottom, in points."""

    left: float
    top: float
    right: float
    bottom: float
    text: str


class Drawing(Struct, frozen=True):
    """A drawing that grows to the right and down from (0, 0).

    mono: whether its typeface has one width.
    room: points from left to right that it may take; what is drawn is laid out to that, so that its
        type keeps its size.
    choice: what of it is drawn.
    cell: points along a cell of a map with words at its edges, at most.
    pieces: SVG elements, in the order in which they are painted.
    tops: of each piece, how far it lies below the upper edge, in points.
    boxes: where its level texts lie.
    corner: the right and the lower edge of what is drawn, in points; `reach` widens them.
    breaks: where a page may begin.
    offered: the parts that the figure has, and the words of a style that it can use: what of a
        choice is not among them is refused at the end.
    """

    theme: Theme = LIGHT
    mono: bool = False
    room: float = math.inf
    choice: FigureChoice = NO_CHOICE
    cell: float = 13.0
    pieces: list[str] = field(default_factory=list)
    tops: list[float] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    corner: list[float] = field(default_factory=lambda: [0.0, 0.0])
    breaks: list[float] = field(default_factory=list)
    offered: set[str] = field(default_factory=set)

    def shows(self, *parts: str) -> bool:
        """Whether any of these parts is to be drawn: all are, where none are chosen. Notes that the
        figure has these parts."""
        self.offered.update(parts)
        return not self.choice.parts or bool(set(parts) & set(self.choice.parts))

    def is_asked_for(self, part: str) -> bool:
        """Whether a part is chosen by its name. Notes that the figure has this part."""
        self.offered.add(part)
        return part in self.choice.parts

    def add(self, piece: str, top: float) -> None:
        """Add a piece of SVG that lies at `top`, in points from the upper edge."""
        self.pieces.append(piece)
        self.tops.append(top)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 9,
        anchor: str = "start",
        bold: bool = False,
        quiet: bool = False,
        rotation: float = 0,
        ink: str | None = None,
    ) -> None:
        """Add a run of text whose baseline begins, is centred or ends at (x, y), as `anchor` says.

        size: points of its type.
        quiet: whether it is in the theme's paler ink.
        rotation: degrees against the clock.
        ink: another colour.
        """
        wide = self._width(text, size, bold=bold)
        # the share of the text that lies left of x
        left = x - wide * {"start": 0, "middle": 0.5, "end": 1}[anchor]
        # where a rotated text would reach is not worked out: whoever draws it leaves the room
        if not rotation:
            # letters reach about 0.75 of their size above the baseline and 0.25 below it
            self.boxes.append(Box(left, y - 0.75 * size, left + wide, y + 0.25 * size, text))
            self.reach(left + wide, y + 0.3 * size)

        # one SVG element for each piece of the text
        if rotation:
            place = f' transform="rotate({-rotation:g} {x:.2f} {y:.2f})"'
        else:
            place = ""
        if bold:
            weight = ' font-weight="600"'
        else:
            weight = ""
        fill = ink or (self.theme.quiet if quiet else self.theme.ink)
        runs = text_runs(safe(text))
        if len(runs) > 1:  # each begins where the one before ends
            x = left
            anchor = "start"
        for piece in runs:
            if family(piece):
                font = f' font-family="{family(piece)}"'
            else:
                font = ""
            self.add(
                f'<text x="{x:.2f}" y="{y:.2f}" font-size="{size:g}" fill="{fill}"'
                f' text-anchor="{anchor}"{weight}{font}{place}'
                f' style="unicode-bidi:isolate">{safe_html(piece)}</text>',
                y,
            )
            x += self._width(piece, size, bold=bold)

    def _width(self, text: str, size: float, *, bold: bool) -> float:
        """About how wide a text of this type size is in this drawing's font, in points."""
        if self.mono:
            return 0.6 * size * cells(text)  # in these typefaces letters are 0.6 of their height
        if bold:
            return width(text, size) * BOLD
        return width(text, size)

    def rectangle(
        self,
        x: float,
        y: float,
        wide: float,
        tall: float,
        fill: str,
        *,
        stroke: str = "none",
        thick: float = 0.5,
        crisp: bool = False,
    ) -> None:
        """Add a rectangle with this upper left corner (x, y), width and height, in points.

        thick: points across its frame.
        crisp: without smoothed edges, so that no seam shows between it and its neighbours.
        """
        self.reach(x + wide, y + tall)
        if crisp:
            sharp = ' shape-rendering="crispEdges"'
        else:
            sharp = ""
        self.add(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(wide, 0):.2f}" height="{tall:.2f}"'
            f' fill="{fill}" stroke="{stroke}" stroke-width="{thick:g}"{sharp}/>',
            y,
        )

    def path(
        self,
        points: list[tuple[float, float]],
        stroke: str,
        *,
        thick: float,
        curved: bool = False,
        faint: float = 1,
        dash: str = "",
    ) -> None:
        """Add a line through points, `thick` points across.

        curved: as an S curve from the first point to the last, level at both ends.
        faint: its opacity.
        dash: lengths of dashes and gaps in turn, in points; "" for a whole line.
        """
        for x, y in points:
            self.reach(x, y)
        (x0, y0), (x1, y1) = points[0], points[-1]
        middle = (x0 + x1) / 2
        if curved:
            # both control points lie midway, each at the height of its end: so the ends are level
            way = (
                f"M{x0:.2f} {y0:.2f}C{middle:.2f} {y0:.2f} {middle:.2f} {y1:.2f} {x1:.2f} {y1:.2f}"
            )
        else:
            way = "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in points)
        dashes = ""
        if dash:
            dashes = f' stroke-dasharray="{dash}"'
        self.add(
            f'<path d="{way}" fill="none" stroke="{stroke}" stroke-width="{thick:.2f}"'
            f' stroke-opacity="{faint:.3f}" stroke-linecap="round"{dashes}/>',
            min(y for _, y in points),
        )

    def cells(self, x: float, y: float, wide: float, tall: float, colours: np.ndarray) -> None:
        """Add a map of coloured cells as one image with this upper left corner (x, y), width and
        height, in points.

        colours: uint8 [row, column, 4], RGBA.
        """
        self.reach(x + wide, y + tall)
        self.add(
            f'<image x="{x:.2f}" y="{y:.2f}" width="{wide:.2f}" height="{tall:.2f}"'
            ' preserveAspectRatio="none" style="image-rendering:pixelated"'
            f' href="data:image/png;base64,{b64encode(_png_bytes(colours)).decode()}"/>',
            y,
        )

    def reach(self, x: float, y: float) -> None:
        """Make the drawing at least as large as this point."""
        right, lower = self.corner
        self.corner[:] = max(right, x), max(lower, y)

    def pages(self) -> list[tuple[float, float]]:
        """Where each page begins and ends, in points from the upper edge. Pages are cut at `breaks`
        so that none is higher than the choice's `max_height`; one without a break is higher."""
        _, end = self.corner
        highest = self.choice.max_height - 2 * MARGIN
        pages = []
        start = 0.0
        while end - start > highest:
            # where this page may end: a page has at least SHORTEST points
            breaks = sorted(y for y in set(self.breaks) if start + SHORTEST < y < end)
            if not breaks:
                break
            fitting = [y for y in breaks if y - start <= highest]
            if fitting:
                stop = fitting[-1]
            else:
                stop = breaks[0]  # higher than asked for, but as little as can be
            pages.append((start, stop))
            start = stop
        return [*pages, (start, end)]

    def svg(
        self,
        *,
        mm: float | None = None,
        title: str = "",
        description: str = "",
        page: tuple[float, float] | None = None,
    ) -> str:
        """The drawing as SVG text.

        mm: its width on paper; a drawing that is narrower is not enlarged. None for its own size.
        title, description: what it is called, and what it says, for those who do not see it.
        page: the upper and the lower edge of the part that is one page (see `pages`); None for all.
        """
        right, lower = self.corner
        first, last = page or (0.0, lower)
        wide = right + 2 * MARGIN
        tall = last - first + 2 * MARGIN
        pieces = self.pieces
        if page is not None:
            # the first page also has what lies above 0, the last one what lies below its end
            begins = -math.inf
            if first > 0:
                begins = first
            ends = math.inf
            if last < lower:
                ends = last
            pieces_and_tops = zip(self.pieces, self.tops, strict=True)
            pieces = [piece for piece, top in pieces_and_tops if begins <= top < ends]

        # the size on paper in mm, and the box of points that it shows
        if mm is None:
            across = wide / MM
        else:
            across = mm
            wide = max(wide, mm * MM)
        size = f'width="{across:.2f}mm" height="{across * tall / wide:.2f}mm"'
        upper = first - MARGIN
        box = f'viewBox="{-MARGIN:g} {upper:g} {wide:.2f} {tall:.2f}"'

        fonts = SANS
        if self.mono:
            fonts = MONO
        description_element = ""
        if description:
            description_element = f"<desc>{safe_html(description)}</desc>\n"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box}'
            f' font-family="{fonts}" role="img"'
            f' xml:space="preserve">\n<title>{safe_html(title)}</title>\n'
            + description_element
            + f'<rect x="{-MARGIN:g}" y="{upper:g}" width="{wide:.2f}" height="{tall:.2f}"'
            f' fill="{self.theme.paper}"/>\n' + "\n".join(pieces) + "\n</svg>\n"
        )


def width(text: str, size: float) -> float:
    """About how wide a text of this type size is, in points, in the widest font that may be used."""
    total = 0.0  # in parts of the type size
    # a font without an emoji of several code points draws its parts side by side: count two
    for letter in SEVERAL.sub("\U0001f9e9" * 2, safe(text)):
        if letter.isascii():
            total += _ascii_width(letter)
        elif unicodedata.combining(letter) or unicodedata.category(letter) in ("Mn", "Me", "Cf"):
            continue
        elif unicodedata.east_asian_width(letter) not in "WF":
            total += 0.68  # letters beyond ASCII, of which many are as wide as capitals
        elif ord(letter) > FIRST_EMOJI:
            total += 1.25  # emoji, which are wider than their type is high
        else:
            total += 1.05  # Chinese characters, each about a square
    return total * size * WIDER


def _ascii_width(letter: str) -> float:
    """The width of an ASCII letter relative to the size of its type, about as Helvetica has it."""
    if letter in NARROW:
        return 0.32
    if letter in WIDE:
        return 0.92
    if letter.isupper():
        return 0.7
    return 0.58


def shorten_to_fit(text: str, size: float, room: float) -> str:
    """The text, shortened with … until its width at this type size is at most `room`, in points."""
    if width(text, size) <= room:
        return text
    while text and width(text + "…", size) > room:
        text = text[:-1]
    return text + "…"


def broken_to_fit(text: str, size: float, room: float) -> list[str]:
    """The text in lines at most `room` points wide at this type size, broken at blanks and between
    Chinese characters. A word longer than a line is shortened with ….
    """
    lines = [""]
    # words, and single Chinese characters, each with the blanks behind it
    for word in re.findall(
        r"[^\s\u2e80-\u9fff\uff00-\uffef]+\s*|[\u2e80-\u9fff\uff00-\uffef]\s*", text
    ):
        if lines[-1] and width((lines[-1] + word).rstrip(), size) > room:
            lines.append("")
        lines[-1] += word
    return [shorten_to_fit(line.rstrip(), size, room) for line in lines]


def _png_bytes(colours: np.ndarray) -> bytes:
    """RGBA pixels, uint8 [row, column, 4], as a PNG file. Source: the PNG specification."""
    tall, wide, _ = colours.shape
    # each line begins with the number of its filter: 0, none
    filters = np.zeros((tall, 1), np.uint8)
    lines = np.concatenate([filters, colours.reshape(tall, wide * 4)], axis=1).tobytes()
    # 8 bits a channel, colour type 6 (RGBA), then compression, filter and interlacing as usual
    head = struct.pack(">IIBBBBB", wide, tall, 8, 6, 0, 0, 0)
    chunks = _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(lines, 9)) + _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def _chunk(kind: bytes, body: bytes) -> bytes:
    """A chunk of a PNG file: its length, its kind, its body and a check sum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


HEADED = 33
"""Bytes of a PNG file up to the end of its header."""


SMALLEST = 6.0
"""Points of the smallest type that papers take."""
SUFFIXES = (".svg", ".png", ".pdf")
MM_WIDE = re.compile(r'width="([\d.]+)mm"')
"""How wide a drawing is on paper, as its SVG says."""
DPI = 192


class Style(Struct, frozen=True):
    """How a figure is written.

    mm: width on paper, None for what the drawing takes.
    dpi: dots per inch of a PNG.
    choice: what of a figure is drawn.
    """

    theme: Theme = LIGHT
    mm: float | None = None
    dpi: int = DPI
    choice: FigureChoice = NO_CHOICE

    @property
    def room(self) -> float:
        """Points from left to right that a drawing may take: without end where no width is named."""
        if self.mm is None:
            return math.inf
        return self.mm * MM - 2 * MARGIN

    def cells(self, most: int) -> int:
        """How many cells wide a screen may be, drawn on paper of this width, so that its type is at
        least 6 points high; 40 at least and `most` at most."""
        if self.mm is None:
            return most
        # the paper's width before the drawing is scaled down so far that type of SIZE has SMALLEST
        points = self.mm * MM * SIZE / SMALLEST
        fitting = int((points - 2 * MARGIN) / LETTER_WIDTH)
        return min(most, max(fitting, 40))


STYLE_VALUES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "columns": ("columns", chosen_columns),
    "maxheight": ("max_height", chosen_height),
    "heads": ("heads", chosen_heads),
    "rows": ("rows", chosen_rows),
}
"""By the name before = of a style's word, which choice it is, and what reads its value."""


def style_of(text: str, parts: str = "") -> Style:
    """Read the values of `--figure-style` and `--figure-parts`.

    Args:
        text: Words such as "85mm,300dpi,dark,notitle".
        parts: The parts that are drawn, such as "matrix,links"; "" for those of the figure.

    Raises:
        UsageError: For other words, and values out of range.
    """
    theme = LIGHT
    mm = None
    dpi = DPI
    chosen: dict[str, Any] = {"parts": figure_parts(parts)}
    previous_name = ""
    for word in filter(None, (part.strip() for part in text.split(","))):
        # "heads=L5H11,L3H1" goes on with heads, as a comma joins them in --head too
        if previous_name == "heads" and parse_head(word):
            chosen["heads"] += chosen_heads(word)
            continue
        name, _, value = word.partition("=")
        name = name.strip().lower()
        previous_name = name
        if name in STYLE_VALUES and value:  # as "columns=3": what it sets, and how it is read
            choice, read = STYLE_VALUES[name]
            chosen[choice] = read(value.strip())
        elif name in ("light", "dark") and name == word.lower():
            theme = DARK if name == "dark" else LIGHT
        elif word.lower() == "notitle":
            chosen["title"] = False
        elif (match := re.fullmatch(r"(\d+(?:\.\d+)?)(mm|dpi)", word.lower())) is None:
            what = message("--figure-style {word} is no style", word=repr(word))
            raise UsageError(what, expected=STYLE_WORDS)
        elif match[2] == "mm" and 10 <= float(match[1]) <= 2000:
            mm = float(match[1])
        elif match[2] == "dpi" and 36 <= float(match[1]) <= 1200:
            dpi = round(float(match[1]))
        else:
            raise UsageError(
                "--figure-style {word} is out of range",
                expected="10mm to 2000mm, 36dpi to 1200dpi",
                word=repr(word),
            )
    return Style(theme, mm, dpi, FigureChoice(**chosen))


def figure_bytes(svg: str, suffix: str, style: Style, *, more: Sequence[str] = ()) -> bytes:
    """A figure's SVG text as the bytes of an .svg, .png or .pdf file. Raises UsageError for another
    suffix, and UnsupportedError where the library that makes such a file is not installed.

    more: the SVG texts of further pages of a PDF.
    """
    match suffix.lower():
        case ".svg":
            return svg.encode()
        case ".png":
            return _png_of_svg(svg, style)
        case ".pdf":
            return _pdf_of_svg((svg, *more))
        case ending:
            raise UsageError(
                "no figure ends in {unknown_suffix}",
                expected=listing(SUFFIXES),
                unknown_suffix=repr(ending),
            )


def _png_of_svg(svg: str, style: Style) -> bytes:
    """Draw an SVG text as a PNG file, which also says how many dots it has per metre, and so how
    large it is on paper. Raises UnsupportedError where resvg-py is not installed."""
    if find_spec("resvg_py") is None:
        raise UnsupportedError(
            "a .png figure needs resvg-py", expected="a .svg figure", hint=install_command("png")
        )
    from resvg_py import svg_to_bytes

    size = MM_WIDE.search(svg)
    if size:
        inches = float(size[1]) * MM / 72  # `MM` are points, of which an inch has 72
        across = round(inches * style.dpi)
    else:
        across = None  # of dots, so many as the library takes for the SVG's own size
    try:
        # dpi: of lengths in the SVG, as CSS has it; the picture's own follows from its width
        picture = bytes(svg_to_bytes(svg_string=svg, width=across, dpi=96))
    except BaseException as error:  # its panics are no Exception
        raise _drawing_error(error, ".png", "resvg-py") from error
    # PNG's chunk pHYs: dots per unit along both axes, and 1 for the unit, a metre; it stands
    # straight behind the file's header
    dots = round(style.dpi / 0.0254)  # an inch has 0.0254 metres
    dots_per_metre = _chunk(b"pHYs", struct.pack(">IIB", dots, dots, 1))
    return picture[:HEADED] + dots_per_metre + picture[HEADED:]


def _pdf_of_svg(pages: Sequence[str]) -> bytes:
    """A PDF file with a page for each SVG text, each page as large as its drawing. Raises
    UnsupportedError where typst, which draws it, is not installed."""
    if find_spec("typst") is None:
        raise UnsupportedError(
            "a .pdf figure needs typst",
            expected="a .svg or .png figure",
            hint=install_command("pdf"),
        )
    import typst

    images = []
    for svg in pages:
        size = MM_WIDE.search(svg)
        across = f"{size[1]}mm" if size else "auto"
        text = json.dumps(svg, ensure_ascii=False)  # spelled as typst spells a text, too
        images.append(f'#image(bytes({text}), format: "svg", width: {across})')
    source = "#set page(width: auto, height: auto, margin: 0pt)\n" + "\n#pagebreak()\n".join(images)
    try:
        return bytes(typst.compile(source.encode()))
    except BaseException as error:  # its panics are no Exception
        raise _drawing_error(error, ".pdf", "typst") from error


def _drawing_error(error: BaseException, suffix: str, by: str) -> BaseException:
    """The exception to raise where a library fails at a figure: an interruption by the user, or
    lack of memory, as it is; anything else as an UnsupportedError. It is returned, not raised.

    by: the library's name.
    """
    if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
        return error
    return UnsupportedError(
        "{by} cannot draw this figure as {suffix}", expected="a .svg figure", by=by, suffix=suffix
    )


# Any screen as a figure: the same lines and colours, in a typeface of one width.

SIZE, TALL = 10.0, 13.0
"""Size of the typeface and height of a line, in points."""
LETTER_WIDTH = 0.6 * SIZE
"""Width of a cell: that of typefaces of one width."""
BASELINE, UNDERLINE = 0.73 * TALL, 0.85 * TALL
"""Points from the upper edge of a line to what its letters stand on, and to a line below them."""
HALVES = {"▀": (0.0, 0.0, 1.0, 0.5), "▄": (0.0, 0.5, 1.0, 0.5), "▌": (0.0, 0.0, 0.5, 1.0)}
"""Characters that are half a cell: from the left, from the top, width, height, as shares of the
cell.
"""
RUN = re.compile(r"\S+(?: \S+)*")
"""A run of text: words with one space between them."""
COLOURS = {
    "bright_black": ("#6b7280", "#9a9da5"), "yellow": ("#8a6100", "#e0b050"), "cyan": ("#0e7490", "#67c7dd"),
    "green": ("#15803d", "#7fd19b"), "red": ("#b91c1c", "#f08f7f"), "magenta": ("#a21caf", "#d3a3df"),
    "bright_blue": ("#1d4ed8", "#7db8f0"), "white": ("#374151", "#d5d7da"), "black": ("#000000", "#000000"),
}  # fmt: skip
"""Named terminal colours as they read on light and on dark paper."""


def draw_screen(block: Lines, theme: Theme = LIGHT) -> Drawing:
    """A screen's lines, drawn with colour (see `View`). Every text is escaped; same screen, same
    bytes.
    """
    drawing = Drawing(theme, mono=True)
    for index, row in enumerate(block.rows):
        _draw_line(drawing, row, index * TALL)
    drawing.reach(block.width * LETTER_WIDTH, len(block.rows) * TALL)
    return drawing


def _draw_line(drawing: Drawing, row: Line, top: float) -> None:
    """Draw one line of a screen: a rectangle behind each coloured piece, then runs of text, each at
    the position of its first cell. A bar is one rectangle, so that no seams show between its
    characters.

    top: the line's upper edge, in points.
    """
    cell_index = 0
    for text, style in row:
        size = cells(text)
        front, back = _colours(style, drawing.theme)
        if back and size:
            drawing.rectangle(
                cell_index * LETTER_WIDTH, top, size * LETTER_WIDTH, TALL, back, crisp=True
            )
        for match in RUN.finditer(text):
            run = match[0]
            x = (cell_index + cells(text[: match.start()])) * LETTER_WIDTH
            # of "██▌" the last, partly filled cell, "▌"; "" for whole cells alone, and a blank, the
            # first of EIGHTHS, is no part of a cell
            bar_end = run.strip(FULL)
            if bar_end in EIGHTHS:
                long = run.count(FULL) + EIGHTHS.index(bar_end or " ") / 8  # in cells
                # an eighth of the line stays free above, so that bars of two lines do not touch
                drawing.rectangle(x, top + TALL / 8, long * LETTER_WIDTH, TALL * 7 / 8, front)
            elif len(set(run)) == 1 and run[0] in HALVES:
                _draw_half_cells(drawing, run, x, top, front)
            else:
                bold = "bold" in style
                drawing.text(x, top + BASELINE, run, size=SIZE, bold=bold, ink=front)
                if "underline" in style:
                    wide = cells(run) * LETTER_WIDTH
                    drawing.rectangle(x, top + UNDERLINE, wide, tall=0.6, fill=front)
        cell_index += size


def _draw_half_cells(drawing: Drawing, run: str, x: float, top: float, ink: str) -> None:
    """Draw a run of one character of `HALVES`, such as "▀▀▀": as one rectangle where these fill
    their cells from left to right, else one each."""
    left, down, wide, tall = HALVES[run[0]]
    y = top + down * TALL
    if wide == 1:
        drawing.rectangle(x, y, len(run) * LETTER_WIDTH, tall * TALL, ink, crisp=True)
        return
    for cell in range(len(run)):
        start = x + (cell + left) * LETTER_WIDTH
        drawing.rectangle(start, y, wide * LETTER_WIDTH, tall * TALL, ink, crisp=True)


def _colours(style: str, theme: Theme) -> tuple[str, str]:
    """The colours of a text and behind it ("" for none) that a Rich style such as `bold #000000 on
    #fde725` stands for, as they read on the theme's paper.
    """

    def colour(word: str) -> str:
        """The colour that one word of a Rich style stands for, as #rrggbb."""
        if word not in COLOURS:
            return word
        on_light, on_dark = COLOURS[word]
        if theme is DARK:
            return on_dark
        return on_light

    text_style, _, behind = style.partition("on ")
    front = theme.ink
    for word in text_style.split():  # other words, such as "bold", are no colours
        if word in COLOURS or word.startswith("#"):
            front = colour(word)
    return front, colour(behind.strip())
