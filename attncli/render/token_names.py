"""What tokens are called on screens: over the columns of a matrix, in the quotes of a sentence, beside a position."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from attncli.render.phrases import say
from attncli.render.safe import cut, label
from attncli.render.unknown_words import bare_text
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.declaration import Numbers
    from attncli.analysis.documents.parts import TokenRow


class Ends(Protocol):
    """What leads from a query to a key, by their positions."""

    @property
    def query(self) -> int:
        """The token that looks."""

    @property
    def key(self) -> int:
        """The token looked at."""


def key_names(texts: Sequence[str], rows: Numbers | Sequence[Numbers]) -> list[str]:
    """The token texts, then `bias_k` for each further column: a learned key that every query sees and no token stands
    for.

    rows: the matrix [query, key] whose columns are named; one without rows has the tokens as columns.
    """
    columns = len(rows[0]) if len(rows) else len(texts)
    return [*texts, *["bias_k"] * (columns - len(texts))]


def quote_text(text: str, view: View) -> str:
    """A text of the user's in the quotes of the language."""
    return say(view, "quoted", label(text, ascii=view.ascii))


def quoted_word(text: str, view: View) -> str:
    """The same without the blanks around it, unless it is nothing else."""
    return quote_text(text.strip() or text, view)


def quoted_token(tokens: Sequence[TokenRow], index: int, view: View, *, beside: Iterable[int] = ()) -> str:
    """A token in quotes; a learned key by its name. One that the model does not know is told as that.

    beside: tokens of the same text that the sentence names too: its position tells it from one of the same text.
    """
    if index >= len(tokens):
        return quote_text("bias_k", view)
    token = tokens[index]
    name = quote_text(bare_text(token), view)
    alike = any(
        position != index and position < len(tokens) and tokens[position].text == token.text for position in beside
    )
    if alike:
        return say(view, "quoted.at.unknown" if token.unknown else "quoted.at", name, index)
    return say(view, "quoted.unknown", name) if token.unknown else name


def quoted_ends(queries: Sequence[TokenRow], keys: Sequence[TokenRow], link: Ends, view: View) -> tuple[str, str]:
    """The query and the key of a link in quotes, told apart by their positions where they are the same word of one
    text."""
    beside = (link.query, link.key) if queries is keys else ()
    query = quoted_token(queries, link.query, view, beside=beside)
    return query, quoted_token(keys, link.key, view, beside=beside)


def short(text: str, room: int, view: View) -> str:
    """A token's text in at most `room` cells."""
    return cut(label(text, ascii=view.ascii), room, ascii=view.ascii)


def position_and_text(position: int, text: str, room: int, view: View) -> str:
    """A token by its position and its text, that in at most `room` cells: `7 it`."""
    return f"{position} {short(text, room, view)}"
