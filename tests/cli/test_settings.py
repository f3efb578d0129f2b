"""Settings: option before variable before file before default; what is wrong names its line."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from asking import ask


def written(folder: Path, text: str) -> str:
    (folder / "config.toml").write_text(text)
    return str(folder / "config.toml")


def digits(out: str) -> int:
    """Digits after the point in the table of weights."""
    return len(out.split(".", 1)[1].split()[0].rstrip("*"))


def test_option_before_variable_before_file_before_default(tmp_path: Path) -> None:
    question = ("run", "a b", "--show", "weights", "--ascii")
    config = written(tmp_path, "precision = 5\n")
    assert digits(ask(*question).out) == 2
    assert digits(ask(*question, ATTN_CONFIG=config).out) == 5
    assert digits(ask(*question, ATTN_CONFIG=config, ATTN_PRECISION="4").out) == 4
    assert (
        digits(ask(*question, "--precision", "3", ATTN_CONFIG=config, ATTN_PRECISION="4").out) == 3
    )


@pytest.mark.parametrize(
    "question", [("run", "a b"), ("heads", "a b"), ("mask", "causal", "window:1")]
)
def test_percentages_keep_their_digits(question: tuple[str, ...]) -> None:
    shares = [
        re.findall(r"[\d.]+%", ask(*question, "--precision", digits).out)
        for digits in ("0", "2", "7")
    ]
    assert shares[0]
    assert shares[0] == shares[1] == shares[2]


def test_the_file_is_found_by_the_platforms_rule(tmp_path: Path) -> None:
    (tmp_path / "attn").mkdir()
    written(tmp_path / "attn", "precision = 6\n")
    assert (
        digits(ask("run", "a b", "--show", "weights", "--ascii", XDG_CONFIG_HOME=str(tmp_path)).out)
        == 6
    )
    assert ask("run", "a b", XDG_CONFIG_HOME=str(tmp_path / "none")).code == 0
    assert ask("run", "a b", ATTN_CONFIG=str(tmp_path / "none")).code == 2, (
        "a file that is named is there"
    )


WRONG = [
    ("precision = 3\ncolr = 'x'\n", ":2", "no key 'colr'"),
    ("\n\nprecision = 'much'\n", ":3", "precision"),
    ("precision = 18\n", ":1", "--precision is 18"),
    (f"precision = {'[' * 5000}", ":1", "the settings are nested too deeply"),
    ("precision = true\n", ":1", "precision"),
    ("lang = 'fr'\n", ":1", "--lang is 'fr'"),
    ("lang = ''\n", ":1", "lang"),
    ("model = 'x'\nlang = = 'en'\n", ":2", "no TOML"),
    ("[color]\nx = 1\n", ":1", "color"),
]


@pytest.mark.parametrize(("text", "line", "says"), WRONG)
def test_what_cannot_be_names_its_line(text: str, line: str, says: str, tmp_path: Path) -> None:
    config = written(tmp_path, text)
    found = ask("run", "a b", ATTN_CONFIG=config)
    assert (found.code, found.out) == (2, "")
    assert f"where: {config}{line}\n" in found.err
    assert says in found.err


def test_a_variable_that_cannot_be_is_named() -> None:
    for name, value in (
        ("ATTN_PRECISION", "x"),
        ("ATTN_COLOR", "blue"),
        ("ATTN_LANG", "fr"),
        ("ATTN_THEME", "blue"),
    ):
        found = ask("run", "a b", **{name: value})
        assert (found.code, name in found.err) == (2, True), found.err


def test_verbose_says_where_a_value_came_from(tmp_path: Path) -> None:
    config = written(tmp_path, "precision = 5\ncolor = 'never'\n")
    told = ask(
        "run", "a b", "--verbose", "--color", "always", ATTN_CONFIG=config, ATTN_LANG="en"
    ).err
    assert f"--precision 5: from {config}:1\n" in told
    assert "--color always: from the command line\n" in told
    assert "--lang en: from ATTN_LANG\n" in told


@pytest.mark.parametrize(
    "name",
    ["CONFIG", "MODEL", "LANG", "COLOR", "PRECISION", "SCALE_COLORS", "PALETTE", "THEME", "DEBUG"],
)
def test_a_variable_that_is_empty_is_not_set(name: str) -> None:
    assert ask("run", "a b", **{f"ATTN_{name}": ""}) == ask("run", "a b")


def test_an_empty_place_of_the_settings_means_the_platforms(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    assert ask("run", "a b", "--brief", ATTN_CONFIG="", **home).code == 0
    (tmp_path / "attn").mkdir()
    (tmp_path / "attn" / "config.toml").write_text('lang = "zh"\n')
    assert "权重" in ask("run", "a b", "--brief", ATTN_CONFIG="", **home).out


def test_a_settings_file_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    answer = ask("run", "a b", ATTN_CONFIG=str(tmp_path / "pipe"))
    assert (answer.code, "not a file" in answer.err) == (2, True)
    assert ask("run", "a b", ATTN_CONFIG=os.devnull).code == 0


def test_verbose_says_that_a_model_of_the_settings_is_left_out() -> None:
    for option in (
        ("--num-heads", "2"),
        ("--tokenizer", "char"),
        ("--position", "rope"),
        ("--residual",),
    ):
        told = ask("ablate", "the cat", *option, "--verbose", ATTN_MODEL="nope").err
        assert f"ATTN_MODEL names the model nope, which {option[0]} leaves out\n" in told
        assert "from ATTN_MODEL" not in told
    assert "nope" not in ask("ablate", "the cat", "--num-heads", "2", ATTN_MODEL="nope").err
    assert "ATTN_MODEL" not in ask("mask", "causal", "--verbose", ATTN_MODEL="nope").err


def test_json_does_not_depend_on_settings(tmp_path: Path) -> None:
    config = written(
        tmp_path, "precision = 5\ncolor = 'always'\nlang = 'zh'\nscale-colors = 'log'\n"
    )
    for question in (
        ("run", "a b"),
        ("heads", "a b"),
        ("explain", "a b"),
        ("mask", "causal"),
        ("cost",),
    ):
        assert ask(*question, "--json").out == ask(*question, "--json", ATTN_CONFIG=config).out


def test_a_model_that_does_not_apply_is_silent(tmp_path: Path) -> None:
    config = written(tmp_path, "model = 'no-such-model'\n")
    assert ask("run", "a b", "--seed", "3", ATTN_CONFIG=config).code == 0
    assert "no-such-model" in ask("run", "a b", ATTN_CONFIG=config).err
    assert ask("mask", "causal", ATTN_CONFIG=config).code == 0


def test_the_palette_is_set_by_a_variable_or_the_file(tmp_path: Path) -> None:
    asked = ("run", "a b", "--show", "weights", "--color", "always")
    terminal = {"COLORTERM": "truecolor", "TERM": "xterm"}
    dark, light = (ask(*asked, ATTN_PALETTE=one, **terminal).out for one in ("dark", "light"))
    assert dark != light
    assert ask(*asked, **terminal).out == dark
    config = written(tmp_path, "palette = 'light'\n")
    assert ask(*asked, ATTN_CONFIG=config, **terminal).out == light
    assert ask(*asked, ATTN_CONFIG=config, ATTN_PALETTE="dark", **terminal).out == dark
    assert f"palette light: from {config}:1\n" in ask(*asked, "--verbose", ATTN_CONFIG=config).err
    assert "palette is 'blue'" in ask(*asked, ATTN_PALETTE="blue").err


def test_attn_alone_and_its_help_speak_the_language_of_the_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "set.toml"
    file.write_text('lang = "zh"\n')
    for asked in ((), ("--help",), ("run", "--help"), ("nope",)):
        chinese = ask(*asked, "--lang", "zh") if asked == () else ask(*asked, ATTN_LANG="zh")
        answer = ask(*asked, ATTN_CONFIG=str(file))
        assert (answer.out, answer.err) == (chinese.out, chinese.err)
        english = ask(*asked, ATTN_CONFIG=str(file), ATTN_LANG="en")
        assert english == ask(*asked)
        assert english != answer
    file.write_text("lang = 7\n")
    assert ask("run", "a b", ATTN_CONFIG=str(file)).code == 2
