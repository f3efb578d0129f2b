"""A table declared as columns: each says what it is called and what it shows of a row. The screen
fits them to its width in one place, in the language shown; `--plain` and CSV read the same columns.

    columns = [
        Column(message("policy"), lambda row: row.policy, align="left", key="policy"),
        Column(message("cache"), lambda row: size_words(row.bytes), leave_out=1),
    ]
    column_table(columns, document.policies, view, title=message("what a cache keeps"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from attncli.draw.lines import Lines, localize, remark, stack
from attncli.draw.numbers import bar
from attncli.draw.safe import cells, safe
from attncli.draw.tables import GAP, table
from attncli.draw.view import View
from attncli.language import listing, message, term

Row = TypeVar("Row")
SHORTEST = 4
"""Cells of the shortest bar."""
LONGEST = 24
"""Cells of the longest bar, unless a column says otherwise."""


class Column(Struct, Generic[Row], frozen=True):
    """A column of a table.

    name: its title on the screen, translated there.
    write: a row's text on the screen; None for a column that screens do not have.
    align: "left" or "right".
    leave_out: 0 for a column that is always shown. Where a screen is too narrow, the columns with
        the highest number are left out first, those of one number together.
    share: for a column of bars, in place of `write`, a row's part of the longest bar, 0 to 1, None
        for a row without one; bars take what room the other columns leave, at most `longest` cells.
    key: its name in `--plain` and CSV; "" for a column that they do not have.
    value: what they hold of a row.
    """

    name: str = ""
    write: Callable[[Row], str] | None = None
    align: str = "right"
    leave_out: int = 0
    share: Callable[[Row], float | None] | None = None
    longest: int = LONGEST
    key: str = ""
    value: Callable[[Row], object] | None = None


def text_column(name: str, texts: Sequence[str], *, align: str = "right") -> Column[int]:
    """A column whose texts are given, for a table whose rows are the numbers 0, 1, …: row 2 shows
    `texts[2]`. Rows after the last text are empty."""

    def text(row: int) -> str:
        return texts[row] if row < len(texts) else ""

    return Column(name, text, align=align)


def bar_column(values: Sequence[float], longest: int = LONGEST) -> Column[int]:
    """A column of bars as long as the values are large, whatever their sign, for a table whose rows
    are the numbers 0, 1, …: row 2 has the bar of `values[2]`. Rows after the last value have none.

    longest: cells of the largest value's bar, where there is room.
    """
    largest = max(map(abs, values), default=0.0)

    def share(row: int) -> float | None:
        """A row's part of the largest value."""
        if row >= len(values):
            return None
        return abs(values[row]) / largest if largest else 0.0

    return Column(share=share, longest=longest, align="left")


def columns_that_fit(
    columns: Sequence[Column[Row]], rows: Sequence[Row], view: View
) -> list[Column[Row]]:
    """The columns that a screen shows: as long as they do not fit its width, those with the highest
    `leave_out` are dropped. A full view drops none.

    Args:
        columns: In their order; those without `write` and `share` are never shown.
        rows: What they are columns of.
        view: The width and the language.

    Returns:
        The columns shown, in their order; too wide still where none is left that may be left out.
    """
    shown = [column for column in columns if column.write or column.share]
    if view.full:
        return shown
    widths = [_column_width(column, rows, view) + GAP for column in shown]
    # columns of `leave_out` 0 are never dropped
    for dropped_level in sorted({column.leave_out for column in shown} - {0}, reverse=True):
        if sum(widths) - GAP <= view.width:
            break
        kept = [index for index, column in enumerate(shown) if column.leave_out != dropped_level]
        shown = [shown[index] for index in kept]
        widths = [widths[index] for index in kept]
    return shown


def column_table(
    columns: Sequence[Column[Row]],
    rows: Sequence[Row],
    view: View,
    *,
    title: str = "",
    note: str = "",
    strong: int | None = None,
) -> Lines:
    """A table of the columns that fit, and a remark that names those left out.

    Args:
        columns: In their order; those without `write` and `share` are never shown.
        rows: A line each.
        view: The width, the language, and whether all is shown.
        title: Above the table.
        note: Beside the title.
        strong: The number of a row in bold.

    Returns:
        The lines; the heading alone where no column can be shown.
    """
    shown = columns_that_fit(columns, rows, view)
    # bars take the cells that the columns of text leave
    bar_room = view.width
    bars = None
    for index, column in enumerate(shown):
        if column.share is None:
            bar_room -= _column_width(column, rows, view) + GAP
        else:
            bars = index
    cells_of_columns = [_cells_of(column, rows, bar_room, view) for column in shown]
    body = table(
        [column.name for column in shown],
        list(zip(*cells_of_columns, strict=True)),
        view,
        align=[column.align for column in shown],
        title=title,
        note=note,
        strong=strong,
        bars=bars,
    )
    # by identity: two columns may be equal in all that is declared of them
    shown_ids = {id(column) for column in shown}
    absent = [
        term(column.name)
        for column in columns
        if column.write is not None and id(column) not in shown_ids
    ]
    more = message("a wider terminal also shows: {absent}", absent=listing(absent))
    return stack(body, remark(more if absent else "", view))


def plain_rows(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> Iterator[Sequence[object]]:
    """The rows for `--plain` and CSV, all of them and in full precision: first the columns' keys.

    Args:
        columns: In their order; those without a `value` are left out.
        rows: What they are columns of.

    Yields:
        A row of names, then a row of values for each of `rows`.
    """
    readers = [column.value for column in columns if column.value is not None]
    yield [column.key for column in columns if column.value is not None]
    for row in rows:
        yield [read(row) for read in readers]


def _column_width(column: Column[Row], rows: Sequence[Row], view: View) -> int:
    """The cells of a column: of its widest text, or of the shortest bar."""
    if column.share is not None:
        return SHORTEST
    texts = [localize(column.name, view), *_cells_of(column, rows, bar_room=0, view=view)]
    return max(cells(safe(text, ascii=view.ascii)) for text in texts)


def _cells_of(column: Column[Row], rows: Sequence[Row], bar_room: int, view: View) -> list[str]:
    """The texts of a column, one for each row; bars are texts of block characters.

    bar_room: how many cells of a screen's line are left for bars.
    """
    if column.share is not None:
        length = min(max(bar_room, SHORTEST), column.longest)
        shares = map(column.share, rows)
        return ["" if share is None else bar(share, length, ascii=view.ascii) for share in shares]
    assert column.write is not None  # a column that is shown has one or the other
    return [column.write(row) for row in rows]
