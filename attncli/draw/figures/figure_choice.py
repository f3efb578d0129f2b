"""What of a figure is drawn, and how it stands on paper: the words of `--figure-parts` and most of
those of `--figure-style`.
"""

from __future__ import annotations

import math
import re

from msgspec import Struct

from attncli.errors import UsageError
from attncli.language import Message, listing, message
from attncli.mechanism.spec import head_name, parse_head

PARTS = ("matrix", "grid", "alignment", "links", "sentence", "regions", "metrics", "bars", "curve")
"""The parts that figures have: weights with the words at their edges; small maps of many heads, or a
map of layers × heads; the mean of heads between two texts; lines between words; the shaded sentence; shares of regions; metrics of heads;
rankings; curves."""
MM = 72 / 25.4
"""Points in a millimetre."""
MOST_COLUMNS = 100
"""Maps side by side that may be asked for."""
LEAST_HEIGHT, MOST_HEIGHT = 20.0, 5000.0
"""Millimetres that a page may be high."""
STYLE_WORDS = message(
    "light, dark, 85mm, 300dpi, notitle, columns=3, maxheight=240mm, heads=L5H11+L3H1, rows=it+cat,"
    " joined by commas"
)
"""What `--figure-style` takes."""


class FigureChoice(Struct, frozen=True):
    """What of a figure is drawn, and how it stands on paper.

    parts: of `PARTS`; none for those that it has by itself.
    title: whether it has its title, and the line below.
    columns: maps side by side, None for what fits.
    max_height: points that a page may be high; what is more goes onto further pages.
    heads: those that are drawn, (layer, head); none for all.
    rows: names of the queries that are drawn; none for all.
    """

    parts: tuple[str, ...] = ()
    title: bool = True
    columns: int | None = None
    max_height: float = math.inf
    heads: tuple[tuple[int, int], ...] = ()
    rows: tuple[str, ...] = ()

    @property
    def words(self) -> dict[str, str]:
        """The words of `--figure-style` that are about maps, as the user could have written them:
        {"columns": "columns=3", …}. A figure without maps refuses them."""
        words = {}
        if self.columns is not None:
            words["columns"] = f"columns={self.columns}"
        if self.heads:
            words["heads"] = "heads=" + "+".join(head_name(*pair) for pair in self.heads)
        if self.rows:
            words["rows"] = "rows=" + "+".join(self.rows)
        return words


NO_CHOICE = FigureChoice()
"""All of a figure."""


def figure_parts(text: str) -> tuple[str, ...]:
    """The parts that the value of `--figure-parts` names. Raises UsageError for another name."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        if part not in PARTS:
            raise UsageError(
                "--figure-parts: {word} is no part of a figure",
                expected=listing(PARTS),
                word=repr(part),
            )
    return tuple(dict.fromkeys(parts))


def chosen_columns(value: str) -> int:
    """The number of maps side by side that `columns=3` names. Raises UsageError."""
    if not re.fullmatch("[0-9]{1,3}", value) or not 1 <= int(value) <= MOST_COLUMNS:
        ends = {"first": "columns=1", "last": f"columns={MOST_COLUMNS}"}
        raise _value_error("columns", value, message("{first} to {last}", **ends))
    return int(value)


def chosen_height(value: str) -> float:
    """The height of a page that `maxheight=240mm` names, in points. Raises UsageError."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)mm", value)
    if match is None or not LEAST_HEIGHT <= float(match[1]) <= MOST_HEIGHT:
        first, last = (f"maxheight={height:g}mm" for height in (LEAST_HEIGHT, MOST_HEIGHT))
        expected = message("{first} to {last}", first=first, last=last)
        raise _value_error("maxheight", value, expected)
    return float(match[1]) * MM


def chosen_heads(value: str) -> tuple[tuple[int, int], ...]:
    """The heads that `heads=L5H11+L3H1` names, as (layer, head). Raises UsageError."""
    heads = []
    for name in value.split("+"):
        head = parse_head(name)
        if head is None:
            raise _value_error("heads", value, message("heads=L5H11, several joined by +"))
        heads.append(head)
    return tuple(dict.fromkeys(heads))


def chosen_rows(value: str) -> tuple[str, ...]:
    """The tokens that `rows=it+the:2+#7` names. Raises UsageError for none."""
    names = [name.strip() for name in value.split("+") if name.strip()]
    if not names:
        raise _value_error("rows", value, message("rows=it, several joined by +"))
    return tuple(dict.fromkeys(names))


def _value_error(name: str, value: str, expected: Message) -> UsageError:
    """The error that a word of `--figure-style`, such as "columns=0", is out of range. It is
    returned, not raised."""
    return UsageError(
        "--figure-style {word} is out of range",
        expected=expected,
        word=repr(f"{name}={value}"),
    )
