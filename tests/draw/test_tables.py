"""Tables fit, line up, mark the largest, say what they leave out, and read no markup."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attncli.documents import LinkRow
from attncli.draw.lines import Lines, beside, clip_lines, flow, line, line_width, stack_spaced
from attncli.draw.numbers import bar, bar_pieces, brief, even_bars, root_of, times_words, writer
from attncli.draw.safe import cells, spell
from attncli.draw.shaded_matrix import (
    bar_style,
    first_and_last,
    luminance,
    matrix,
    palette_of,
    panels,
    strongest,
    visible,
    window_text,
)
from attncli.draw.tables import layer_and_head, links, table, vectors
from attncli.draw.view import View

NAN = float("nan")
WORDS = [
    "The",
    "今天",
    "e\u0301le\u0300ve",
    "👨‍👩‍👧",
    "שלום",
    "[red]x[/red]",
    "a\x1b[2J\nb",
    "",
    " ",
    "because" * 9,
    "\u202e",
    "❤️",
    "การ",
]
VIEWS = st.builds(
    View,
    width=st.integers(40, 200),
    color=st.booleans(),
    ascii=st.booleans(),
    precision=st.integers(0, 17),
    full=st.booleans(),
    scale_colors=st.sampled_from(["linear", "log", "row"]),
)


def fits(block: Lines, view: View) -> None:
    for row in block.rows:
        assert line_width(row) <= view.width
    assert not any(set(block.plain) & set("\x1b\x07\u202e\x9b"))
    if view.ascii:
        assert block.plain.replace("\n", "").isprintable()
        assert block.plain.isascii()
    if not view.color:
        assert all(not style for row in block.rows for _, style in row)


@settings(deadline=None, max_examples=60)
@given(VIEWS, st.integers(1, 13), st.integers(1, 37), st.floats(1e-9, 1e9), st.data())
def test_matrices_fit_every_view(view: View, rows: int, columns: int, size: float, data) -> None:
    names = st.lists(st.sampled_from(WORDS), min_size=columns, max_size=columns)
    values = np.sin(np.arange(rows * columns * 1.0)).reshape(rows, columns) * size
    values[np.arange(rows * columns).reshape(rows, columns) % 5 == 3] = NAN
    block = matrix(
        values,
        data.draw(names)[:rows] + ["x"] * (rows - columns),
        data.draw(names),
        view,
        title="t",
        note="n" * 30,
    )
    fits(block, view)
    starts = {
        line_width(row[:2])
        for row in block.rows[2:]
        if len(row) > columns and row[0][0].strip().isdigit()
    }
    assert len(starts) <= 1  # every row's numbers start in the same cell


def test_numbers_end_under_their_column_in_every_script() -> None:
    block = matrix(np.full((13, 3), 0.25), WORDS, ["a", "b", "c"], View(width=60), mark_max=False)
    ends_at = set()
    for row in block.rows[2:]:
        text = "".join(piece for piece, _ in row).rstrip()
        assert text.endswith("0.25  0.25  0.25")
        ends_at.add(cells(text))
    assert len(ends_at) == 1


def test_a_small_matrix_as_text() -> None:
    block = matrix(
        [[0.5, None, 0.25], [0, 0, 0], [0.1, 0.7, 0.2]],
        ["The", "cat", "sat"],
        ["The", "cat", "sat"],
        View(width=60),
        title="weights",
    )
    assert block.plain == (
        "weights\n"
        "          0     1     2\n"
        "        The   cat   sat\n"
        "0 The  0.50*    ·  0.25\n"
        "1 cat  0.00  0.00  0.00\n"
        "2 sat  0.10  0.70* 0.20"
    )  # fmt: skip


def test_colour_marks_the_largest_and_shades() -> None:
    block = matrix([[0.1, 0.9]], ["a"], ["b", "c"], View(color=True))
    styles = [style for text, style in block.rows[2] if "0." in text]
    assert styles[1].startswith("bold underline #000000 on #fff3b8")
    assert not styles[0].startswith("bold")
    assert "*" not in block.plain
    plain = matrix([[0.1, 0.9]], ["a"], ["b", "c"], View(color=True), shade=False, mark_max=False)
    assert all(
        "on #" not in style and "underline" not in style for row in plain.rows for _, style in row
    )


def test_a_wide_matrix_says_what_it_leaves_out_and_names_the_largest() -> None:
    values = np.tile(np.arange(40.0) / 100, (30, 1))
    values[0, 20] = 0.99
    names = [f"w{at}" for at in range(40)]
    block = matrix(values, names[:30], names, View(width=80))
    assert "20 w20    0.99" in block.plain
    said = " ".join(block.plain.splitlines()[-2:])
    assert (
        said
        == "12 of 30 rows, 9 of 40 columns shown, those with the largest values; --full shows all"
    )
    whole = matrix(values, names[:30], names, View(width=80, full=True)).plain
    assert all(f"{at} w{at}" in whole for at in range(30))
    assert "0.39" in whole
    assert "--full" not in whole
    assert "…" not in whole


def test_of_a_wide_matrix_the_rows_and_columns_with_the_largest_entries_are_shown() -> None:
    values = np.random.default_rng(0).uniform(0, 0.01, (206, 206))
    strong = {(3, 190): 0.9, (3, 17): 0.05, (100, 44): 0.8, (205, 0): 0.7}
    for place, weight in strong.items():
        values[place] = weight
    names = [f"w{at}" for at in range(206)]
    lines = matrix(values, names, names, View(width=80)).plain.splitlines()
    assert len(lines) <= 17
    assert {"0", "17", "44", "190"} <= set(lines[0].split())
    assert {"3", "100", "205"} <= {line.split()[0] for line in lines}
    assert all(f"{weight:.2f}" in "\n".join(lines) for weight in strong.values())


def test_a_row_that_repeats_another_is_shown_only_where_there_is_room() -> None:
    values = np.array([[0.9, np.nan], [0.9, np.nan], [0.5, 0.1], [0.2, 0.3]])
    assert strongest(values, 3) == [0, 2, 3]
    assert strongest(values, 4) == [0, 1, 2, 3]
    assert strongest(values, 9) == [0, 1, 2, 3]
    assert strongest(np.full((3, 2), np.nan), 2) == [0, 1]


def test_positions_are_those_given() -> None:
    block = matrix([[0.5, 0.5]], ["it"], ["a", "b"], View(), row_numbers=[7], column_numbers=[3, 4])
    assert block.plain.splitlines()[2].startswith("7 it")
    assert block.plain.splitlines()[0].split() == ["3", "4"]


@pytest.mark.parametrize("values", [[], [[]], [[], []], np.zeros((0, 3)), np.zeros((2, 0))])
def test_nothing_to_show(values) -> None:
    assert matrix(values, [], [], View(), title="t").plain == "t\n(empty)"
    assert vectors(values, [], View(), title="t").plain == "t\n(empty)"


def test_everything_masked() -> None:
    assert matrix([[NAN, NAN]], ["a"], ["b", "c"], View()).plain.splitlines()[2].split() == [
        "0",
        "a",
        "·",
        "·",
    ]


def test_hidden_and_small_weights_look_different() -> None:
    np.testing.assert_array_equal(visible([[1.0, 0.0]], [[0.3, None]]), [[1.0, NAN]])
    np.testing.assert_array_equal(visible([[1.0, 0.0]], None), [[1.0, 0.0]])


@settings(deadline=None, max_examples=40)
@given(VIEWS, st.integers(1, 13), st.integers(1, 131))
def test_vectors_fit_every_view(view: View, rows: int, width: int) -> None:
    values = np.cos(np.arange(rows * width * 1.0)).reshape(rows, width)
    fits(vectors(values, WORDS[:rows], view, title="output", note="n"), view)


def test_vectors_show_both_ends_or_all() -> None:
    values = np.arange(64.0)[None]
    short = vectors(values, ["a"], View(width=60))
    assert short.plain.splitlines()[0].split()[:2] == ["0", "1"]
    assert short.plain.splitlines()[0].split()[-2:] == ["63", "|x|"]
    assert f"{np.sqrt((np.arange(64.0) ** 2).sum()):.2f}" in short.plain
    assert "dimensions 0–3, 61–63 of 64 shown; --full shows all" in short.plain
    angles = vectors(values, ["a"], View(width=60), with_lengths=False, columns_are="pairs").plain
    assert re.search(r"\npairs 0–\d, \d+–63 of 64 shown; --full shows all", angles)
    whole = vectors(values, ["a"], View(width=60, full=True)).plain
    assert all(f" {at}.00" in whole for at in range(64))


def test_a_table_reads_no_markup_and_fits() -> None:
    rows = [["[bold]x[/bold]", "a\x1b[31mb", "今天我的计划是买菜" * 9], ["1", "2", "3"]]
    block = table(["step", "axes", "formula"], rows, View(width=40), align=["right"], title="t")
    assert "[bold]x[/bold]" in block.plain
    fits(block, View(width=40))
    assert table([], [], View()).plain == ""
    assert table(["a"], [], View()).plain == "a"


@settings(deadline=None, max_examples=60)
@given(VIEWS, st.lists(st.lists(st.sampled_from(WORDS), min_size=4, max_size=4), max_size=6))
def test_tables_fit_every_view(view: View, rows: list[list[str]]) -> None:
    names = ["step", "今天", "shape", "weight"]
    block = table(
        names, rows, view, align=["left", "right"], title="t", note="n" * 30, strong=0, faint=[1]
    )
    fits(block, view)
    # what does not fit side by side stands below: the first column again, and a blank line between
    bands = sum(line.startswith("step") for line in block.plain.splitlines())
    assert all(name in block.plain for name in names if name.isascii())
    head = len(table(names, [], view, title="t", note="n" * 30).rows) - 1
    assert len(block.rows) == head + bands * (len(rows) + 1) + bands - 1


def test_a_table_that_is_too_wide_goes_on_below_itself_and_cuts_no_number() -> None:
    rows = [
        [f"name {kind}", kind, "0.12345 L1H1", "0.98765 L0H1", "in words " * 9]
        for kind in ("first", "other")
    ]
    columns = ["what", "kind", "one score", "another", "text"]
    fitting = table(columns, rows, View(width=120), align=["left", "left", "right", "right"]).plain
    assert fitting.count("name first") == 1
    narrow = table(columns, rows, View(width=48), align=["left", "left", "right", "right"]).plain
    assert narrow.count("name first") == 2
    assert all(narrow.count(name) == 1 for name in columns[1:])
    assert narrow.count("0.12345 L1H1") == narrow.count("0.98765 L0H1") == 2
    same = [["none", *row[1:]] for row in rows]  # then two columns tell the rows apart
    assert (
        table(columns, same, View(width=48), align=["left", "left", "right", "right"]).plain.count(
            "first"
        )
        == 2
    )


def test_how_many_times_is_written_out() -> None:
    assert [times_words(ratio, 2) for ratio in (2, 4.04, 99.4, 99.6, 133, 1e5)] == [
        "2",
        "4",
        "99",
        "100",
        "133",
        "100,000",
    ]


def test_links_as_text() -> None:
    found = [
        LinkRow(layer=5, head=11, query=2, key=1, weight=0.5),
        LinkRow(layer=3, head=1, query=2, key=0, weight=0.25),
        LinkRow(layer=3, head=1, query=1, key=0, weight=0.125),
    ]
    block = links(
        found, ["The", "animal", "it"], View(width=60, top=2), place=layer_and_head, title="links"
    )
    assert block.plain == (
        "links\n"
        "L5 H11  2 it → 1 animal  0.50 ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌\n"
        "L3 H1   2 it → 0 The     0.25 ▇▇▇▇▇▇▇▌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌\n"
        "2 of the 3 strongest links shown; --top 3 shows them"
    )
    assert links(
        found, ["The", "animal", "it"], View(width=60, ascii=True), place=layer_and_head
    ).plain.isascii()
    assert links([], [], View(), place=None, title="links").plain == "links\n(none)"


def test_bars() -> None:
    assert [bar(value, 4, ascii=False) for value in (0, 0.5, 1, 7, -1)] == [
        "╌╌╌╌",
        "▇▇╌╌",
        "▇▇▇▇",
        "▇▇▇▇",
        "╌╌╌╌",
    ]
    assert bar(9 / 32, 4, ascii=False) == "▇▏╌╌"
    assert bar(0.5, 4, ascii=True) == "##.."
    assert bar(1e-9, 4, ascii=False) == "▏╌╌╌"
    assert bar(0.5, 0, ascii=False) == ""
    assert [text for text, _ in bar_pieces("▇▏╌╌", "red")] == ["▇▏", "╌╌"]
    for light, ground in ((False, 0.0), (True, 1.0)):
        for colors in ("truecolor", "256", "16"):
            view = View(color=True, light=light, colors=colors)
            colour = bytes.fromhex(bar_style(view)[1:])
            bars = luminance((colour[0], colour[1], colour[2]))
            assert max(bars, ground) + 0.05 >= 3 * (min(bars, ground) + 0.05)
            assert bar_style(view) in {palette_of(view).colour(step / 47) for step in range(48)}
    assert bar_style(View()) == ""
    browser_bars = even_bars(Lines(((("▇ and  ▇▇▊╌ ▇╌", ""),),)))
    assert browser_bars.plain == "▇ and  ██▊╌ █╌"  # a word of a text stays as it is


def test_numbers() -> None:
    write = writer([0.5, -0.001], 2)
    assert [write(value) for value in (0.5, -0.001, -0.5)] == ["0.50", "0.00", "-0.50"]
    assert writer([1e-9], 2)(1e-9) == "1.00e-09"
    assert writer([2e6], 1)(2e6) == "2.0e+06"
    assert writer([], 2)(0.0) == "0.00"
    assert writer([NAN], 0)(-0.2) == "0"
    assert [brief(0.125), brief(None), brief(1 / 3), brief(8.0)] == [
        "0.125",
        "none",
        "0.333333",
        "8",
    ]
    assert [root_of(0.125, 64, 512), root_of(512**-0.5, 64, 512), root_of(1.0, 64, 64)] == [
        "1/√64",
        "1/√512",
        "",
    ]


def test_windows() -> None:
    assert first_and_last(3, 3, last=1) == [0, 1, 2]
    assert first_and_last(9, 4, last=1) == [0, 1, 2, None, 8]
    assert first_and_last(9, -5, last=1) == [0, None, 8]
    assert first_and_last(9, 4) == [0, 1, None, 7, 8]
    assert first_and_last(9, 5) == [0, 1, 2, None, 7, 8]
    assert window_text(first_and_last(9, 4, last=1), range(9), "rows") == "rows 0–2, 8 of 9"
    assert window_text([0, 1], range(2), "rows") == ""
    assert panels([3, 3, 3, 9], 7) == [[0, 1], [2], [3]]


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.text(st.sampled_from("ab今👍"), max_size=9), max_size=12),
    st.integers(4, 40),
    st.integers(0, 3),
)
def test_flow_keeps_order_and_width(words: list[str], width: int, indent: int) -> None:
    block = flow([(word, "") for word in words], width=width, indent=indent, gap=" ")
    assert block.width <= width
    if all(cells(word) <= width - indent for word in words):
        assert block.plain.split() == [word for word in words if word]


def test_blocks() -> None:
    two = Lines(((("ab", ""),), (("c", ""),)))
    assert beside([two, two, two], width=9, gap=2).plain == "ab  ab\nc   c\n\nab\nc"
    assert beside([], width=9).plain == ""
    assert stack_spaced(line("a"), Lines(), line("b")).plain == "a\n\nb"
    assert clip_lines(line("abc", ("def", "bold")), 5).plain == "abcd…"
    assert Lines().width == 0


def test_spelling() -> None:
    assert (
        spell("O = A·V · concat(O₁ … O_h) → −∞", ascii=True)
        == "O = A*V | concat(O_1 ... O_h) -> -inf"
    )
    assert spell("Q·Kᵀ", ascii=False) == "Q·Kᵀ"
    assert spell("计", ascii=True) == "\\u{8ba1}"


def test_a_row_whose_columns_have_no_names_names_its_largest_by_number_alone() -> None:
    values = np.arange(36.0).reshape(2, 18) / 100
    shown = matrix(values, None, None, View(width=40)).plain.splitlines()
    assert [row.split()[-2:] for row in shown[1:3]] == [["17", "0.17"], ["17", "0.35"]]
    assert shown[1].endswith("   17 0.17")
    for width in range(20, 60):
        narrow = matrix(values[:, :9], None, None, View(width=width)).plain
        assert narrow.count("larg") == narrow.count("largest")


def test_of_numbers_that_all_read_as_0_none_is_marked() -> None:
    drawn = matrix([[0.001, -0.004], [0.5, 0.1]], ["a", "b"], ["c", "d"], View(width=60)).plain
    assert drawn.count("*") == 1
    assert "0.50*" in drawn
