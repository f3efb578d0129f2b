"""One meaning for each spelling of an option: the table of all options and commands, and what their
values are.
"""

from __future__ import annotations

import options_table

KINDS = {
    "--seed": {"INT|random", "INT"},  # where nothing but numbers can be kept with what is written
    "--output": {"FILE", "DIR"},
    "-o": {"FILE", "DIR"},
    "--save": {"FILE", "DIR"},
    "--target": {"TOK", "TEXT|id:N", "TEXT"},  # one entry, or an answer of several
    "--by": {"part|token|frequency|dimension", "part|token|word"},  # what a score is divided by
    "--effect": {"flag", "zero|mean"},  # of a corpus, what stands for a head
}
"""Spellings whose value differs in kind."""


def test_the_table_of_options_is_the_one_that_was_looked_at():
    """`python tests/options_table.py` writes it; a new line in its difference is a new meaning of a
    spelling.
    """
    assert options_table.GOLDEN.read_text("utf-8") == options_table.text(), (
        "python tests/options_table.py writes it anew"
    )


def test_a_spelling_takes_one_kind_of_value():
    several = {
        spelled: kinds for spelled, kinds in options_table.spellings().items() if len(kinds) > 1
    }
    assert several == KINDS
