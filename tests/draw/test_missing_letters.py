"""A figure whose letters no font has says so, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest
from asking import ask

from attncli.draw.figures import missing_letters
from attncli.draw.figures.missing_letters import missing_letters_note

TEXT = "<svg><text>今天 abc é →</text><tspan>ab &amp; c</tspan></svg>"


@pytest.fixture
def no_fonts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing_letters, "OPTIONS", {"skip_system_fonts": True})


@pytest.mark.usefixtures("no_fonts")
def test_letters_that_no_font_has_are_named() -> None:
    for suffix, named in ((".png", "é → 今 天"), (".PDF", "今 天")):
        note = str(missing_letters_note(TEXT, suffix))
        assert f"no installed font has {named}:" in note
        assert "neither " in note
        assert "Noto Sans CJK SC" in note
        assert ("Helvetica" in note) == (suffix == ".png")
    assert missing_letters_note(TEXT, ".svg") is None
    assert missing_letters_note("<svg><text>abc &lt;</text></svg>", ".png") is None


def test_a_code_point_of_nobody_is_in_no_font_and_common_letters_are() -> None:
    pytest.importorskip("resvg_py")
    note = str(missing_letters_note("<svg><text>\U000e0fff ab \u0378</text></svg>", ".png"))
    assert note == "None"  # neither is a letter
    drawn = missing_letters._picture("e", missing_letters.SANS)
    if drawn != missing_letters._picture("", missing_letters.SANS):  # some font is here
        assert missing_letters_note("<svg><text>é</text></svg>", ".png") is None


@pytest.mark.usefixtures("no_fonts")
def test_a_command_tells_it_on_standard_error(tmp_path: Path) -> None:
    line = (
        "run",
        "今天 我 的 计划",
        "--tokenizer",
        "whitespace",
        "--figure",
        str(tmp_path / "f.png"),
    )
    answer = ask(*line, "--brief")
    assert "no installed font has" in " ".join(answer.err.split())
    assert (tmp_path / "f.png").stat().st_size > 1000
    assert "font" not in ask(*line, "--brief", "--quiet").err
