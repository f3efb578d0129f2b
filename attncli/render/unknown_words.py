"""Words that a model does not know: marked in every view, and told below every screen.

A vocabulary gives all of them one id. What a screen shows of such a word is what the model makes of any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import UNSET, Struct
from msgspec.structs import replace

from attncli.render.headings import sentences
from attncli.render.lines import Lines
from attncli.render.phrases import say
from attncli.render.safe import cut, label
from attncli.render.view import View

if TYPE_CHECKING:
    from msgspec import UnsetType

    from attncli.analysis.documents.parts import TokenRow

MARK = "?"
"""Stands behind every word that the model does not know."""
TEXT_CELLS = 24
"""The cells of a text that a sentence names it by."""
TEXT_OF = {"tokens": "text", "queries": "query_text", "keys": "key_text", "corrupt_tokens": "corrupt"}
"""The members that hold a text's tokens, and those that hold the text."""
PartOrDocument = TypeVar("PartOrDocument", bound=Struct)


class NamedToken(Protocol):
    """A token, or a document's row of one."""

    @property
    def text(self) -> str:
        """What it is called."""

    @property
    def unknown(self) -> bool | UnsetType:
        """Whether the model has no token of its own for it."""


def marked_text(token: NamedToken) -> str:
    """A token's text, with `MARK` behind it where the model does not know it."""
    text = token.text.strip() or token.text
    return f"{text.removesuffix(MARK)}{MARK}" if token.unknown else token.text


def word_name(token: NamedToken) -> str:
    """The same without the blanks around it, unless it is nothing else."""
    return marked_text(token).strip() or token.text


def bare_text(token: NamedToken) -> str:
    """A token's text without the mark."""
    return token.text.removesuffix(MARK) if token.unknown else token.text


def mark_unknown_words(document: PartOrDocument) -> PartOrDocument:
    """The document as screens and figures show it: each unknown word's text with its mark. The document itself where
    the model knows all words."""
    changes: dict[str, Any] = {}
    for name, value in _members(document):
        if isinstance(value, list):
            entries = [_marked_entry(entry) for entry in value]
            if any(new is not old for new, old in zip(entries, value, strict=True)):
                changes[name] = entries
        elif (part := mark_unknown_words(value)) is not value:
            changes[name] = part
    return replace(document, **changes) if changes else document


def _marked_entry(entry: Any) -> Any:
    if not _is_token(entry):
        return mark_unknown_words(entry)
    return replace(entry, text=marked_text(entry)) if entry.unknown else entry


def unknown_words_note(document: Any, view: View) -> Lines:
    """What is to be said of a document's unknown words: once, or of each text, by its beginning, where texts differ in
    it."""
    from attncli.analysis.document import tokens_of
    from attncli.analysis.words import unknown_words

    text_of_note: dict[str, str] = {}
    for text, tokens in _texts(document):
        count = unknown_words(text, tokens_of(tokens))
        if count[0]:
            text_of_note.setdefault(say(view, "answer.unknown", *count), text)
    if len(text_of_note) < 2:
        return sentences(text_of_note, view)
    return sentences((_of_text(text, note, view) for note, text in text_of_note.items()), view)


def _of_text(text: str, note: str, view: View) -> str:
    begins = say(view, "quoted", cut(label(text, ascii=view.ascii), TEXT_CELLS, ascii=view.ascii))
    return say(view, "answer.unknown.text", begins, note) if text else note


def _texts(document: Any) -> Iterator[tuple[str, Sequence[TokenRow]]]:
    """The texts of a document and of its parts, with their tokens; pieces in place of the words made of them."""
    for name, value in _members(document):
        if isinstance(value, list) and name in TEXT_OF and any(_is_token(entry) and entry.unknown for entry in value):
            pieces = getattr(document, "pieces", UNSET)
            yield getattr(document, TEXT_OF[name], ""), pieces if name == "tokens" and pieces else value
        elif isinstance(value, list):
            for entry in value:
                yield from _texts(entry)
        else:
            yield from _texts(value)


def _members(part: Any) -> Iterator[tuple[str, Any]]:
    """The members of a part that may hold tokens: other parts, and lists of parts."""
    for name in getattr(part, "__struct_fields__", ()):
        value = getattr(part, name)
        first = value[0] if isinstance(value, list) and value else value
        if hasattr(first, "__struct_fields__"):
            yield name, value


def _is_token(entry: Any) -> bool:
    return hasattr(entry, "unknown") and hasattr(entry, "special")
