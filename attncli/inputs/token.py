"""What a token is, and what a tokenizer does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class Token(Struct, frozen=True):
    """One token of one text.

    index: 0-based position in the sequence, specials counted.
    text: what it stands for, readable: the slice of the text it covers, or the name of a special token.
    id: the tokenizer's number for it; None where the tokenizer has no vocabulary.
    start, end: character (code point) offsets in the text, end exclusive; None where it covers no text.
    special: added by the tokenizer ([CLS], <s>, …), not found in the text.
    part: 0 for the text, 1 for the second text of a pair; `start` and `end` count in that one.
    unknown: the vocabulary has no token of its own for it: it has the id that all such have, so that they are the same
    to a model.
    """

    index: int
    text: str
    id: int | None
    start: int | None
    end: int | None
    special: bool = False
    part: int = 0
    unknown: bool = False


class Tokenizer(Protocol):
    """Cuts a text into tokens."""

    @property
    def name(self) -> str:
        """`word`, `whitespace`, `char`, `byte`, or the path or model the vocabulary came from."""

    def encode(self, text: str, pair: str | None = None) -> list[Token]:
        """The tokens of a text, or of a text and its pair in one sequence. A text that holds none gives []."""

    def ids_to_tokens(self, ids: Sequence[int]) -> list[Token]:
        """The tokens that these ids name, without offsets. Raises InputError for an id out of range,
        UsageError where the tokenizer has no ids."""

    def text_of(self, ids: Sequence[int]) -> str:
        """What these ids say one after the other, with the blanks that some pieces begin with; special tokens say
        nothing. Raises as `ids_to_tokens`."""
