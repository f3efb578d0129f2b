"""A shard's files: written whole, in an order in which the last one is the commit.

Rows and links come first, the state last; each goes to a temporary file in the same folder, to the disk, and then to
its name in one step. A second worker of the same shard writes the same bytes.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from attncli.errors import AttnError, InputError
from attncli.inputs.archive import open_archive, write_npz

FOLDER = "shards"
PER_FOLDER = 1000
LARGEST = 4 * 2**30
"""Bytes of a state's arrays, at most."""
REASON = 4096
"""Bytes that are read of why a shard failed."""
PLANNING = "plan"
"""What temporary files of a scan as a whole are called by, as those of a part are by the part."""
_TEMPORARY = re.compile(r"\.[\w-]+\.[a-z]+\..+\.tmp")


@dataclass(frozen=True, eq=False)
class ShardState:
    """What a shard adds up to. arrays: integers by name. facts: what is told in words: counts of texts, the machine,
    texts of the examples."""

    arrays: Mapping[str, np.ndarray[Any, Any]]
    facts: Mapping[str, Any]


def path_of(folder: Path, shard: int, kind: str) -> Path:
    """The file of a shard. kind: "state.npz", "rows.parquet", "links.parquet" or "failed.txt"."""
    return folder / FOLDER / f"{shard // PER_FOLDER:03d}" / f"{shard:06d}.{kind}"


def is_done(folder: Path, shard: int) -> bool:
    """Whether the shard's state is there."""
    return path_of(folder, shard, "state.npz").is_file()


@contextmanager
def synced_writer(path: Path, part: str) -> Iterator[BinaryIO]:
    """A stream whose content becomes the file when the block ends well; the file is on the disk then.

    part: which part of the scan writes, told in the temporary file's name. Raises AttnError where it cannot be written.
    """
    beside = path.parent / f".{path.name.partition('.')[0]}.{path.name.split('.')[1]}.{temporary(part)}.tmp"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(beside, path)  # noqa: PTH105 - beside the other calls on handles
        _sync(path.parent)
    except OSError as error:
        raise AttnError(f"cannot write this file: {error.strerror or error}", where=str(path)) from error
    finally:
        with suppress(OSError):
            beside.unlink()


def temporary(part: str) -> str:
    """What this process's temporary files are called by: part, machine and process."""
    return f"{part}.{re.sub(r'[^A-Za-z0-9-]', '-', socket.gethostname())[:40]}.{os.getpid()}"


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:  # folders of some file systems cannot be synced
        pass
    finally:
        os.close(handle)


def sweep(folder: Path, part: str) -> None:
    """Remove temporary files that earlier processes of this part, or of planning, left behind on this machine."""
    prefixes = [temporary(name).rpartition(".")[0] for name in (part, PLANNING)]
    for path in (*(folder / FOLDER).glob("*/.*.tmp"), *folder.glob(".*.tmp"), *folder.glob("*/.*.tmp")):
        if _TEMPORARY.fullmatch(path.name) and any(f".{prefix}." in path.name for prefix in prefixes):
            owner = path.name.split(".")[-2]
            if not owner.isdecimal() or not _lives(int(owner)):
                with suppress(OSError):  # somebody else's to remove, or gone
                    path.unlink()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def save(folder: Path, shard: int, state: ShardState, part: str) -> None:
    """Commit a shard."""
    facts = {"facts": json.dumps(state.facts, ensure_ascii=False, sort_keys=True)}
    with synced_writer(path_of(folder, shard, "state.npz"), part) as stream:
        write_npz(stream, state.arrays, facts, deflate=True)


def remove(path: Path) -> None:
    """Take a file away, which may be gone. Raises AttnError where it cannot be removed."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise AttnError(f"cannot remove this file: {error.strerror or error}", where=str(path)) from error


def give_up(folder: Path, shard: int, reason: str, part: str) -> None:
    """Tell other parts, and who looks later, that a shard has failed; nothing where that cannot be written."""
    with suppress(AttnError), synced_writer(path_of(folder, shard, "failed.txt"), part) as stream:
        stream.write(reason.encode("utf-8", "replace"))


def failure_reasons(folder: Path) -> dict[int, str]:
    """The shards that any part gave up and that nobody has done since, each with the reason."""
    reasons = {}
    for path in filter(Path.is_file, (folder / FOLDER).glob("*/*.failed.txt")):
        number = path.name.partition(".")[0]
        if number.isascii() and number.isdecimal() and not is_done(folder, int(number)):
            with suppress(OSError), path.open("rb") as stream:  # it is done by now
                reasons[int(number)] = stream.read(REASON).decode("utf-8", "replace")
    return reasons


def load(folder: Path, shard: int) -> ShardState:
    """A committed shard. Raises InputError for a file that is not whole."""
    path = path_of(folder, shard, "state.npz")
    try:
        with path.open("rb") as stream, open_archive(stream, str(path), LARGEST) as archive:
            arrays = {name: archive.array(name) for name in archive.names}
            facts = json.loads(archive.metadata()["facts"])
    except OSError as error:
        raise InputError(f"cannot read this shard: {error.strerror or error}", where=str(path)) from error
    except (ValueError, KeyError, EOFError) as error:
        raise InputError(f"this shard is not whole: {error}", where=str(path)) from error
    if not isinstance(facts, dict):
        raise InputError("this shard is not whole: its facts are no object", where=str(path))
    return ShardState(arrays, facts)
