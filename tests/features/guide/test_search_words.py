"""What people look for in the guide is found on its page, and a command is told as it is typed."""

from __future__ import annotations

import pytest
from asking import ask

from attncli.language.guide.search import sections_with


def test_an_excerpt_keeps_the_bars_of_commands() -> None:
    (section, *_) = sections_with("jq .heads", "en")
    assert "| jq .heads" in section.line
    assert "| jq" in ask("guide", "--search", "jq .heads").out


@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("gguf", "cookbook"),
        ("rag", "cookbook"),
        ("quantisation", "models"),
        ("jq", "json"),
        ("xarray", "cookbook"),
        ("pandas", "cookbook"),
        ("polars", "cookbook"),
        ("induction", "claims"),
        ("sink", "cookbook"),
        ("lora", "cookbook"),
        ("entropy", "cookbook"),
        ("notebook", "views"),
        ("ci", "cookbook"),
        ("coreference", "cookbook"),
        ("bertviz", "views"),
    ],
)
def test_a_word_that_people_look_for_finds_its_page(word: str, page: str) -> None:
    assert sections_with(word, "en")[0].name == page
