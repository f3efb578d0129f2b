"""Reading a large file at given places: no seek, no memory map, so that a file that shrinks is an error and not a
crash."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from attncli.errors import InputError
from attncli.inputs.file_opening import open_regular

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
