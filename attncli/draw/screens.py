"""The screen of every document: `screen.py` in the folder of its feature draws `attn.<name>/1`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from attncli.documents import folder_of, name_of
from attncli.draw.lines import Lines, fit_to_view, stack
from attncli.draw.token_names import mark_unknown_words, unknown_words_note

if TYPE_CHECKING:
    from attncli.draw.view import View


class Screen(NamedTuple):
    """How a document is shown: its screen, and its table for `--plain`, which begins with the names of the columns."""

    screen: Callable[[Any, View], Lines]
    rows: Callable[[Any], Iterable[Sequence[object]]]


def screen_of(schema: str) -> Screen:
    """The screen of a document, such as that of `attn.run/1`; words that its model does not know are marked, and
    counted below it."""
    name = name_of(schema)
    module = import_module(f"{folder_of(name)}.screen")
    draw = getattr(module, f"{name}_screen")

    def screen(document: Any, view: View) -> Lines:
        marked_document = mark_unknown_words(document)
        if marked_document is document:
            lines: Lines = draw(document, view)
            return lines
        return fit_to_view(stack((draw(marked_document, view), unknown_words_note(document, view))), view)

    return Screen(screen, getattr(module, f"{name}_rows"))
