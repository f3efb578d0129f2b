"""Tokenizers by name or file, those that need no vocabulary; and words as a reader sees them, in
every script.

A word is a run of letters, digits and marks (`GPT2`, `हिन्दी`, `한국어`). Scripts that are written
without spaces (Han, Hiragana, Katakana, Thai, Lao, Khmer, Myanmar) do not say where a word ends:
each character that a reader sees is a word of its own (`我 爱 你`), and whoever knows the words sets
them apart (`--tokenizer whitespace`). An apostrophe between letters stays inside (`didn't`,
`l’eau`, `צה״ל`), as does a point or comma between digits (`3.14`, `1,000`). Everything else that is
not whitespace is a token by itself: each punctuation mark, hyphen, symbol, control character, and
each emoji with all that is joined to it. Zero-width spaces separate, like spaces.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from attncli.errors import InputError, UsageError
from attncli.inputs.files import is_folder, is_there
from attncli.inputs.token import Token as Token
from attncli.inputs.token import Tokenizer as Tokenizer
from attncli.inputs.token import TokenMatch as TokenMatch
from attncli.inputs.token import find_token as find_token
from attncli.language import listing, message

# The same rules for text that is all ASCII, some thirty times as fast.
ASCII = re.compile(
    r"[A-Za-z0-9_]+(?:(?:(?<=[A-Za-z])'(?=[A-Za-z])|(?<=[0-9])[.,](?=[0-9]))[A-Za-z0-9_]+)*|\S"
)


def words(text: str) -> Iterator[tuple[int, int]]:
    """Start and end (exclusive) of every word and sign, in order; linear in the text. Blank text
    gives none.
    """
    if text.isascii():
        yield from (match.span() for match in ASCII.finditer(text))
        return
    from attncli.inputs.script_words import script_words

    yield from script_words(text)


# The tokenizers that need no vocabulary: words, whitespace, characters, bytes.

LAST_CODE_POINT = 0x10FFFF


PlacedPiece = tuple[int, int, str, int | None]
"""A piece of a text: its start, its end, what it says, and its id, None where it has none."""


class BuiltinTokenizer(ABC):
    """Base of the tokenizers without a vocabulary; their tokens have no ids unless a subclass gives
    them.
    """

    name: str

    @abstractmethod
    def pieces(self, text: str) -> Iterable[PlacedPiece]:
        """The pieces of a text in order, each as (start, end, text, id or None)."""

    def encode(self, text: str, pair: str | None = None) -> list[Token]:
        """The tokens of a text, and of its pair as part 1, each with where it stands in its text."""
        parts = [text]
        if pair is not None:
            parts.append(pair)
        tokens: list[Token] = []
        for number, part in enumerate(parts):
            for start, end, piece, code in self.pieces(part):
                tokens.append(
                    Token(len(tokens), piece, code, start, end, part=number, segment=number)
                )
        return tokens

    def ids_to_tokens(self, ids: Sequence[int]) -> list[Token]:
        """Raises UsageError: these tokens have no ids."""
        raise _no_ids_error(self.name)

    def text_of(self, ids: Sequence[int]) -> str:
        """Raises UsageError: these tokens have no ids."""
        raise _no_ids_error(self.name)


class WordTokenizer(BuiltinTokenizer):
    """Words as a reader sees them, punctuation apart; `attncli.inputs.tokenize` says what a word
    is. Tokens have no ids."""

    name = "word"

    def pieces(self, text: str) -> Iterable[PlacedPiece]:
        """Words and signs of punctuation, without ids."""
        return ((start, end, text[start:end], None) for start, end in words(text))


class WhitespaceTokenizer(BuiltinTokenizer):
    """Split at whitespace, nothing else. Tokens have no ids."""

    name = "whitespace"

    def pieces(self, text: str) -> Iterable[PlacedPiece]:
        """The runs of characters between whitespace, without ids."""
        return ((match.start(), match.end(), match[0], None) for match in re.finditer(r"\S+", text))


class CharTokenizer(BuiltinTokenizer):
    """Characters as a reader sees them (`attncli.inputs.tokenize`), spaces included. A character of
    one code point has it as its id; one of several (a base with combining marks, an emoji sequence)
    has none."""

    name = "char"

    def pieces(self, text: str) -> Iterable[PlacedPiece]:
        """One piece for each character as a reader sees it. Its id is the code point, where it has
        a single one."""
        from attncli.inputs.graphemes import clusters

        for start, end in clusters(text):
            yield start, end, text[start:end], ord(text[start]) if end - start == 1 else None

    def ids_to_tokens(self, ids: Sequence[int]) -> list[Token]:
        """A character for each code point. Raises InputError for an id that is none."""
        _check_ids(ids, LAST_CODE_POINT, message("a code point"))
        return [
            Token(index, chr(code), code, start=None, end=None) for index, code in enumerate(ids)
        ]

    def text_of(self, ids: Sequence[int]) -> str:
        """The characters of these code points. Raises InputError for an id that is none."""
        _check_ids(ids, LAST_CODE_POINT, message("a code point"))
        return "".join(map(chr, ids))


class ByteTokenizer(BuiltinTokenizer):
    """UTF-8 bytes; a byte is its own id. A byte of a longer character is shown as `<0xE4>` and
    spans that character.
    """

    name = "byte"

    def encode(self, text: str, pair: str | None = None) -> list[Token]:
        """A token for each byte of a text, and of its pair as part 1."""
        tokens = super().encode(text, pair)
        return [
            token if token.id is None else replace(token, utf8=bytes([token.id]))
            for token in tokens
        ]

    def pieces(self, text: str) -> Iterable[PlacedPiece]:
        """Bytes of UTF-8, each with its value as id and the place of its character."""
        for place, char in enumerate(text):
            for byte in char.encode("utf-8", "surrogatepass"):
                yield place, place + 1, _byte_text(byte), byte

    def ids_to_tokens(self, ids: Sequence[int]) -> list[Token]:
        """A token for each byte. Raises InputError for an id above 255."""
        _check_ids(ids, 0xFF, message("a byte"))
        return [
            Token(index, _byte_text(byte), byte, start=None, end=None)
            for index, byte in enumerate(ids)
        ]

    def text_of(self, ids: Sequence[int]) -> str:
        """The text that these bytes are in UTF-8, with U+FFFD for those that are none."""
        _check_ids(ids, 0xFF, message("a byte"))
        return bytes(ids).decode("utf-8", "replace")


def _byte_text(byte: int) -> str:
    """A byte as its ASCII character, or as `<0xE4>`."""
    if 0x20 <= byte < 0x7F:
        return chr(byte)
    return f"<0x{byte:02X}>"


def _check_ids(ids: Sequence[int], largest: int, kind: str) -> None:
    """Raise InputError for an id outside 0 to `largest`.

    kind: what an id stands for, for the error.
    """
    for code in ids:
        if not 0 <= code <= largest:
            expected = message("0 to {largest}", largest=largest)
            raise InputError(
                "the id {code} is not {kind}",
                where="--ids",
                expected=expected,
                code=code,
                kind=kind,
            )


def _no_ids_error(name: str) -> UsageError:
    """The error, returned and not raised, that this tokenizer has no ids."""
    what = message("the {name} tokenizer has no ids", name=name)
    expected = message("a tokenizer with ids: byte, char, a tokenizer.json or a model")
    return UsageError(what, where="--ids", expected=expected, hint="--tokenizer byte")


BUILTIN: dict[str, type[BuiltinTokenizer]] = {
    kind.name: kind for kind in (WordTokenizer, WhitespaceTokenizer, CharTokenizer, ByteTokenizer)
}


def tokenizer(spec: str) -> Tokenizer:
    """The tokenizer that the value of `--tokenizer` names: word, whitespace, char, byte, or the
    path of a tokenizer.json or its folder.

    Raises UsageError for a name that is neither, InputError for a file that cannot be used.
    """
    if spec in BUILTIN:
        return BUILTIN[spec]()
    path = Path(spec)
    if _names_a_file(spec, path):
        return _tokenizer_at(path)
    from difflib import get_close_matches

    close = get_close_matches(spec.lower(), BUILTIN, n=1)
    raise UsageError(
        "unknown tokenizer {spec}",
        where="--tokenizer",
        expected="{builtin}, or a tokenizer.json or a folder that holds one",
        hint=message("did you mean --tokenizer {close}?", close=close[0]) if close else "",
        spec=repr(spec),
        builtin=listing(BUILTIN),
    )


def _tokenizer_at(path: Path) -> Tokenizer:
    """The tokenizer of a tokenizer.json, of another file of a vocabulary, or of the folder that
    holds one."""
    from attncli.inputs.vocabulary_files import VOCABULARY_SUFFIXES
    from attncli.inputs.vocabulary_tokenizer import read_tokenizer

    if is_folder(path):
        folder = path
    else:
        folder = path.parent
    if is_folder(path) and not is_there(path / "tokenizer.json"):
        name = None  # whichever vocabulary file the folder has
    elif path.name.endswith(VOCABULARY_SUFFIXES):
        name = path.name
    else:  # a tokenizer.json, or a folder with one
        return read_tokenizer(path)
    from attncli.inputs.separate_vocabulary import read_vocabulary

    return read_vocabulary(folder.resolve(), name) or _without_tokenizer(str(folder))


def _without_tokenizer(folder: str) -> NoReturn:
    """Raise the InputError for a folder without a tokenizer.json, with the command that helps."""
    from attncli.inputs.vocabulary_files import missing_tokenizer

    what = message("this folder holds no tokenizer.json")
    expected, hint = missing_tokenizer(Path(folder))
    raise InputError(what, where=folder, expected=expected, hint=hint)


def _names_a_file(spec: str, path: Path) -> bool:
    """Whether a value of `--tokenizer` is a path rather than a name. Raises InputError for a name
    that no file can have."""
    try:
        # what looks like a path is one, so that the error says that no file is there
        return bool(spec) and (
            is_there(path)
            or "/" in spec
            or "\\" in spec
            or spec.endswith((".json", ".txt", ".model", ".spm", ".tiktoken"))
        )
    except (OSError, ValueError) as error:  # a name too long, or holding a NUL
        raise InputError(
            "this is no usable file name", where=spec, expected=listing(BUILTIN)
        ) from error


# Tokenizers for checkpoints: a decoder's shifted text, and a folder that brings no vocabulary.


class ShiftedTokenizer(Struct, frozen=True):
    """Cuts text as a decoder is trained on it: the start token, then all tokens but the last, so
    that each place predicts the next token.

    start: the id of the start token; None leaves the text as it is.
    """

    tokenizer: Tokenizer
    start: int | None

    @property
    def name(self) -> str:
        """The name of the tokenizer of the text."""
        return self.tokenizer.name

    def encode(self, text: str, pair: str | None = None) -> list[Token]:
        """The start token, then all tokens of the text but the last; the text's own where `start`
        is None.
        """
        tokens = self.tokenizer.encode(text, pair)
        if self.start is None or not tokens:
            return tokens
        (start_token,) = self.tokenizer.ids_to_tokens([self.start])
        # whatever the vocabulary uses its id for: in T5, <pad> begins the text
        start_token = replace(start_token, special=True, unknown=False, added=True)
        return [start_token, *(replace(token, index=token.index + 1) for token in tokens[:-1])]

    def ids_to_tokens(self, ids: Sequence[int]) -> list[Token]:
        """The tokens of these ids, without a start token."""
        return self.tokenizer.ids_to_tokens(ids)

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of these ids, a start token among them or not."""
        return self.tokenizer.text_of(ids)


class IdsOnly(Struct, frozen=True):
    """Stands in for the tokenizer of a checkpoint without tokenizer.json: it takes token ids, and
    raises for text.
    """

    folder: str

    @property
    def name(self) -> str:
        """The folder of the checkpoint, which has no tokenizer to name."""
        return self.folder

    def encode(self, text: str, pair: str | None = None) -> list[Token]:
        """Raises InputError: text cannot be cut without a tokenizer."""
        if is_folder(Path(self.folder)):
            _without_tokenizer(self.folder)
        what = message("this model brings no vocabulary to cut texts with")
        raise InputError(what, where=self.folder, expected="token ids", hint='--ids "5 3 8"')

    def ids_to_tokens(self, ids: Sequence[int]) -> list[Token]:
        """A token `#ID` for each id, of which nothing more is known."""
        return [
            Token(index, f"#{code}", code, start=None, end=None) for index, code in enumerate(ids)
        ]

    def text_of(self, ids: Sequence[int]) -> str:
        """Each id as ` #ID`: what it spells is not known."""
        return "".join(f" #{code}" for code in ids)
