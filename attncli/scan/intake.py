"""Taking files in: their sizes, digests and ranges, read once; what cannot be sought is first copied.

A shard is some ranges of files: whole lines of a file, or rows of a Parquet file.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from attncli.errors import AttnError, InputError, UnsupportedError
from attncli.scan import row_groups
from attncli.scan.corpus import PACKED, Format, Record, format_of, records_of_bytes, records_of_parquet
from attncli.scan.ranges import Lines, Range, Ranges, ShardSize
from attncli.scan.shard_files import PLANNING, temporary

CHUNK = 1 << 20


@dataclass(frozen=True)
class File:
    """A file of the corpus. name: as asked for. path: where it is read, inside the scan's folder for copies.
    size: bytes; sha256: of the bytes as asked for."""

    name: str
    path: str
    copied: bool
    format: Format
    size: int
    sha256: str


def take_in(
    names: Sequence[str],
    format: Format | None,
    folder: Path,
    *,
    size: ShardSize,
    stdin: BinaryIO,
    cluster: str = "",
    files: list[File] | None = None,
) -> tuple[list[File], list[tuple[Range, ...]]]:
    """The files and the shards of `size`. folder: where copies go; cluster: a column of Parquet files that is read with
    the texts, "" for none. files: takes each file as soon as it is there, though a later one may not be. Raises
    InputError, UnsupportedError."""
    files = [] if files is None else files
    ranges = Ranges(size)
    for at, name in enumerate(names):
        kind = format if format is not None else format_of(name)
        copied = name == "-" or "://" in name or name.lower().endswith(PACKED)
        path, digest = _copied(name, folder, at, stdin) if copied else (name, "")
        inside = str(Path(path).relative_to(folder)) if copied else str(Path(path).absolute())
        files.append(File(name, inside, copied, kind, Path(path).stat().st_size, digest))
        if kind.kind == "parquet":
            groups = row_groups.groups_of(path, kind, cluster)
            ranges.count(sum(rows for rows, _ in groups))
            for one in ranges.sizes:
                cuts = row_groups.cuts(groups, one)
                ranges.add(one, [Range(at, first, rows, 0, 0, told) for first, rows, told in cuts])
            whole = digest or digest_of(path)
        else:
            whole = _cut(path, at, ranges)
        files[at] = replace(files[at], sha256=digest or whole)
    return files, ranges.shards()


def _cut(path: str, file: int, ranges: Ranges) -> str:
    """Cut a file of lines into ranges, in one pass; returns the sha256 of the whole file."""
    whole, counted = hashlib.sha256(), 0
    cutting = [Lines(file, size) for size in ranges.sizes]
    with _opened(path) as stream:
        while chunk := stream.read(CHUNK):
            whole.update(chunk)
            for one in cutting:
                ranges.add(one.size, one.feed(chunk))
            ranges.count(cutting[-1].lines - counted)
            counted = cutting[-1].lines
            cutting = [one for one in cutting if one.size in ranges.sizes]
    for one in cutting:
        ranges.add(one.size, one.end())
    ranges.count(cutting[-1].lines - counted)
    return whole.hexdigest()


def digest_of(path: str) -> str:
    """sha256 of a file's bytes. Raises InputError where it cannot be read."""
    with _opened(path) as stream:
        digest = hashlib.sha256()
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
        return digest.hexdigest()


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    try:
        if not Path(path).is_file() and Path(path).exists():  # a pipe would be waited for
            raise InputError("cannot read the corpus: this is no file", where=path, expected="a file of texts")
        with open(path, "rb") as stream:  # noqa: PTH123 - a name as the asker wrote it
            yield stream
    except OSError as error:
        raise InputError(f"cannot read the corpus: {error.strerror or error}", where=path) from error


def _copied(name: str, folder: Path, at: int, stdin: BinaryIO) -> tuple[str, str]:
    """A copy that can be sought, unpacked, and the sha256 of what was copied.

    The copy is named for that digest and put in place whole: others may be reading it, or a copy of something else.
    Raises InputError where the source cannot be read, AttnError where the copy cannot be written.
    """
    ending = "".join(Path(name.removesuffix(".gz").removesuffix(".zst")).suffixes[-1:])
    beside = folder / f".{at:03d}.copy.{temporary(PLANNING)}.tmp"
    digest = hashlib.sha256()
    try:
        with _source(name, stdin) as source, _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with beside.open("wb") as copy:
                for piece in _pieces(name, _Told(source, digest)):
                    copy.write(piece)
            plain = ending if ending.isascii() and len(ending) < 12 else ""
            target = folder / f"{at:03d}-{digest.hexdigest()[:16]}{plain}"
            os.replace(beside, target)  # noqa: PTH105 - beside the other calls on handles
    finally:
        with suppress(OSError):
            beside.unlink()
    return str(target), digest.hexdigest()


def _pieces(name: str, source: io.RawIOBase) -> Iterator[bytes]:
    """What a source holds, unpacked."""
    unpacked = _unpacked(name, source)
    try:
        while piece := unpacked.read(CHUNK):
            yield piece
    except _damage(name) as error:
        raise InputError(f"cannot read the corpus: {error}", where=name) from error


def _damage(name: str) -> tuple[type[Exception], ...]:
    """What reading a damaged source raises."""
    if "://" in name:
        return (Exception,)
    known = (OSError, EOFError, ValueError, zlib.error)
    if not name.lower().endswith(".zst"):
        return known
    import zstandard

    return (*known, zstandard.ZstdError)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AttnError(f"cannot write this file: {error.strerror or error}", where=str(path)) from error


class _Told(io.RawIOBase):
    """A stream that tells a digest what is read of it."""

    def __init__(self, stream: IO[bytes], digest: Any) -> None:
        self._stream, self._digest = stream, digest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._stream.read(len(buffer))
        self._digest.update(found)
        buffer[: len(found)] = found
        return len(found)


@contextmanager
def _source(name: str, stdin: BinaryIO) -> Iterator[IO[bytes]]:
    if name == "-":
        yield stdin
    elif "://" in name:
        try:
            import fsspec
        except ImportError as error:
            raise UnsupportedError("remote files need fsspec", where=name, hint="pip install fsspec") from error
        try:
            opened = fsspec.open(name, "rb").open()
        except Exception as error:  # each kind of address has errors of its own
            raise InputError(f"cannot read the corpus: {error}", where=name) from error
        with opened as stream:
            yield stream
    else:
        with _opened(name) as stream:
            yield stream


def _unpacked(name: str, stream: io.RawIOBase) -> IO[bytes]:
    buffered = io.BufferedReader(stream, CHUNK)
    if name.lower().endswith(".gz"):
        return cast(IO[bytes], gzip.GzipFile(fileobj=buffered))
    if not name.lower().endswith(".zst"):
        return buffered
    try:
        import zstandard
    except ImportError as error:
        raise UnsupportedError("zstd files need zstandard", where=name, hint="pip install 'attn[scan]'") from error
    return cast(IO[bytes], zstandard.ZstdDecompressor().stream_reader(buffered))


def records(files: Sequence[File], ranges: Sequence[Range], folder: Path, cluster: str) -> Iterator[Record]:
    """The records of a shard. Raises InputError where a file is no longer what it was, naming it."""
    for one in ranges:
        file = files[one.file]
        path = str(folder / file.path) if file.copied else file.path
        if file.format.kind == "parquet":
            if not Path(path).is_file() or Path(path).stat().st_size != file.size:
                raise changed(file)
            if row_groups.digest_of(path, one.first, one.count, file.format, cluster) != one.sha256:
                raise changed(file)
            yield from records_of_parquet(
                path, file=one.file, first=one.first, count=one.count, format=file.format, cluster=cluster
            )
            continue
        with _opened(path) as stream:
            stream.seek(one.start)
            raw = stream.read(one.stop - one.start)
        if hashlib.sha256(raw).hexdigest() != one.sha256:
            raise changed(file)
        yield from records_of_bytes(raw, file=one.file, first=one.first, format=file.format, cluster=cluster)


def changed(file: File) -> InputError:
    """What is said of a file that is not what it was when the scan was planned."""
    return InputError(
        "this file of the corpus has changed since the scan was planned",
        where=file.name,
        expected=f"sha256 {file.sha256}",
    )
