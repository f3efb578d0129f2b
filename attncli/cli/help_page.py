"""A page of help as Rich draws it, for a terminal; elsewhere it is plain text, which costs half the start."""

from __future__ import annotations

from typing import Any

from attncli.cli.output import Environment


def drawn(command: Any, ctx: Any) -> bool:
    """Draw the page of a command, or of a group, if it goes to a terminal that shows more than ASCII; whether it
    did."""
    environment: Environment | None = ctx.obj
    if environment is None or not environment.stdout_is_terminal or environment.wants_ascii():
        return False
    if environment.variables.get("TERM") == "dumb":
        return False
    from rich.markup import escape
    from typer import rich_utils

    rich_utils.MAX_WIDTH = environment.columns
    rich_utils.FORCE_TERMINAL = True
    deep = environment.variables.get("COLORTERM") in ("truecolor", "24bit")
    rich_utils.COLOR_SYSTEM = ("truecolor" if deep else "256") if environment.wants_color("auto") else None
    for one in (command, *command.params):  # "[default: 64]" is meant as it stands
        one.help = escape(one.help) if getattr(one, "help", None) else None
    rich_utils.rich_format_help(obj=command, ctx=ctx, markup_mode="rich")
    return True
