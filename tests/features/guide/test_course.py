"""The guide's lessons as notebooks, and its pages as one file for a browser."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from asking import ask

from attncli.features.guide.course import commands_of, html_page, notebook, sections
from attncli.language.guide import PAGES, page

LESSONS = 10


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_each_lesson_is_a_notebook_with_its_commands_and_without_answers(
    tmp_path: Path, lang: str
) -> None:
    (tmp_path / "nb").mkdir()
    answer = ask("guide", "lessons", "--notebook", str(tmp_path / "nb"), "--lang", lang)
    assert (answer.code, answer.out) == (0, "")
    files = sorted((tmp_path / "nb").iterdir())
    assert [file.name for file in files] == [
        f"lessons-{number:02}.ipynb" for number in range(1, LESSONS + 1)
    ]
    markdown = page("lessons", lang)
    commands = re.findall(r"^\$ (.*)$", markdown, re.MULTILINE)
    found = []
    for file in files:
        cells = json.loads(file.read_text("utf-8"))["cells"]
        assert len({cell["id"] for cell in cells}) == len(cells)
        for cell in cells:
            source = "".join(cell["source"])
            if cell["cell_type"] == "code":
                assert cell["outputs"] == []
                assert source.startswith("!attn ")
                found.append(source.removeprefix("!"))
            else:
                assert "```" not in source
                assert "$ attn" not in source
    assert found == commands


def test_a_notebook_takes_a_command_as_a_shell_does() -> None:
    section = sections("# A\n\n## One\n\nText.\n\n```console\n$ echo {a} $B\nout\n```\n")[0]
    cells = notebook(section)["cells"]
    assert isinstance(cells, list)
    assert cells[-1]["source"] == ["!echo {{a}} $$B"]
    assert commands_of(section.body) == ["echo {a} $B"]


class Sources(HTMLParser):
    """What a page loads or links to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("src", "href")]


@pytest.mark.parametrize("name", ["lessons", "learners"])
def test_a_page_is_one_file_that_needs_no_network(tmp_path: Path, name: str) -> None:
    file = tmp_path / "page.html"
    answer = ask("guide", name, "--html", str(file), "--lang", "zh")
    assert (answer.code, answer.out) == (0, "")
    text = file.read_text("utf-8")
    parser = Sources()
    parser.feed(text)
    assert all(source.startswith("data:image/") for source in parser.found)
    assert len(parser.found) == page(name, "zh").count("](../pictures/")
    assert '<html lang="zh">' in text
    assert "default-src 'none'" in text
    heading = page(name, "zh").partition("\n")[0].removeprefix("# ")
    assert f"<h1>{heading}</h1>" in text


def test_markdown_of_a_page_is_never_html_of_its_own() -> None:
    assert "<script>" not in html_page("# A\n\n<script>alert(1)</script>\n", "en")


def test_what_is_no_page_is_no_course(tmp_path: Path) -> None:
    for words in (("--html",), ("sink", "--notebook")):
        refused = ask("guide", *words, str(tmp_path / "course"))
        assert (refused.code, "is about a page" in refused.err) == (2, True)
    assert not list(tmp_path.iterdir())


def test_notebooks_that_stand_there_are_kept(tmp_path: Path) -> None:
    words = ("guide", "masks", "--notebook", str(tmp_path))
    assert ask(*words).code == 0
    (file,) = tmp_path.iterdir()
    assert file.name == "masks-01.ipynb"
    file.write_text("a student's answers")
    refused = ask(*words)
    assert (refused.code, "is there already" in refused.err) == (2, True)
    assert "masks-01.ipynb" in refused.err
    assert "a new folder" in refused.err
    assert file.read_text() == "a student's answers"
    assert ask("guide", "weights", "--notebook", str(tmp_path)).code == 0  # other names


def test_commands_before_the_first_section_are_a_notebook(tmp_path: Path) -> None:
    """Every page with a command in a console block has notebooks with all of its commands."""
    for name in PAGES:
        folder = tmp_path / name
        answer = ask("guide", name, "--notebook", str(folder))
        commands = commands_of(page(name, "en"))
        assert answer.code == (0 if commands else 2)
        if not commands:
            assert "$ in a console block" in answer.err
            continue
        cells = [
            cell
            for file in sorted(folder.iterdir())
            for cell in json.loads(file.read_text("utf-8"))["cells"]
        ]
        assert sum(cell["cell_type"] == "code" for cell in cells) == len(commands)
    masks = json.loads((tmp_path / "masks" / "masks-01.ipynb").read_text("utf-8"))["cells"]
    assert masks[0]["source"] == ["# Masks: what a query may see"]


def test_commands_of_a_page_are_broken_to_the_width_and_outputs_are_not() -> None:
    page = html_page("# A\n\n```console\n$ attn run 'a b'\na  $ 1\n$ attn next\n```\n", "en")
    assert "<span>$ attn run 'a b'</span>\na  $ 1\n<span>$ attn next</span>\n" in page


@pytest.mark.parametrize("option", ["--ascii", "--color=always"])
def test_an_option_about_the_screen_is_refused_beside_markdown(option: str) -> None:
    answer = ask("guide", "sink", "--markdown", option)
    assert (answer.code, answer.out) == (2, "")
    beside = ask("guide", "sink", "--markdown", "--color", "never", "--ascii")
    assert (beside.code, beside.out) == (2, "")
    assert "--ascii is about the screen" in beside.err
    assert ask("guide", "sink", "--markdown", "--color", "never").code == 0
