"""A page of help as Rich draws it, for a terminal; elsewhere it is plain text, which costs half the start."""

from __future__ import annotations

from copy import copy
from typing import Any

from attncli.cli.completion import parts
from attncli.cli.environment import Environment
from attncli.cli.help_language import option_help, speak

FRAME = {
    "ARGUMENTS_PANEL_TITLE": "Arguments",
    "OPTIONS_PANEL_TITLE": "Options",
    "COMMANDS_PANEL_TITLE": "Commands",
    "REQUIRED_LONG_STRING": "[required]",
}
"""What Typer calls the words that frame a page, and how they are in English."""


def draw_page(command: Any, ctx: Any, formatter: Any) -> bool:
    """Draw the page of a command, or of a group, if it goes to a terminal that shows more than ASCII; whether it
    did. In either case the page speaks the language asked for."""
    speak(command, ctx, formatter)
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
    for name in ("ARGUMENTS_PANEL_TITLE", "OPTIONS_PANEL_TITLE", "COMMANDS_PANEL_TITLE", "REQUIRED_LONG_STRING"):
        setattr(rich_utils, name, option_help(FRAME[name], environment.lang))
    rich_utils.DEFAULT_STRING = option_help(" [default: {}]", environment.lang).strip()
    for part in (command, *command.params):  # "[default: 64]" is meant as it stands
        part.help = escape(part.help) if getattr(part, "help", None) else None
        if getattr(part, "param_type_name", "") == "argument":
            part.type = _nameless(part.type)
        elif part_list := parts_listed(part, ctx):
            part.help += escape(part_list)
    rich_utils.rich_format_help(obj=command, ctx=ctx, markup_mode="rich")
    return True


def parts_listed(parameter: Any, ctx: Any) -> str:
    """What `--show` takes, which is each command's own, to be said behind its help; nothing for other options."""
    part_names = parts(ctx, "") if parameter.name == "show" else []
    return f" [{', '.join(part_names)}]" if part_names else ""


def _nameless(kind: Any) -> Any:
    """A type that is not told beside its argument, whose name says enough."""
    nameless = copy(kind)
    nameless.get_metavar = lambda param, ctx: ""
    return nameless
