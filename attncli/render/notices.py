"""Errors and notes as a person reads them: in colour at a terminal, in the language asked for."""

from __future__ import annotations

import re
from collections.abc import Sequence

from attncli.render.lines import Lines, line, stack
from attncli.render.phrases import say
from attncli.render.phrases.translation import translate
from attncli.render.prose import wrap
from attncli.render.safe import cells, safe
from attncli.render.view import View

STYLES = {"error": "bold red", "where": "bright_black", "expected": "bright_black", "try": "bold cyan"}
RANGE = re.compile(r"(above )?(-?[\d.,e+-]+) to ([\d.,e+-]+)")
VALUE = r"[\w.:/*=-]*[\w*]"
VALUES = re.compile(rf"{VALUE}((, or |, | or ){VALUE})*")


def error_lines(fields: Sequence[tuple[str, str]], view: View) -> Lines:
    """An error's lines: `error`, `where`, `expected`, `try`, each with what it says; those that say nothing are left
    out."""
    rows = []
    for name, value in fields:
        if value:
            text = value if name == "where" else _translate_value(value, view)
            rows.append(
                ((say(view, f"notice.{name}"), STYLES[name] if view.color else ""), (safe(text, ascii=view.ascii), ""))
            )
    return Lines(tuple(rows))


def _translate_value(text: str, view: View) -> str:
    """What an error says; values to type and the ends of a range stay as they are, only what joins them is told."""
    if view.lang == "en":
        return text
    if (ends := RANGE.fullmatch(text)) is not None:
        return say(view, "range.above" if ends[1] else "range", ends[2], ends[3])
    if VALUES.fullmatch(text):
        return re.sub(r",? or ", say(view, "list.or"), text).replace(", ", say(view, "list"))
    return translate(text, view.lang)


def note_line(message: str, view: View) -> Lines:
    """A note, set back, broken at blanks to the view's width; one with a path longer than that stays whole."""
    text = safe(translate(message, view.lang), ascii=view.ascii)
    is_unbreakable = max(map(cells, text.split()), default=0) > view.width
    rows = [text] if is_unbreakable else wrap(text, view.width, ascii=view.ascii)
    return stack(line((row, "bright_black" if view.color else "")) for row in rows)


if __name__ == "__main__":
    from attncli.render.lines import show

    show(error_lines([("error", "no token 'x' in the text"), ("try", "attn tokens lists them")], View(color=True)))
