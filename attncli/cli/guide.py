"""`attn guide`: the pages of the guide, in the terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from attncli.cli import completion, delivery
from attncli.cli.options import OUTPUT, OutputOptions, command_app, only, option
from attncli.cli.output import Environment
from attncli.errors import UsageError


def guide(
    ctx: typer.Context,
    output: Annotated[OutputOptions, only("color", "ascii", "lang", "quiet", "debug")],
    page: Annotated[
        str | None,
        typer.Argument(
            help="A page; none lists them.",
            metavar="PAGE",
            show_default=False,
            autocompletion=completion.offer(completion.pages),
        ),
    ] = None,
    markdown: Annotated[bool, option("--markdown", help="The page as it is written.", panel=OUTPUT)] = False,
) -> None:
    """The pages of the guide: for learners, engineers, researchers; masks, weight files, JSON.

    attn guide learners
    """
    environment: Environment = ctx.obj
    delivery.check(output, environment)
    how = delivery.view(output, environment)
    from attncli import guide as room
    from attncli.render.markdown import markdown as drawn
    from attncli.render.screens.guide import contents

    if markdown and page is None:
        raise UsageError("--markdown is about a page, and none is named", expected="attn guide PAGE --markdown")
    text = None if page is None else room.page(page, how.lang)
    if text is not None and markdown:
        environment.write(text.encode())
        return
    lines = contents(room.titles(how.lang), how) if text is None else drawn(text, how)
    environment.write(delivery.printed(lines, how, environment).encode("utf-8", "backslashreplace"))


app = command_app(guide)
