"""Tokenizers with a vocabulary: a `tokenizer.json` run by the tokenizers library, within bounds of
time and size.
"""

from __future__ import annotations

import base64
import codecs
import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from itertools import groupby
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, TypeVar

import tokenizers
from msgspec.structs import replace

from attncli.errors import InputError, LimitError
from attncli.inputs.files import foreign_file, is_folder, read_regular
from attncli.inputs.piece_spans import PieceSpan, place_pieces
from attncli.inputs.text_vocabulary import TextVocabulary
from attncli.inputs.token import Token
from attncli.language import message

# The alphabet in which byte-level vocabularies write bytes: every byte as a printable character
# (`Ġ` is the space).


@cache
def alphabet() -> dict[str, int]:
    """The byte that each printable character of a byte-level vocabulary stands for, 256 entries.
    Source: GPT-2's `bytes_to_unicode` (OpenAI, 2019)."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    others = (byte for byte in range(256) if byte not in printable)
    # the others are written by the characters from 256 on, in their order
    return {chr(byte): byte for byte in printable} | {
        chr(256 + place): byte for place, byte in enumerate(others)
    }


def bytes_of_piece(piece: str) -> bytes | None:
    """The bytes that a piece of a byte-level vocabulary stands for; None where it is not written in
    that alphabet.
    """
    byte_of = alphabet()
    if all(char in byte_of for char in piece):
        return bytes(byte_of[char] for char in piece)
    return None


def bytes_text(raw: bytes) -> str:
    """Bytes decoded as UTF-8 without leading spaces, or spelled as `<0xE4><0xB8>` where they are
    not UTF-8.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(f"<0x{byte:02X}>" for byte in raw)
    return text.lstrip(" ") or text


def _offsets_of_bytes(text: str, pieces: Sequence[tuple[int, int, str]]) -> list[tuple[int, int]]:
    """The characters [start, end) of the text that each piece stands for. A character that the
    vocabulary lacks becomes one piece per byte, such as `<0xE2>`. The library gives each byte of a
    run of such characters the whole run; here it gets the one character it belongs to.

    pieces: start, end and spelling of each piece, in order.
    """
    offsets: list[tuple[int, int]] = []
    # pieces in a row for which the library gives the same characters
    for (start, end), run in groupby(pieces, lambda piece: piece[:2]):
        spellings = [spelling for *_, spelling in run]
        characters = text[start:end]
        matches = [BYTE_PIECE.fullmatch(spelling) for spelling in spellings]
        spelled_bytes = bytes(int(match[1], 16) for match in matches if match)
        are_all_bytes = len(spelled_bytes) == len(spellings)
        # "surrogatepass": a lone surrogate, which the text may hold, has bytes all the same
        if are_all_bytes and spelled_bytes == characters.encode("utf-8", "surrogatepass"):
            for place, character in enumerate(characters, start):
                count = len(character.encode("utf-8", "surrogatepass"))
                offsets += [(place, place + 1)] * count
        else:
            offsets += [(start, end)] * len(spellings)
    return offsets


Result = TypeVar("Result")
FILE_LIMIT = 256 * 2**20
SECONDS = 20.0
"""What one text may take; after that its tokenizer counts as running for ever."""
NO_CHARACTER = "\U0010ffff"
"""A code point that stands for no character, so that vocabularies have no piece for it."""
BYTE_PIECE = re.compile("<0x([0-9A-F]{2})>")
"""How SentencePiece names the pieces of single bytes."""


def read_tokenizer(path: Path) -> PieceTokenizer:
    """The tokenizer of a `tokenizer.json`, or of the folder that holds one; its name is the path.

    Raises InputError for a file that is missing, damaged or not a tokenizer, LimitError for one
    above 256 MiB.
    """
    if is_folder(path):
        path = path / "tokenizer.json"
    what = message("a tokenizer.json")
    raw = read_regular(path, what=what, limit=FILE_LIMIT).removeprefix(codecs.BOM_UTF8)
    first_bytes = raw[:64]
    if wrong_kind_error := foreign_file(first_bytes, str(path), what):
        raise wrong_kind_error
    check_charsmap(raw, str(path))  # before the library makes room for that table
    with _silent_panics():
        hf = run_guarded(
            lambda: tokenizers.Tokenizer.from_buffer(raw),
            message("this is no usable tokenizer file"),
            str(path),
        )
    return from_tokenizers(hf, str(path))


def from_tokenizers(hf: tokenizers.Tokenizer, name: str) -> PieceTokenizer:
    """A `PieceTokenizer` over one of the tokenizers library, with padding, truncation and random
    behaviour switched off, so that a text has all its tokens and the same each time.

    Raises InputError for one that would lengthen a text beyond reason.
    """
    hf.no_padding()
    hf.no_truncation()
    # settings of BPE and Unigram models by which they cut a text at random
    for chance in ("dropout", "alpha", "nbest_size"):
        if getattr(hf.model, chance, None) is not None:
            setattr(hf.model, chance, None)
    check_growth(hf, name)
    _keep_blanks(hf)
    return PieceTokenizer(hf, name)


def _keep_blanks(hf: tokenizers.Tokenizer) -> None:
    """Switch off the library's trimming of offsets, so that they include the blanks that pieces
    begin with; trimmed, a piece of blanks alone would cover nothing.
    """
    if hf.post_processor is None:
        return
    state = hf.post_processor.__getstate__()
    untrimmed_state = re.sub(rb'"trim_offsets":\s*true', b'"trim_offsets":false', state)
    if untrimmed_state != state:
        processor = hf.post_processor
        processor.__setstate__(untrimmed_state)
        hf.post_processor = processor  # what the tokenizer handed out may be a copy of its own


class PieceTokenizer:
    """A vocabulary of pieces. A token's text is the part of the text it covers, without the space
    that some pieces begin with;
    a piece that covers part of a character is shown by its bytes or its spelling, a special token
    by its name.

    hf: the library's tokenizer, which has the whole vocabulary.
    name: where the vocabulary came from, for errors.
    """

    def __init__(self, hf: tokenizers.Tokenizer, name: str) -> None:
        self.hf = hf
        self.name = name

    def encode(self, text: str, pair: str | None = None) -> list[Token]:
        """The tokens of a text or pair, with the special tokens that the vocabulary's own rules
        add.

        Offsets count the characters (code points) of the text as given. Lone surrogates are read as
        U+FFFD. Raises LimitError where it takes more than 20 seconds, InputError where the library
        fails.
        """
        parts: tuple[str, ...] = (text,)
        if pair is not None:
            parts = (text, pair)
        readable = tuple(_without_surrogates(part) for part in parts)
        if pair is None:
            entry: Any = readable[0]
        else:
            entry = readable
        hf = self._encoder_of(readable)
        # encode_batch lets other threads run, encode does not: only so can the clock and Ctrl-C
        # stop it.
        encoding = _run_timed(lambda: hf.encode_batch([entry])[0], self.name)
        return self._tokens(encoding, parts)

    def encode_written(
        self, text: str, *, after: bool = False, as_text: bool = False
    ) -> list[Token]:
        """The tokens of a text that holds its special tokens itself, or of a piece of it.

        after: whether text stands before the piece: some vocabularies put a space before a first
            word.
        as_text: whether what spells a control token is text.

        Raises LimitError where it takes more than 20 seconds, InputError where the library fails.
        """
        readable = _without_surrogates(text)

        def tokens_of(piece: str) -> list[Token]:
            """The tokens of a piece, with none added at its beginning or end."""
            hf = self._encoder_of((piece,), with_added=not as_text)
            return self._tokens(_encode_bare(hf, piece, self.name), (piece,))

        if not after:
            return tokens_of(readable)
        # encoded behind a newline, whose own tokens are taken off again: the piece then has the
        # tokens that it has in the middle of a text
        line = tokens_of("\n")
        whole = tokens_of("\n" + readable)
        if [token.id for token in whole[: len(line)]] != [token.id for token in line]:
            # the newline became one token with the piece's beginning, and cannot be taken off
            return tokens_of(readable)
        # the offsets count the newline too: they are one too large
        return [token.relocate(place, -1) for place, token in enumerate(whole[len(line) :])]

    def _encoder_of(self, texts: Sequence[str], *, with_added: bool = True) -> tokenizers.Tokenizer:
        """The library's tokenizer that cuts these texts; here the same for all texts.

        with_added: whether it recognises special and added tokens in them.
        """
        if with_added:
            return self.hf
        return self._without_added

    @cached_property
    def _without_added(self) -> tokenizers.Tokenizer:
        """A copy of the library's tokenizer that does not recognise special or added tokens in a
        text.
        """
        file = json.loads(self.hf.to_str())
        return tokenizers.Tokenizer.from_str(json.dumps({**file, "added_tokens": []}))

    def _tokens(self, encoding: tokenizers.Encoding, parts: tuple[str, ...]) -> list[Token]:
        """The tokens of the library's encoding.

        parts: the texts that were encoded.
        """
        ids = encoding.ids
        pieces = encoding.tokens
        added = encoding.special_tokens_mask
        segments = encoding.type_ids
        # of each token the text that it comes of, 0 or 1; None for a token that rules add
        owners = encoding.sequence_ids or [None] * len(ids)
        spans = self._spans(encoding, parts, owners)
        tokens: list[Token] = []
        part = 0
        for index, code in enumerate(ids):
            # an added token belongs to the text before it; its type does not say to which, as
            # XLNet's added tokens have a type of their own
            owner = owners[index]
            if owner is not None:
                part = owner
            if added[index]:
                # the rules that add a token may name it otherwise than the vocabulary spells its id
                name = self._piece(code) or pieces[index]
                tokens.append(
                    Token(
                        index,
                        name,
                        code,
                        start=None,
                        end=None,
                        special=True,
                        part=part,
                        added=True,
                        segment=segments[index],
                    )
                )
                continue
            token = self._token(index, code, pieces[index], spans[index], parts[part])
            tokens.append(replace(token, part=part, segment=segments[index]))
        return tokens

    def _spans(
        self, encoding: tokenizers.Encoding, parts: tuple[str, ...], owners: Sequence[int | None]
    ) -> dict[int, PieceSpan]:
        """The span of each token that stands for a piece of a text, by the token's index.

        parts: the texts that were encoded.
        owners: which of the texts each token comes of; None for an added token.
        """
        offsets = encoding.offsets
        pieces = encoding.tokens
        added = encoding.special_tokens_mask
        spans: dict[int, PieceSpan] = {}
        for part, text in enumerate(parts):
            # a piece for which the library names no text counts to the first
            inside = [
                index
                for index, owner in enumerate(owners)
                if not added[index] and (owner or 0) == part
            ]
            placed = place_pieces(
                text,
                _offsets_of_bytes(text, [(*offsets[index], pieces[index]) for index in inside]),
                [self._is_blank(pieces[index]) for index in inside],
            )
            spans.update(zip(inside, placed, strict=True))
        return spans

    def ids_to_tokens(self, ids: Sequence[int]) -> list[Token]:
        """Tokens by id, without offsets. Raises InputError for an id that the vocabulary does not
        have.
        """
        tokens = []
        for index, code in enumerate(ids):
            piece = self._piece(code)
            if piece is None:
                expected = message("0 to {last}", last=self._piece_count() - 1)
                raise InputError(
                    "no token has the id {code}", where=self.name, expected=expected, code=code
                )
            # the id alone does not tell a word without a piece from a text that spells "[UNK]"
            unknown = code == self.unknown_id
            special = code in self.special_ids and not unknown
            if special or unknown:  # shown by their names
                shown = piece
            else:
                shown = self._piece_text(piece)
            utf8 = None  # a special token spells no text
            if not special:
                utf8 = self._piece_bytes(piece)
            tokens.append(
                Token(
                    index,
                    shown,
                    code,
                    start=None,  # ids stand in no text
                    end=None,
                    special=special,
                    unknown=unknown,
                    utf8=utf8,
                )
            )
        return tokens

    def text_of(self, ids: Sequence[int]) -> str:
        """The text that these ids decode to by the vocabulary's own decoder; U+FFFD for a character
        that is not whole. Raises InputError for an id that the vocabulary does not have."""
        self.ids_to_tokens(ids)  # raises for an unknown id, which the library passes over
        hf = self._decoder_of(ids)
        text: str = run_guarded(
            lambda: hf.decode(list(ids)),
            message("the tokenizer failed on these ids"),
            self.name,
        )
        return text

    def _decoder_of(self, ids: Sequence[int]) -> tokenizers.Tokenizer:
        """The library's tokenizer that decodes these ids; here the same for all ids."""
        return self.hf

    def _piece(self, code: int) -> str | None:
        """The piece with this id, as the vocabulary spells it; None where there is none."""
        if not 0 <= code < 2**32:
            return None
        piece: str | None = self.hf.id_to_token(code)
        return piece

    def _piece_count(self) -> int:
        """How many pieces the vocabulary has."""
        return int(self.hf.get_vocab_size())

    @cached_property
    def special_tokens(self) -> dict[int, str]:
        """The vocabulary's special tokens by id."""
        added = self.hf.get_added_tokens_decoder()
        return {code: token.content for code, token in added.items() if token.special}

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids of the vocabulary's special tokens."""
        return frozenset(self.special_tokens)

    @cached_property
    def unknown_id(self) -> int | None:
        """The id of the token, such as [UNK], that stands for text without a piece in the
        vocabulary; None if there is none."""
        # a code point that stands for no character; the library has no name for this id in all its
        # models
        try:
            pieces = self._decoder_of(()).model.tokenize(NO_CHARACTER)
        except Exception:  # "unk_id is missing"
            return None
        if len(pieces) == 1:
            return pieces[0].id
        return None

    @cached_property
    def _is_byte_level(self) -> bool:
        """Whether the vocabulary writes bytes as printable characters."""
        hf = self._decoder_of(())
        return any(
            part is not None and b'"ByteLevel"' in part.__getstate__()
            for part in (hf.pre_tokenizer, hf.decoder)
        )

    def _token(self, index: int, code: int, piece: str, span: PieceSpan, text: str) -> Token:
        """The token of a piece of a text.

        index: the token's place among all tokens.
        code: the piece's id.
        piece: how the vocabulary spells it.
        span: the characters [start, end) of the text that it covers, and [first, end) with the
            blanks that it has before them.
        text: the whole text.

        Whether it is special follows from its id, with one exception: the id of the unknown token
        stands for a text without a piece, and for a text that spells that token's name.
        """
        # `utf8` below: the token's own bytes, where they are not those of the characters covered
        covered_text = text[span.start : span.end]
        is_name = code == self.unknown_id and covered_text == self._piece(code)
        unknown = code == self.unknown_id and not is_name
        special = code in self.special_ids and not unknown
        if special:
            # some special tokens take the blanks beside them, which their text leaves out
            trimmed = covered_text.strip() or covered_text
            start = text.index(trimmed, span.start)
            end = start + len(trimmed)
            has_blanks = (start, end) != (span.first, span.end)
            utf8 = None
            if has_blanks:
                utf8 = _utf8(text[span.first : span.end])
            return Token(index, trimmed, code, start, end, special=True, utf8=utf8)
        if span.is_shared or span.start == span.end:
            # a part of a character, or nothing of the text: shown by its own spelling
            shown = self._piece_text(piece)
            utf8 = b""
            if span.is_shared:
                utf8 = self._piece_bytes(piece)
            if span.first == span.start:
                utf8 = utf8.removeprefix(b" ")  # a blank that the vocabulary put there
        else:
            shown = covered_text
            utf8 = None
            if span.first < span.start:
                utf8 = _utf8(text[span.first : span.end])
        return Token(index, shown, code, span.start, span.end, unknown=unknown, utf8=utf8)

    def _is_blank(self, piece: str) -> bool:
        """Whether a piece spells blanks and nothing else."""
        if self._is_byte_level:
            return not piece.strip("Ġ")
        return not piece.strip("▁ ")

    def _piece_bytes(self, piece: str) -> bytes:
        """The UTF-8 bytes that a piece spells; of a piece that is a part of a character, those of
        the part."""
        if self._is_byte_level and (raw := bytes_of_piece(piece)) is not None:
            return raw
        if one_byte := BYTE_PIECE.fullmatch(piece):
            return bytes.fromhex(one_byte[1])
        # SentencePiece's sign for a blank, and WordPiece's mark of what continues a word
        return _utf8(piece.replace("▁", " ").removeprefix("##"))

    def _piece_text(self, piece: str) -> str:
        """The text to show for a piece that stands for no characters of the text."""
        if self._is_byte_level and (raw := bytes_of_piece(piece)) is not None:
            return bytes_text(raw)
        plain = piece.replace("▁", " ").removeprefix("##")
        return plain.strip(" ") or plain or piece


class PartTokenizer(PieceTokenizer):
    """A `PieceTokenizer` of a large vocabulary, which builds what its texts need of it."""

    def __init__(self, vocabulary: TextVocabulary, name: str) -> None:
        """The tokenizer of a vocabulary, `name`. Raises InputError for one that would lengthen a
        text beyond reason, which shows without any piece."""
        self.vocabulary = vocabulary
        self.name = name
        check_growth(vocabulary.for_ids(()), name)

    @cached_property
    def hf(self) -> tokenizers.Tokenizer:  # type: ignore[override]
        """The library's tokenizer with the whole vocabulary."""
        return self.vocabulary.whole()

    def _encoder_of(self, texts: Sequence[str], *, with_added: bool = True) -> tokenizers.Tokenizer:
        """The library's tokenizer with the pieces that these texts need; with the whole vocabulary
        where the texts are long or it is built already.
        """
        if "hf" not in vars(self):  # the cached property, which is there once the whole is built
            part = self.vocabulary.for_texts(
                texts, lambda hf, text: _encode_bare(hf, text, self.name), with_added=with_added
            )
            if part is not None:
                return part
        return super()._encoder_of(texts, with_added=with_added)

    def _decoder_of(self, ids: Sequence[int]) -> tokenizers.Tokenizer:
        """The library's tokenizer with the pieces of these ids."""
        return self.vocabulary.for_ids(ids)

    def _piece(self, code: int) -> str | None:
        """The piece with this id, as the vocabulary spells it; None where there is none."""
        if 0 <= code < self._piece_count():
            return self.vocabulary.tokens[code]
        return None

    def _piece_count(self) -> int:
        """How many pieces the vocabulary has."""
        return len(self.vocabulary.tokens)

    @cached_property
    def special_tokens(self) -> dict[int, str]:
        """The vocabulary's control tokens by id."""
        return {code: self.vocabulary.tokens[code] for code in sorted(self.vocabulary.special_ids)}


def _encode_bare(hf: tokenizers.Tokenizer, text: str, name: str) -> tokenizers.Encoding:
    """The library's encoding of a text, with no tokens added at its beginning or end. Raises as
    `PieceTokenizer.encode`.

    name: of the tokenizer.
    """
    return _run_timed(lambda: hf.encode_batch([text], add_special_tokens=False)[0], name)


def _utf8(text: str) -> bytes:
    """A text as UTF-8, its lone surrogates, too."""
    return text.encode("utf-8", "surrogatepass")


class _WorkThread:
    """A thread for work that may never end, which a caller can stop waiting for; an idle one is
    kept, as starting one takes as long as encoding a sentence."""

    idle: ClassVar[list[_WorkThread]] = []

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._process = os.getpid()
        threading.Thread(target=self._serve, name="tokenizer", daemon=True).start()

    @classmethod
    def free(cls) -> _WorkThread:
        """An idle thread, or a new one; threads of a parent process are not reused after a fork."""
        # another thread may take the last idle one at any moment, which raises IndexError
        with suppress(IndexError):
            while True:
                thread = cls.idle.pop()
                if thread._process == os.getpid():
                    return thread
        return cls()

    def do(self, work: Callable[[], Result]) -> Result:
        """The result of `work` done in this thread. Raises queue.Empty where it takes too long: the
        thread is then given up, and ends with its work."""
        self._tasks.put(work)
        try:
            result, failure = self._results.get(timeout=SECONDS)
        except BaseException:  # too long, or Ctrl-C
            self._tasks.put(None)  # ends the thread's loop
            raise
        self.idle.append(self)
        if failure is not None:
            raise failure
        value: Result = result
        return value

    def _serve(self) -> None:
        """The thread's loop: do tasks one after the other until None comes."""
        while (work := self._tasks.get()) is not None:
            self._results.put(_try(work))
            del work  # while the thread waits, it keeps nothing of it in memory


def _try(work: Callable[[], Result]) -> tuple[Result | None, BaseException | None]:
    """(result, None) of a piece of work, or (None, error) where it raises."""
    try:
        return work(), None
    except BaseException as error:
        return None, error


def _run_timed(work: Callable[[], Result], where: str) -> Result:
    """The result of `work` done in another thread. Raises LimitError where it takes too long, as a
    vocabulary's patterns can run for ever."""
    # entered in this thread, which also leaves it; a thread that is given up never would
    with _silent_panics():
        try:
            return _WorkThread.free().do(
                lambda: run_guarded(work, message("the tokenizer failed on this text"), where)
            )
        except Empty:
            what = message(
                "this tokenizer took more than {seconds:.0f} seconds for one text", seconds=SECONDS
            )
            raise LimitError(
                what, where=where, expected="a shorter text, or another tokenizer"
            ) from None


def run_guarded(work: Callable[[], Result], what: str, where: str) -> Result:
    """The result of `work`; whatever the tokenizers library raises in it becomes an InputError.

    what: the sentence of that error.
    where: the tokenizer's file or name, for the error.
    """
    try:
        return work()
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic in the library's Rust code is no Exception
        if str(error):
            reason = str(error).splitlines()[0][:200]
        else:
            reason = type(error).__name__
        expected = message("a tokenizer.json of the tokenizers library")
        raise InputError(
            "{what}: {reason}", where=where, expected=expected, what=what, reason=reason
        ) from error


@contextmanager
def _silent_panics() -> Iterator[None]:
    """A context manager that keeps the library's own report of a crash (a Rust panic) off standard
    error.
    """
    try:
        saved_handle = os.dup(2)
    except OSError:  # standard error is closed
        yield
        return
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, 2)
        yield
    finally:
        os.dup2(saved_handle, 2)
        os.close(saved_handle)
        os.close(sink)


def _without_surrogates(text: str) -> str:
    """The text with U+FFFD for each lone surrogate."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


# What a `tokenizer.json` may ask for: a hostile one could fill the memory, where the library ends
# the process.

GROWTH_LIMIT = 1000
"""No tokenizer in use lengthens a text much, or adds more than a few tokens to it."""

_ESCAPE = re.compile(rb"\\u00([2-7][0-9A-Fa-f])")
"""An ASCII character, from 0x20 on, written as an escape of JSON."""
_CHARSMAP = re.compile(rb'"precompiled_charsmap"\s*:\s*"([A-Za-z0-9+/]{0,8})')
"""The first eight signs of base64, which stand for the first six bytes of the table."""


def check_charsmap(raw: bytes, where: str) -> None:
    """Raise InputError for a file that names a table of characters larger than the file: the
    library makes room for it first."""
    # any letter of a name or value may be written as an escape, such as \u0063 for c; without the
    # name and without escapes there is no such table
    if b"charsmap" not in raw and b"\\u00" not in raw:
        return
    plain = _ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), raw).replace(b"\\/", b"/")
    for match in _CHARSMAP.finditer(plain):
        # the table is in base64; its first four bytes state the size of a part (a text that is too
        # short is filled up)
        size = int.from_bytes(base64.b64decode(match[1].ljust(8, b"A"))[:4], "little")
        if size > len(raw):
            what = message(
                "a table of {size:,} bytes in a file of {raw:,}", size=size, raw=len(raw)
            )
            raise InputError(what, where=where, expected="a whole precompiled_charsmap")


def check_growth(hf: tokenizers.Tokenizer, name: str) -> None:
    """Raise InputError for a tokenizer whose rules could make a text very much longer.

    name: for the error.
    """
    if hf.normalizer is None:
        growth = 1
    else:
        growth = _growth(json.loads(hf.normalizer.__getstate__()))
    if growth > GROWTH_LIMIT:
        what = message(
            "this tokenizer's replacements can make a text {growth} times as long", growth=growth
        )
        raise InputError(
            what, where=name, expected="at most {growth_limit} times", growth_limit=GROWTH_LIMIT
        )
    special_count = max(hf.num_special_tokens_to_add(is_pair) for is_pair in (False, True))
    if special_count > GROWTH_LIMIT:
        what = message(
            "this tokenizer adds {special_count:,} special tokens to a text",
            special_count=special_count,
        )
        raise InputError(
            what, where=name, expected="at most {growth_limit:,}", growth_limit=GROWTH_LIMIT
        )
    if hf.post_processor is not None and _repeats(json.loads(hf.post_processor.__getstate__())):
        raise InputError(
            "this tokenizer's template repeats the text", where=name, expected="each text once"
        )


def _growth(normalizer: Any) -> int:
    """The factor by which the replacements of a normalizer (parsed JSON), one after the other, can
    lengthen a text.
    """
    growth = 1
    # a sequence lists its parts; any other normalizer is its own only part
    for part in normalizer.get("normalizers", [normalizer]):
        match part.get("type"):
            case "Sequence":
                growth *= _growth(part)
            case "Replace":
                pattern = part["pattern"].get("String", "")
                content = part["content"]
                if pattern:  # how many times as long, rounded up
                    growth *= max(1, -(-len(content) // len(pattern)))
                else:  # a regular expression, which may match between any two characters
                    growth *= 1 + len(content)
            case "Prepend":
                growth *= 1 + len(part["prepend"])
            case "Precompiled":
                # behind the table's tree lie the texts that characters become, each ended by a 0
                table = base64.b64decode(part["precompiled_charsmap"])
                tree_size = int.from_bytes(table[:4], "little")
                growth *= max(1, *map(len, table[4 + tree_size :].split(b"\0")))
            case _:
                pass  # the others lengthen nothing
    return growth


def _repeats(processor: Any) -> bool:
    """Whether a template of a post-processor (parsed JSON) contains the same text twice."""
    # a sequence lists its parts; any other processor is its own only part
    for part in processor.get("processors", [processor]):
        match part.get("type"):
            case "Sequence" if _repeats(part):
                return True
            case "TemplateProcessing":
                for template in (part["single"], part["pair"]):
                    # its other pieces are special tokens
                    texts = [piece["Sequence"]["id"] for piece in template if "Sequence" in piece]
                    if len(texts) > len(set(texts)):
                        return True
            case _:
                pass
    return False
