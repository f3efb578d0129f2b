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
    """Rows of cells under column names; where they do not fit, Rich cuts the widest columns of text,
    and columns that do not fit even then follow in a second table below. Only the heading for no
    columns.

    rows: texts, made safe here.
    align: "left" or "right" per column, left where not given.
    total: a last row in bold, below a rule; none if empty.
    title, note: the heading, and faint words beside it.
    faint: the indices of columns in faint type.
    strong: the index of a row in bold; None for none.
    bars: the index of the column that holds bars; None for none.
    """
    top = heading(title, note, view)
    if not columns:
        return top
    from rich.box import Box
    from rich.table import Column, Table

    names = [localize(name, view) for name in columns]
    rows_to_measure = [names, *rows]
    if total:
        rows_to_measure.append(total)
    widths = _column_widths(rows_to_measure, view)
    is_right = [column < len(align) and align[column] == "right" for column in range(len(columns))]
    # numbers are never cut, but for a column wider than half of the screen
    is_kept = [
        right and 2 * wide <= view.width for right, wide in zip(is_right, widths, strict=True)
    ]

    # a rule is drawn by a box, which puts a cell of its own between columns
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
        # Rich narrows columns that may wrap first; their cells are cut, not wrapped
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
        # Rich keeps a table's cells in its columns: each table gets copies
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
            style = "bold" if place == strong else ""
            frame_cells = [
                _rich_bar(row[index], view)
                if index == bars
                else _rich_cell(row[index], view, style)
                for index in band
            ]
            frame.add_row(*frame_cells)
        blocks.append(lay_out(frame, view))
    return fit_to_view(stack(top, stack_spaced(*blocks)), view)


def _column_widths(rows: Sequence[Sequence[str]], view: View) -> list[int]:
    """The cells of the widest text of each column, as far as the shortest row has columns."""
    columns = zip(*rows, strict=False)
    return [max(cells(safe(text, ascii=view.ascii)) for text in column) for column in columns]


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
    """Divide the columns of a table into bands that fit the width and stand below each other: a
    single band where all columns fit, or fit once texts are cut. Each band begins with the columns
    that tell the rows apart, such as layer and head.

    Args:
        rows: The texts.
        widths: Cells of each column.
        is_kept: Of each column, whether its texts are never cut.
        room: Cells of a line.

    Returns:
        The indices of the columns of each band.
    """
    least = [
        wide if kept else min(wide, READABLE) for wide, kept in zip(widths, is_kept, strict=True)
    ]

    # as few of the first columns as differ in every row, if they take at most half of a line
    first_count = 1
    for count in range(1, len(widths)):
        if len({tuple(row[:count]) for row in rows}) == len(rows):
            first_count = count
            break
    if 2 * sum(least[:first_count]) > room:
        first_count = 1
    first = list(range(first_count))

    bands = [first]
    for column in range(first_count, len(widths)):
        filled = sum(least[index] + GAP for index in bands[-1])
        # a band takes at least one column behind the first ones, however wide it is
        if bands[-1] != first and filled + least[column] > room:
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

    # blanks at the end keep decimal points in line; Rich would strip them
    inner = text.rstrip(" ")
    blanks = FIXED_BLANK * (len(text) - len(inner))
    safe_text = safe(inner, ascii=view.ascii) + blanks
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
    """A table of links, the first `view.top` in the order given: which head, `it → animal`, weight,
    bar from 0 to 1. "(none)" for no links.

    queries, keys: the token texts by position; keys are the queries where None.
    place: called with a link, returns which head it is from, in words; None where there is only one
        head or it does not matter.
    """
    top = heading(title, note, view)
    if view.full:
        shown_links = all_links
    else:
        shown_links = all_links[: view.top]
    if not shown_links:
        return stack(top, remark("(none)", view))

    # the texts of the columns, and their widths: the names of query and key share what about 30
    # cells for the head, the arrow, the weight and a short bar leave; the bar takes the rest
    name_room = max((view.width - 30) // 2, 4)
    write = writer([link.weight for link in shown_links], view.precision)
    rows = [
        (
            place(link) if place else "",
            position_and_text(link.query, queries[link.query], name_room, view),
            position_and_text(link.key, (keys or queries)[link.key], name_room, view),
            write(link.weight),
        )
        for link in shown_links
    ]
    place_width, query_width, key_width, number_width = (
        max(cells(row[column]) for row in rows) for column in range(4)
    )
    arrow_text = arrow(view)
    text_width = place_width + query_width + len(arrow_text) + key_width + number_width
    # 5: two blanks behind the head, two before the weight and one behind it
    room = min(view.width - text_width - 5, LONGEST)

    lines: list[Line] = []
    for link, (place_text, query, key, number) in zip(shown_links, rows, strict=True):
        where = pad(place_text, place_width)
        if place_width:
            where += "  "
        bar_text = ""
        if room >= 4:  # a shorter bar says nothing
            bar_text = bar(link.weight, room, ascii=view.ascii)
        lines.append(
            (
                (where, FAINT),
                (pad(query, query_width, "right"), ""),
                (arrow_text, FAINT),
                (pad(key, key_width), ""),
                (f"  {pad(number, number_width, 'right')} ", "bold"),
                *bar_pieces(bar_text, bar_style(view)),
            )
        )
    more = ""
    if len(shown_links) < len(all_links):
        more = message(
            "{shown_links} of the {all_links} strongest links shown; --top {all_links} shows them",
            shown_links=len(shown_links),
            all_links=len(all_links),
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
    is_numbered: bool = True,
    with_lengths: bool = True,
    columns_are: str = "dimensions",
) -> Lines:
    """A table of vectors with their rows' names: as many first and last dimensions as fit, and the
    Euclidean length |x| of each. A full view shows every dimension and row, in panels. Without rows
    or dimensions: "(empty)".

    values: [row, dim].
    rows: the rows' names; none for rows that have only numbers.
    row_numbers: counted from 0 where None.
    is_numbered: False for rows that are steps with names, before which a number reads as a part of
        the formula.
    with_lengths: False for rows whose length says nothing, such as angles.
    columns_are: "dimensions", or "pairs" of them, for the line on what is left out.
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

    # cells of the rows' numbers and names, of each dimension, and of the length at the right
    number_texts = [""] * len(numbers)
    index_width = 0  # with the blank behind a number
    if is_numbered:
        number_texts = [f"{number}" for number in numbers]
        index_width = max(map(len, number_texts)) + 1
    # a name takes a fifth of the line at most, or 4 cells where that is less
    name_width = min(max(cells(text) for text in names), NAME, max(view.width // 5, 4))
    # `nan` takes 3 cells, where no number is finite
    slot = 1 + max(widest_number(matrix, write) or 3, len(str(matrix.shape[1] - 1)))
    length_width = 0
    if with_lengths:  # a gap of 2, and at least the 3 of the column's name, "|x|"
        length_width = 2 + max(3, *(len(write_length(float(length))) for length in lengths))
    side_width = index_width + name_width + 1
    room = view.width - side_width - length_width
    if view.full:
        shown_rows: ShownPositions = list(range(len(names)))
    else:
        shown_rows = first_and_last(len(names), ROWS, last=1)

    def panel(columns: ShownPositions) -> Lines:
        """The table of these dimensions, None for those left out, with the length of each row."""
        gap = pad(".." if view.ascii else "…", VECTOR_GAP, "right")
        titles = [gap if column is None else pad(str(column), slot, "right") for column in columns]
        if with_lengths:
            titles.append(pad("|x|", length_width, "right"))
        out: list[Line] = [((" " * side_width, ""), *((text, FAINT) for text in titles))]
        for row in shown_rows:
            if row is None:
                rows_left_out = ":" if view.ascii else "⋮"
                out.append(((pad(rows_left_out, index_width - 1, "right"), FAINT),))
                continue
            number = pad(number_texts[row], index_width - 1, "right")
            number = pad(number, index_width)
            row_name = pad(cut(names[row], name_width, ascii=view.ascii), name_width + 1)
            entries = [
                (
                    " " * VECTOR_GAP
                    if column is None
                    else pad(write(float(matrix[row, column])), slot, "right")
                )
                for column in columns
            ]
            texts = [(row_name, ""), *((entry, "") for entry in entries)]
            length = ""
            if with_lengths:
                length = pad(write_length(float(lengths[row])), length_width, "right")
            out.append(((number, FAINT), *texts, (length, FAINT)))
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
        window_text(columns, dimensions, columns_are),
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
    """A table of vectors that add up: a row for each term, the sum below, with the first entries that
    fit, or all of them in a full view.

    terms: the name and the vector [width] of each.
    total: the name and the vector [width] of their sum.
    """
    names_of_terms = [name for name, _ in terms]
    values = [np.asarray(term, np.float64) for _, term in terms]
    total_name, total_values = total
    total_vector = np.asarray(total_values, np.float64)
    side = max(map(cells, [*names_of_terms, total_name])) + 2

    # how many entries fit depends on their digits, and how many digits they need to add up on which
    # entries are shown: the second round settles both
    digits = view.precision
    dims = 1
    for _ in range(2):
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

    rows = [
        [name, *(f"{entry:.{digits}f}" for entry in value[:dims])]
        for name, value in zip(names_of_terms, values, strict=True)
    ]
    # the sum has fewer digits: blanks keep the decimal points in line
    blanks = " " * (digits - view.precision)
    total_entries = [f"{entry:.{view.precision}f}{blanks}" for entry in total_vector[:dims]]
    more = ""
    if dims < len(total_vector):
        more = say(
            view,
            "dimensions 0–{last} of {total} shown; --full shows all",
            last=dims - 1,
            total=len(total_vector),
        )
    column_names = ["", *map(str, range(dims))]
    body = ledger(column_names, rows, [total_name, *total_entries], view, title=title, note=note)
    return stack(body, remark(more, view))
