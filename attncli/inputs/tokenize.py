"""Tokenizers by name or file: those that need no vocabulary, and those of checkpoints."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from attncli.errors import InputError, UsageError
from attncli.inputs.token import Token as Token
from attncli.inputs.token import Tokenizer as Tokenizer
from attncli.inputs.token import TokenMatch as TokenMatch
from attncli.inputs.token import find_token as find_token
from attncli.inputs.word_breaks import clusters, words

# The tokenizers that need no vocabulary: words, whitespace, characters, bytes.

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
    """Characters as a reader sees them (`attncli.inputs.word_breaks`), spaces included. A character of one code point
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


if TYPE_CHECKING:
    pass

BUILTIN: dict[str, type[WordTokenizer | WhitespaceTokenizer | CharTokenizer | ByteTokenizer]] = {
    "word": WordTokenizer,
    "whitespace": WhitespaceTokenizer,
    "char": CharTokenizer,
    "byte": ByteTokenizer,
}


def tokenizer(spec: str) -> Tokenizer:
    """The tokenizer that `--tokenizer` names: word, whitespace, char, byte, or a tokenizer.json or the folder that
    holds one.

    Raises UsageError for a name that is neither, InputError for a file that cannot be used.
    """
    if spec in BUILTIN:
        return BUILTIN[spec]()
    path = Path(spec)
    if _names_a_file(spec, path):
        from attncli.inputs.vocabulary_tokenizer import read_tokenizer

        return read_tokenizer(path)
    from difflib import get_close_matches

    close = get_close_matches(spec.lower(), BUILTIN, n=1)
    raise UsageError(
        f"unknown tokenizer {spec!r}",
        where="--tokenizer",
        expected=f"{', '.join(BUILTIN)}, or a tokenizer.json or a folder that holds one",
        hint=f"did you mean --tokenizer {close[0]}?" if close else "",
    )


def _names_a_file(spec: str, path: Path) -> bool:
    try:
        return bool(spec) and (path.exists() or "/" in spec or "\\" in spec or spec.endswith(".json"))
    except (OSError, ValueError) as error:  # a name too long, or holding a NUL
        raise InputError("this is no usable file name", where=spec, expected=", ".join(BUILTIN)) from error


# Tokenizers for checkpoints: a decoder's shifted text, and a folder that brings no vocabulary.


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
