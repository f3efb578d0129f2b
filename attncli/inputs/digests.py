"""Whether files are what they should be, by their sha256; files found good are remembered until they change."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from attncli.errors import AttnError, InputError
from attncli.inputs.atomic import atomic_writer
from attncli.inputs.file_opening import open_regular
from attncli.inputs.strict_json import read_object

MEMORY = "verified.json"
MOST_REMEMBERED = 200


def verify(folder: Path, expected: Mapping[str, str], *, variables: Mapping[str, str], hint: str) -> None:
    """Check files of a folder. expected: sha256 in hexadecimal by file name. hint: what to try where one differs.

    A file that was found good before, and has kept its place, size and times, is not read again; that is remembered
    in the user's cache folder, or not at all where that cannot be written. Raises InputError for a file that is
    missing or differs, with both digests.
    """
    memory = cache_folder(variables) / MEMORY
    remembered = _remembered(memory)
    learned = {}
    for name, wanted in expected.items():
        path = (folder / name).resolve()
        stamp = _stamp(path)
        if stamp is not None and remembered.get(str(path)) == [wanted, *stamp]:
            continue
        found = digest(path)
        if found != wanted:
            raise InputError(f"{name!r} has the sha256 {found}", where=str(folder), expected=wanted, hint=hint)
        if stamp is not None and stamp == _stamp(path):
            learned[str(path)] = [wanted, *stamp]
    if learned:
        kept = {path: known for path, known in remembered.items() if path not in learned} | learned
        _remember(memory, dict(list(kept.items())[-MOST_REMEMBERED:]))


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
        found = path.stat()
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev]


def _remembered(memory: Path) -> dict[str, object]:
    try:
        return read_object(memory, what="a list of files")
    except AttnError:  # there is none yet, or it is not worth keeping
        return {}


def _remember(memory: Path, known: Mapping[str, object]) -> None:
    with suppress(OSError, AttnError):
        memory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with atomic_writer(memory, alone=True) as stream:
            stream.write(json.dumps(known).encode())
