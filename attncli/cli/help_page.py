"""Help pages in the language asked for: as Rich draws them for a terminal, elsewhere plain text, half as costly."""

from __future__ import annotations

import inspect
import re
from copy import copy
from typing import Any

from attncli.cli.completion import parts
from attncli.cli.environment import Environment

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


# Help pages in the language asked for: what they say of commands, options and groups, and the words of their frame.

BRACKETS = re.compile(r"\s*\[[^\[\]]*\]")
"""What help adds behind its sentence: `[default: 64]`, `[1 to 9]`."""
RANGE = re.compile(r"(above )?(-?[\d.,e+-]+) to ([\d.,e+-]+)")
TAIL = re.compile(rf"(?:{BRACKETS.pattern})+$")


def speak(command: Any, ctx: Any, formatter: Any) -> None:
    """Put all that a command's page says into the language asked for; English stays as it is written."""
    lang = getattr(ctx.obj, "lang", "en")
    if lang == "en":
        return
    from attncli.language import translate

    command.help = _paragraphs(command.help, lang)
    command.epilog = _paragraphs(command.epilog, lang)
    for parameter in command.get_params(ctx):
        if getattr(parameter, "help", None):
            parameter.help = option_help(parameter.help, lang)
        if getattr(parameter, "rich_help_panel", None):
            parameter.rich_help_panel = translate(parameter.rich_help_panel, lang)
    for subcommand in getattr(command, "commands", {}).values() if not hasattr(command, "listing") else ():
        subcommand.help = _paragraphs(subcommand.help, lang)
    make = ctx.make_formatter
    ctx.make_formatter = lambda: _translate_usage(make(), lang)  # the usage line has a formatter of its own
    _translate_usage(formatter, lang)


def _translate_usage(formatter: Any, lang: str) -> Any:
    """The formatter, with its headings and the word before the usage in this language."""
    from attncli.language import translate

    usage = formatter.write_usage
    # no blank, and a colon as wide as the characters before it
    formatter.write_heading = lambda text: formatter.write(
        f"{' ' * formatter.current_indent}{translate(text, lang)}：\n"
    )
    formatter.write_usage = lambda prog, args="": usage(prog, args, translate("Usage: ", lang))
    return formatter


def option_help(text: str, lang: str) -> str:
    """An option's sentence, and what stands in brackets behind it, each on its own."""
    if lang == "en":
        return text
    from attncli.language import translate

    match = TAIL.search(text)
    sentence, behind = (text, "") if match is None else (text[: match.start()], match[0])
    brackets = [f" [{_translate_bracket(bracket.strip()[1:-1], lang)}]" for bracket in BRACKETS.findall(behind)]
    return translate(sentence, lang) + "".join(brackets)


def _translate_bracket(text: str, lang: str) -> str:
    from attncli.language import translate

    if (ends := RANGE.fullmatch(text)) is not None:
        return translate("above {0} to {1}" if ends[1] else "from {0} to {1}", lang).format(ends[2], ends[3])
    return translate(text, lang)


def _paragraphs(text: str | None, lang: str) -> str | None:
    """The paragraphs of a command's help; those that are commands to type stay as they are."""
    if not text:
        return text
    from attncli.language import translate

    parts = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return "\n\n".join(translate(re.sub(r"\s+", " ", part).strip(), lang) for part in parts)
