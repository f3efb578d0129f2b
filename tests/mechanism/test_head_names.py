"""A head's name: every form that is printed is read back."""

from __future__ import annotations

import pytest
from asking import ask

from attncli.mechanism.spec import head_name, parse_head

FORMS = (
    "L{}H{}",
    "L{} H{}",
    "l{}h{}",
    "{}.{}",
    "layer {} head {}",
    "第 {} 层第 {} 头",
    "第{}层第{}头",
)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", [(0, 0), (5, 11), (27, 3)])
def test_every_printed_form_is_read_back(form: str, place: tuple[int, int]) -> None:
    assert parse_head(form.format(*place)) == place
    assert parse_head(f" {form.format(*place)} ") == place


@pytest.mark.parametrize("text", ["", "5", "2-5", "5.", "5.1.1", "L5", "H11", "L5H11x", "-1.2"])
def test_other_texts_name_no_head(text: str) -> None:
    assert parse_head(text) is None


def test_a_name_is_what_the_parser_reads() -> None:
    assert parse_head(head_name(5, 11)) == (5, 11)


@pytest.mark.parametrize("form", FORMS)
def test_head_takes_every_form(form: str) -> None:
    asked = ask("run", "the cat sat", "--num-heads", "4", "--head", form.format(0, 3), "--json")
    plain = ask("run", "the cat sat", "--num-heads", "4", "--head", "L0H3", "--json")
    assert asked.code == 0, asked.err
    assert asked.out == plain.out
