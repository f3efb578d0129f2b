"""`attn guide`: the guide in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import completion
from attncli.cli.environment import Environment
from attncli.cli.options import DATA, DELIVERY, DRAWING, OUTPUT, OutputOptions, command_app, meaning, only, option
from attncli.cli.output import render_text, validate_options
from attncli.cli.progress import wait_for_key
from attncli.errors import UsageError
from attncli.language import listing, message, say

if TYPE_CHECKING:
    from attncli.draw.lines import Line, Lines
    from attncli.draw.view import View


def guide(
    ctx: typer.Context,
    output: Annotated[OutputOptions, only("color", "ascii", "lang", "quiet", "debug"), meaning(color=DRAWING)],
    page: Annotated[
        str | None,
        typer.Argument(
            help="A page; none lists them.",
            metavar="PAGE",
            show_default=False,
            autocompletion=completion.offer(completion.pages),
        ),
    ] = None,
    markdown: Annotated[
        bool, option("--markdown", help="The page as it is written.", panel=OUTPUT, about=DELIVERY)
    ] = False,
) -> None:
    """The pages of the guide: for learners, engineers, researchers; masks, weight files, JSON.

    attn guide learners
    """
    environment: Environment = ctx.obj
    view = validate_options(output, environment)
    from attncli.draw.lines import markdown as draw_markdown
    from attncli.language import guide as room

    for screen_option in environment.options_without(DATA) if markdown and output.color != "never" else ():
        raise UsageError(
            "{screen_option} is about the screen, and --markdown draws none",
            expected="one or the other",
            screen_option=screen_option,
        )
    if markdown and page is None:
        raise UsageError("--markdown is about a page, and none is named", expected="attn guide PAGE --markdown")
    if page is not None and page not in room.PAGES:
        from difflib import get_close_matches

        near = get_close_matches(page, room.PAGES, 1, 0.5)
        hint = f"attn guide {near[0]}" if near else "attn guide"
        raise UsageError(
            "there is no page {page} in the guide", expected=listing(room.PAGES), hint=hint, page=repr(page)
        )
    text = None if page is None else room.page(page, view.lang)
    if text is not None and markdown:
        environment.write(text.encode())
        return
    lines = contents(room.titles(view.lang), view) if text is None else draw_markdown(text, view)
    for index, screen in enumerate(_screens(lines, view, environment)):
        if index and wait_for_key(message("— any key for more, q ends —"), view, environment):
            return
        environment.write(render_text(screen, view, environment).encode("utf-8", "backslashreplace"))


def _screens(lines: Lines, view: View, environment: Environment) -> Iterator[Lines]:
    """A page cut into what one screen holds, with a line to spare, where someone at a terminal turns it; else whole."""
    from attncli.draw.lines import Lines
    from attncli.draw.safe import cells

    height = environment.height
    if environment.keys is None or not environment.stdout_is_terminal or height is None:
        yield lines
        return
    rows: list[Line] = []
    room = height - 1
    for row in lines.rows:
        takes = max(-(-sum(cells(text) for text, _ in row) // view.width), 1)  # a long command goes on below
        if rows and takes > room:
            yield Lines(tuple(rows))
            rows, room = [], height - 1
        rows.append(row)
        room -= takes
    yield Lines(tuple(rows))


guide_app = command_app(
    guide,
    essentials=(
        "--markdown",
        "--lang",
        "--color",
    ),
)


# The screen of bare `attn guide`: the pages by name.


def contents(titles: Mapping[str, str], view: View) -> Lines:
    """Every page's name and title."""
    from attncli.draw.lines import remark, stack
    from attncli.draw.tables import table

    rows = [[name, title] for name, title in titles.items()]
    return stack(
        (
            table(["", ""], rows, view, title=say(view, "the guide")),
            remark(say(view, "attn guide PAGE shows a page; --markdown prints it as it is written."), view),
        )
    )
