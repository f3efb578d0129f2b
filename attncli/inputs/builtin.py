"""The tokenizers that need no vocabulary: words, whitespace, characters, bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from attncli.errors import InputError, UsageError
from attncli.inputs.graphemes import clusters
from attncli.inputs.token import Token
from attncli.inputs.word_breaks import words

LAST_CODE_POINT = 0x10FFFF


class WordTokenizer:
    """Words as a reader sees them, punctuation apart; `attncli.inputs.word_breaks` says what a word is. Tokens have no
    ids."""

    name = "word"

    def encode(self, text: str, pair: str | None = None) -> list[Token]:
        return _sequence(text, pair, lambda part: ((start, end, part[start:end], None) for start, end in words(part)))

    def ids_to_tokens(self, ids: Sequence[int]) -> list[Token]:
        raise _no_ids(self.name)

    def text_of(self, ids: Sequence[int]) -> str:
        raise _no_ids(self.name)


class WhitespaceTokenizer:
    """Split at whitespace, nothing else. Tokens have no ids."""

    name = "whitespace"

    def encode(self, text: str, pair: str | None = None) -> list[Token]:
        return _sequence(text, pair, lambda part: ((m.start(), m.end(), m[0], None) for m in re.finditer(r"\S+", part)))

    def ids_to_tokens(self, ids: Sequence[int]) -> list[Token]:
        raise _no_ids(self.name)

    def text_of(self, ids: Sequence[int]) -> str:
        raise _no_ids(self.name)


class CharTokenizer:
    """Characters as a reader sees them (`attncli.inputs.graphemes`), spaces included. A character of one code point
    has it as its id; one of several (a base with combining marks, an emoji sequence) has none."""

    name = "char"

    def encode(self, text: str, pair: str | None = None) -> list[Token]:
        def pieces(part: str) -> Iterable[tuple[int, int, str, int | None]]:
            for start, end in clusters(part):
                yield start, end, part[start:end], ord(part[start]) if end - start == 1 else None

        return _sequence(text, pair, pieces)

    def ids_to_tokens(self, ids: Sequence[int]) -> list[Token]:
        _check_ids(ids, LAST_CODE_POINT, "a code point")
        return [Token(index, chr(code), code, None, None) for index, code in enumerate(ids)]

    def text_of(self, ids: Sequence[int]) -> str:
        _check_ids(ids, LAST_CODE_POINT, "a code point")
        return "".join(map(chr, ids))


class ByteTokenizer:
    """UTF-8 bytes; a byte is its own id. A byte of a longer character is shown as `<0xE4>` and spans that character."""

    name = "byte"

    def encode(self, text: str, pair: str | None = None) -> list[Token]:
        def pieces(part: str) -> Iterable[tuple[int, int, str, int | None]]:
            for place, char in enumerate(part):
                for byte in char.encode("utf-8", "surrogatepass"):
                    yield place, place + 1, _byte_text(byte), byte

        return _sequence(text, pair, pieces)

    def ids_to_tokens(self, ids: Sequence[int]) -> list[Token]:
        _check_ids(ids, 0xFF, "a byte")
        return [Token(index, _byte_text(byte), byte, None, None) for index, byte in enumerate(ids)]

    def text_of(self, ids: Sequence[int]) -> str:
        _check_ids(ids, 0xFF, "a byte")
        return bytes(ids).decode("utf-8", "replace")


def _sequence(
    text: str, pair: str | None, pieces: Callable[[str], Iterable[tuple[int, int, str, int | None]]]
) -> list[Token]:
    tokens: list[Token] = []
    for number, part in enumerate((text,) if pair is None else (text, pair)):
        for start, end, piece, code in pieces(part):
            tokens.append(Token(len(tokens), piece, code, start, end, part=number))
    return tokens


def _byte_text(byte: int) -> str:
    return chr(byte) if 0x20 <= byte < 0x7F else f"<0x{byte:02X}>"


def _check_ids(ids: Sequence[int], largest: int, kind: str) -> None:
    for code in ids:
        if not 0 <= code <= largest:
            raise InputError(f"the id {code} is not {kind}", where="--ids", expected=f"0 to {largest}")


def _no_ids(name: str) -> UsageError:
    return UsageError(
        f"the {name} tokenizer has no ids",
        where="--ids",
        expected="a tokenizer with ids: byte, char, a tokenizer.json or a model",
        hint="--tokenizer byte",
    )
