"""Writing a file whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from attncli.errors import AttnError

# Names of this process's own streams: resolving them would replace the file that a shell redirected them to.
STREAMS = ("/dev/stdout", "/dev/stderr")
STREAM_FOLDERS = ("/dev/fd/", "/proc/")


@contextmanager
def atomic_writer(path: Path) -> Iterator[BinaryIO]:
    """A binary stream whose content becomes the file `path` when the block ends well.

    The bytes go to a temporary file beside it, which takes its place in one step: a reader sees the old file or
    the new one. An error or Ctrl-C in the block leaves everything as it was. A file that exists keeps its
    permissions; a symbolic link keeps pointing, and the file that it names is replaced. Pipes, terminals,
    `/dev/stdout` and `/dev/null` are written as they stand.

    Raises AttnError for a folder, a missing folder, a file or folder that may not be written, a full disk.
    BrokenPipeError passes through: the reader of a pipe has gone.
    """
    try:
        direct, target, mode = _destination(path)
    except (
        OSError,
        ValueError,
        RuntimeError,
    ) as error:  # ValueError: a NUL in the name; RuntimeError: links in a circle
        raise _unwritable(path, error) from error
    if direct:
        with _told(path), target.open("wb") as stream:
            yield stream
        return
    beside = target.parent / f".attn-{os.urandom(8).hex()}.tmp"
    try:
        with _told(path):
            with _created(beside) as stream:
                if mode is not None:
                    os.chmod(beside, mode)  # noqa: PTH101 - beside the other calls on handles and names
                yield stream
            os.replace(beside, target)  # noqa: PTH105
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


def _destination(path: Path) -> tuple[bool, Path, int | None]:
    """Whether to write directly, where, and the permissions of the file that is there now (None: there is none)."""
    plain = os.path.abspath(path)  # noqa: PTH100 - links must stay as they are
    if plain in STREAMS or plain.startswith(STREAM_FOLDERS):
        return True, path, None
    target = path.resolve()
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return False, target, None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(None, "it is a folder")
    if not os.access(target, os.W_OK):
        raise PermissionError(None, "it may not be written")
    return not stat.S_ISREG(mode), target, stat.S_IMODE(mode)


def _created(path: Path) -> BinaryIO:
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o666)
    return os.fdopen(handle, "wb")


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: Exception) -> AttnError:
    reason = getattr(error, "strerror", None) or str(error)
    return AttnError(f"cannot write this file: {reason}", where=str(path), expected="a place that may be written")
