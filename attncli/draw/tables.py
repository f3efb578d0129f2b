"""Tables, drawn by Rich: named columns and rows of texts; links with their bars; vectors; every
stage of a run.

No cell's markup is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from attncli.documents import Numbers
from attncli.draw.lines import (
    FAINT,
    FIXED_BLANK,
    Line,
    Lines,
    fit_to_view,
    heading,
    lay_out,
    localize,
    remark,
    stack,
    stack_spaced,
)
from attncli.draw.names import arrow
from attncli.draw.numbers import adding_digits, bar, bar_pieces, writer
from attncli.draw.safe import cells, cut, label, pad, safe
from attncli.draw.shaded_matrix import (
    NAME,
    ROWS,
    ShownPositions,
    as_matrix,
    bar_style,
    first_and_last,
    panels,
    widest_number,
    window_text,
)
from attncli.draw.token_names import Ends, HeadEnds, position_and_text
from attncli.draw.view import View
from attncli.language import listing, message, say
from attncli.mechanism.spec import head_label

if TYPE_CHECKING:
    from rich.text import Text


GAP = 2
RULES = "    \n    \n ── \n    \n    \n ── \n    \n    \n"
"""A box of Rich's that is nothing but a rule below the names and one above the total."""


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    view: View,
    *,
    align: Sequence[str] = (),
    total: Sequence[str] = (),
    title: str = "",
    note: str = "",
    faint: Sequence[int] = (),
    strong: int | None = None,
    bars: int | None = None,
) -> Lines:
    """Rows of cells under column names; where they do not fit, Rich cuts the widest columns.

    rows: texts, made safe here.
    align: "left" or "right" per column, left where not given.
    total: a last row in bold, below a rule.
    faint: numbers of columns that are set back.
    strong: a row in bold.
    bars: the column that holds bars. No columns: only the heading.
    """
    top = heading(title, note, view)
    if not columns:
        return top
    from rich.box import Box
    from rich.table import Column, Table

    names = [localize(name, view) for name in columns]
    widths = _column_widths([names, *rows, total] if total else [names, *rows], view)
    is_right = [column < len(align) and align[column] == "right" for column in range(len(columns))]
    is_kept = [
        right and 2 * wide <= view.width for right, wide in zip(is_right, widths, strict=True)
    ]
    # a rule is drawn by a box, and a box parts its columns by a cell of its own
    box = None
    gap = GAP
    if total:
        rules = RULES
        if view.ascii:
            rules = RULES.replace("─", "-")
        box = Box(rules, ascii=view.ascii)
        gap = GAP - 1
    frame_columns = []
    for index, name in enumerate(names):
        # what may wrap is cut first
        column = Column(_rich_cell(name, view), no_wrap=is_kept[index])
        if index < len(total):
            column.footer = _rich_cell(total[index], view)
        if is_right[index]:
            column.justify = "right"
        if index in faint:
            column.style = FAINT
        frame_columns.append(column)
    blocks = []
    for band in _bands(rows, widths, is_kept, view.width):
        frame = Table(
            *(frame_columns[index].copy() for index in band),
            box=box,
            padding=(0, gap, 0, 0),
            pad_edge=False,
            show_edge=False,
            show_footer=bool(total),
            header_style=FAINT,
            border_style=FAINT,
            footer_style="bold",
        )
        for place, row in enumerate(rows):
            weight = "bold" if place == strong else ""
            frame_cells = [_table_cell(row[index], index == bars, weight, view) for index in band]
            frame.add_row(*frame_cells)
        blocks.append(lay_out(frame, view))
    return fit_to_view(stack(top, stack_spaced(*blocks)), view)


def _column_widths(rows: Sequence[Sequence[str]], view: View) -> list[int]:
    """The cells of the widest text of each column, as far as the shortest row has columns."""
    columns = zip(*rows, strict=False)
    return [max(cells(safe(text, ascii=view.ascii)) for text in column) for column in columns]


def _table_cell(text: str, is_bar: bool, weight: str, view: View) -> Text:
    """A cell for Rich's table: a bar, or a text in this weight."""
    if is_bar:
        return _rich_bar(text, view)
    return _rich_cell(text, view, weight)


def ledger(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    total: Sequence[str],
    view: View,
    *,
    title: str = "",
    note: str = "",
    strong: int | None = None,
    bars: int | None = None,
) -> Lines:
    """A table of a calculation: all but the first column right-aligned; a rule, then the total in
    bold. No rules without a total.

    strong: a row to set in bold, such as the one with the largest weight.
    bars: the column that holds bars.
    """
    align = ["left", *["right"] * (len(columns) - 1)]
    if bars is not None:
        align[bars] = "left"
    return table(
        columns,
        rows,
        view,
        align=align,
        total=total,
        title=title,
        note=note,
        strong=strong,
        bars=bars,
    )


READABLE = 36
"""Cells that a column of texts keeps where a table is too wide; numbers are never cut."""


def _bands(
    rows: Sequence[Sequence[str]], widths: Sequence[int], is_kept: Sequence[bool], room: int
) -> list[list[int]]:
    """The columns of a table in bands that fit the width and stand below each other; a single band
    where all columns fit, or fit once texts are cut. Each band begins with the columns that tell
    the rows apart.

    widths: cells of each column.
    is_kept: whether its texts are never cut.
    room: cells of a line.
    """
    least = [
        wide if kept else min(wide, READABLE) for wide, kept in zip(widths, is_kept, strict=True)
    ]
    several = range(1, len(widths))
    tells = next(
        (count for count in several if len({tuple(row[:count]) for row in rows}) == len(rows)), 1
    )
    first = list(range(tells if 2 * sum(least[:tells]) <= room else 1))
    bands = [first]
    for column in range(len(first), len(widths)):
        if (
            bands[-1] != first
            and sum(least[place] + GAP for place in bands[-1]) + least[column] > room
        ):
            bands.append(first)
        bands[-1] = [*bands[-1], column]
    return bands


def _rich_bar(bar_text: str, view: View) -> Text:
    """A bar as a text of Rich in two styles, which is never wrapped."""
    from rich.text import Text

    return Text.assemble(*bar_pieces(bar_text, bar_style(view)), no_wrap=True, overflow="crop")


def _rich_cell(text: str, view: View, style: str = "") -> Text:
    """A text for a cell of a table of Rich, made safe, cut where it does not fit."""
    from rich.text import Text

    # blanks at the end keep decimal points in line
    safe_text = safe(text.rstrip(" "), ascii=view.ascii) + FIXED_BLANK * (
        len(text) - len(text.rstrip(" "))
    )
    return Text(safe_text, style, no_wrap=True, overflow="ellipsis")


LONGEST = 32
"""Cells of the longest bar."""


class WeightedLink(Ends, Protocol):
    """What every link has: its ends and its weight."""

    @property
    def weight(self) -> float:
        """The attention weight that the query gives the key, 0 to 1."""


class PlacedLink(WeightedLink, HeadEnds, Protocol):
    """A link whose head is known."""


AnyLink = TypeVar("AnyLink", bound=WeightedLink)


def links(
    all_links: Sequence[AnyLink],
    queries: Sequence[str],
    view: View,
    *,
    place: Callable[[AnyLink], str] | None,
    keys: Sequence[str] | None = None,
    title: str = "",
    note: str = "",
) -> Lines:
    """A table of links, the first `view.top` in the order given: which head (`place`), `it →
    animal`, weight, bar from 0 to 1.

    all_links: links with what `place` reads.
    queries, keys: the token texts by position; keys are the queries where None.
    place: which head a link is from, in words; None where there is only one or it does not matter.
        No links: "(none)".
    """
    top = heading(title, note, view)
    if view.full:
        shown_links = all_links
    else:
        shown_links = all_links[: view.top]
    if not shown_links:
        return stack(top, remark("(none)", view))
    name = max((view.width - 30) // 2, 4)
    rows = [
        (
            place(link) if place else "",
            position_and_text(link.query, queries[link.query], name, view),
            position_and_text(link.key, (keys or queries)[link.key], name, view),
        )
        for link in shown_links
    ]
    widths = [max(cells(row[index]) for row in rows) for index in range(3)]
    write = writer([link.weight for link in shown_links], view.precision)
    arrow_text = arrow(view)
    numbers = [write(link.weight) for link in shown_links]
    digits = max(map(len, numbers))
    room = min(view.width - sum(widths) - len(arrow_text) - digits - 5, LONGEST)
    lines: list[Line] = []
    for link, (place_text, query, key), number in zip(shown_links, rows, numbers, strict=True):
        if room >= 4:
            bar_text = bar(link.weight, room, ascii=view.ascii)
        else:
            bar_text = ""
        where = pad(place_text, widths[0]) + ("  " if widths[0] else "")
        ends = (pad(query, widths[1], "right"), ""), (arrow_text, FAINT), (pad(key, widths[2]), "")
        weight = (f"  {pad(number, digits, 'right')} ", "bold")
        lines.append(((where, FAINT), *ends, weight, *bar_pieces(bar_text, bar_style(view))))
    more = ""
    counts = {"shown_links": len(shown_links), "all_links": len(all_links)}
    if len(shown_links) < len(all_links):
        more = message(
            "{shown_links} of the {all_links} strongest links shown; --top {all_links} shows them",
            **counts,
        )
    return fit_to_view(stack(top, Lines(tuple(lines)), remark(more, view)), view)


def layer_and_head(link: PlacedLink) -> str:
    """The head of a link, such as `L5 H11`."""
    return head_label(link.layer, link.head)


VECTOR_GAP = 3
"""Cells in place of the dimensions left out."""


def vectors(
    values: Numbers | Sequence[Numbers],
    rows: Sequence[str],
    view: View,
    *,
    title: str = "",
    note: str = "",
    row_numbers: Sequence[int] | None = None,
) -> Lines:
    """Vectors [row, dim] with their rows' names: as many first and last dimensions as fit, and the
    Euclidean length |x|.

    rows: the rows' names; none for rows that have only numbers. A full view prints every dimension
        and row, in panels.
    Without rows or dimensions: "(empty)".

    values: [row, dim].
    row_numbers: counted from 0 where None.
    """
    matrix = as_matrix(values)
    top = heading(title, note, view)
    if matrix.size == 0:
        return stack(top, remark("(empty)", view))
    if row_numbers is not None:
        numbers = list(row_numbers)
    else:
        numbers = list(range(matrix.shape[0]))
    names = [label(text, ascii=view.ascii) for text in rows] or [""] * len(numbers)
    write = writer(matrix, view.precision)
    lengths = np.sqrt((matrix**2).sum(axis=1))
    write_length = writer(lengths, view.precision)
    index = len(str(max(numbers)))
    name = min(max(cells(text) for text in names), NAME, max(view.width // 5, 4))
    slot = 1 + max(widest_number(matrix, write) or 3, len(str(matrix.shape[1] - 1)))
    norm = 2 + max(3, *(len(write_length(float(length))) for length in lengths))
    side_width = index + 1 + name + 1
    room = view.width - side_width - norm
    if view.full:
        shown_rows: ShownPositions = list(range(len(names)))
    else:
        shown_rows = first_and_last(len(names), ROWS, last=1)

    def panel(columns: ShownPositions) -> Lines:
        """The table of these dimensions, None for those left out, with the length of each row."""
        gap = pad(".." if view.ascii else "…", VECTOR_GAP, "right")
        heads = [gap if column is None else pad(str(column), slot, "right") for column in columns]
        out: list[Line] = [
            (
                (" " * side_width, ""),
                *((text, FAINT) for text in (*heads, pad("|x|", norm, "right"))),
            )
        ]
        for row in shown_rows:
            if row is None:
                out.append(((pad(":" if view.ascii else "⋮", index, "right"), FAINT),))
                continue
            number = pad(str(numbers[row]), index, "right")
            row_name = cut(names[row], name, ascii=view.ascii)
            entries = [
                (
                    " " * VECTOR_GAP
                    if column is None
                    else pad(write(float(matrix[row, column])), slot, "right")
                )
                for column in columns
            ]
            length = pad(write_length(float(lengths[row])), norm, "right")
            texts = [(pad(row_name, name + 1), ""), *((entry, "") for entry in entries)]
            out.append(((number + " ", FAINT), *texts, (length, FAINT)))
        return Lines(tuple(out))

    if view.full:
        body = stack_spaced(
            *(panel(list(group)) for group in panels([slot] * matrix.shape[1], room))
        )
        return fit_to_view(stack(top, body), view)
    dimensions = range(matrix.shape[1])
    room_for_entries = room
    if len(dimensions) * slot > room:
        room_for_entries -= VECTOR_GAP
    columns = first_and_last(len(dimensions), room_for_entries // slot)
    notes = [
        window_text(shown_rows, numbers, "rows"),
        window_text(columns, dimensions, "dimensions"),
    ]
    windows = listing([part for part in notes if part], "; ")
    note_text = ""
    if windows:
        note_text = message("{windows} shown; --full shows all", windows=windows)
    return fit_to_view(stack(top, panel(columns), remark(note_text, view)), view)


# Vectors that add up, as a table: a term a row, their sum below, with as many digits as let every
# column add up.

SIGN = 5
"""Cells of an entry beside its digits: gap, sign, two places, point."""


def vector_sum(
    terms: Sequence[tuple[str, ArrayLike]],
    total: tuple[str, ArrayLike],
    view: View,
    *,
    title: str = "",
    note: str = "",
) -> Lines:
    """Named terms [width] and their sum [width]; the first entries that fit, or all of them in a
    full view.
    """
    values = [np.asarray(term, np.float64) for _, term in terms]
    total_vector = np.asarray(total[1], np.float64)
    side = max(cells(name) for name, _ in (*terms, total)) + 2
    digits = view.precision
    dims = 1
    for _ in range(2):  # more digits take room: settle on both
        fitting = max((view.width - side) // (digits + SIGN), 1)
        if view.full:
            dims = len(total_vector)
        else:
            dims = min(len(total_vector), fitting)
        columns = [
            ([float(value[dim]) for value in values], float(total_vector[dim]))
            for dim in range(dims)
        ]
        digits = adding_digits(columns, view.precision)
    exact = f"{{:.{digits}f}}".format
    ends = " " * (digits - view.precision)
    rows = [
        [name, *map(exact, value[:dims])] for (name, _), value in zip(terms, values, strict=True)
    ]
    last = [total[0], *(f"{value:.{view.precision}f}" + ends for value in total_vector[:dims])]
    more = ""
    places = {"last": dims - 1, "total": len(total_vector)}
    if dims < len(total_vector):
        more = say(view, "dimensions 0–{last} of {total} shown; --full shows all", **places)
    names = ["", *map(str, range(dims))]
    return stack(ledger(names, rows, last, view, title=title, note=note), remark(more, view))
