"""Writing files whole or not at all: each by itself, and all of a command's together."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import islice
from pathlib import Path
from typing import BinaryIO
from unicodedata import normalize

from msgspec import Struct

from attncli.errors import AttnError, VerdictError

# Names of this process's own streams: resolving them would replace the file that a shell redirected them to.
STREAMS = ("/dev/stdout", "/dev/stderr")
STREAM_FOLDERS = ("/dev/fd/", "/proc/")
LONGEST_ENDING = 12
ENTRIES = 64
"""Names of a folder that are looked at for letters; a folder may hold millions."""


class PendingFile(Struct, frozen=True):
    """A file that is written, and not yet in its place. beside: the temporary file; target: its place."""

    beside: Path
    target: Path


_waiting: ContextVar[list[PendingFile] | None] = ContextVar("_waiting", default=None)
_temporary: dict[Path, int] = {}
"""The temporary files that there are, each with the process that made it."""


@contextmanager
def together() -> Iterator[None]:
    """Files that are written in the block take their places when it ends, all of them or none.

    None where the block fails, or where one cannot take its place. All where it ends well, where the reader of the
    answer has gone (BrokenPipeError), and where the answer was given and is no (VerdictError). Raises AttnError.
    """
    pending: list[PendingFile] = []
    before = _waiting.set(pending)
    try:
        yield
    except (BrokenPipeError, VerdictError):
        _commit(pending)
        raise
    except BaseException:
        for file in pending:
            _discard(file.beside)
        raise
    else:
        _commit(pending)
    finally:
        _waiting.reset(before)


def written_at(path: Path) -> Path:
    """Where the content of an output is now: still beside its place while others are awaited."""
    target = path.resolve()
    return next((file.beside for file in reversed(_waiting.get() or []) if file.target == target), path)


def discard_all() -> None:
    """Remove every temporary file that this process made: it ends now."""
    for beside, owner in tuple(_temporary.items()):
        if owner == os.getpid():
            _discard(beside)


def place_of(path: Path) -> str:
    """The place that a path names: equal for all its spellings, also where there is no file yet.

    Links are followed. In a folder that does not tell capitals from small letters, neither does this.
    """
    try:
        target = path.resolve()
    except (OSError, ValueError, RuntimeError):  # it cannot be written either
        return os.path.abspath(path)  # noqa: PTH100 - which never fails
    return normalize("NFC", str(target)).casefold() if _folds_case(target.parent) else str(target)


def _folds_case(folder: Path) -> bool:
    """Whether capitals and small letters are one in the names of a folder, as on the disks of macOS and Windows: an
    entry of it is also there by its name with the letters exchanged."""
    for place in (folder, *folder.parents):
        try:
            names = [entry.name for entry in islice(os.scandir(place), ENTRIES)]
        except OSError:
            names = []
        for name in names:
            if name.isascii() and name.swapcase() != name:
                with suppress(OSError):
                    return (place / name.swapcase()).samefile(place / name)
                return False
    return False


def check_writable(path: Path) -> None:
    """Raises AttnError where `atomic_writer` could not write a file: asked before work starts. Writes nothing."""
    try:
        direct, target, _ = _destination(path)
        if not direct and not os.access(target.parent, os.W_OK):
            target.parent.stat()  # says what is wrong with the folder, if it is more than permissions
            raise PermissionError(None, "its folder may not be written")
    except (OSError, ValueError, RuntimeError) as error:
        raise _unwritable(path, error) from error


@contextmanager
def atomic_writer(path: Path, *, alone: bool = False) -> Iterator[BinaryIO]:
    """A binary stream whose content becomes the file `path` when the block ends well, and in a block of `together`
    when that ends well. alone: at once, also there: it is none of the command's outputs.

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
        with _write_errors(path), target.open("wb") as stream:
            yield stream
        return
    ending = target.suffix if len(target.suffix) <= LONGEST_ENDING else ""
    beside = target.parent / f".attn-{os.urandom(8).hex()}.tmp{ending}"
    _temporary[beside] = os.getpid()
    waiting = None if alone else _waiting.get()
    try:
        with _write_errors(path):
            with _create(beside) as stream:
                if mode is not None:
                    os.chmod(beside, mode)  # noqa: PTH101 - beside the other calls on handles and names
                yield stream
            if waiting is None:
                os.replace(beside, target)  # noqa: PTH105
    except BaseException:
        _discard(beside)
        raise
    if waiting is None:
        del _temporary[beside]
    else:
        waiting.append(PendingFile(beside, target))


def _commit(pending: list[PendingFile]) -> None:
    """Put every file in its place; where one cannot, all are as they were. Raises AttnError."""
    replacements: list[tuple[Path, Path | None]] = []
    try:
        for file in pending:
            with _write_errors(file.target):
                replacements.append((file.target, _keep_old(file.target)))
                os.replace(file.beside, file.target)  # noqa: PTH105
                del _temporary[file.beside]
    except BaseException:
        for target, old in reversed(replacements[:-1]):
            with suppress(OSError):
                target.unlink() if old is None else os.replace(old, target)  # noqa: PTH105
        for file in pending:
            _discard(file.beside)
        raise
    finally:
        for _, old in replacements:
            if old is not None:
                _discard(old)


def _keep_old(target: Path) -> Path | None:
    """A second name for the file that is there now, so that it can come back; None where there is none, or where the
    file system knows no second names."""
    second_name = target.parent / f".attn-{os.urandom(8).hex()}.tmp"
    _temporary[second_name] = os.getpid()
    try:
        os.link(target, second_name)
    except OSError:
        del _temporary[second_name]
        return None
    return second_name


def _discard(beside: Path) -> None:
    with suppress(OSError):
        beside.unlink()
    _temporary.pop(beside, None)


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


def _create(path: Path) -> BinaryIO:
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o666)
    return os.fdopen(handle, "wb")


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: Exception) -> AttnError:
    reason = getattr(error, "strerror", None) or str(error)
    return AttnError(f"cannot write this file: {reason}", where=str(path), expected="a place that may be written")
