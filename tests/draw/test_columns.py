"""Columns of a table: what fits, what is left out and in which order, and what machines read."""

from __future__ import annotations

import pytest
from asking import ask

from attncli.draw.columns import Column, column_table, columns_that_fit, plain_rows
from attncli.draw.lines import Lines
from attncli.draw.view import View

ROWS = [("a", 0.25, 7), ("bcd", 1.0, 10)]
COLUMNS: list[Column[tuple[str, float, int]]] = [
    Column("word", lambda row: row[0], align="left", key="word", value=lambda row: row[0]),
    Column(share=lambda row: row[1], align="left", longest=10),
    Column(
        "share", lambda row: f"{row[1]:.2f}", leave_out=1, key="share", value=lambda row: row[1]
    ),
    Column(key="count", value=lambda row: row[2]),
    Column("between", lambda row: f"{row[2]} of 10", leave_out=2),
    Column("looks most at", lambda row: "x" * 12, leave_out=2),
]


def texts(block: Lines) -> list[str]:
    return ["".join(text for text, _ in row).rstrip() for row in block.rows]


def names(width: int, *, full: bool = False, lang: str = "en") -> list[str]:
    view = View(width=width, full=full, lang=lang)
    return [column.name for column in columns_that_fit(COLUMNS, ROWS, view)]


def test_columns_are_left_out_in_their_order_and_together() -> None:
    # word 4, bars of 4, share 5, between 8, looks most at 13, and gaps of 2
    assert names(42) == ["word", "", "share", "between", "looks most at"]
    assert names(41) == names(17) == ["word", "", "share"]
    assert names(16) == ["word", ""]
    assert names(5) == ["word", ""]


def test_a_full_view_leaves_nothing_out() -> None:
    assert names(20, full=True) == names(42)


@pytest.mark.parametrize(("lang", "least"), [("en", 6), ("zh", 4)])
def test_widths_are_those_of_the_language_shown(lang: str, least: int) -> None:
    columns = [
        Column("head", lambda row: row[0], align="left"),
        Column("weight", lambda row: row[0], leave_out=1),
    ]
    head = 4 if lang == "en" else 3

    def count(width: int) -> int:
        return len(columns_that_fit(columns, ROWS, View(width=width, lang=lang)))

    assert count(head + 2 + least) == 2
    assert count(head + 2 + least - 1) == 1


def test_what_is_left_out_is_said() -> None:
    assert not any("wider" in line for line in texts(column_table(COLUMNS, ROWS, View(width=42))))
    whole = " ".join(texts(column_table(COLUMNS, ROWS, View(width=41))))
    assert whole.endswith("a wider terminal also shows: between, looks most at")
    whole = " ".join(texts(column_table(COLUMNS, ROWS, View(width=16))))
    assert whole.endswith("also shows: share, between, looks most at")
    whole = "".join(texts(column_table(COLUMNS, ROWS, View(width=30, lang="zh"))))
    assert "更宽的终端还显示" in whole


def test_bars_take_the_room_that_is_left() -> None:
    rows = texts(column_table(COLUMNS, ROWS, View(width=20)))
    assert rows[2] == "bcd   ▇▇▇▇▇▇▇   1.00"
    assert "▇" * 10 + "  " in texts(column_table(COLUMNS, ROWS, View(width=80)))[2]


def test_machines_read_every_value_whatever_the_screen() -> None:
    assert list(plain_rows(COLUMNS, ROWS)) == [
        ["word", "share", "count"],
        ["a", 0.25, 7],
        ["bcd", 1.0, 10],
    ]


def test_regions_tell_which_heads_a_narrow_screen_leaves_out() -> None:
    line = ["heads", "a b c d e f g", "--tokenizer", "whitespace", "--show", "regions"]
    line += ["--region", "x=tokens:0-2", "--region", "y=tokens:3-6"]
    assert "a wider terminal also shows: third" in ask(*line, width=44, COLUMNS="44").out
    assert "wider" not in ask(*line, width=80, COLUMNS="80").out
