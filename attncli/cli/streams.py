"""The process's own standard streams, written past Python's buffers: what fails does so at once, and once.

With buffers, a closed pipe or a full disk would be found again when Python ends, and told by Python.
"""

from __future__ import annotations

import os
import sys
from errno import EBADF
from io import RawIOBase, TextIOBase
from typing import Any, BinaryIO, TextIO, cast


class Closed(RawIOBase):
    """A standard output that is not there: what is written to it fails as it should."""

    def write(self, data: Any) -> int:
        del data
        raise OSError(EBADF, "standard output is closed")


class Listener(TextIOBase):
    """Standard error: what cannot be written to it is nobody's business."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._raw = unbuffered_stream(stream)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding or "utf-8"

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, text: str) -> int:
        try:
            write_all(self._raw, text.encode(self.encoding, "backslashreplace"))
        except (OSError, ValueError):
            return len(text)
        return len(text)


def unbuffered_stream(stream: TextIO) -> BinaryIO:
    """The stream under a text stream's buffers, if there is one."""
    binary = stream.buffer
    return cast(BinaryIO, getattr(binary, "raw", binary))


def standard_output() -> BinaryIO:
    """What standard output writes to. A stream that the caller closed (`>&-`) is None in `sys`."""
    return cast(BinaryIO, Closed()) if sys.stdout is None else unbuffered_stream(sys.stdout)


def write_all(stream: BinaryIO, data: bytes) -> None:
    """Write all of the bytes, however many pieces it takes: a raw stream writes what it can. Raises OSError."""
    remaining = memoryview(data)
    while remaining:
        count = stream.write(remaining)
        if count is None:  # it does not block, and its reader is slow
            from select import select

            select([], [stream], [])
        else:
            remaining = remaining[count:]
    stream.flush()


def read_key() -> str:
    """Wait for a key at the terminal and return its character; "" at the end of the input. Where the terminal cannot
    give single keys, a line is read."""
    try:
        import termios
        import tty
    except ImportError:  # no such thing on Windows
        return sys.stdin.readline()[:1]
    place = sys.stdin.fileno()
    before = termios.tcgetattr(place)
    try:
        tty.setcbreak(place)
        return os.read(place, 1).decode("latin-1")
    finally:
        termios.tcsetattr(place, termios.TCSADRAIN, before)
