"""From a document to the answer: JSON, tab-separated lines or a screen, on standard output or in a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from io import StringIO
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

from attncli.cli import output_conflicts
from attncli.cli.options import OutputOptions
from attncli.cli.output import Environment
from attncli.errors import LimitError, UsageError
from attncli.render.screen_parts import PARTS_OF

if TYPE_CHECKING:
    from pathlib import Path

    from attncli.analysis.documents.declaration import Document
    from attncli.render.lines import Lines
    from attncli.render.view import View

UNITS = {
    "": 1, "b": 1, "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9,
    "kib": 2**10, "mib": 2**20, "gib": 2**30,
}  # fmt: skip
LONGEST_SIZE = 20
"""Digits of a size; more are no bytes of any machine."""
LINES = 10_000  # of a plain table, written at once
FIGURES = (".svg", ".png", ".pdf")
"""How files of figures end."""


def check(
    asked: OutputOptions,
    environment: Environment,
    screen: str = "",
    *,
    written: Mapping[str, Path | None] | None = None,
    heeded: Sequence[str] = (),
    tables: Sequence[str] | None = None,
    answers: Sequence[str] = (),
) -> View:
    """Check the output options before any work, and say how this asker is to be shown a screen; raises UsageError, and
    AttnError for a file that cannot be written.

    screen: the name of the one whose parts `--show` may name; "" for one without. written: files of the command's own
    options. heeded: options about the screen that change its document, too; tables: those that change what --plain
    shows, None for the same; answers: those that change what --brief shows.
    """
    formats = [f"--{name}" for name in ("json", "ndjson", "plain") if getattr(asked, name)]
    if len(formats) > 1:
        raise UsageError(f"{' and '.join(formats)} contradict each other", expected="one of them")
    if formats and asked.svg is None:
        output_conflicts.refuse_looks(
            asked, environment, formats[0], heeded if tables is None or not asked.plain else tables
        )
    elif not any((asked.svg, asked.csv, *(written or {}).values())):
        output_conflicts.refuse_dropped(asked, environment, answers, ranked="top" not in heeded)
    if not formats and "max_output" in environment.given and "max_output" not in heeded:
        raise UsageError(
            "--max-output is about a document, and none is written", expected="--json, --ndjson or --plain"
        )
    if asked.svg is not None and asked.svg.suffix.lower() not in FIGURES:
        raise UsageError(f"--figure is {str(asked.svg)!r}", expected="a file ending in .svg, .png or .pdf")
    if asked.figure_style:
        from attncli.render.figures.files import style_of

        if asked.svg is None:
            raise UsageError(
                "--figure-style is about a figure, and none is asked for", expected="--figure FILE as well"
            )
        style_of(asked.figure_style)
    size(asked.max_output, "--max-output")
    parts = _shown(asked, PARTS_OF.get(screen, ()))
    if asked.lang == "zh" and asked.ascii:
        raise UsageError("--lang zh cannot be written with --ascii", expected="one or the other")
    if environment.variables.get("ATTN_LANG", "") not in ("", "en", "zh"):
        raise UsageError(f"ATTN_LANG is {environment.variables['ATTN_LANG']!r}", expected="en or zh")
    if asked.quiet and asked.verbose:
        raise UsageError("--quiet and --verbose contradict each other", expected="one of them")
    environment.quiet, environment.verbose = asked.quiet, asked.verbose
    output_conflicts.check_files(asked, environment, written or {})
    from attncli.render.view import View

    return View(
        width=environment.columns,
        color=environment.wants_color(asked.color) and (asked.file is None or asked.color == "always"),
        ascii=asked.ascii or environment.wants_ascii(),
        precision=asked.precision,
        scale_colors=asked.scale_colors,
        top=asked.top,
        few="top" not in environment.given,
        show=parts,
        full=asked.full,
        brief=asked.brief,
        lang=environment.lang,
        height=environment.height,
        light=environment.light,
    )


def _shown(asked: OutputOptions, parts: Sequence[str]) -> frozenset[str] | None:
    """The parts that `--show` names; None for the defaults."""
    if asked.show is None:
        return None
    named = [part.strip() for part in asked.show.split(",") if part.strip()]
    if named == ["all"]:
        return frozenset(parts)
    from attncli.render.screens.taught_names import part_named

    named = [part_named(part, tuple(parts)) for part in named]
    wrong = [part for part in named if part not in parts]
    if wrong or not named:
        from difflib import get_close_matches

        close = get_close_matches(wrong[0], parts, 1) if wrong else []
        what = f"--show {wrong[0]!r} is no part of this screen" if wrong else "--show names no parts"
        raise UsageError(what, expected=", ".join((*parts, "all")), hint=f"--show {close[0]}" if close else "")
    return frozenset(named)


def stages(told: str | None, asked: OutputOptions) -> bool:
    """Whether `--stages` asks for every stage in the JSON. Raises UsageError where no JSON is asked for."""
    if told is not None and not (asked.json or asked.ndjson):
        raise UsageError("--stages all adds to the JSON, and no JSON was asked for", expected="--json or --ndjson")
    return told is not None


def size(text: str, option: str) -> int:
    """Bytes that a SIZE such as "2GiB", "500MB" or "1000000" names. Raises UsageError."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if not found or found[2].lower() not in UNITS or len(found[1]) > LONGEST_SIZE:
        raise UsageError(f"{option} is {text!r}", expected="a size such as 2GiB, 500MB or 1000000")
    return int(float(found[1]) * UNITS[found[2].lower()])


def refuse_over(estimate: int, asked: OutputOptions, hint: str) -> None:
    """Raise LimitError if a document of about `estimate` bytes is more than `--max-output` allows."""
    limit = size(asked.max_output, "--max-output")
    if estimate > limit:
        from attncli.render.numbers import size_words

        raise LimitError(
            f"this document would take about {size_words(estimate)}, the limit is {size_words(limit)}",
            expected="a smaller answer, or a higher --max-output",
            hint=hint,
        )


def give(
    documents: Iterable[Document],
    asked: OutputOptions,
    environment: Environment,
    how: View,
    *,
    several: bool = False,
    screen: Callable[[Any, View], Lines] | None = None,
) -> None:
    """Answer with documents, each written as soon as it is there: as its own screen, or its table with a header line.

    One JSON document is the whole of `--json`; several need `--ndjson`. `--output -` is standard output.
    A table is whole also where the reader of the answer has gone (BrokenPipeError).
    several: whether each document is one of many texts (`--lines`); a plain row then begins with its text's number.
    screen: what draws them in place of their own.
    """
    with ExitStack() as files:
        write: Callable[[bytes], object] = environment.write
        if asked.file is not None or asked.csv is not None:
            from attncli.inputs.atomic import atomic_writer

            if asked.csv is not None:
                table = files.enter_context(atomic_writer(asked.csv))
                documents = _tabled(documents, table, several)
            if asked.file is not None:
                write = files.enter_context(atomic_writer(asked.file)).write
        gone: BrokenPipeError | None = None
        try:
            for piece in _pieces(documents, asked, environment, how, several, screen):
                write(piece)
        except BrokenPipeError as error:
            gone = error
            for _ in documents if asked.csv is not None else ():
                pass
    if gone is not None:
        raise gone


def _pieces(
    documents: Iterable[Document],
    asked: OutputOptions,
    environment: Environment,
    how: View,
    several: bool,
    screen: Callable[[Any, View], Lines] | None,
) -> Iterable[bytes]:
    from attncli.render import encoding as records
    from attncli.render.screens import screen_of

    if asked.json:
        found = iter(documents)
        first = next(found)
        yield from records.json_pieces(first)
        return
    for place, document in enumerate(documents):
        if asked.ndjson:
            yield records.ndjson_line(document)
        elif asked.plain:
            yield from _plain(document, place, several, records.plain)
        else:
            shown = printed((screen or screen_of(document.schema).screen)(document, how), how, environment)
            if several:
                from attncli.render.screens.numbered import numbered

                shown = printed(numbered(place, document, how), how, environment) + shown
            yield (b"\n" if place else b"") + shown.encode("utf-8", "backslashreplace")


def _tabled(documents: Iterable[Document], table: BinaryIO, several: bool) -> Iterator[Document]:
    """The documents, each with its table written to `--csv` first."""
    from attncli.render.encoding import comma_separated

    for place, document in enumerate(documents):
        for piece in _plain(document, place, several, comma_separated):
            table.write(piece)
        yield document


def _plain(
    document: Document, place: int, several: bool, written: Callable[[Iterable[Sequence[object]]], str]
) -> Iterator[bytes]:
    """A document's table in pieces; the first line names the columns, once for all documents. place: which document it
    is, from 0. written: rows as lines."""
    from attncli.render.screens import screen_of

    rows = enumerate(screen_of(document.schema).rows(document))
    table = (("text" if at == 0 else place, *row) if several else row for at, row in rows)
    left = islice(table, 0 if place == 0 else 1, None)
    while lines := written(islice(left, LINES)):
        yield lines.encode()


def draw(document: Document, asked: OutputOptions) -> None:
    """Draw a document to the file that `--figure` names. Raises InputError for one that holds nothing to draw."""
    from attncli.inputs.atomic import atomic_writer
    from attncli.render.figures.files import style_of, written
    from attncli.render.figures.of_document import figure

    assert asked.svg is not None
    style = style_of(asked.figure_style)
    drawing = figure(document, scale=asked.scale_colors, theme=style.theme, lang=asked.lang)
    assert drawing is not None  # the commands that call this have a shape
    data = written(drawing.svg(mm=style.mm, title=str(getattr(document, "text", ""))), asked.svg.suffix, style)
    with atomic_writer(asked.svg) as file:
        file.write(data)


def printed(block: Lines, how: View, environment: Environment) -> str:
    """A screen as text, with colour if the view says so."""
    from attncli.render.console import console

    deep = environment.variables.get("COLORTERM") in ("truecolor", "24bit") or not environment.stdout_is_terminal
    stream = StringIO()
    console(how, stream, deep=deep).print(block, crop=False)
    return stream.getvalue()
