"""Any screen as a standalone SVG: the same lines and colours, no fonts or files from elsewhere."""

from __future__ import annotations

import re

from attncli.render.lines import Line, Lines
from attncli.render.safe import cells, safe_html

WIDE, TALL, MARGIN = 8.4, 18, 16
"""Width of a cell and height of a line for a 14 px monospace font, and the space around, in px."""
RUN = re.compile(r"\S+(?: \S+)*")
"""A run of text: words with one space between them."""
COLOURS = {
    "bright_black": "#6b7280", "yellow": "#8a6100", "cyan": "#0e7490", "green": "#15803d", "red": "#b91c1c", "magenta": "#a21caf",
    "bright_blue": "#1d4ed8", "white": "#374151", "black": "#000000",
}  # fmt: skip
"""Named terminal colours, dark enough on white."""


def screen_svg(block: Lines) -> str:
    """A screen's lines, drawn with colour (see `View`), as SVG text. Every text is escaped; same screen, same bytes."""
    width = max(block.width, 1) * WIDE + 2 * MARGIN
    height = max(len(block.rows), 1) * TALL + 2 * MARGIN
    body = "\n".join(_line(row, MARGIN + at * TALL) for at, row in enumerate(block.rows) if row)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'font-family="ui-monospace,Menlo,Consolas,\'DejaVu Sans Mono\',monospace" font-size="14" role="img" xml:space="preserve">\n'
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _line(row: Line, top: int) -> str:
    """One line: a rectangle behind each coloured piece, then its runs of text, each where its cells begin."""
    out, at = [], 0
    for text, style in row:
        size = cells(text)
        front, back, bold, underlined = _style(style)
        x = MARGIN + at * WIDE
        if back and size:
            out.append(
                f'<rect x="{x:.1f}" y="{top}" width="{size * WIDE:.1f}" height="{TALL}" fill="{back}" shape-rendering="crispEdges"/>'
            )
        more = (' font-weight="bold"' if bold else "") + (' text-decoration="underline"' if underlined else "")
        for run in RUN.finditer(text):
            place = f'x="{x + cells(text[: run.start()]) * WIDE:.1f}" y="{top + 13}"'
            out.append(f'<text {place} fill="{front}"{more} style="unicode-bidi:isolate">{safe_html(run[0])}</text>')
        at += size
    return "".join(out)


def _style(style: str) -> tuple[str, str, bool, bool]:
    """Colour in front and behind ("" for none), and whether bold and underlined, from a Rich style such as `bold
    #000000 on #fde725`."""
    front, back = "#111827", ""
    before, _, behind = style.partition("on ")
    if behind:
        back = COLOURS.get(behind.strip(), behind.strip())
    for word in before.split():
        if word.startswith("#") or word in COLOURS:
            front = COLOURS.get(word, word)
    return front, back, "bold" in style, "underline" in style
