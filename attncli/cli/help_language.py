"""Help pages in the language asked for: what they say of commands, options and groups, and the words of their frame."""

from __future__ import annotations

import inspect
import re
from typing import Any

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
