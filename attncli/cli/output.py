"""From a document to the answer: JSON, tab-separated lines or a screen; and the figure and the page
beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import Selection
from attncli.cli import declarations, output_conflicts, request
from attncli.cli.declarations import (
    AttentionOptions,
    ComputeOptions,
    ModelOptions,
    OutputOptions,
    TextOptions,
)
from attncli.cli.environment import Environment
from attncli.cli.option import parse_size
from attncli.errors import LimitError, UsageError, refused_value
from attncli.language import choice, language_of, languages, listing, message

if TYPE_CHECKING:
    from attncli.documents import Document
    from attncli.draw.figures.drawing import Drawing, Style
    from attncli.draw.lines import Lines
    from attncli.draw.page import Bands
    from attncli.draw.view import GivenOptions, View
    from attncli.features.why.document import WhyDocument
    from attncli.inputs.token import Text
    from attncli.measure.run_record import Recording, RunRecord
    from attncli.models.model import Model

LINES = 10_000  # of a plain table, written at once
MOST_LINES = 200_000
"""Lines of a whole document on a screen: drawn in half a minute, 6,000 lines a second."""
COLUMNS = 10
"""Numbers of a wide table on one line."""
CARRIED = frozenset(
    (
        *TextOptions.__struct_fields__,
        *ModelOptions.__struct_fields__,
        *AttentionOptions.__struct_fields__,
        *ComputeOptions.__struct_fields__,
        "weigh",
    )
) - {"text", "lines", "layer", "head"}
"""The options that change what a text computes, by name: a command that goes on from a screen needs
them too."""
FIGURES = (".svg", ".png", ".pdf")
"""How files of figures end."""


def validate_options(
    options: OutputOptions,
    environment: Environment,
    screen: str = "",
    *,
    files: Mapping[str, Path | None] | None = None,
) -> View:
    """Check the output options before any work, and return the view: language, width, colours and
    parts of a screen for this caller. Raises UsageError, and AttnError for a file that cannot be
    written.

    screen: the name of the screen whose parts `--show` may name; "" for a command without one.
    files: the files of the command's own options, by the option.
    """
    files = {"--html": options.page, **(files or {})}
    output_conflicts.refuse_contradictions(
        options, environment, files=any((options.svg, options.table, *files.values()))
    )
    if options.page is not None:
        check_page_suffix(options.page)
    if options.svg is not None and options.svg.suffix.lower() not in FIGURES:
        raise refused_value("--figure", str(options.svg), "a file ending in .svg, .png or .pdf")
    _check_figure_options(options)
    if files.get("--html") is None and "html_budget" in environment.explicit_options:
        raise UsageError(
            "--html-budget is about a page, and none is asked for",
            expected="--html FILE as well",
        )
    parts = None  # those that the screen shows by itself
    if options.show is not None:
        parts = _parts_to_show(options.show, screen)
    if options.lang != "en" and options.ascii:
        raise UsageError(
            "--lang {lang} cannot be written with --ascii",
            expected="one or the other",
            lang=options.lang,
        )
    if language_of(environment.variables.get("ATTN_LANG", "")) not in ("", *languages()):
        raise refused_value("ATTN_LANG", environment.variables["ATTN_LANG"], choice(languages()))
    if options.quiet and options.verbose:
        raise UsageError("--quiet and --verbose contradict each other", expected="one of them")
    environment.quiet = options.quiet
    environment.verbose = options.verbose
    output_conflicts.check_files(options, environment, files)
    from attncli.draw.view import View

    # a file gets colours only where they are asked for
    may_have_color = options.file is None or options.color == "always"
    return View(
        width=environment.columns,
        color=may_have_color and environment.wants_color(options.color),
        ascii=options.ascii or environment.wants_ascii(),
        precision=options.precision,
        scale_colors=options.scale_colors,
        top=options.top,
        few="top" not in environment.explicit_options,  # the default of `--top` may be cut short
        show=parts,
        full=options.full,
        brief=options.brief,
        lang=environment.lang,
        height=environment.height,
        light=environment.light,
        colors=environment.colors,
        run_options=_run_options(environment),
    )


def _check_figure_options(options: OutputOptions) -> None:
    """Check the values of `--figure-style` and `--figure-parts`. Raises UsageError where one of
    them is given without `--figure`.
    """
    if options.svg is None:
        for name, value in (
            ("--figure-style", options.figure_style),
            ("--figure-parts", options.figure_parts),
        ):
            if value:
                raise UsageError(
                    "{option} is about a figure, and none is asked for",
                    expected="--figure FILE as well",
                    option=name,
                )
        return
    if options.figure_style:
        from attncli.draw.figures.drawing import style_of

        style_of(options.figure_style)
    if options.figure_parts:
        from attncli.draw.figures.figure_choice import figure_parts

        figure_parts(options.figure_parts)


def _run_options(environment: Environment) -> GivenOptions | None:
    """The options on the command line that change what the text computes (`CARRIED`): pairs of a
    name and its words. None for a command that runs no text."""
    if "mask" not in environment.subjects:  # which every command that runs a text has
        return None
    return tuple(
        (name, words) for name, words in environment.given_words.items() if name in CARRIED
    )


def _parts_to_show(show: str, screen: str) -> frozenset[str]:
    """The parts of a screen that the value of `--show` names; all of them for "all". Raises
    UsageError for a name that is no part of it.

    screen: the screen's name; "" for one without parts.
    """
    from attncli.documents import folder_of
    from attncli.draw.view import part_names, part_of_name

    parts: tuple[str, ...] = ()
    if screen:
        parts = part_names(screen, folder_of(screen))
    names = [name.strip() for name in show.split(",") if name.strip()]
    if not names:
        raise UsageError("--show names no parts", expected=listing((*parts, "all")))
    if names == ["all"]:
        return frozenset(parts)
    names = [part_of_name(name, parts) for name in names]
    for name in names:
        if name not in parts:
            from difflib import get_close_matches

            close = get_close_matches(name, parts, n=1)
            raise UsageError(
                "--show {wrong} is no part of this screen",
                expected=listing((*parts, "all")),
                hint=f"--show {close[0]}" if close else "",
                wrong=repr(name),
            )
    return frozenset(names)


def wants_all_stages(value: str | None, options: OutputOptions) -> bool:
    """Whether `--full` or `--stages all` asks for every stage in the JSON. Raises UsageError where
    --stages is given and no JSON is asked for.
    """
    if value is not None and not (options.json or options.ndjson):
        raise UsageError(
            "--stages all adds to the JSON, and no JSON was asked for",
            expected="--json or --ndjson",
        )
    return value is not None or (options.full and (options.json or options.ndjson))


def refuse_over(estimate: int, options: OutputOptions, hint: str) -> None:
    """Raise LimitError if a document of about `estimate` bytes is more than `--max-output` allows."""
    limit = parse_size(options.max_output, "--max-output")
    if estimate > limit:
        from attncli.draw.numbers import size_words

        raise LimitError(
            "this document would take about {estimate}, the limit is {limit}",
            expected="a smaller answer, or a higher --max-output",
            hint=hint,
            estimate=size_words(estimate),
            limit=size_words(limit),
        )


def write_documents(
    documents: Iterable[Document],
    options: OutputOptions,
    environment: Environment,
    view: View,
    *,
    several: bool = False,
    screen: Callable[[Any, View], Lines] | None = None,
    rows: Callable[[Any], Iterator[Sequence[object]]] | None = None,
) -> None:
    """Write the documents as JSON, as a table or as screens, as the options say, to standard output
    or `--output`; each as soon as it is there.

    One JSON document is the whole of `--json`; several need `--ndjson`. `--output -` is standard
    output. `--csv -` is the table there, in place of the screen. A table in a file is whole also
    where the reader of the answer has gone (BrokenPipeError).

    several: whether each document is one of many texts (`--lines`); a plain row then begins with
        its text's number.
    screen: what draws them in place of their own.
    rows: what makes their table, the names of its columns first, in place of their own.
    """
    with ExitStack() as files:
        write: Callable[[bytes], object] = environment.write
        if options.file is not None or options.table is not None:
            from attncli.inputs.files import atomic_writer

            if options.table is not None:
                table = files.enter_context(atomic_writer(options.table))
                documents = _write_table(documents, table, several, rows)
            if options.file is not None:
                write = files.enter_context(atomic_writer(options.file)).write
        # where the answer's reader has gone, the table in the file is completed before that is told
        closed_pipe: BrokenPipeError | None = None
        try:
            for piece in _encoded_pieces(documents, options, view, several, screen, rows):
                write(piece)
        except BrokenPipeError as error:
            closed_pipe = error
            if options.table is not None:
                for _ in documents:  # each is written to the table as it is taken
                    pass
    if closed_pipe is not None:
        raise closed_pipe


def _encoded_pieces(
    documents: Iterable[Document],
    options: OutputOptions,
    view: View,
    several: bool,
    screen: Callable[[Any, View], Lines] | None,
    rows: Callable[[Any], Iterator[Sequence[object]]] | None,
) -> Iterable[bytes]:
    """Yield the bytes of the answer piece by piece: JSON, lines, a table or screens, as the options
    say.

    documents: only one for `--json`.
    several: whether each document is one of many texts; a row then begins with its text's number,
        and a screen with a title that has it.
    screen: draws a document in place of its own screen; None for that.
    rows: makes a document's table in place of its own; None for that.
    """
    if options.json:
        from attncli.draw.encoding import json_pieces

        yield from json_pieces(next(iter(documents)))  # the only one
        return
    for place, document in enumerate(documents):
        if options.ndjson:
            from attncli.draw.encoding import ndjson_line

            yield ndjson_line(document)
        elif options.plain:
            from attncli.draw.encoding import plain

            yield from _table_pieces(document, place, several, plain, rows)
        elif options.is_table:
            from attncli.draw.encoding import comma_separated

            yield from _table_pieces(document, place, several, comma_separated, rows)
        else:
            from attncli.draw.lines import as_text
            from attncli.draw.screen_header import numbered_title, screen_of

            if view.full:
                _refuse_lines(document)
            draw = screen or screen_of(document.schema).screen
            screen_text = as_text(draw(document, view), view)
            if several:
                screen_text = as_text(numbered_title(place, document, view), view) + screen_text
            if place > 0:
                screen_text = f"\n{screen_text}"
            # names of files may hold halves of characters, which UTF-8 does not encode
            yield screen_text.encode("utf-8", "backslashreplace")


def _refuse_lines(document: Document) -> None:
    """Raise LimitError where a screen with all rows and columns of a document would have more than
    `MOST_LINES` lines.
    """
    from attncli.draw.screen_header import screen_of

    count_lines = screen_of(document.schema).count_lines or _lines_of
    lines = count_lines(document)
    if lines > MOST_LINES:
        what = message(
            "every row and column of this document is about {lines:,} lines", lines=lines
        )
        expected = message("at most {most_lines:,} lines", most_lines=MOST_LINES)
        raise LimitError(
            what, expected=expected, hint="no --full; --plain or --json give every number"
        )


def _lines_of(value: Any) -> int:
    """About how many lines all of a document, or of a value in it, takes on a screen: a line for each
    entry of a list and each row of an array, and one more for every ten numbers."""
    import numpy as np

    if isinstance(value, np.ndarray):
        return math.prod(value.shape[:-1]) + value.size // COLUMNS
    if isinstance(value, list | tuple):
        return len(value) + sum(map(_lines_of, value))
    if isinstance(value, dict):
        return sum(map(_lines_of, value.values()))
    # a part of a document is its fields together; a number or a text has none, and no line
    members = getattr(value, "__struct_fields__", ())
    return sum(_lines_of(getattr(value, name)) for name in members)


def _write_table(
    documents: Iterable[Document],
    table: BinaryIO,
    several: bool,
    rows: Callable[[Any], Iterator[Sequence[object]]] | None,
) -> Iterator[Document]:
    """Yield the documents, each after its table was written to the file of `--csv`.

    several: whether each document is one of many texts; a row then begins with its text's number.
    rows: makes a document's table in place of its own; None for that.
    """
    from attncli.draw.encoding import comma_separated

    for place, document in enumerate(documents):
        for piece in _table_pieces(document, place, several, comma_separated, rows):
            table.write(piece)
        yield document


def _table_pieces(
    document: Document,
    place: int,
    several: bool,
    encode_rows: Callable[[Iterable[Sequence[object]]], str],
    make_rows: Callable[[Any], Iterator[Sequence[object]]] | None,
) -> Iterator[bytes]:
    """A document's table in pieces; the first line names the columns, once for all documents.

    place: which document it is, from 0.
    several: whether a first column tells documents apart.
    encode_rows: writes rows as lines.
    make_rows: makes the table in place of the document's own.
    """
    from attncli.draw.screen_header import screen_of

    rows = iter((make_rows or screen_of(document.schema).rows)(document))
    names = next(rows)
    if several:
        names = ("text", *names)
        rows = ((place, *row) for row in rows)
    if place == 0:
        rows = chain([names], rows)
    while lines := encode_rows(islice(rows, LINES)):
        yield lines.encode()


def write_figure(
    documents: Sequence[Document], options: OutputOptions, environment: Environment, view: View
) -> None:
    """Draw documents to the file that `--figure` names: as the figure of the document's kind where
    it has one, else as a picture of the screen."""
    assert options.svg is not None
    from attncli.draw.figures import figure, refuse_choice
    from attncli.draw.figures.drawing import LIGHT, draw_screen, style_of
    from attncli.draw.lines import stack_spaced
    from attncli.draw.screen_header import screen_of

    style = style_of(options.figure_style, options.figure_parts)
    drawing = None
    if len(documents) != 1:
        # several documents are a picture of their screens, which has no parts to choose from
        refuse_choice(style.choice)
    else:
        drawing = figure(
            documents[0],
            scale=options.scale_colors,
            theme=style.theme,
            lang=view.lang,
            room=style.room,
            choice=style.choice,
        )
    if drawing is None:
        figure_view = replace(
            view, color=True, light=style.theme is LIGHT, width=style.cells(view.width)
        )
        screens = [
            screen_of(document.schema).screen(document, figure_view) for document in documents
        ]
        drawing = draw_screen(stack_spaced(*screens), style.theme)
    _write_drawing(drawing, documents[0], style, options.svg, view.lang, environment)


def _write_drawing(
    drawing: Drawing,
    document: Document,
    style: Style,
    file: Path,
    lang: str,
    environment: Environment,
) -> None:
    """Write a drawing to a file: .pdf holds all of its pages, any other kind has one file a page.
    The title and the description of the document are written for readers who cannot see it. Notes
    say which files hold the pages, and which letters no installed font has."""
    from attncli.draw.figures import figure_files, title_and_description
    from attncli.draw.figures.missing_letters import missing_letters_note

    title, description = title_and_description(document, lang)
    files = figure_files(drawing, style, file, title=title, description=description)
    for name, data in files.items():
        write_pieces(name, [data])
    if len(files) > 1:
        environment.note(
            message(
                "the figure has {count} pages: {first} to {last}",
                count=len(files),
                first=next(iter(files)).name,
                last=next(reversed(files)).name,
            )
        )
    missing = missing_letters_note(drawing.svg(), file.suffix)
    if missing is not None:
        environment.note(missing)


# Answers of commands whose figure may be their screen.


def write_with_figure(
    documents: Iterable[Document],
    options: OutputOptions,
    environment: Environment,
    view: View,
    *,
    several: bool = False,
) -> None:
    """Write the figure of the documents to `--figure` and the page of the only document to
    `--html`, where these are given; then answer with the documents as `write_documents` does. For
    commands whose page shows no heads.
    """
    if options.page is not None:
        from attncli.draw.page import any_page

        documents = list(documents)
        (document,) = documents
        write_pieces(options.page, any_page(document, lang=view.lang, precision=view.precision))
    if options.svg is not None:
        documents = list(documents)
        write_figure(documents, options, environment, view)
    write_documents(documents, options, environment, view, several=several)


# Long work of several runs, of which those that are done are kept.


class KeptRuns:
    """Progress of long work that Ctrl-C may end: how many runs of how many are done, and the
    documents to show then, which the work adds.
    """

    def __init__(self) -> None:
        """Begin with no runs done and nothing to show."""
        self.done = 0
        self.runs = 0
        self.documents: list[Document] = []

    def count(self, done: int, runs: int) -> None:
        """Note how many of how many runs are done."""
        self.done = done
        self.runs = runs


@contextmanager
def keeping_runs(
    options: OutputOptions, environment: Environment, view: View
) -> Iterator[KeptRuns]:
    """Context manager for long work, which counts its runs in the `KeptRuns` that it yields: Ctrl-C
    draws the documents that it holds by then, and notes that the same command goes on from there.
    Only screens are shown in part: JSON, tables and files are whole or not there."""
    kept_runs = KeptRuns()
    try:
        yield kept_runs
    except KeyboardInterrupt:
        is_for_programs = options.json or options.ndjson or options.plain or options.is_table
        if not is_for_programs and options.file is None:
            screen_alone = replace(options, csv=None)
            write_documents(kept_runs.documents, screen_alone, environment, view)
        if kept_runs.done:
            kept = message(
                "{count} of {runs} runs are done and kept: the same command goes on from there",
                count=kept_runs.done,
                runs=kept_runs.runs,
            )
            environment.note(kept)
        raise


# `--html`: the answer as one offline page, beside what is printed.

PAGE_SUFFIXES = (".html", ".htm")
PAGE_BUDGET = "--html-budget"
"""The option that lets a page hold more, as the page names it."""


HTML_BUDGET = "16MB"


class PageOptions(Struct, frozen=True):
    """Whether a page is written, and how large it may be."""

    html: Annotated[Path | None, declarations.HTML] = None
    html_budget: Annotated[str, declarations.HTML_BUDGET] = HTML_BUDGET

    @property
    def budget(self) -> int:
        """Bytes of data in the page, at most."""
        return parse_size(self.html_budget, "--html-budget")


def validate_page(
    page: PageOptions, *, lines: bool = False, why: Sequence[str] | None = None, words: bool = False
) -> None:
    """Raise UsageError for options of a page that contradict each other or stand without `--html`,
    before any work. Whether the file can be written is checked by `validate_options`.

    lines: whether every line is a text of its own.
    why: the heads that the page explains, if any.
    words: whether tokens are merged.
    """
    if why and page.html is None:
        raise UsageError(
            "--why is about a page, and none is asked for", expected="--html FILE as well"
        )
    if why and words:
        raise UsageError(
            "--why takes links between tokens apart, and --words merges them",
            expected="one of them",
        )
    if page.html is None:
        return
    check_page_suffix(page.html)
    if lines:
        raise UsageError(
            "--html is one page of one text, and --lines gives several", expected="one or the other"
        )


def check_page_suffix(file: Path) -> None:
    """Raise UsageError for a file of a page that does not end as one."""
    if file.suffix.lower() not in PAGE_SUFFIXES:
        raise refused_value("--html", str(file), "a file ending in .html")


def page_recording(
    page: PageOptions, model: Model, text: Text, heads: Selection, *, words: bool = False
) -> Recording | None:
    """A recorder to pass to the command's own run, which keeps that run's heads for the page; None
    where no page is asked for, or where the page needs a run of its own.

    words: whether tokens are merged into words.
    """
    if page.html is None:
        return None
    from attncli.measure.run_record import Recording, recordable

    if recordable(model, words=words):
        return Recording(model, request.tokens_of(model, text), heads)
    return None


def page_record(
    model: Model,
    text: Text,
    layers: Selection,
    heads: Selection,
    *,
    words: bool = False,
    recording_of_run: Recording | None,
) -> RunRecord:
    """The heads of a run as its page shows them: from `recording_of_run`, or from a run of its own
    where that is None.

    layers, heads, words: which are run, and whether tokens are merged into words, for a run of its
        own; a recording has chosen them already.
    """
    from attncli.measure.run_record import recorded_run, run_record

    if recording_of_run is not None:
        return recorded_run(model, text.text, recording_of_run)
    return run_record(
        model, text.text, request.tokens_of(model, text), layers=layers, heads=heads, words=words
    )


def page_reasons(
    environment: Environment,
    model: Model,
    text: Text,
    heads: Sequence[str] | None,
    compute: ComputeOptions,
) -> list[WhyDocument]:
    """Explain, for each head such as L5H11, why it looks where it does (as `attn why` does), for
    the strongest link of each token. A note tells how many bytes the explanations take in the page.
    Raises the errors of `attn why`, and those of heads that do not exist."""
    if not heads:
        return []
    from attncli.cli.progress import progress
    from attncli.draw.numbers import size_words
    from attncli.features.why.compute import why_links
    from attncli.features.why.page import why_size

    names = request.comma_parts(heads)
    pairs = request.head_pairs(model.spec, names, layers=None, option="--why")
    memory = request.memory_limit(compute).bytes
    with progress(environment, "taking scores apart") as on_progress:
        documents = why_links(
            model,
            text.text,
            request.tokens_of(model, text),
            pairs,
            memory=memory,
            progress=on_progress,
        )
    environment.note(
        message(
            "the parts of {count} links take {size} of the page",
            count=len(documents),
            size=size_words(why_size(documents)),
        )
    )
    return documents


def write_document_page(
    model: Model,
    text: Text,
    document: Document,
    page_options: PageOptions,
    lang: str,
    *,
    alone: bool = False,
    reasons: Sequence[WhyDocument] = (),
) -> None:
    """Write the page of what a document says of a text, with every head of a run of the text.

    alone: whether the page shows only what the document holds, so that the text is not run again.
    reasons: why heads look where they do, as `page_reasons` returns them.
    """
    from attncli.draw.page import any_page
    from attncli.features.why.page import why_entries
    from attncli.measure.run_record import run_record

    record = None
    if not alone:
        record = run_record(model, text.text, request.tokens_of(model, text))
    pieces = any_page(
        document,
        record=record,
        lang=lang,
        budget=page_options.budget,
        option=PAGE_BUDGET,
        reasons=why_entries(reasons),
    )
    write_page(page_options, pieces)


def write_run_page(
    page_options: PageOptions,
    document: Document,
    record: RunRecord,
    lang: str,
    *,
    title: str = "",
    start: Mapping[str, str] | None = None,
    reasons: Sequence[WhyDocument] = (),
    bands: Bands | None = None,
) -> None:
    """Write the page of one run, with what its document answers, to the file that `--html` names.

    record: the heads of the run.
    title: the page's title; "" for the text.
    start: what is shown first, as of `Page.start`.
    reasons: why heads look where they do, as `page_reasons` returns them.
    bands: runs of tokens with a name; None for the document's regions.
    """
    from attncli.draw.page import Page, answer_of, bands_of, page_bytes
    from attncli.features.why.page import why_entries

    content = Page(
        title or record.text,
        [record],
        start=start or {},
        lang=lang,
        budget=page_options.budget,
        option=PAGE_BUDGET,
        why=why_entries(reasons),
        answer=answer_of(document),
        bands=bands_of(document) if bands is None else bands,
    )
    write_page(page_options, page_bytes(content))


def write_page(page_options: PageOptions, pieces: Iterable[bytes]) -> None:
    """Write the pieces of a page to the file that `--html` names."""
    assert page_options.html is not None
    write_pieces(page_options.html, pieces)


def write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Write pieces to a file, whole or not at all."""
    from attncli.inputs.files import atomic_writer

    with atomic_writer(path) as file:
        for piece in pieces:
            file.write(piece)


def temporary_page() -> Path:
    """A file for a page that is only to be looked at now, in a folder of its own."""
    from tempfile import mkdtemp

    return Path(mkdtemp(prefix="attn-")) / "page.html"


def browse_page(environment: Environment, page: PageOptions) -> None:
    """Open the page in the browser; where none can be opened, a note says where the file is."""
    import webbrowser

    assert page.html is not None
    if not webbrowser.open(page.html.absolute().as_uri()):
        environment.note(
            message(
                "no browser could be opened; the page is {absolute}", absolute=page.html.absolute()
            )
        )
