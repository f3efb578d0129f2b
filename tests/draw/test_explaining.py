"""What the explaining screens are made of: sums that add up, wrapped prose, ledgers, curves,
pictures, phrases.
"""

import re
from decimal import Decimal

import pytest
from asking import ask
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from attncli.draw.figures.drawing import draw_screen
from attncli.draw.lines import Lines, line
from attncli.draw.numbers import MORE, Series, adding_digits, adds_up, curves
from attncli.draw.safe import cells, wrap
from attncli.draw.tables import ledger
from attncli.draw.view import View
from attncli.language import say


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(-50, 50, allow_nan=False), min_size=1, max_size=9), st.integers(1, 5))
def test_printed_terms_add_up_to_the_printed_total(terms: list[float], precision: int) -> None:
    total = sum(terms)
    digits = adding_digits([(terms, total)], precision)
    assert precision <= digits <= precision + MORE
    added = sum(Decimal(f"{term:.{digits}f}") for term in terms)
    # on the edge between two roundings one unit of the last digit may be left
    assert abs(added - Decimal(f"{total:.{precision}f}")) <= Decimal(1).scaleb(-precision)
    if digits < precision + MORE:
        assert adds_up(terms, total, digits, precision)


def test_more_digits_are_taken_only_where_needed() -> None:
    assert adding_digits([([0.25, 0.75], 1.0)], 2) == 2
    assert adding_digits([([0.333, 0.333, 0.334], 1.0)], 2) == 3
    assert not adds_up([0.333, 0.333, 0.334], 1.0, 2, 2)


@settings(deadline=None, max_examples=60)
@given(st.text("ab ，。「」计划買", max_size=60), st.integers(2, 30))
def test_wrapping_loses_nothing_but_blanks(text: str, width: int) -> None:
    assume("」」" not in text)
    lines = wrap(text, width)
    assert all(cells(row) <= width for row in lines)
    if not any("…" in row for row in lines):
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize("width", range(4, 30))
def test_no_line_ends_in_an_opening_quote_or_begins_with_a_closing_one(width: int) -> None:
    """Quotes stay with the ideographs that they stand around, straight ones by their turn."""
    lines = wrap('says "苹果", then "巴黎" and “她吃苹果”，he "it was" so.', width)
    assert not any(line.startswith(("”", '",', '" ')) or line.endswith("“") for line in lines)
    assert not any(line.endswith((' "', " “")) or line in ('"', "“") for line in lines)


def test_chinese_breaks_between_characters_but_not_before_a_stop() -> None:
    assert wrap("注意力总是按行计算。", 12) == ["注意力总是按", "行计算。"]
    assert wrap("一二三四五六。", 12) == ["一二三四五", "六。"]


def test_a_ledger_rules_off_its_total() -> None:
    found = ledger(
        ["key", "w"], [["a", "0.25"], ["b", "0.75"]], ["sum", "1.00"], View()
    ).plain.split("\n")
    assert found[-1].split() == ["sum", "1.00"]
    assert set(found[-2]) == {"─"}
    assert set(
        ledger(["key", "w"], [["a", "1"]], ["sum", "1"], View(ascii=True)).plain.split("\n")[-2]
    ) == {"-"}
    assert "─" not in ledger(["key", "w"], [["a", "1"]], [], View()).plain


def test_curves_pass_through_their_points() -> None:
    n = [2**at for at in range(9)]
    for view in (View(width=60), View(width=60, ascii=True), View(width=60, color=True)):
        drawn = curves(
            [Series("square", tuple((x, x * x) for x in n))], view, height=17, x_name="n"
        )
        rows = drawn.plain.split("\n")
        assert all(cells(row) <= 60 for row in rows)
        mark = "o" if view.ascii else "●"
        heights = [at for at, row in enumerate(rows[:17]) if mark in row]
        assert heights == list(range(0, 17, 2))
        assert rows[0].index(mark) > rows[16].index(mark)
        assert view.color or drawn.rows == tuple(
            tuple((text, "") for text, _ in row) for row in drawn.rows
        )
    assert curves([], View()) == Lines()
    assert curves([Series("none", ((0.0, 1.0),))], View()) == Lines()


def test_a_picture_is_inert_and_keeps_its_colours() -> None:
    block = Lines(
        (*line(("<b>&x", "bold #ffffff on #440154")).rows, *line(("it's", "yellow")).rows, ())
    )
    drawn = draw_screen(block).svg()
    assert "<b>" not in drawn
    assert "&lt;b&gt;&amp;x" in drawn
    assert 'fill="#440154"' in drawn
    assert 'font-weight="600"' in drawn
    assert not re.search(r"(?:href|src|url\(|<script)", drawn)
    assert drawn == draw_screen(block).svg()
    import xml.etree.ElementTree as ElementTree

    ElementTree.fromstring(drawn)


def test_ascii_has_no_chinese() -> None:
    assert say(View(lang="zh"), "sum") == "总和"
    assert say(View(lang="zh", ascii=True), "sum") == "sum"


def test_what_the_scale_step_says_is_true_of_the_model() -> None:
    plain = ask("explain", "a b c").out
    assert "brought to a scale" in plain
    bare = ask("explain", "a b c", "--scale", "none", "--softcap", "5", "--position", "alibi").out
    assert "brought to a scale" not in bare
    said = " ".join(bare.split())
    for sentence in (
        "This model does not scale the sums.",
        "A soft cap bounds the scores: ±5 at most.",
        "What the positions say is added.",
    ):
        assert sentence in said
        assert sentence not in plain


@pytest.mark.parametrize("view", [View(width=60), View(width=60, ascii=True)])
def test_a_curve_of_one_point_has_its_mark(view: View) -> None:
    plot, _, _ = curves([Series("one", ((3.0, 5.0),))], view).plain.rpartition("\n")  # no legend
    assert plot.count("o" if view.ascii else "●") == 1
