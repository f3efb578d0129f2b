"""Files: those that somebody else wrote, read within bounds or as strict JSON; our own, written
whole or not at all.
"""

from __future__ import annotations

import codecs
import errno
import json
import math
import os
import re
import stat
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any, BinaryIO
from unicodedata import normalize

from msgspec import Struct

from attncli.errors import AttnError, InputError, LimitError, VerdictError
from attncli.language import Message, message, term

# Names of this process's own streams: resolving them would replace the file that a shell redirected
# them to.
STREAMS = ("/dev/stdout", "/dev/stderr")
STREAM_FOLDERS = ("/dev/fd/", "/proc/")
LONGEST_ENDING = 12
"""Characters of an ending that a temporary file shares: those of .safetensors, the longest in use."""
NAME_ERRORS = (OSError, ValueError, RuntimeError)
"""What comes of following a name: ValueError for a NUL in it, RuntimeError for links in a circle.
"""
ENTRIES = 64
"""Names of a folder that are looked at for letters; a folder may hold millions."""


class PendingFile(Struct, frozen=True):
    """A file that is written under a temporary name (`beside`) and has yet to be moved to its final
    path (`target`).
    """

    beside: Path
    target: Path


_waiting: ContextVar[list[PendingFile] | None] = ContextVar("_waiting", default=None)
_temporary: dict[Path, int] = {}
"""The temporary files that there are, each with the process that made it."""
_new_folders: set[Path] = set()
"""Folders made for files that are not yet in their places."""


@contextmanager
def together() -> Iterator[None]:
    """A context manager: files written in its block are all moved to their final paths when it
    ends, or none of them.

    None is moved where the block fails, or where one cannot be moved. All are moved where the block
    ends well, where the reader of the output closed it early (BrokenPipeError), and where the
    command has done its work and answers "no" by its exit code (VerdictError). Raises AttnError
    where a file cannot be moved.
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


def make_folder(folder: Path) -> list[Path]:
    """Make a folder and those above it that are missing; returns them, the innermost first.

    They are removed again if no file that is written into them reaches its final path. Raises
    OSError where one cannot be made; then none is left.
    """
    new: list[Path] = []
    place = folder.absolute()
    while not place.exists():
        new.append(place)
        place = place.parent
    for made_count, path in enumerate(reversed(new)):
        try:
            path.mkdir()
        except OSError:
            # `new` lists the innermost first, so those made so far are its last ones
            for empty in new[len(new) - made_count :]:
                empty.rmdir()
            raise
        _new_folders.add(path.resolve())
    return new


def present_path(path: Path) -> Path:
    """The path at which an output file can be read now: its temporary file while it waits for the
    other files of `together`, else the path itself."""
    try:
        target = path.resolve()
    except NAME_ERRORS:  # opening it will raise an error that says so
        return path
    waiting_files = _waiting.get() or []
    for file in reversed(waiting_files):  # the last one written for this path
        if file.target == target:
            return file.beside
    return path


def discard_all() -> None:
    """Remove every temporary file of this process, which is about to end."""
    for beside, owner in tuple(_temporary.items()):
        if owner == os.getpid():  # a forked process has its parent's files on record too
            _discard(beside)


def place_of(path: Path) -> str:
    """A normalised path as text, equal for all spellings of the same file, whether or not the file
    exists.

    Links are followed. In a folder whose names ignore case, the text is in small letters.
    """
    try:
        target = path.resolve()
    except NAME_ERRORS:  # such a path cannot be written to either
        return os.path.abspath(path)  # noqa: PTH100 - which never fails
    if _folds_case(target.parent):
        return normalize("NFC", str(target)).casefold()
    return str(target)


def _folds_case(folder: Path) -> bool:
    """Whether names in a folder ignore case, as on disks of macOS and Windows: found by looking up
    one of its entries with the case of its letters exchanged.
    """
    for place in (folder, *folder.parents):
        try:
            names = [entry.name for entry in islice(os.scandir(place), ENTRIES)]
        except OSError:
            names = []
        for name in names:  # the first one with letters tells
            if name.isascii() and name.swapcase() != name:
                with suppress(OSError):
                    return (place / name.swapcase()).samefile(place / name)
                return False  # there is no file of the other case
    return False


def check_writable(path: Path) -> None:
    """Check that `atomic_writer` could write this path, without writing anything; a command does so
    before it starts its work. Raises AttnError, which the errors of the system (PermissionError and
    others) become, for a folder, a missing folder, and a file or folder that may not be written."""
    with _write_errors(path, NAME_ERRORS):
        direct, target, _ = _destination(path)
        if not direct and not os.access(target.parent, os.W_OK):
            # says what is wrong with the folder, if it is more than permissions
            target.parent.stat()
            raise PermissionError(None, message("its folder may not be written"))


@contextmanager
def atomic_writer(path: Path, *, alone: bool = False) -> Iterator[BinaryIO]:
    """A binary stream whose content becomes the file `path` when the block ends well, and in a
    block of `together` when that ends well.

    alone: replace the file at once, also in a block of `together`; for files that are no output of
        the command.

    The bytes go to a temporary file beside it, which takes its place in one step: a reader sees the
    old file or the new one. An error or Ctrl-C in the block leaves everything as it was. A file
    that exists keeps its permissions; a symbolic link keeps pointing, and the file that it names is
    replaced. Pipes, terminals, `/dev/stdout` and `/dev/null` are written as they stand.

    Raises AttnError for a folder, a missing folder, a file or folder that may not be written, a
    full disk.
    BrokenPipeError passes through: the reader of a pipe has gone.
    """
    with _write_errors(path, NAME_ERRORS):
        direct, target, mode = _destination(path)
    if direct:
        with _write_errors(path), target.open("wb") as stream:
            yield stream
        return
    # with its ending, by which readers of `present_path` may know the format; a long one might make
    # the name too long
    if len(target.suffix) <= LONGEST_ENDING:
        ending = target.suffix
    else:
        ending = ""
    beside = target.parent / f".attn-{os.urandom(8).hex()}.tmp{ending}"
    _temporary[beside] = os.getpid()  # removed if this process is ended
    # the files that wait for the end of `together`; None: this one is moved at once
    if alone:
        waiting = None
    else:
        waiting = _waiting.get()
    try:
        with _write_errors(path):
            handle = os.open(
                beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o666
            )
            with os.fdopen(handle, "wb") as stream:
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
    """Move every temporary file to its final path; where one cannot be moved, all are put back as
    they were. Where the file system has no hard links, a file that was written over stays so: it
    is not deleted for an old one that is gone. Raises AttnError."""
    # each final path, and the second name of the file that stood there; None without such a name
    replacements: list[tuple[Path, Path | None]] = []
    new_files: set[Path] = set()  # final paths at which there was no file
    try:
        for file in pending:
            with _write_errors(file.target):
                if not os.path.lexists(file.target):
                    new_files.add(file.target)
                replacements.append((file.target, _keep_old(file.target)))
                os.replace(file.beside, file.target)  # noqa: PTH105
                del _temporary[file.beside]
        for file in pending:
            _new_folders.difference_update(file.target.parents)
    except BaseException:
        # the last of them was not replaced: that is what failed
        for target, old in reversed(replacements[:-1]):
            with suppress(OSError):
                if old is not None:
                    os.replace(old, target)  # noqa: PTH105
                elif target in new_files:
                    target.unlink()
        for file in pending:
            _discard(file.beside)
        raise
    finally:
        for _, old in replacements:
            if old is not None:
                _discard(old)


def _keep_old(target: Path) -> Path | None:
    """Give an existing file a second name (a hard link), so that it can be restored, and return
    that; None where there is no file, or where the file system has no hard links.
    """
    second_name = target.parent / f".attn-{os.urandom(8).hex()}.tmp"
    _temporary[second_name] = os.getpid()
    try:
        os.link(target, second_name)
    except OSError:
        del _temporary[second_name]
        return None
    return second_name


def _discard(beside: Path) -> None:
    """Delete a temporary file, and the folders that were made for it where they are empty now."""
    with suppress(OSError):
        beside.unlink()
    _temporary.pop(beside, None)
    for folder in beside.parents:  # the innermost first
        if folder in _new_folders:
            with suppress(OSError):
                folder.rmdir()
                _new_folders.discard(folder)


def _destination(path: Path) -> tuple[bool, Path, int | None]:
    """Whether to write directly (to a pipe or a device), the path to write to with links resolved,
    and the permissions of the file that is there now (None: there is none). Raises OSError where it
    may not be written.
    """
    plain = os.path.abspath(path)  # noqa: PTH100 - links must stay as they are
    if plain in STREAMS or plain.startswith(STREAM_FOLDERS):
        return True, path, None  # following the link would replace the file behind it
    target = path.resolve()
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return False, target, None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(None, message("it is a folder"))
    if not os.access(target, os.W_OK):
        raise PermissionError(None, message("it may not be written"))
    return not stat.S_ISREG(mode), target, stat.S_IMODE(mode)


@contextmanager
def _write_errors(path: Path, kinds: tuple[type[Exception], ...] = (OSError,)) -> Iterator[None]:
    """A context manager that turns errors of these kinds in its block into an AttnError that the
    output could not be written. BrokenPipeError passes through: the reader of the output closed it.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except kinds as error:
        expected = message("a place that may be written")
        reason = system_reason(error)
        raise AttnError(
            "cannot write this file: {reason}", where=str(path), expected=expected, reason=reason
        ) from error


def system_reason(error: Exception) -> str:
    """The system's own words on why it refuses a file; for any other error, its text."""
    return term(getattr(error, "strerror", None) or str(error))


SYSTEM_LIMIT = 2**20
"""Bytes of a file of the system's own that are read."""
SIZE_LIMIT = 2 * 2**30
"""Bytes of a file that is read whole, and of what an archive unpacks to, at most."""


@contextmanager
def system_errors(
    what: str, where: str, *, expected: str = "", kind: type[AttnError] = InputError
) -> Iterator[None]:
    """A context manager that turns an OSError in its block, and Python's error for a name with a
    NUL, into an attn error of this kind.

    what: the sentence of that error, with a place {strerror} for the system's reason.
    where: the path that is read or written.
    expected: what the error says is needed; "" for nothing.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        if not isinstance(error, OSError) and "\0" not in where:
            raise
        raise kind(what, where=where, expected=expected, strerror=system_reason(error)) from error


def guarded_path(folder: Path, name: str) -> Path:
    """The path of the file `name` in a folder with its symbolic links resolved; it need not exist.

    folder: already resolved. Links may lead to files of the folder itself or, in a hub cache
        (models--…/snapshots/REVISION), to the cache's blobs.

    Raises InputError for any other link.
    """
    try:
        target = (folder / name).resolve()
    except NAME_ERRORS as error:
        raise InputError("this link leads nowhere", where=str(folder / name)) from error
    roots = [folder]
    if folder.parent.name == "snapshots" and folder.parent.parent.name.startswith(
        ("models--", "datasets--")
    ):
        repository = folder.parent.parent
        # the repository's own blobs, and the store that repositories of one cache share
        roots += [(repository / "blobs").resolve(), (repository.parent / "blobs").resolve()]
    if not any(target.is_relative_to(root) for root in roots):
        what = message("{name} is a link that leaves its folder", name=repr(name))
        raise InputError(
            what, where=str(folder), expected="a file", hint="give the folder that holds the files"
        )
    return target


def is_there(path: Path) -> bool:
    """Whether there is such a file or folder. Raises InputError where that cannot be found out: its
    folder may not be searched, or its name is too long."""
    try:
        path.stat()  # `exists` would hide some of these errors, since Python 3.14 all of them
        return True
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL in the name
        return False
    except OSError as error:
        if error.errno == errno.ELOOP:  # links in a circle lead to no file
            return False
        expected = message("the name of a file, in a folder that may be searched")
        what = message("cannot look for this file: {strerror}", strerror=system_reason(error))
        raise InputError(what, where=str(path), expected=expected) from error


def is_folder(path: Path) -> bool:
    """Whether there is such a folder. Raises as `is_there`."""
    return is_there(path) and path.is_dir()


def is_file(path: Path) -> bool:
    """Whether there is such a file, no folder, pipe or device. Raises as `is_there`."""
    return is_there(path) and path.is_file()


def opening_waits(path: Path) -> bool:
    """Whether opening a file for reading may wait for ever: it is a named pipe without a known
    writer, and not one that a shell opened for this process (`<(…)`).
    """
    plain = os.path.abspath(path)  # noqa: PTH100 - links must stay as they are
    if plain == "/dev/stdin" or plain.startswith(("/dev/fd/", "/proc/self/fd/")):
        return False
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)  # noqa: PTH116 - a name may be none at all
    except (OSError, ValueError):
        return False


# One way to open files: everything in the package that opens one calls a function below, or
# `atomic_writer` above; `tests/house` holds it to that.


def _open_handle(path: Path, flags: int, what: str) -> int:
    """The descriptor of a file opened for reading.

    flags: for `os.open`, besides those for reading.
    what: what kind of file it should be, for errors.

    Raises InputError where there is no such file or it may not be read.
    """
    try:
        return os.open(path, os.O_RDONLY | flags | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = system_reason(error)
        hint: Message | str = ""
        if isinstance(error, FileNotFoundError):
            near = _file_near(path)
            if near is not None:
                hint = message("the nearest name there is {close}", close=repr(near))
        raise InputError(
            "cannot read this file: {reason}",
            where=str(path),
            expected=what,
            hint=hint,
            reason=reason,
        ) from error


MOST_BESIDE = 1000
"""Entries of a folder that a misspelt name is compared with."""


def _file_near(path: Path) -> str | None:
    """The name in a missing file's folder that is most like its own; None without one."""
    from difflib import get_close_matches

    try:
        with os.scandir(path.parent) as entries:
            names = sorted(entry.name for entry in islice(entries, MOST_BESIDE))
    except (OSError, ValueError):
        return None
    nearest = get_close_matches(path.name, names, n=1, cutoff=0.8)
    if nearest:
        return nearest[0]
    return None


def open_regular(
    path: Path, *, what: str, limit: int = SIZE_LIMIT, may_be_empty: bool = False
) -> tuple[BinaryIO, int]:
    """A file opened for reading in binary, and its size in bytes.

    what: what it should be, for the message ("a tensor file").

    Symbolic links are followed. Raises InputError for a file that is missing, unreadable, empty
    (unless `may_be_empty`), a folder, a pipe or a device (never waits for one); LimitError for one
    larger than `limit` bytes.
    """
    # without waiting, as opening a pipe would wait for a writer
    handle = _open_handle(path, getattr(os, "O_NONBLOCK", 0), what)
    try:
        status = os.fstat(handle)
        size = status.st_size
        if not stat.S_ISREG(status.st_mode):
            kind = message("a folder" if stat.S_ISDIR(status.st_mode) else "a pipe or device")
            raise InputError(
                "this is {kind}, not a file", where=str(path), expected=what, kind=kind
            )
        if size == 0 and not may_be_empty:
            raise InputError("this file is empty", where=str(path), expected=what)
        if size > limit:
            if is_gguf(_first_bytes(handle)):
                raise gguf_error(str(path), what)
            expected = message("at most {limit:,} bytes", limit=limit)
            raise LimitError(
                "this file has {size:,} bytes", where=str(path), expected=expected, size=size
            )
        _refuse_lfs_pointer(handle, size, path)
        return os.fdopen(handle, "rb"), size
    except BaseException:
        os.close(handle)
        raise


LFS_START = b"version https://git-lfs.github.com/spec/"
LFS_LONGEST = 1024
"""Bytes that a pointer of Git LFS has at most, by its specification."""


def _first_bytes(handle: int) -> bytes:
    """A file's first bytes, without moving its position; empty on systems without `os.pread`
    (Windows)."""
    if not hasattr(os, "pread"):
        return b""
    return os.pread(handle, len(GGUF_MAGIC) + 4, 0)


def _refuse_lfs_pointer(handle: int, file_size: int, path: Path) -> None:
    """Raise InputError for a Git LFS pointer: the few lines that a clone made without Git LFS has
    in place of a large file, with its digest and its size in bytes.

    handle: a descriptor of the file at `path`; its position does not move.
    file_size: the file's size in bytes.

    Such a pointer reads: version https://git-lfs.github.com/spec/v1, oid sha256:…, size 90868376.
    """
    if file_size > LFS_LONGEST or not hasattr(os, "pread"):
        return
    content = os.pread(handle, file_size, 0)
    if not content.startswith(LFS_START):
        return
    # the size that it states: the word behind "size"; 0 where that is missing or absurd
    words = content.decode("ascii", "replace").split()
    stated_size = ""
    if "size" in words[:-1]:
        stated_size = words[words.index("size") + 1]
    count = 0
    if stated_size.isdigit() and len(stated_size) < 20:
        count = int(stated_size)
    raise InputError(
        "this is a Git LFS pointer, not the file itself, which has {count:,} bytes",
        where=str(path),
        expected="the file that it stands for",
        hint="git lfs pull",
        count=count,
    )


PACKED = (
    (b"\x1f\x8b", "gzip", "gunzip"),
    (b"\x28\xb5\x2f\xfd", "Zstandard", "unzstd"),
    (b"\xfd7zXZ\0", "xz", "unxz"),
    (b"BZh", "bzip2", "bunzip2"),
    (b"PK\x03\x04", "zip", "funzip"),
)
"""The first bytes of packed files, what packs them, and the command that unpacks them."""
WEB_PAGE = re.compile(rb"\s*<(?:!doctype html|html)\b", re.I)


GGUF_MAGIC = b"GGUF"
"""The first bytes of a GGUF, a model with its tokenizer; its version follows in four bytes."""


def is_gguf(start: bytes) -> bool:
    """Whether a file that starts with these bytes, eight or more, is a GGUF."""
    # a zero among the four bytes of the version tells it from a text that begins with the word GGUF
    return start.startswith(GGUF_MAGIC) and b"\0" in start[4:8]


def gguf_error(where: str, what: str) -> InputError:
    """The error, returned and not raised, for a GGUF file given where another kind is read.

    where: the file's path.
    what: the kind of file that is expected.
    """
    return InputError(
        "this is a GGUF file: a whole model with its tokenizer",
        where=where,
        expected=what,
        hint=f"attn run TEXT --model {quote(where)}",
    )


def foreign_file(start: bytes, where: str, what: str) -> InputError | None:
    """The error, returned and not raised, for a file whose content is not what its name says:
    packed, a GGUF, a web page, or text in another encoding; None for any other file.

    Args:
        start: Its first bytes, some dozens.
        where: Its path, or another name for where the bytes come from.
        what: What it should be.
    """
    for magic, program, command in PACKED:
        if start.startswith(magic):
            # a command to unpack is only of use where `where` is a path
            return InputError(
                "this file is packed with {program}",
                where=where,
                expected=what,
                hint=f"{command} < {quote(where)} > NEW" if Path(where).is_file() else "",
                program=program,
            )
    if is_gguf(start):
        return gguf_error(where, what)
    if WEB_PAGE.match(start):
        return InputError(
            "this is a web page, such as a server sends in place of a file",
            where=where,
            expected=what,
        )
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return InputError("this text is in UTF-16, not in UTF-8", where=where, expected=what)
    return None


def read_regular(path: Path, *, what: str, limit: int = SIZE_LIMIT) -> bytes:
    """All bytes of a file. Raises InputError for a file that is missing, empty or cannot be read,
    for a folder, a pipe or a device, and for a GGUF, which is read by parts; LimitError for one
    larger than `limit` bytes.

    what: what it should be, for the message.
    """
    stream, size = open_regular(path, what=what, limit=limit)
    with stream:
        content = read_exactly(stream, size, str(path))
    if is_gguf(content):
        raise gguf_error(str(path), what)
    return content


def open_stream(path: Path, *, what: str) -> BinaryIO:
    """A file, a pipe or a device that a user named, opened for reading in binary, of any length.
    Opening a pipe waits until something writes to it.

    what: what it should be, for the message.

    Raises InputError for what is missing or unreadable, and for a folder.
    """
    handle = _open_handle(path, flags=0, what=what)
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            kind = message("a folder")
            raise InputError(
                "this is {kind}, not a file", where=str(path), expected=what, kind=kind
            )
        if stat.S_ISREG(status.st_mode):
            _refuse_lfs_pointer(handle, status.st_size, path)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def system_text(path: Path) -> str:
    """The text of a file that the operating system provides, such as one in /proc; "" where it
    cannot be read."""
    try:
        stream, _ = open_regular(path, what=message("a file"), may_be_empty=True)
        with stream:
            return stream.read(SYSTEM_LIMIT).decode("utf-8", "replace")
    except (AttnError, OSError):
        return ""


def open_new(path: Path) -> BinaryIO:
    """A file opened for writing in binary, empty: one of a folder of our own, under a name that
    nobody else uses. Raises OSError."""
    flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(path, flags | getattr(os, "O_BINARY", 0), 0o666)
    return os.fdopen(handle, "wb")


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A context manager for a file opened as by `open_new`, in a folder that is made if it is
    missing. Where the block fails, the file and those new folders that are empty are removed.
    Raises OSError.
    """
    new_folders = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open_new(path) as stream:
            yield stream
    except BaseException:
        with suppress(OSError):
            path.unlink()
        for folder in new_folders:
            with suppress(OSError):  # others may have written to it
                folder.rmdir()
        raise


def growing_file(path: Path) -> BinaryIO:
    """A file opened for appending, to continue a download. Raises OSError where it cannot be
    opened.
    """
    return path.open("ab")


def sync_folder(folder: Path) -> None:
    """Flush a folder's names to the disk. Raises OSError where there is no such folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # folders of some file systems cannot be synced
            os.fsync(handle)
    finally:
        os.close(handle)


def folder_entries(folder: Path) -> list[Path]:
    """What is in a folder, in the order of the names. Raises InputError where it cannot be read."""
    expected = message("a folder that may be read")
    with system_errors("cannot read this folder: {strerror}", str(folder), expected=expected):
        return sorted(folder.iterdir())


DESCRIPTORS = re.compile(r"/dev/fd/\d+|/proc/self/fd/\d+")
"""How a shell names the pipe of a command that stands in a file's place, `<(…)`."""


def read_pipe(stream: BinaryIO, where: str, *, limit: int = SIZE_LIMIT) -> bytes:
    """All bytes of a pipe, to its end. Raises InputError where it cannot be read, LimitError beyond
    `limit` bytes.
    """
    with system_errors("cannot read this file: {strerror}", where):
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise LimitError(
            "this pipe holds more than {limit:,} bytes", where=where, expected="a file", limit=limit
        )
    return data


def read_exactly(stream: BinaryIO, count: int, where: str) -> bytes:
    """The next `count` bytes. Raises InputError where the file ends before them or cannot be read."""
    with system_errors("cannot read this file: {strerror}", where):
        data = stream.read(count)
    if len(data) != count:
        what = message(
            "this file is cut short: {data:,} bytes where {count:,} are needed",
            data=len(data),
            count=count,
        )
        raise InputError(what, where=where, expected="the whole file")
    return data


# Reading a large file at given places: no seek, no memory map, so that a file that shrinks is an
# error and not a crash.

LARGEST_FILE = 2**46
"""Bytes of a file that is read at given places: 64 TiB, more than any model has."""
CALL_LIMIT = 2**30
"""Bytes asked for in one system call; Linux serves at most 2 GiB."""


class PositionedFile:
    """A file open for reads at any place, from any thread.

    size: bytes when it was opened.

    Raises as `open_regular`. Symbolic links are followed: check them before.
    """

    def __init__(self, path: Path, *, what: str) -> None:
        self.path = path
        self._stream, self.size = open_regular(path, what=what, limit=LARGEST_FILE)
        self._handle = self._stream.fileno()
        self._write_time = os.fstat(self._handle).st_mtime_ns
        self._lock = threading.Lock()

    def fill(self, view: memoryview, start: int, about: str) -> None:
        """Fill `view` (bytes, writable) from byte `start` on.

        about: what is being read, for the error.

        Raises InputError where the file has become shorter, has been written to since it was
        opened, or fails.
        """
        position = 0
        try:
            while position < len(view):
                count = self._read(view[position : position + CALL_LIMIT], start + position)
                if count == 0:
                    fault = message(
                        "{about} ends after {position:,} of {view:,} bytes: the file became shorter"
                        " while it was read",
                        about=about,
                        position=position,
                        view=len(view),
                    )
                    raise self._change_error(fault)
                position += count
            now = os.fstat(self._handle)
        except OSError as error:
            what = message(
                "{about} cannot be read: {strerror}", about=about, strerror=system_reason(error)
            )
            raise InputError(what, where=str(self.path)) from error
        if (now.st_size, now.st_mtime_ns) != (self.size, self._write_time):
            raise self._change_error(message("this file was changed while it was read"))

    def at_hand(self, place: int) -> bool:
        """Whether the byte at this position of the file is in the system's cache, so that reading
        it does not wait for a disk; True where the system cannot tell."""
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
        """Close the file."""
        self._stream.close()

    def _read(self, view: memoryview, start: int) -> int:
        """Read bytes of the file from byte `start` on into the beginning of `view`, as many as the
        system gives at once, and return how many; 0 at the end of the file.
        """
        if hasattr(os, "preadv"):
            return os.preadv(self._handle, [view], start)
        with self._lock:
            self._stream.seek(start)
            # (None, of a stream that does not wait, is for the type checker alone)
            return self._stream.readinto(view) or 0  # type: ignore[attr-defined]

    def _change_error(self, what: str) -> InputError:
        """The error, returned and not raised, that a file was written to while it was read.

        what: how that showed.
        """
        return InputError(what, where=str(self.path), expected="a file that nobody writes to")


# JSON files that somebody else wrote: one object, of bounded size, without repeated keys or NaN.

JSON_LIMIT = 16 * 2**20
MOST = 2**21
"""Names, lists and values in one file: many times what the largest model needs, and parsed in
seconds.
"""
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""How half of a character beyond the first 65,536 is written; two that belong together are one
character.
"""
TAG = "__float__"
TAGGED = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
"""How transformers writes numbers for which JSON has no word: an object of one key, or, earlier,
the bare word.
"""
HUGE = (re.compile(rb"[eE]\+?0*[1-9][0-9]{2}"), re.compile(rb"[0-9]{300}"))
"""One of which a number above the range of a float must contain; each is found faster by itself."""


def read_object(
    path: Path, *, what: str, limit: int = JSON_LIMIT, most: int = MOST, with_tags: bool = False
) -> dict[str, Any]:
    """The JSON object in a file.

    with_tags: whether `{"__float__": "Infinity"}`, and the bare word Infinity, stand for that
        number; the same for NaN.

    Raises InputError for a file that is missing, not a file, not UTF-8, not JSON (NaN and Infinity
    are not, nor is a number that no float can hold), not an object, nested too deeply, or that
    names a key twice or holds half of a character (a lone surrogate); LimitError above `limit`
    bytes or `most` names and values.
    """
    raw = read_regular(path, what=what, limit=limit)
    return parse_object(raw, str(path), what, most=most, with_tags=with_tags)


def nesting_error(where: str, what: str) -> InputError:
    """The error, returned and not raised, for JSON that is nested too deep for the reader.

    what: what was expected.
    """
    return InputError("this JSON is nested too deeply", where=where, expected=what)


def finite(word: str) -> float:
    """The float that a word of JSON such as 1.5e3 stands for: the JSON parser calls this for numbers
    with a point or an exponent. Raises ValueError where no float can hold it.
    """
    number = float(word)
    if math.isinf(number):
        raise ValueError(message("the number {number} is too large", number=word[:40]))
    return number


def json_fault(sentence: str) -> str:
    """What is wrong with a JSON text in our words, by the first words of the JSON library's English
    sentence; that sentence itself where it is a new one.

    sentence: the library's, as `JSONDecodeError.msg` has it.
    """
    match sentence.split()[:2]:
        case ["Expecting", "property"]:
            return message("a name in double quotes should stand there")
        case ["Expecting", "':'"]:
            return message("a colon should stand there")
        case ["Expecting", "','"]:
            return message("a comma or the closing bracket should stand there")
        case ["Expecting", "value"]:
            return message("a value should stand there")
        case ["Extra", "data"]:
            return message("nothing more should stand there")
        case ["Unterminated", "string"]:
            return message("a text in quotes begins there and does not end")
        case ["Invalid", "control"]:
            return message("a text in quotes holds a line break or the like")
        case ["Invalid", _]:  # \escape and \uXXXX
            return message("a backslash stands before a character that takes none")
        case ["Illegal", "trailing"]:
            return message("a comma stands before the bracket")
        case _:
            return sentence


def _invalid_json(error: ValueError) -> Message:
    """The sentence on a JSON text that cannot be read: where the fault is, if the JSON library says
    so, and what is wrong."""
    if isinstance(error, json.JSONDecodeError):
        return message(
            "this is not valid JSON: line {line}, column {column}: {fault}",
            line=error.lineno,
            column=error.colno,
            fault=json_fault(error.msg),
        )
    fault: object = error
    # the two faults that are found here come as messages, which are translated
    if error.args and isinstance(error.args[0], Message):
        fault = error.args[0]
    elif str(error).split()[:1] == ["Exceeds"]:  # Python's limit of the digits of a whole number
        fault = message("a number has too many digits")
    return message("this is not valid JSON: {error}", error=fault)


JSON_KINDS = {
    list: "array",
    str: "string",
    bool: "boolean",
    int: "number",
    float: "number",
    type(None): "null",
}
"""JSON's own name of a value that is no object, by the Python type it is read as."""


def parse_object(
    raw: bytes, where: str, what: str, *, most: int = MOST, with_tags: bool = False
) -> dict[str, Any]:
    """The JSON object in these bytes, as a dictionary.

    where: the file, for errors.
    what: what it should hold, for errors.
    most: how many names and values it may hold.
    with_tags: whether `{"__float__": "Infinity"}`, and the bare word Infinity, stand for that
        number; the same for NaN.

    Raises InputError for what is no such object, names a key twice, is nested too deeply, or holds
    half of a character; LimitError above `most` names and values.
    """

    # counted before parsing, as a name or value in memory takes up to a hundred times its bytes
    item_count = sum(map(raw.count, (b":", b",", b"[")))
    if item_count > most:
        fault = message(
            "this JSON holds about {item_count:,} names and values", item_count=item_count
        )
        raise LimitError(
            fault, where=where, expected="{what}, at most {most:,} of them", what=what, most=most
        )

    def unique_keys(pairs: list[tuple[str, Any]]) -> Any:
        """The callback of the JSON parser for an object's key–value pairs: the dictionary, or the
        number that a tag `{"__float__": …}` stands for. Raises InputError for a key that occurs
        twice.
        """
        entries: dict[str, Any] = dict(pairs)
        if len(entries) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            twice = next(key for key, count in counts.items() if count > 1)
            raise InputError(
                "the key {twice} stands there twice", where=where, expected=what, twice=repr(twice)
            )
        if with_tags and len(entries) == 1:
            word = entries.get(TAG)
            if isinstance(word, str) and word in TAGGED:
                return TAGGED[word]
        return entries

    def parse_constant(word: str) -> float:
        """The float that the word NaN, Infinity or -Infinity means; the JSON parser calls this.
        Raises ValueError where such words are not allowed."""
        if with_tags:
            return TAGGED[word]
        raise ValueError(message("{word} is not JSON", word=word))

    # a callback for every number costs half the time of parsing, so it is used only where the text
    # may hold a number above the range of a float
    if any(huge.search(raw) for huge in HUGE):
        parse_float = finite
    else:
        parse_float = None
    try:
        value = json.loads(
            raw.decode("utf-8-sig"),
            object_pairs_hook=unique_keys,
            parse_constant=parse_constant,
            parse_float=parse_float,
        )
    except RecursionError as error:
        raise nesting_error(where, what) from error
    except ValueError as error:
        wrong_kind_error = foreign_file(raw[:64], where, what)
        raise wrong_kind_error or InputError(
            _invalid_json(error), where=where, expected=what
        ) from error
    if not isinstance(value, dict):
        raise InputError(
            "this JSON is of type {type}, not an object",
            where=where,
            expected=what,
            type=JSON_KINDS[type(value)],
        )
    if SURROGATE.search(raw):  # rare, and looking at every string of the value takes long
        refuse_half_characters(value, where)
    return value


def refuse_half_characters(json_value: Any, where: str) -> None:
    """Raise InputError, naming the first place, where a string of parsed JSON holds half a
    character (a lone surrogate), which no encoding can write."""
    # (place, value) pairs yet to be looked at, with places such as $.messages[0].content
    waiting = [("$", json_value)]
    while waiting:
        place, part = waiting.pop()
        if isinstance(part, str):
            if any("\ud800" <= char <= "\udfff" for char in part):
                raise InputError(
                    "this text holds half of a character",
                    where=f"{where}: {place}",
                    expected="UTF-8 text",
                )
            continue
        if isinstance(part, dict):
            keys = [(place, key) for key in part]
            members = [(f"{place}.{name}", member) for name, member in part.items()]
        else:
            keys = []
            members = [(f"{place}[{index}]", member) for index, member in enumerate(part)]
        # the end of the list is looked at next, so members come in reverse, and keys after them
        waiting += keys
        waiting += [
            (inner_place, member)
            for inner_place, member in reversed(members)
            if isinstance(member, str | list | dict)
        ]
