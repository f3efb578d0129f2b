"""A drawing, or any screen, as a file: SVG, PNG or PDF."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib.util import find_spec

from attncli.draw.figures.drawing import DARK, LIGHT, MM, Drawing, Theme
from attncli.draw.lines import Line, Lines
from attncli.draw.plot import EIGHTHS, FULL
from attncli.draw.safe import cells
from attncli.errors import UnsupportedError, UsageError
from attncli.extras import install_command

SUFFIXES = (".svg", ".png", ".pdf")
DPI = 192


@dataclass(frozen=True)
class Style:
    """How a figure is written. mm: width on paper, None for what the drawing takes. dpi: dots per inch of a PNG."""

    theme: Theme = LIGHT
    mm: float | None = None
    dpi: int = DPI


def style_of(text: str) -> Style:
    """The style that words such as "85mm,300dpi,dark" name. Raises UsageError."""
    theme, mm, dpi = LIGHT, None, DPI
    for word in filter(None, (part.strip().lower() for part in text.split(","))):
        if word in ("light", "dark"):
            theme = DARK if word == "dark" else LIGHT
        elif (match := re.fullmatch(r"(\d+(?:\.\d+)?)(mm|dpi)", word)) is None:
            raise UsageError(
                f"--figure-style {word!r} is no style", expected="light, dark, 85mm, 300dpi, joined by commas"
            )
        elif match[2] == "mm" and 10 <= float(match[1]) <= 2000:
            mm = float(match[1])
        elif match[2] == "dpi" and 36 <= float(match[1]) <= 1200:
            dpi = round(float(match[1]))
        else:
            raise UsageError(f"--figure-style {word!r} is out of range", expected="10mm to 2000mm, 36dpi to 1200dpi")
    return Style(theme, mm, dpi)


def figure_bytes(svg: str, suffix: str, style: Style) -> bytes:
    """The bytes of a file with this suffix. Raises UnsupportedError where what makes it is not installed."""
    match suffix.lower():
        case ".svg":
            return svg.encode()
        case ".png":
            return _png(svg, style)
        case ".pdf":
            return _pdf(svg)
        case unknown_suffix:
            raise UsageError(f"no figure ends in {unknown_suffix!r}", expected=", ".join(SUFFIXES))


def _png(svg: str, style: Style) -> bytes:
    if find_spec("resvg_py") is None:
        raise UnsupportedError("a .png figure needs resvg-py", expected="a .svg figure", hint=install_command("png"))
    from resvg_py import svg_to_bytes

    size = re.search(r'width="([\d.]+)mm"', svg)
    across = round(float(size[1]) * MM / 72 * style.dpi) if size else None
    try:
        return bytes(svg_to_bytes(svg_string=svg, width=across, dpi=96))
    except BaseException as error:  # its panics are no Exception
        raise _drawing_error(error, ".png", "resvg-py") from error


def _pdf(svg: str) -> bytes:
    if find_spec("typst") is None:
        raise UnsupportedError(
            "a .pdf figure needs typst", expected="a .svg or .png figure", hint=install_command("pdf")
        )
    import typst

    size = re.search(r'width="([\d.]+)mm"', svg)
    wide = f"{size[1]}mm" if size else "auto"
    source = (
        "#set page(width: auto, height: auto, margin: 0pt)\n"
        f'#image(bytes({json.dumps(svg, ensure_ascii=False)}), format: "svg", width: {wide})'
    )
    try:
        return bytes(typst.compile(source.encode()))
    except BaseException as error:
        raise _drawing_error(error, ".pdf", "typst") from error


def _drawing_error(error: BaseException, suffix: str, by: str) -> BaseException:
    """What is raised where a library fails at a figure: the user's own interruption goes on as it is."""
    if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
        return error
    return UnsupportedError(f"{by} cannot draw this figure as {suffix}", expected="a .svg figure")


# Any screen as a figure: the same lines and colours, in a typeface of one width.

SIZE, TALL = 10.0, 13.0
"""Size of the typeface and height of a line, in points."""
WIDE = 0.6 * SIZE
"""Width of a cell: that of typefaces of one width."""
HALVES = {"▀": (0.0, 0.0, 1.0, 0.5), "▄": (0.0, 0.5, 1.0, 0.5), "▌": (0.0, 0.0, 0.5, 1.0)}
"""Characters that are half a cell: from the left, from the top, width, height, as shares of the cell."""
RUN = re.compile(r"\S+(?: \S+)*")
"""A run of text: words with one space between them."""
COLOURS = {
    "bright_black": ("#6b7280", "#9a9da5"), "yellow": ("#8a6100", "#e0b050"), "cyan": ("#0e7490", "#67c7dd"),
    "green": ("#15803d", "#7fd19b"), "red": ("#b91c1c", "#f08f7f"), "magenta": ("#a21caf", "#d3a3df"),
    "bright_blue": ("#1d4ed8", "#7db8f0"), "white": ("#374151", "#d5d7da"), "black": ("#000000", "#000000"),
}  # fmt: skip
"""Named terminal colours as they read on light and on dark paper."""


def draw_screen(block: Lines, theme: Theme = LIGHT) -> Drawing:
    """A screen's lines, drawn with colour (see `View`). Every text is escaped; same screen, same bytes."""
    drawing = Drawing(theme, mono=True)
    for index, row in enumerate(block.rows):
        _line(drawing, row, index * TALL)
    drawing.reach(block.width * WIDE, len(block.rows) * TALL)
    return drawing


def _line(drawing: Drawing, row: Line, top: float) -> None:
    """One line: a rectangle behind each coloured piece, then its runs of text, each where its cells begin; a bar is one
    rectangle, without the seams of its characters."""
    cell_index = 0
    for text, style in row:
        size = cells(text)
        front, back, bold, underlined = _style(style, drawing.theme)
        if back and size:
            drawing.rectangle(cell_index * WIDE, top, size * WIDE, TALL, back, crisp=True)
        for match in RUN.finditer(text):
            x = (cell_index + cells(text[: match.start()])) * WIDE
            if match[0].strip(FULL) in EIGHTHS:
                long = match[0].count(FULL) + EIGHTHS.index(match[0].strip(FULL) or " ") / 8
                drawing.rectangle(x, top + TALL / 8, long * WIDE, TALL * 7 / 8, front)
                continue
            if len(set(match[0])) == 1 and match[0][0] in HALVES:
                left, down, wide, tall = HALVES[match[0][0]]
                for cell in range(len(match[0])) if wide < 1 else (0,):
                    across = (wide if wide < 1 else len(match[0])) * WIDE
                    drawing.rectangle(
                        x + (cell + left) * WIDE, top + down * TALL, across, tall * TALL, front, crisp=True
                    )
                continue
            drawing.text(x, top + 0.73 * TALL, match[0], size=SIZE, bold=bold, ink=front)
            if underlined:
                drawing.rectangle(x, top + 0.85 * TALL, cells(match[0]) * WIDE, 0.6, front)
        cell_index += size


def _style(style: str, theme: Theme) -> tuple[str, str, bool, bool]:
    """Colour in front and behind ("" for none), and whether bold and underlined, from a Rich style such as `bold
    #000000 on #fde725`."""
    dark = theme is DARK
    front, back = theme.ink, ""
    before, _, behind = style.partition("on ")
    if behind:
        colours = COLOURS.get(behind.strip())
        back = colours[dark] if colours else behind.strip()
    for word in before.split():
        if word in COLOURS:
            front = COLOURS[word][dark]
        elif word.startswith("#"):
            front = word
    return front, back, "bold" in style, "underline" in style
