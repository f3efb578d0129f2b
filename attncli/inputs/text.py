"""Texts: from the argument, a file, standard input, or token ids."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from attncli.errors import InputError, LimitError, UsageError

SAMPLE = "The animal didn't cross the street because it was too tired"
STANDARD_INPUT = "standard input"
TEXT_LIMIT = 64 * 2**20
LARGEST_ID = 2**31 - 1


class Text(Struct, frozen=True):
    """One text, or the token ids that were given in its place.

    text: the text; "" when `ids` are given.
    origin: where it came from: "argument", "standard input", "sample", "ids" or a path; with ":LINE" (first is 1) for
    one line of many. ids: token ids, or None.
    """

    text: str
    origin: str
    ids: tuple[int, ...] | None = None


def read_texts(
    argument: str | None,
    *,
    file: Path | None,
    lines: bool,
    ids: str | None,
    stdin: BinaryIO | None,
    stdin_is_terminal: bool,
    sample: str | None,
    limit: int = TEXT_LIMIT,
) -> Iterator[Text]:
    """The texts that a command line asks for, read as they are taken.

    An argument, a file or ids win over a pipe, which is then not read; `-` or no source at all reads `stdin`,
    except on a terminal, where no source gives the `sample` (if there is one). Text is UTF-8; a byte-order mark
    is dropped, as are line ends at the end. With `lines`, every line that is not blank is a text of its own.
    Lone surrogates in the argument (bytes that were not UTF-8) are kept, as data. `limit`: bytes of one text.

    Raises UsageError for more than one source or none, InputError for nothing in the source or text that is not
    UTF-8, LimitError for a text above `limit`.
    """
    sources = [name for name, value in (("TEXT", argument), ("--file", file), ("--ids", ids)) if value is not None]
    if len(sources) > 1:
        raise UsageError(f"more than one text is given: {' and '.join(sources)}", expected="one of TEXT, --file, --ids")
    if ids is not None:
        return iter([Text("", "ids", parse_ids(ids))])
    if file is not None and str(file) == "-":
        argument, file = "-", None
    if file is not None:
        return _texts_of_file(file, lines, limit)
    if argument is not None and argument != "-":
        return _texts_of(BytesIO(argument.encode("utf-8", "surrogatepass")), "argument", lines, limit, "surrogatepass")
    if argument is None and stdin_is_terminal:
        if sample is None:
            raise UsageError("no text is given", expected="TEXT, --file PATH, or a pipe")
        return iter([Text(sample, "sample")])
    if stdin is None:
        raise InputError("there is no text: standard input is closed", expected="TEXT, --file PATH, or a pipe")
    return _texts_of(stdin, STANDARD_INPUT, lines, limit)


def parse_ids(ids: str) -> tuple[int, ...]:
    """Token ids from `1 5 7` or `1,5,7`. Raises InputError for none, or for what is no id."""
    token_ids = []
    for piece in re.split(r"[\s,]+", ids.strip(" \t\n,")):
        if not re.fullmatch(r"[0-9]{1,10}", piece) or int(piece) > LARGEST_ID:
            what = f"{piece!r} is no token id" if piece else "--ids holds no token ids"
            raise InputError(
                what, where="--ids", expected=f"whole numbers from 0 to {LARGEST_ID:,}", hint='--ids "1 5 7"'
            )
        token_ids.append(int(piece))
    return tuple(token_ids)


def _place(origin: str) -> str:
    """Where a text came from, for an error; an argument is before the reader's eyes."""
    return "" if origin == "argument" else origin


def _texts_of_file(path: Path, lines: bool, limit: int) -> Iterator[Text]:
    try:
        stream = path.open("rb")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"cannot read the text file: {reason}", where=str(path), expected="a UTF-8 text file"
        ) from error

    def texts() -> Iterator[Text]:
        with closing(stream):
            yield from _texts_of(stream, str(path), lines, limit)

    return texts()


def _texts_of(stream: BinaryIO, origin: str, lines: bool, limit: int, errors: str = "strict") -> Iterator[Text]:
    has_text = False
    for number, offset, line in _raw_lines(stream, origin, limit) if lines else _raw_whole(stream, origin, limit):
        text = _decode(line, origin, offset, number, errors).rstrip("\r\n")
        if text.strip():
            has_text = True
            yield Text(text, f"{origin}:{number}" if lines else origin)
    if not has_text:
        kind = "every line is blank" if lines else "it holds no text"
        raise InputError(f"nothing to run on: {kind}", where=_place(origin), expected="a text of at least one word")


def _raw_lines(stream: BinaryIO, origin: str, limit: int) -> Iterator[tuple[int, int, bytes]]:
    offset = 0
    for number, line in enumerate(_reads(stream, origin, limit, whole=False), start=1):
        yield number, offset, line
        offset += len(line)


def _raw_whole(stream: BinaryIO, origin: str, limit: int) -> Iterator[tuple[int, int, bytes]]:
    yield 1, 0, b"".join(_reads(stream, origin, limit, whole=True))


def _reads(stream: BinaryIO, origin: str, limit: int, *, whole: bool) -> Iterable[bytes]:
    byte_count = 0
    while True:
        try:
            part = stream.read(limit + 1 - byte_count) if whole else stream.readline(limit + 1)
        except OSError as error:
            raise InputError(f"cannot read the text: {error.strerror or error}", where=_place(origin)) from error
        if not part:
            return
        byte_count = byte_count + len(part) if whole else len(part)
        if byte_count > limit:
            raise LimitError(
                f"this text is longer than {limit:,} bytes",
                where=_place(origin),
                expected="a shorter text, or --lines to take it by lines",
            )
        yield part


def _decode(raw: bytes, origin: str, offset: int, line: int, errors: str) -> str:
    if offset == 0:
        if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise InputError(
                "this text is UTF-16",
                where=_place(origin),
                expected="UTF-8",
                hint="iconv -f UTF-16 -t UTF-8 FILE | attn run",
            )
        raw_text = raw.removeprefix(codecs.BOM_UTF8)
        offset = len(raw) - len(raw_text)
        raw = raw_text
    try:
        return raw.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        row = line + raw[: error.start].count(b"\n")
        place = f"byte 0x{raw[error.start]:02X} at offset {offset + error.start}, line {row}"
        raise InputError(
            f"this text is not UTF-8: {place}",
            where=_place(origin),
            expected="UTF-8 text",
            hint="iconv -f LATIN1 -t UTF-8 FILE | attn run",
        ) from error
