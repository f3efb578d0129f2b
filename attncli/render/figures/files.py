"""A drawing as a file: SVG, PNG or PDF."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib.util import find_spec

from attncli.errors import UnsupportedError, UsageError
from attncli.render.figures.drawing import DARK, LIGHT, MM, Theme

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
        raise UnsupportedError("a .png figure needs resvg-py", expected="a .svg figure", hint="pip install resvg-py")
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
            "a .pdf figure needs typst", expected="a .svg or .png figure", hint='pip install "attn[pdf]"'
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
