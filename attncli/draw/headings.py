"""Titles, remarks, errors and notes around a part of a screen, in our own words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from attncli.draw.lines import Lines, flow, line, stack, wrap
from attncli.draw.safe import cells, safe, spell
from attncli.draw.view import View
from attncli.language import say, translate

FAINT = "bright_black"


def localize(text: str, view: View) -> str:
    """Our own text for this view: in its language, in ASCII where it must be. Always safe."""
    if view.lang != "en" and not view.ascii:
        from attncli.language import translate

        return spell(translate(text, view.lang), ascii=False)
    return spell(text, ascii=view.ascii)


def heading(title: str, note: str, view: View) -> Lines:
    """A part's title and what it shows; the note goes below when there is no room beside. Nothing without a title."""
    if not title:
        return Lines()
    name = localize(title, view)
    note_text = localize(note, view)
    if cells(name) + 2 + cells(note_text) <= view.width and note_text:
        return line((name, "bold"), ("  " + note_text, FAINT))
    return stack(
        (
            flow([(word, "bold") for word in name.split()], width=view.width, gap=" ", ascii=view.ascii),
            remark(note, view),
        )
    )


def sentences(texts: Iterable[str], view: View) -> Lines:
    """Sentences of an answer, each on a line of its own, not set back; "" is none."""
    return stack(remark(text, view, style="") for text in texts)


def remark(text: str, view: View, *, style: str = FAINT) -> Lines:
    """A sentence of ours, broken to the view's width at blanks and between ideographs. Nothing for ""."""
    rows = wrap(localize(text, view), view.width, ascii=view.ascii)
    return stack(line((row, style)) for row in rows)


# Errors and notes as a person reads them: in colour at a terminal, in the language asked for.

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
    from attncli.draw.lines import show

    show(error_lines([("error", "no token 'x' in the text"), ("try", "attn tokens lists them")], View(color=True)))
