"""Opening a file that somebody else wrote: only a regular file of a size within bounds."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from attncli.errors import InputError, LimitError

SIZE_LIMIT = 2 * 2**30


def is_there(path: Path) -> bool:
    """Whether there is such a file or folder. Raises InputError where that cannot be found out: its folder may not be
    searched, or its name is too long."""
    try:
        return path.exists()
    except OSError as error:
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
