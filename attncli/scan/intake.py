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
from attncli.scan.ranges import LineCutter, Range, Ranges, ShardSize
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
    for file_number, name in enumerate(names):
        kind = format if format is not None else format_of(name)
        is_copy = name == "-" or "://" in name or name.lower().endswith(PACKED)
        path, digest = _copy_source(name, folder, file_number, stdin) if is_copy else (name, "")
        inside = str(Path(path).relative_to(folder)) if is_copy else str(Path(path).absolute())
        files.append(File(name, inside, is_copy, kind, Path(path).stat().st_size, digest))
        if kind.kind == "parquet":
            groups = row_groups.groups_of(path, kind, cluster)
            ranges.count(sum(rows for rows, _ in groups))
            for range_size in ranges.sizes:
                cuts = row_groups.cut_groups(groups, range_size)
                ranges.add(
                    range_size,
                    [Range(file_number, first, rows, 0, 0, rows_digest) for first, rows, rows_digest in cuts],
                )
            whole = digest or digest_of(path)
        else:
            whole = _cut_file(path, file_number, ranges)
        files[file_number] = replace(files[file_number], sha256=digest or whole)
    return files, ranges.shards()


def _cut_file(path: str, file: int, ranges: Ranges) -> str:
    """Cut a file of lines into ranges, in one pass; returns the sha256 of the whole file."""
    whole, counted_lines = hashlib.sha256(), 0
    cutting = [LineCutter(file, size) for size in ranges.sizes]
    with _open_source(path) as stream:
        while chunk := stream.read(CHUNK):
            whole.update(chunk)
            for cutter in cutting:
                ranges.add(cutter.size, cutter.feed(chunk))
            ranges.count(cutting[-1].lines - counted_lines)
            counted_lines = cutting[-1].lines
            cutting = [cutter for cutter in cutting if cutter.size in ranges.sizes]
    for cutter in cutting:
        ranges.add(cutter.size, cutter.end())
    ranges.count(cutting[-1].lines - counted_lines)
    return whole.hexdigest()


def digest_of(path: str) -> str:
    """sha256 of a file's bytes. Raises InputError where it cannot be read."""
    with _open_source(path) as stream:
        digest = hashlib.sha256()
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
        return digest.hexdigest()


@contextmanager
def _open_source(path: str) -> Iterator[BinaryIO]:
    try:
        if not Path(path).is_file() and Path(path).exists():  # a pipe would be waited for
            raise InputError("cannot read the corpus: this is no file", where=path, expected="a file of texts")
        with open(path, "rb") as stream:  # noqa: PTH123 - a name as the asker wrote it
            yield stream
    except OSError as error:
        raise InputError(f"cannot read the corpus: {error.strerror or error}", where=path) from error


def _copy_source(name: str, folder: Path, file_number: int, stdin: BinaryIO) -> tuple[str, str]:
    """A copy that can be sought, unpacked, and the sha256 of what was copied.

    The copy is named for that digest and put in place whole: others may be reading it, or a copy of something else.
    Raises InputError where the source cannot be read, AttnError where the copy cannot be written.
    """
    ending = "".join(Path(name.removesuffix(".gz").removesuffix(".zst")).suffixes[-1:])
    beside = folder / f".{file_number:03d}.copy.{temporary(PLANNING)}.tmp"
    digest = hashlib.sha256()
    try:
        with _source(name, stdin) as source, _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with beside.open("wb") as copy:
                for piece in _pieces(name, _DigestStream(source, digest)):
                    copy.write(piece)
            plain = ending if ending.isascii() and len(ending) < 12 else ""
            target = folder / f"{file_number:03d}-{digest.hexdigest()[:16]}{plain}"
            os.replace(beside, target)  # noqa: PTH105 - beside the other calls on handles
    finally:
        with suppress(OSError):
            beside.unlink()
    return str(target), digest.hexdigest()


def _pieces(name: str, source: io.RawIOBase) -> Iterator[bytes]:
    """What a source holds, unpacked."""
    content = _unpack(name, source)
    try:
        while piece := content.read(CHUNK):
            yield piece
    except _damage(name) as error:
        raise InputError(f"cannot read the corpus: {error}", where=name) from error


def _damage(name: str) -> tuple[type[Exception], ...]:
    """What reading a damaged source raises."""
    if "://" in name:
        return (Exception,)
    errors = (OSError, EOFError, ValueError, zlib.error)
    if not name.lower().endswith(".zst"):
        return errors
    import zstandard

    return (*errors, zstandard.ZstdError)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AttnError(f"cannot write this file: {error.strerror or error}", where=str(path)) from error


class _DigestStream(io.RawIOBase):
    """A stream that tells a digest what is read of it."""

    def __init__(self, stream: IO[bytes], digest: Any) -> None:
        self._stream, self._digest = stream, digest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        self._digest.update(data)
        buffer[: len(data)] = data
        return len(data)


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
            remote_file = fsspec.open(name, "rb").open()
        except Exception as error:  # each kind of address has errors of its own
            raise InputError(f"cannot read the corpus: {error}", where=name) from error
        with remote_file as stream:
            yield stream
    else:
        with _open_source(name) as stream:
            yield stream


def _unpack(name: str, stream: io.RawIOBase) -> IO[bytes]:
    buffer = io.BufferedReader(stream, CHUNK)
    if name.lower().endswith(".gz"):
        return cast(IO[bytes], gzip.GzipFile(fileobj=buffer))
    if not name.lower().endswith(".zst"):
        return buffer
    try:
        import zstandard
    except ImportError as error:
        raise UnsupportedError("zstd files need zstandard", where=name, hint="pip install 'attn[scan]'") from error
    return cast(IO[bytes], zstandard.ZstdDecompressor().stream_reader(buffer))


def records(files: Sequence[File], ranges: Sequence[Range], folder: Path, cluster: str) -> Iterator[Record]:
    """The records of a shard. Raises InputError where a file is no longer what it was, naming it."""
    for file_range in ranges:
        file = files[file_range.file]
        path = str(folder / file.path) if file.copied else file.path
        if file.format.kind == "parquet":
            if not Path(path).is_file() or Path(path).stat().st_size != file.size:
                raise changed_error(file)
            if (
                row_groups.digest_of_groups(path, file_range.first, file_range.count, file.format, cluster)
                != file_range.sha256
            ):
                raise changed_error(file)
            yield from records_of_parquet(
                path,
                file=file_range.file,
                first=file_range.first,
                count=file_range.count,
                format=file.format,
                cluster=cluster,
            )
            continue
        with _open_source(path) as stream:
            stream.seek(file_range.start)
            raw = stream.read(file_range.stop - file_range.start)
        if hashlib.sha256(raw).hexdigest() != file_range.sha256:
            raise changed_error(file)
        yield from records_of_bytes(
            raw, file=file_range.file, first=file_range.first, format=file.format, cluster=cluster
        )


def changed_error(file: File) -> InputError:
    """What is said of a file that is not what it was when the scan was planned."""
    return InputError(
        "this file of the corpus has changed since the scan was planned",
        where=file.name,
        expected=f"sha256 {file.sha256}",
    )
