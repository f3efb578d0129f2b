"""Tokenizers with a vocabulary: the `tokenizer.json` of the tokenizers library, held to time, size and its own
bounds."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, TypeVar

import tokenizers

from attncli.errors import InputError, LimitError
from attncli.inputs.bytelevel import bytes_of_piece, bytes_text
from attncli.inputs.file_opening import is_there, read_regular
from attncli.inputs.token import Token
from attncli.inputs.tokenizer_bounds import check, check_file

Result = TypeVar("Result")
FILE_LIMIT = 256 * 2**20
SECONDS = 20.0
NO_CHARACTER = "\U0010ffff"


def read_tokenizer(path: Path) -> PieceTokenizer:
    """The tokenizer of a `tokenizer.json`, or of the folder that holds one; its name is the path.

    Raises InputError for a file that is missing, damaged or not a tokenizer, LimitError for one above 256 MiB.
    """
    if path.is_dir():
        if not is_there(path / "tokenizer.json"):
            raise InputError(
                "this folder holds no tokenizer.json",
                where=str(path),
                expected="a tokenizer.json of the tokenizers library",
                hint="AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) writes one",
            )
        path = path / "tokenizer.json"
    raw = read_regular(path, what="a tokenizer.json", limit=FILE_LIMIT)
    check_file(raw, str(path))
    with _quiet():
        hf = _run_guarded(lambda: tokenizers.Tokenizer.from_buffer(raw), "this is no usable tokenizer file", str(path))
    return from_tokenizers(hf, str(path))


def from_tokenizers(hf: tokenizers.Tokenizer, name: str) -> PieceTokenizer:
    """A tokenizer of the tokenizers library as ours. Its padding and truncation are switched off: every token of the
    text is shown. So is what it does by chance: a text has the same tokens each time.

    Raises InputError for one that would lengthen a text beyond reason.
    """
    hf.no_padding()
    hf.no_truncation()
    for chance in ("dropout", "alpha", "nbest_size"):
        if getattr(hf.model, chance, None) is not None:
            setattr(hf.model, chance, None)
    check(hf, name)
    return PieceTokenizer(hf, name)


class PieceTokenizer:
    """A vocabulary of pieces. A token's text is the part of the text it covers, without the space that some pieces
    begin with;
    a piece that covers part of a character is shown by its bytes or its spelling, a special token by its name."""

    def __init__(self, hf: tokenizers.Tokenizer, name: str) -> None:
        self.hf = hf
        self.name = name

    def encode(self, text: str, pair: str | None = None) -> list[Token]:
        """The tokens of a text or pair, with the special tokens that the vocabulary's own rules add.

        Offsets count the characters (code points) of the text as given. Lone surrogates are read as U+FFFD.
        Raises LimitError where it takes more than 20 seconds, InputError where the library fails.
        """
        parts = (text,) if pair is None else (text, pair)
        readable = tuple(_without_surrogates(part) for part in parts)
        entry: Any = readable[0] if pair is None else readable
        # encode_batch lets other threads run, encode does not: only so can the clock and Ctrl-C stop it.
        encoding = _run_timed(lambda: self.hf.encode_batch([entry])[0], self.name)
        spans = [
            None if is_special else span
            for span, is_special in zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
        ]
        sequences = encoding.sequence_ids or [None] * len(spans)
        owners = [kind if owner is None else owner for owner, kind in zip(sequences, encoding.type_ids, strict=True)]
        overlaps = _overlapping(spans, owners)
        tokens = []
        for index, (code, piece, span, owner) in enumerate(
            zip(encoding.ids, encoding.tokens, spans, owners, strict=True)
        ):
            tokens.append(self._token(index, code, piece, span, parts[owner], owner, index in overlaps))
        return tokens

    def ids_to_tokens(self, ids: Sequence[int]) -> list[Token]:
        """Tokens by id, without offsets. Raises InputError for an id that the vocabulary does not have."""
        tokens = []
        for index, code in enumerate(ids):
            piece = self.hf.id_to_token(code) if 0 <= code < 2**32 else None
            if piece is None:
                raise InputError(
                    f"no token has the id {code}", where=self.name, expected=f"0 to {self.hf.get_vocab_size() - 1}"
                )
            special = code in self.special_ids
            unknown = code == self.unknown_id and not special
            shown = piece if special else self._piece_text(piece)
            tokens.append(Token(index, shown, code, None, None, special, unknown=unknown))
        return tokens

    def text_of(self, ids: Sequence[int]) -> str:
        """What these ids say, as the vocabulary's own decoder joins its pieces; U+FFFD for a character that is not
        whole. Raises InputError for an id that the vocabulary does not have."""
        self.ids_to_tokens(ids)
        text: str = _run_guarded(lambda: self.hf.decode(list(ids)), "the tokenizer failed on these ids", self.name)
        return text

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids of the vocabulary's special tokens."""
        return frozenset(code for code, token in self.hf.get_added_tokens_decoder().items() if token.special)

    @cached_property
    def unknown_id(self) -> int | None:
        """The id of all that the vocabulary has no piece for, such as that of [UNK]; None where it has none."""
        try:  # a code point that stands for no character; the library has no name for this id in all its models
            pieces = self.hf.model.tokenize(NO_CHARACTER)
        except Exception:  # "unk_id is missing"
            return None
        return pieces[0].id if len(pieces) == 1 else None

    @cached_property
    def _is_byte_level(self) -> bool:
        return any(
            part is not None and b'"ByteLevel"' in part.__getstate__()
            for part in (self.hf.pre_tokenizer, self.hf.decoder)
        )

    def _token(
        self, index: int, code: int, piece: str, span: tuple[int, int] | None, text: str, part: int, overlaps: bool
    ) -> Token:
        if span is None:
            return Token(index, piece, code, None, None, special=True, part=part)
        start, end = span
        unknown = code == self.unknown_id
        if start == end:
            return Token(index, self._piece_text(piece), code, None, None, part=part, unknown=unknown)
        while start < end - 1 and text[start] == " ":
            start += 1
        covered_text = text[start:end]
        if overlaps:
            return Token(index, self._piece_text(piece), code, start, end, part=part, unknown=unknown)
        special = code in self.special_ids and covered_text == piece
        return Token(index, covered_text, code, start, end, special, part, unknown and not special)

    def _piece_text(self, piece: str) -> str:
        """A piece as text, where no part of the text stands for it."""
        if self._is_byte_level and (raw := bytes_of_piece(piece)) is not None:
            return bytes_text(raw)
        plain = piece.replace("▁", " ").removeprefix("##")
        return plain.strip(" ") or plain or piece


def _overlapping(spans: list[tuple[int, int] | None], owners: list[int]) -> set[int]:
    """The tokens that share a character with the one before or after."""
    indices: set[int] = set()
    for index in range(1, len(spans)):
        before, span = spans[index - 1], spans[index]
        if before and span and owners[index - 1] == owners[index] and span[0] < before[1] and span[0] < span[1]:
            indices |= {index - 1, index}
    return indices


class _Clerk:
    """A thread that does what may never end; one is kept, for starting it takes as long as a sentence's tokens."""

    idle: ClassVar[list[_Clerk]] = []

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._process = os.getpid()
        threading.Thread(target=self._serve, name="tokenizer", daemon=True).start()

    @classmethod
    def free(cls) -> _Clerk:
        """One that waits for work; a process that was forked has none of its parent's."""
        with suppress(IndexError):
            while (clerk := cls.idle.pop())._process != os.getpid():
                pass
            return clerk
        return cls()

    def do(self, work: Callable[[], Result]) -> Result:
        """The result of `work`. Raises queue.Empty where it takes too long: this thread is left to it then, and ends
        with it."""
        self._tasks.put(work)
        try:
            result, failure = self._results.get(timeout=SECONDS)
        except BaseException:
            self._tasks.put(None)
            raise
        self.idle.append(self)
        if failure is not None:
            raise failure
        value: Result = result
        return value

    def _serve(self) -> None:
        while (work := self._tasks.get()) is not None:
            self._results.put(_try(work))
            del work


def _try(work: Callable[[], Result]) -> tuple[Result | None, BaseException | None]:
    try:
        return work(), None
    except BaseException as error:
        return None, error


def _run_timed(work: Callable[[], Result], where: str) -> Result:
    """The result of `work`, done beside a clock: a vocabulary's patterns can be written to run for ever."""
    with _quiet():  # for this thread to undo: one that is left behind never would
        try:
            return _Clerk.free().do(lambda: _run_guarded(work, "the tokenizer failed on this text", where))
        except Empty:
            raise LimitError(
                f"this tokenizer took more than {SECONDS:.0f} seconds for one text",
                where=where,
                expected="a shorter text, or another tokenizer",
            ) from None


def _run_guarded(work: Callable[[], Result], what: str, where: str) -> Result:
    """The result of `work`, with whatever the library raises told as an InputError."""
    try:
        return work()
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic in the library's Rust code is no Exception
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise InputError(
            f"{what}: {reason}", where=where, expected="a tokenizer.json of the tokenizers library"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps a panic's report, which the library writes to standard error by itself, off the terminal."""
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
    return re.sub("[\ud800-\udfff]", "\ufffd", text)
