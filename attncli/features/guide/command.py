"""`attn guide`: the guide in the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from attncli.cli import completion, declarations
from attncli.cli.declarations import OutputOptions
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import DATA, DRAWING, argument, delivery_option, meaning, only, redeclare
from attncli.cli.output import validate_options
from attncli.cli.progress import wait_for_key
from attncli.errors import InputError, UsageError
from attncli.language import listing, message

if TYPE_CHECKING:
    from attncli.draw.lines import Line, Lines
    from attncli.draw.view import View
    from attncli.language.guide.search import Section


def guide(
    ctx: typer.Context,
    output: Annotated[
        OutputOptions, only("color", "ascii", "lang", "quiet", "debug"), meaning(color=DRAWING)
    ],
    page: Annotated[
        str | None,
        argument("A page, or a word to explain; none lists them.", "PAGE", completion.pages),
    ] = None,
    search: Annotated[
        str | None,
        delivery_option(metavar="WORD", help="The sections that have this word, best first."),
    ] = None,
    markdown: Annotated[bool, delivery_option(help="The page as it is written.")] = False,
    notebook: Annotated[
        Path | None,
        delivery_option(
            metavar="DIR",
            help="Write the page's sections as notebooks into a folder, and show nothing.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        redeclare(
            declarations.HTML,
            help="Write the page as one offline page for a browser or a printer, and show nothing.",
        ),
    ] = None,
    pager: Annotated[
        bool | None,
        delivery_option(
            "--pager/--no-pager",
            help="Whether a page goes through the pager that PAGER names. [default: at a terminal]",
        ),
    ] = None,
) -> None:
    """The pages of the guide: for learners, engineers, researchers; masks, weight files, JSON.

    attn guide learners

    attn guide sink

    attn guide --search softmax

    attn guide lessons --html lessons.html
    """
    environment: Environment = ctx.obj
    view = validate_options(output, environment, files={"--html": html})
    from attncli.draw.lines import as_text
    from attncli.draw.lines import markdown as draw_markdown
    from attncli.language import guide as guide_pages

    _check_screen_options(environment, output, markdown, notebook, html)
    _check_options(page, search, markdown)
    asked_lang = view.lang
    text = None  # the Markdown of the page or of the glossary's word, if there is one
    if page is not None:
        view = _in_language_of(page, view, entries=True)
        text = _text_of(page, view.lang)
    elif search is not None:
        view = _in_language_of(search, view, entries=False)
    if notebook is not None or html is not None:
        _write_course(page, text, notebook, html, view.lang, environment)
        if not markdown:
            return
    if text is not None and markdown:
        environment.write(text.encode())
        return
    if text is not None:
        lines = draw_markdown(text, view)
    elif page is not None:  # a word that the glossary does not have
        lines = _search_for_page(page, view, markdown, asked_lang)
    elif search is not None:
        lines = _search(search, view, asked_lang)
    else:
        lines = contents(guide_pages.titles(view.lang), view)
    # lists of sections and of pages are short: only a page goes through a pager
    if text is not None and _show_in_pager(as_text(lines, view), environment, pager):
        return
    screens: Iterable[Lines] = _split_into_screens(lines, view, environment)
    if pager is False:
        screens = (lines,)  # the whole at once
    for index, screen in enumerate(screens):
        if index > 0 and wait_for_key(message("— any key for more, q ends —"), view, environment):
            return
        environment.write(as_text(screen, view).encode("utf-8", "backslashreplace"))


def _write_course(
    page: str | None,
    text: str | None,
    notebook: Path | None,
    html: Path | None,
    lang: str,
    environment: Environment,
) -> None:
    """Write a page of the guide as notebooks, as a page for a browser, or both, and note the files.
    Raises UsageError where no page is named, and for notebooks of a word of the glossary.

    page: its name as given, None for none.
    text: its Markdown, None where there is no such page or word.
    notebook: the folder for notebooks, None for none.
    html: the file of the page for a browser, None for none.
    """
    from attncli.features.guide.course import html_page, write_notebooks
    from attncli.inputs.files import atomic_writer
    from attncli.language import guide as guide_pages

    if page is not None and text is None:
        raise _no_page(page, lang)
    if notebook is not None and html is not None and notebook.resolve() == html.resolve():
        raise UsageError(
            "{first_name} and {name} are the same file",
            expected="a folder for notebooks, and a file for the page",
            first_name="--html",
            name="--notebook",
        )
    option = "--html"  # that an error names
    if notebook is not None:
        option = "--notebook"
    # a word of the glossary has a text for a browser, but no sections with commands
    if page is None or text is None or (notebook is not None and page not in guide_pages.PAGES):
        raise UsageError(
            "{option} is about a page, and none is named",
            expected=f"attn guide PAGE {option}",
            option=option,
        )
    files = []
    if notebook is not None:
        files = write_notebooks(page, lang, notebook)
    if html is not None:
        with atomic_writer(html) as stream:
            stream.write(html_page(text, lang).encode())
        files.append(html)
    environment.note(message("written: {files}", files=listing([str(path) for path in files])))


def _check_screen_options(
    environment: Environment,
    output: OutputOptions,
    markdown: bool,
    notebook: Path | None,
    html: Path | None,
) -> None:
    """Raise UsageError for an option about the screen, such as `--ascii`, beside one with which
    nothing is drawn there."""
    silent = {"--markdown": markdown, "--notebook": notebook, "--html": html}
    options = [name for name, value in silent.items() if value]
    if not options:
        return
    for screen_option in environment.options_without(DATA):
        if screen_option == "--color" and output.color == "never":
            continue  # which asks for what is done anyway
        what = message(
            "{option} is about the screen, and {format} draws none",
            option=screen_option,
            format=options[0],
        )
        raise UsageError(what, expected="one or the other")


def _check_options(page: str | None, search: str | None, markdown: bool) -> None:
    """Raise UsageError for options that contradict each other."""
    if search is not None and (page is not None or markdown):
        raise UsageError(
            "--search looks through all pages, and lists sections",
            expected="no page and no --markdown",
        )
    if markdown and page is None:
        raise UsageError(
            "--markdown is about a page, and none is named", expected="attn guide PAGE --markdown"
        )


def _text_of(name: str, lang: str) -> str | None:
    """The Markdown of a page, or of one word of the glossary; None for neither."""
    from attncli.language import guide as guide_pages

    if name in guide_pages.PAGES:
        return guide_pages.page(name, lang)
    return guide_pages.word_entry(name, lang)


def _in_language_of(word: str, view: View, *, entries: bool) -> View:
    """The view in the language whose guide has a word, its own before others: so a word of another
    language is answered in that. Unchanged where none has it.

    entries: whether a language in which the word is a page or an entry of the glossary comes before
        those whose pages mention it.
    """
    from attncli.language import languages
    from attncli.language.guide.search import sections_with

    all_languages = dict.fromkeys((view.lang, *languages()))  # the view's first, each once
    with_word = []
    if entries:
        with_word = [lang for lang in all_languages if _text_of(word, lang) is not None]
    if not with_word:
        with_word = [lang for lang in all_languages if sections_with(word, lang)]
    if with_word:
        return replace(view, lang=with_word[0])
    return view


def _no_page(name: str, lang: str) -> UsageError:
    """Return, not raise, the UsageError for what is neither a page nor a word of the guide."""
    from difflib import get_close_matches

    from attncli.language import guide as guide_pages

    entries = guide_pages.word_entries(lang)
    word = name.strip().lower()
    near = get_close_matches(word, [*guide_pages.PAGES, *entries], n=1, cutoff=0.6)
    if near:
        hint = f"attn guide {shlex.quote(near[0])}"
    else:
        hint = "attn guide"
    return UsageError(
        "the guide has no page and no word {page}",
        expected="a page that attn guide lists, or a word of attn guide words",
        hint=hint,
        page=repr(name),
    )


PAGER = ("less", "-R")
"""The pager where `PAGER` names none; without it a page is shown screen by screen."""
LESS = "FRX"
"""What `less` is told where `LESS` tells it nothing: to end at once with a page that fits, to let
colours through, and to leave the page on the screen. Source: git, which does the same."""


def _show_in_pager(text: str, environment: Environment, is_wanted: bool | None) -> bool:
    """Show a page in the pager, if standard output is a terminal and a pager can be started;
    returns whether it was shown. Raises UsageError where `--pager` asks for one and there is none.

    is_wanted: True for `--pager`, False for `--no-pager`, None where neither is given.
    """
    import shutil
    import signal
    import subprocess

    at_terminal = environment.stdout_is_terminal and environment.keys is not None
    if is_wanted is False or (is_wanted is None and not at_terminal):
        return False
    if not environment.stdout_is_terminal:
        raise UsageError(
            "--pager is about a terminal, and the answer goes elsewhere", expected="no --pager"
        )

    # which program: `cat` would show a page no better than we do
    variable = environment.variables.get("PAGER")
    command = list(PAGER)
    if variable is not None:
        try:
            command = shlex.split(variable)
        except ValueError:  # a quotation mark without its second one
            command = []
    path = environment.variables.get("PATH")
    if not command or command == ["cat"] or shutil.which(command[0], path=path) is None:
        if is_wanted:
            what = message("there is no pager {pager}", pager=repr(variable or PAGER[0]))
            raise UsageError(what, expected="PAGER naming a program that is there, such as less")
        return False

    variables = {**environment.variables, "LESS": environment.variables.get("LESS", LESS)}
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the pager's while it runs
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=variables)
        with suppress(BrokenPipeError):  # the reader left before the end of the page
            process.communicate(text.encode("utf-8", "backslashreplace"))
        process.wait()
    except OSError:  # the file of that name is no program
        return False
    finally:
        signal.signal(signal.SIGINT, before)
    return True


def _split_into_screens(lines: Lines, view: View, environment: Environment) -> Iterator[Lines]:
    """Yield a page in parts that one screen holds, with a line to spare; the whole page at once
    where nobody sits at a terminal to press a key for the next part.
    """
    from attncli.draw.lines import Lines
    from attncli.draw.safe import cells

    height = environment.height
    if environment.keys is None or not environment.stdout_is_terminal or height is None:
        yield lines
        return
    rows: list[Line] = []
    room = height - 1
    for row in lines.rows:
        # a long command goes on in the next lines of the terminal; the division is rounded up
        line_count = max(-(-sum(cells(text) for text, _ in row) // view.width), 1)
        if rows and line_count > room:
            yield Lines(tuple(rows))
            rows = []
            room = height - 1
        rows.append(row)
        room -= line_count
    yield Lines(tuple(rows))


guide_app = command_app(guide, essentials="--search --markdown --pager --lang --color")


MOST_SECTIONS = 12
"""Sections that a search shows: what has a word more rarely says little about it."""


def _search(word: str, view: View, asked_lang: str) -> Lines:
    """The screen of `--search`: the sections of the guide in which a word stands. Raises InputError
    where it stands in none."""
    from attncli.language.guide.search import sections_with

    sections = sections_with(word, view.lang)
    if sections:
        return search_results(word, sections, view, asked_lang)
    raise InputError(
        "no page of the guide has {word}",
        expected="another word for it; the glossary is attn guide words",
        hint="attn guide",
        word=repr(word),
    )


def _search_for_page(name: str, view: View, markdown: bool, asked_lang: str) -> Lines:
    """The screen for a name that is neither a page nor a word of the glossary: the sections in
    which it stands. Raises UsageError where it stands in none, and with `--markdown`.
    """
    from attncli.language.guide.search import sections_with

    sections = sections_with(name, view.lang)
    if markdown or not sections:
        raise _no_page(name, view.lang)
    return search_results(name, sections, view, asked_lang)


# The screen of `attn guide --search WORD`.


def search_results(word: str, sections: Sequence[Section], view: View, asked_lang: str) -> Lines:
    """The screen of a search: the page, heading and first line of each section that has the word.

    Args:
        word: What was looked for.
        sections: Those that have it, best first.
        view: How it is drawn, in the language of the pages.
        asked_lang: The language in which commands show pages.
    """
    from attncli.draw.lines import remark, stack
    from attncli.draw.safe import cut
    from attncli.draw.tables import table
    from attncli.draw.token_names import quote_text
    from attncli.language import say

    shown = sections[:MOST_SECTIONS]
    # cells for the second column: 4 are between and beside the columns; 20 on the narrowest screens
    room = max(view.width - max(len(section.name) for section in shown) - 4, 20)
    rows = []
    for section in shown:
        rows.append([section.name, cut(section.heading, room, ascii=view.ascii)])
        rows.append(["", _excerpt(section.line, word, room, view)])
    left_out = len(sections) - len(shown)
    title = say(view, "where the guide has {word}", word=quote_text(word, view))
    # the pages may be of another language than the one that screens are in
    shows = message("attn guide PAGE shows a page.")
    if view.lang != asked_lang:
        shows = message("attn guide PAGE --lang {lang} shows a page.", lang=view.lang)
    remarks = [remark(shows, view)]
    if left_out:
        remarks.insert(
            0, remark(message("more sections that have it: {count}", count=left_out), view)
        )
    return stack(table(["", ""], rows, view, title=title, faint=[0]), *remarks)


# The screen of bare `attn guide`: the pages by name.


def contents(titles: Mapping[str, str], view: View) -> Lines:
    """The screen of bare `attn guide`: the name and the title of every page."""
    from attncli.draw.lines import remark, stack
    from attncli.draw.tables import table

    rows = [[name, title] for name, title in titles.items()]
    return stack(
        table(["", ""], rows, view, title="the guide"),
        remark("attn guide PAGE shows a page; --markdown prints it as it is written.", view),
        remark("attn guide WORD tells what a word means, such as attn guide sink.", view),
        remark("attn guide --search WORD lists the sections that have it.", view),
    )


BEFORE = 30
"""Cells before a word that stay where the beginning of its line is cut off."""


def _excerpt(line: str, word: str, room: int, view: View) -> str:
    """As much of a line as fits `room` cells, with the word in it; its beginning is cut off where
    the word stands too far behind."""
    from attncli.draw.safe import cells, cut

    start = line.casefold().find(word.casefold())
    if start < 0 or cells(line[: start + len(word)]) < room:
        return cut(line, room, ascii=view.ascii)
    ellipsis = "…"
    if view.ascii:
        ellipsis = "..."
    before = line[:start][-BEFORE:]
    # from a whole word on, where there are blanks
    before = before.partition(" ")[2] or before
    return cut(f"{ellipsis}{before}{line[start:]}", room, ascii=view.ascii)
