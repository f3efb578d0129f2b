"""Whether files are what they should be, by their sha256; files found good are remembered until they change."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from attncli.errors import AttnError, InputError
from attncli.inputs.atomic import atomic_writer
from attncli.inputs.file_opening import open_regular, read_object

MEMORY = "verified.json"
MOST_REMEMBERED = 200


def verify(folder: Path, expected: Mapping[str, str], *, variables: Mapping[str, str], hint: str) -> None:
    """Check files of a folder. expected: sha256 in hexadecimal by file name. hint: what to try where one differs.

    A file that was found good before, and has kept its place, size and times, is not read again; that is remembered
    in the user's cache folder, or not at all where that cannot be written. Raises InputError for a file that is
    missing or differs, with both digests.
    """
    memory = cache_folder(variables) / MEMORY
    memory_entries = _read_memory(memory)
    new_entries = {}
    for name, expected_digest in expected.items():
        path = (folder / name).resolve()
        stamp = _stamp(path)
        if stamp is not None and memory_entries.get(str(path)) == [expected_digest, *stamp]:
            continue
        file_digest = digest(path)
        if file_digest != expected_digest:
            raise InputError(
                f"{name!r} has the sha256 {file_digest}", where=str(folder), expected=expected_digest, hint=hint
            )
        if stamp is not None and stamp == _stamp(path):
            new_entries[str(path)] = [expected_digest, *stamp]
    if new_entries:
        entries = {path: entry for path, entry in memory_entries.items() if path not in new_entries} | new_entries
        _remember(memory, dict(list(entries.items())[-MOST_REMEMBERED:]))


def digest(path: Path) -> str:
    """The sha256 of a file in hexadecimal. Raises as `open_regular`."""
    import hashlib  # loads OpenSSL, which files that are remembered do without

    stream, _ = open_regular(path, what="a file")
    with stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]  # open_regular gives a buffered reader


def cache_folder(variables: Mapping[str, str]) -> Path:
    """Where `attn` may keep what it can find out again: XDG_CACHE_HOME/attn or ~/.cache/attn."""
    return Path(variables.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "attn"  # noqa: PTH111 - never raises


def _stamp(path: Path) -> list[int] | None:
    """What changes when a file does. The time of change (ctime) cannot be set back by whoever writes the file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev]


def _read_memory(memory: Path) -> dict[str, object]:
    try:
        return read_object(memory, what="a list of files")
    except AttnError:  # there is none yet, or it is not worth keeping
        return {}


def _remember(memory: Path, entries: Mapping[str, object]) -> None:
    with suppress(OSError, AttnError):
        memory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with atomic_writer(memory, alone=True) as stream:
            stream.write(json.dumps(entries).encode())
