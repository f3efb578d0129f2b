"""Tokenizers for checkpoints: a decoder's shifted text, and a folder that brings no vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from attncli.errors import InputError
from attncli.inputs.token import Token, Tokenizer


class ShiftedTokenizer(Struct, frozen=True):
    """A decoder's input: the start token, then the text without its last token, each seeing what came before.

    start: the id of the start token; None leaves the text as it is.
    """

    tokenizer: Tokenizer
    start: int | None

    @property
    def name(self) -> str:
        return self.tokenizer.name

    def encode(self, text: str, pair: str | None = None) -> list[Token]:
        tokens = self.tokenizer.encode(text, pair)
        if self.start is None or not tokens:
            return tokens
        first = replace(self.tokenizer.ids_to_tokens([self.start])[0], special=True)
        return [first, *(replace(token, index=token.index + 1) for token in tokens[:-1])]

    def ids_to_tokens(self, ids: Sequence[int]) -> list[Token]:
        return self.tokenizer.ids_to_tokens(ids)

    def text_of(self, ids: Sequence[int]) -> str:
        return self.tokenizer.text_of(ids)


class IdsOnly(Struct, frozen=True):
    """Stands in where a checkpoint has no tokenizer.json: token ids can be given, text cannot."""

    folder: str

    @property
    def name(self) -> str:
        return self.folder

    def encode(self, text: str, pair: str | None = None) -> list[Token]:
        raise InputError(
            "this checkpoint has no tokenizer.json",
            where=self.folder,
            expected="a tokenizer.json in the folder",
            hint='--ids "5 3 8"',
        )

    def ids_to_tokens(self, ids: Sequence[int]) -> list[Token]:
        return [Token(index, f"#{code}", code, None, None) for index, code in enumerate(ids)]

    def text_of(self, ids: Sequence[int]) -> str:
        return "".join(f" #{code}" for code in ids)
