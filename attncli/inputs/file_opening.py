"""Reading files that somebody else wrote: opened within bounds, at given places, or as strict JSON."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
import threading
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO

from attncli.errors import InputError, LimitError

SIZE_LIMIT = 2 * 2**30


def is_there(path: Path) -> bool:
    """Whether there is such a file or folder. Raises InputError where that cannot be found out: its folder may not be
    searched, or its name is too long."""
    try:
        path.stat()  # `exists` tells of some of these errors before Python 3.14, of none after
        return True
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL in the name
        return False
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False
        raise InputError(
            f"cannot look for this file: {error.strerror}",
            where=str(path),
            expected="the name of a file, in a folder that may be searched",
        ) from error


def opening_waits(path: Path) -> bool:
    """Whether opening a file for reading may wait for ever: it is a pipe that nobody may be writing to, and none that a
    shell opened for this process (`<(…)`)."""
    plain = os.path.abspath(path)  # noqa: PTH100 - links must stay as they are
    if plain == "/dev/stdin" or plain.startswith(("/dev/fd/", "/proc/self/fd/")):
        return False
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)  # noqa: PTH116 - a name may be none at all
    except (OSError, ValueError):
        return False


def open_regular(path: Path, *, what: str, limit: int = SIZE_LIMIT) -> tuple[BinaryIO, int]:
    """A file opened for reading in binary, and its size in bytes.

    what: what it should be, for the message ("a tensor file"). Symbolic links are followed.
    Raises InputError for a file that is missing, unreadable, empty, a folder, a pipe or a device (never waits for one);
    LimitError for one larger than `limit` bytes.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read this file: {reason}", where=str(path), expected=what) from error
    try:
        status = os.fstat(handle)
        _check(status.st_mode, status.st_size, path, what, limit)
        return os.fdopen(handle, "rb"), status.st_size
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: Path, *, what: str, limit: int = SIZE_LIMIT) -> bytes:
    """All bytes of a file; raises as `open_regular`, and InputError if reading fails."""
    stream, size = open_regular(path, what=what, limit=limit)
    with stream:
        return read_exactly(stream, size, str(path))


def read_exactly(stream: BinaryIO, count: int, where: str) -> bytes:
    """The next `count` bytes. Raises InputError where the file ends before them or cannot be read."""
    try:
        data = stream.read(count)
    except OSError as error:
        raise InputError(f"cannot read this file: {error.strerror or error}", where=where) from error
    if len(data) != count:
        raise InputError(
            f"this file is cut short: {len(data):,} bytes where {count:,} are needed",
            where=where,
            expected="the whole file",
        )
    return data


def _check(mode: int, size: int, path: Path, what: str, limit: int) -> None:
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or device"
        raise InputError(f"this is {kind}, not a file", where=str(path), expected=what)
    if size == 0:
        raise InputError("this file is empty", where=str(path), expected=what)
    if size > limit:
        raise LimitError(f"this file has {size:,} bytes", where=str(path), expected=f"at most {limit:,} bytes")


# Reading a large file at given places: no seek, no memory map, so that a file that shrinks is an error and not a
# crash.

LARGEST_FILE = 2**46
CALL_LIMIT = 2**30
"""Bytes asked for in one system call; Linux serves at most 2 GiB."""


class PositionedFile:
    """A file open for reads at any place, from any thread.

    size: bytes when it was opened. Raises as `open_regular`. Symbolic links are followed: check them before.
    """

    def __init__(self, path: Path, *, what: str) -> None:
        self.path = path
        self._stream, self.size = open_regular(path, what=what, limit=LARGEST_FILE)
        self._handle = self._stream.fileno()
        self._write_time = os.fstat(self._handle).st_mtime_ns
        self._lock = threading.Lock()

    def fill(self, view: memoryview, start: int, about: str) -> None:
        """Fill `view` (bytes, writable) from byte `start` on. about: what is being read, for the error.

        Raises InputError where the file has become shorter, has been written to since it was opened, or fails.
        """
        position = 0
        try:
            while position < len(view):
                count = self._read(view[position : position + CALL_LIMIT], start + position)
                if count == 0:
                    raise self._change_error(
                        f"{about} ends after {position:,} of {len(view):,} bytes: the file became shorter while it was "
                        "read"
                    )
                position += count
            now = os.fstat(self._handle)
        except OSError as error:
            raise InputError(f"{about} cannot be read: {error.strerror or error}", where=str(self.path)) from error
        if (now.st_size, now.st_mtime_ns) != (self.size, self._write_time):
            raise self._change_error("this file was changed while it was read")

    def at_hand(self, place: int) -> bool:
        """Whether reading this byte waits for no disk; true where the system does not say."""
        if not hasattr(os, "RWF_NOWAIT"):
            return True
        try:
            os.preadv(self._handle, [bytearray(1)], place, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        """Give the file back; reading is over."""
        self._stream.close()

    def _read(self, view: memoryview, start: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._handle, [view], start)
        with self._lock:
            self._stream.seek(start)
            return self._stream.readinto(view) or 0  # type: ignore[attr-defined]

    def _change_error(self, what: str) -> InputError:
        return InputError(what, where=str(self.path), expected="a file that nobody writes to")


# JSON files that somebody else wrote: one object, of bounded size, without repeated keys or NaN.

JSON_LIMIT = 16 * 2**20
MOST = 2**21
"""Names, lists and values in one file: many times what the largest model needs, and parsed in seconds."""
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""How half of a character beyond the first 65,536 is written; two that belong together are one character."""
TAG = "__float__"
TAGGED = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
"""How transformers writes numbers for which JSON has no word: an object of one key, or, earlier, the bare word."""
HUGE = (re.compile(rb"[eE]\+?0*[1-9][0-9]{2}"), re.compile(rb"[0-9]{300}"))
"""One of which a number above the range of a float must contain; each is found faster by itself."""


def read_object(
    path: Path,
    *,
    what: str,
    limit: int = JSON_LIMIT,
    most: int = MOST,
    with_tags: bool = False,
) -> dict[str, Any]:
    """The JSON object in a file. with_tags: whether `{"__float__": "Infinity"}` stands for that number, and the bare
    word.

    Raises InputError for a file that is missing, not a file, not UTF-8, not JSON (NaN and Infinity are not, nor is a
    number that no float can hold), not an object, nested too deeply, or that names a key twice or holds half of a
    character (a lone surrogate); LimitError above `limit` bytes or `most` names and values.
    """
    raw = read_regular(path, what=what, limit=limit)
    return parse_object(raw, str(path), what, most=most, with_tags=with_tags)


def nesting_error(where: str, what: str) -> InputError:
    """The error for JSON whose lists and objects stand in one another deeper than any reader here goes; how deep that
    is depends on the reader and on Python. what: what was expected."""
    return InputError("this JSON is nested too deeply", where=where, expected=what)


def finite(word: str) -> float:
    """The number that a JSON text writes with a point or an exponent; raises ValueError where no float can hold it."""
    number = float(word)
    if math.isinf(number):
        raise ValueError(f"the number {word[:40]} is too large")
    return number


def parse_object(raw: bytes, where: str, what: str, *, most: int = MOST, with_tags: bool = False) -> dict[str, Any]:
    """The JSON object in these bytes; raises as `read_object`."""

    # each takes up to a hundred times its bytes once it is parsed
    item_count = sum(map(raw.count, (b":", b",", b"[")))
    if item_count > most:
        raise LimitError(
            f"this JSON holds about {item_count:,} names and values",
            where=where,
            expected=f"{what}, at most {most:,} of them",
        )

    def unique(pairs: list[tuple[str, Any]]) -> Any:
        entries: dict[str, Any] = dict(pairs)
        if len(entries) < len(pairs):
            twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            raise InputError(f"the key {twice!r} stands there twice", where=where, expected=what)
        match entries.get(TAG) if with_tags and len(entries) == 1 else None:
            case str() as word if word in TAGGED:
                return TAGGED[word]
            case _:
                pass
        return entries

    def constant(word: str) -> float:
        if with_tags:
            return TAGGED[word]
        raise ValueError(f"{word} is not JSON")

    # asking of every number costs half the time of reading
    parse_float = finite if any(huge.search(raw) for huge in HUGE) else None
    try:
        value = json.loads(
            raw.decode("utf-8"), object_pairs_hook=unique, parse_constant=constant, parse_float=parse_float
        )
    except RecursionError as error:
        raise nesting_error(where, what) from error
    except ValueError as error:
        raise InputError(f"this is not valid JSON: {error}", where=where, expected=what) from error
    if not isinstance(value, dict):
        raise InputError(f"this JSON is a {type(value).__name__}, not an object", where=where, expected=what)
    if SURROGATE.search(raw):  # few have one, and looking at every text takes long
        refuse_half_characters(value, where)
    return value


def refuse_half_characters(json_value: Any, where: str) -> None:
    """Raise InputError, naming the first place, where a text of parsed JSON holds a lone surrogate, which no encoding
    can write."""
    waiting = [("$", json_value)]
    while waiting:
        place, part = waiting.pop()
        if isinstance(part, str):
            if any("\ud800" <= char <= "\udfff" for char in part):
                raise InputError(
                    "this text holds half of a character", where=f"{where}: {place}", expected="UTF-8 text"
                )
            continue
        names = [(place, key) for key in part] if isinstance(part, dict) else []
        inner = part.items() if isinstance(part, dict) else enumerate(part)
        waiting += names
        waiting += [
            (f"{place}.{name}" if names else f"{place}[{name}]", member)
            for name, member in reversed(list(inner))
            if isinstance(member, str | list | dict)
        ]
