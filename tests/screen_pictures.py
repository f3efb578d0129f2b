"""The guide's pictures of screens: which command each shows, and what the command prints, as
coloured lines.
"""

from __future__ import annotations

import re
import shlex

from asking import ask

from attncli.draw.figures.drawing import DARK, LIGHT, Theme, draw_screen
from attncli.draw.lines import Line, Lines

ANIMAL = '"The animal didn\'t cross the street because it was too tired"'
SCREENS = {
    "it": f"attn run --model minilm {ANIMAL} --query it",
    "weights": 'attn run "humpty dumpty sat on" --show scores,weights,links,answer',
    "softmax": 'attn explain "humpty dumpty sat on" --query on --show scores,softmax,output,answer',
    "heads": "attn heads --num-heads 8 --show maps,metrics,answer",
    "grid": f"attn heads --model minilm {ANIMAL}",
    "find": f"attn find --model minilm {ANIMAL} --from it --to animal",
    "ablate": f"attn ablate --model minilm {ANIMAL} --query it",
    "compare": f"attn compare {ANIMAL} --mask none --mask window:2",
    "masks": 'attn mask "window:2,2|global:0" causal -n 20',
    "cost": "attn cost",
}
"""The commands by the names of their pictures; a page that shows a picture names the command beside
it.
"""
CHINESE = ("it", "softmax")
"""Those that the Chinese pages show in Chinese; the others are mostly pictures and numbers."""
NAMED = {
    0: "black",
    1: "red",
    2: "green",
    3: "yellow",
    5: "magenta",
    6: "cyan",
    7: "white",
    8: "bright_black",
    12: "bright_blue",
}


def drawn(name: str, *, lang: str = "en", theme: Theme = LIGHT) -> str:
    """The SVG of a picture: what its command prints on a terminal of 80 cells with 24-bit colour."""
    return draw_screen(
        printed(SCREENS[name], lang, "light" if theme is LIGHT else "dark"), theme
    ).svg(title=SCREENS[name])


def printed(command: str, lang: str, theme: str) -> Lines:
    """What a command prints, line by line, in the colours of a terminal."""
    from rich.console import Console
    from rich.text import Text

    answer = ask(
        *shlex.split(command)[1:],
        terminal=True,
        ATTN_LANG=lang,
        ATTN_THEME=theme,
        COLORTERM="truecolor",
        TERM="xterm",
    )
    assert answer.code == 0, answer.err
    console = Console(width=1000, force_terminal=True, color_system="truecolor", _environ={})
    rows: list[Line] = []
    for row in Text.from_ansi(answer.out.rstrip("\n")).split("\n", allow_blank=True):
        pieces = [
            (piece.text, _named(str(piece.style or "")))
            for piece in row.render(console)
            if piece.text != "\n"
        ]
        rows.append(tuple(piece for piece in pieces if piece[0]))
    return Lines(tuple(rows))


def _named(style: str) -> str:
    """A style whose colours are named as a terminal's are, not by their numbers."""
    found = re.sub(r"color\((\d+)\)", lambda number: NAMED[int(number[1])], style)
    return "" if found == "none" else found


THEMES = {"light": LIGHT, "dark": DARK}
