"""A page of the guide outside the terminal: its sections as notebooks, and the whole as one page
for a browser or a printer.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Iterator
from html import escape
from pathlib import Path

from msgspec import Struct

from attncli.errors import AttnError, UsageError
from attncli.inputs.files import atomic_writer, make_folder, read_regular
from attncli.language import guide as guide_pages
from attncli.language import term

FENCE = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
"""A block of commands with what they print."""
PICTURE = re.compile(r'(<img src=")([^":]+)"')
"""A picture of a page, beside it in the package."""
TYPES = {".svg": "image/svg+xml", ".png": "image/png"}
"""The media type of a picture, by the end of its file's name."""
STYLE = """
:root { color-scheme: light dark }
body { max-width: 46rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.55 system-ui, sans-serif }
pre { overflow-x: auto; padding: .7rem; border: 1px solid gray;
  border-radius: .3rem; font-size: .82rem; line-height: 1.35 }
code { font-family: ui-monospace, monospace; overflow-wrap: anywhere }
pre code { overflow-wrap: normal }
pre span { white-space: pre-wrap; overflow-wrap: anywhere }
h2 { margin-top: 2.4rem }
table { border-collapse: collapse; display: block; overflow-x: auto }
td, th { padding: .2rem .7rem; border: 1px solid; text-align: left }
img { max-width: 100% }
@media print { pre { white-space: pre-wrap } h2 { break-after: avoid } pre, table { break-inside: avoid } }
"""
"""How a page looks: readable in the dark, on a small screen and on paper. Commands are broken to the
width; what they print keeps its columns."""
COMMAND = re.compile(r'^(<pre><code class="language-console">|)(\$ .*)$', re.MULTILINE)
"""A line of a block of HTML that holds a command."""


class CourseSection(Struct, frozen=True):
    """A section of a page: its title without signs, and the Markdown below it."""

    title: str
    body: str


def sections(markdown: str) -> list[CourseSection]:
    """The sections of a page that begin with `## `, in order, and before them, where it has
    commands, what the page begins with, under the page's title.

    markdown: the page.
    """
    # the first part begins with the page's title, each other with a section's
    first, *others = re.split(r"^## ", markdown, flags=re.MULTILINE)
    result = []
    for part in (first.removeprefix("# "), *others):
        title, _, body = part.partition("\n")
        result.append(CourseSection(title.strip(), body.strip()))
    if commands_of(result[0].body):
        return result
    return result[1:]


def commands_of(body: str) -> list[str]:
    """The commands of a section's console blocks, in order, without what they print."""
    return [
        line.removeprefix("$ ")
        for block in FENCE.findall(body)
        for line in block.splitlines()
        if line.startswith("$ ")
    ]


def notebook(section: CourseSection) -> dict[str, object]:
    """A section as a Jupyter notebook, in the form that its JSON has: prose as Markdown cells, each
    command as a cell to run. What a command prints is left out, so that readers predict it first.
    """
    cells: list[dict[str, object]] = [_cell("markdown", f"# {section.title}", 0)]
    for kind, source in _cell_sources(section.body):
        cells.append(_cell(kind, source, len(cells)))
    return {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cell_sources(body: str) -> Iterator[tuple[str, str]]:
    """Yield the cells of a section in order as (kind, source): prose ("markdown"), and each command
    ("code") with the `!` before it by which a notebook runs it in a shell.

    body: the section's Markdown, without its title.
    """
    place = 0  # behind the last block
    for block in FENCE.finditer(body):
        prose = body[place : block.start()].strip()
        if prose:
            yield "markdown", prose
        for command in commands_of(block[0]):
            # in such a line a notebook puts values in place of names in braces or after a dollar
            shell = command.replace("$", "$$").replace("{", "{{").replace("}", "}}")
            yield "code", f"!{shell}"
        place = block.end()
    prose = body[place:].strip()
    if prose:
        yield "markdown", prose


def _cell(kind: str, source: str, number: int) -> dict[str, object]:
    """A cell of a notebook in the form that its JSON has.

    kind: "markdown" or "code".
    number: makes its id.
    """
    cell: dict[str, object] = {
        "cell_type": kind,
        "id": f"cell-{number}",
        "metadata": {},
        "source": source.splitlines(keepends=True),
    }
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return cell


def write_notebooks(name: str, lang: str, folder: Path) -> list[Path]:
    """Write a page's sections as notebooks into a folder, which is made where it is not there, and
    return their files, such as `lessons-01.ipynb`.

    name: of the page, such as "lessons".
    lang: the language it is written in, "en" or "zh".

    Raises UsageError for a page without sections that have commands, and where one of the files
    stands there, with what somebody wrote into it; AttnError where the folder cannot be written.
    """
    with_commands = [
        section for section in sections(guide_pages.page(name, lang)) if commands_of(section.body)
    ]
    if not with_commands:
        raise UsageError(
            "the page {page} has no commands to run",
            expected="a page with lines that begin with $ in a console block; Python examples, with"
            " >>>, are not taken",
            hint="attn guide lessons --notebook DIR",
            page=name,
        )
    paths = [folder / f"{name}-{number:02}.ipynb" for number in range(1, len(with_commands) + 1)]
    existing = [path for path in paths if os.path.lexists(path)]
    if existing:
        raise UsageError(
            "this notebook is there already, with what was written into it",
            where=str(existing[0]),
            expected="a new folder, or one without notebooks of this page",
        )
    try:
        make_folder(folder)
    except OSError as error:
        raise AttnError(
            "this folder cannot be written: {reason}",
            where=str(folder),
            expected="a place that may be written",
            reason=term(error.strerror or str(error)),
        ) from None
    for path, section in zip(paths, with_commands, strict=True):
        text = json.dumps(notebook(section), ensure_ascii=False, indent=1) + "\n"
        with atomic_writer(path) as stream:
            stream.write(text.encode())
    return paths


def html_page(markdown: str, lang: str) -> str:
    """A page of the guide as one HTML file that needs no network: its pictures are in it.

    markdown: the page.
    lang: the language it is written in, "en" or "zh".
    """
    from markdown_it import MarkdownIt

    title = markdown.partition("\n")[0].removeprefix("# ")
    # HTML in a page is shown as text; tables are no part of CommonMark
    renderer = MarkdownIt("commonmark", {"html": False}).enable("table")
    body = PICTURE.sub(_with_picture, renderer.render(markdown))
    # commands get an element that `STYLE` breaks to the width; what they print keeps its columns
    body = COMMAND.sub(r"\1<span>\2</span>", body)
    return (
        f'<!doctype html>\n<html lang="{escape(lang)}">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; img-src data:\">\n"
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}</body>\n"
        "</html>\n"
    )


def _with_picture(place: re.Match[str]) -> str:
    """What stands in place of a match of `PICTURE`: the same beginning of an `img` element, with
    the picture itself as a data address."""
    path = guide_pages.FOLDER / "pictures" / Path(place[2]).name
    data = b64encode(read_regular(path, what="a picture of the guide")).decode()
    return f'{place[1]}data:{TYPES[path.suffix]};base64,{data}"'
