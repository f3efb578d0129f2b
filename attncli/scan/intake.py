"""The files of a corpus: how their records are read, their sizes, digests and ranges, and which
make a shard.

A corpus is lines of text, JSON lines with a text in a field, or a column of a Parquet file. Nothing
is dropped in silence: a record that is no text carries the reason.

A shard is some ranges of files: whole lines of a file, or rows of a Parquet file. Texts that occur
again, and the draw of a sample, are decided by hashes of texts, the same in any order.
"""

from __future__ import annotations

import gzip
import hashlib
import heapq
import io
import json
import math
import os
import unicodedata
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from glob import glob
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.errors import AttnError, InputError, UnsupportedError, UsageError
from attncli.extras import install_command
from attncli.inputs.files import (
    LARGEST_FILE,
    is_file,
    is_folder,
    new_file,
    open_regular,
    system_errors,
)
from attncli.inputs.tensors import read_npy_data, read_npy_header
from attncli.language import listing, message
from attncli.measure.row_facts import Ints
from attncli.scan.shard_files import PLANNING, synced_writer, temporary_name

TEXTS = (".txt", ".text", ".md")
"""Endings of files whose lines are texts."""
PACKED = (".gz", ".zst")
LONGEST_ENDING = 11
"""Characters of a file's ending that a copy keeps."""
LONGEST = 64 * 2**20
"""Bytes of one record, at most: a longer line is too long, whatever a model takes."""
ROWS = 1024
"""Rows of a Parquet file that are read at once."""


class Format(Struct, frozen=True):
    """How a file holds texts.

    kind: "lines", "jsonl" or "parquet".
    field: of an object, or a column; "" for lines.
    """

    kind: str
    field: str = ""


class Record(Struct, frozen=True):
    """One record (a line, or a row of a Parquet file) of a corpus.

    file: its number.
    line: 0-based, in its file.
    text: None where the record has none to count; reason, then: "empty", "long" or "undecodable".
    cluster: the group that it belongs to, such as a document's name; "" for a group of its own.
    """

    file: int
    line: int
    text: str | None
    reason: str = ""
    cluster: str = ""


def parse_format(text: str) -> Format:
    """The format that `--format` names: `lines`, `jsonl:FIELD`, `parquet:COLUMN`. Raises
    UsageError.
    """
    kind, _, field = text.partition(":")
    if kind == "lines" and not field:
        return Format("lines")
    if kind in ("jsonl", "parquet"):
        return Format(kind, field or "text")
    raise UsageError(
        "there is no corpus format {text}",
        expected="lines, jsonl:FIELD or parquet:COLUMN",
        text=repr(text),
    )


def format_of(name: str) -> Format:
    """The format that a file's name implies: .jsonl is `jsonl:text`, .parquet is `parquet:text`,
    all others are lines."""
    plain = name.lower().removesuffix(".gz").removesuffix(".zst")
    if plain.endswith((".jsonl", ".ndjson")):
        return Format("jsonl", "text")
    if plain.endswith(".parquet"):
        return Format("parquet", "text")
    return Format("lines")


def find_files(
    names: Sequence[str],
    *,
    out: Path | None = None,
    note: Callable[[str], None] = lambda message: None,
) -> list[str]:
    """The files that a corpus's names, folders and globs stand for, in the order of the names,
    sorted within each. `-` (standard input) and an address with `://` stay as they are.

    What scans wrote is no part of a folder or glob, so that a scan kept beside its corpus does not
    read its own output. Raises InputError for what is not there, UsageError for a file named twice.

    out: the folder of the scan that is begun; None for none.
    note: called with a message for each scan's folder of which files are left out.
    """
    files: list[str] = []
    scans = _ScanFolders(out)
    for name in names:
        if name == "-" or "://" in name:
            files.append(name)
            continue
        path = Path(name)
        if is_folder(path):
            entries = sorted(
                str(entry) for entry in path.rglob("*") if is_file(entry) and _is_corpus(entry)
            )
            name_files = [entry for entry in entries if not scans.leave_out(entry, path)]
        elif is_file(path):  # whatever its name
            name_files = [name]
        else:
            # a pattern; by the module glob, since pathlib's has no `..` and no absolute patterns
            matches = sorted(entry for entry in glob(name, recursive=True) if is_file(Path(entry)))  # noqa: PTH207
            name_files = [entry for entry in matches if not scans.leave_out(entry)]
        if not name_files:
            what = message("there is no corpus {name}", name=repr(name))
            raise InputError(
                what, expected="a file, a folder or a pattern of .txt, .jsonl or .parquet files"
            )
        files += name_files
    for folder in scans.left_out:
        note(message("{folder} was written by a scan, and is no part of the corpus", folder=folder))
    if len(files) != len(set(files)):
        # the first name that stood before already
        twice = next(name for index, name in enumerate(files) if name in files[:index])
        raise UsageError("{twice} is named twice", expected="each file once", twice=repr(twice))
    return files


class _ScanFolders:
    """Finds which files lie in folders that scans wrote, to leave them out of a corpus.

    out: the folder of the scan that is begun, which may hold nothing yet; None for none.
    left_out: the scans' folders from which files were left out, as keys in the order in which they
        were met.
    """

    def __init__(self, out: Path | None) -> None:
        self._out = out
        # by folder, the scan's folder that it lies in; None where it lies in none
        self._scans: dict[Path, Path | None] = {}
        if out is not None:
            self._scans[out.absolute()] = out
        self.left_out: dict[Path, None] = {}

    def leave_out(self, name: str, root: Path | None = None) -> bool:
        """Whether to leave a file out because it lies in a folder that a scan wrote.

        root: the folder of the corpus in which the file was found, None for a pattern. Whoever
            names a folder inside a scan's means its files: an earlier scan around `root` leaves
            nothing out.
        """
        scan_folder = self._scan_around(Path(name).absolute().parent)
        if scan_folder is None:
            return False
        is_root_inside = root is not None and root.absolute().is_relative_to(scan_folder)
        # what the scan that is begun writes is left out even so: it would read its own output
        if is_root_inside and scan_folder is not self._out:
            return False
        self.left_out[scan_folder] = None
        return True

    def _scan_around(self, folder: Path) -> Path | None:
        """The folder of the scan that wrote a folder: itself or one around it; None where no scan
        did.
        """
        if folder not in self._scans:
            is_scan = is_file(folder / "plan.json") and is_folder(folder / "shards")
            parent = folder.parent
            if is_scan:
                scan = folder
            elif parent == folder:  # the root of all folders
                scan = None
            else:
                scan = self._scan_around(parent)
            self._scans[folder] = scan
        return self._scans[folder]


def _is_corpus(path: Path) -> bool:
    """Whether a file's name is one of a file of texts, such as .txt, .jsonl or .parquet, perhaps
    packed.
    """
    plain = path.name.lower().removesuffix(".gz").removesuffix(".zst")
    return not path.name.startswith(".") and plain.endswith(
        (*TEXTS, ".jsonl", ".ndjson", ".parquet")
    )


def _record_of_line(
    raw: bytes | None, file: int, line: int, format: Format, cluster: str
) -> Record:
    """The record of a line's bytes, with or without its line end; None stands for a line of more
    than `LONGEST` bytes.

    file, line: the number of the file, and of the line in it, from 0.
    cluster: the JSON field that groups records, "" for none.
    """
    if raw is None:
        return Record(file, line, text=None, reason="long")
    try:
        # a file may begin with a byte order mark, which is no part of its text
        text = raw.removesuffix(b"\n").decode("utf-8-sig" if line == 0 else "utf-8")
        if format.kind == "lines":
            return _record_of_text(file, line, text, cluster=None)
        if not text.strip():
            return Record(file, line, text=None, reason="empty")
        value = json.loads(text)
    except (
        ValueError,
        RecursionError,
    ):  # bytes that are no UTF-8, no JSON, or JSON nested too deep
        return Record(file, line, text=None, reason="undecodable")
    if not isinstance(value, dict) or not isinstance(value.get(format.field), str):
        return Record(file, line, text=None, reason="undecodable")
    group = None
    if cluster:
        group = value.get(cluster)
    return _record_of_text(file, line, value[format.field], group)


def _record_of_text(file: int, line: int, text: str, cluster: object) -> Record:
    """The record of a text, stripped of spaces around it; one without a text, with the reason,
    where nothing is left or it cannot be encoded.

    cluster: the value of the field that groups records, None for none.
    """
    content = text.strip()
    try:
        content.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, such as "\\ud83d" in JSON
        return Record(file, line, text=None, reason="undecodable")
    if not content:
        return Record(file, line, text=None, reason="empty")
    return Record(file, line, content, cluster="" if cluster is None else str(cluster))


def open_parquet(path: str) -> Any:
    """Open a Parquet file as pyarrow's ParquetFile. Raises UnsupportedError without pyarrow,
    InputError for a damaged file.
    """
    try:
        import pyarrow.parquet as library
    except ImportError as error:
        raise UnsupportedError(
            "Parquet files need pyarrow", hint=install_command("scan")
        ) from error
    try:
        return library.ParquetFile(path)
    except Exception as error:  # pyarrow raises its own kinds
        raise InputError("this is no Parquet file: {error}", where=path, error=error) from error


def parquet_columns(parquet_file: Any, path: str, format: Format, cluster: str) -> list[str]:
    """The names of the columns that a scan reads of a Parquet file: texts, and `cluster` if not "".
    Raises InputError for one that is not there."""
    names = list(parquet_file.schema_arrow.names)
    columns = [format.field]
    if cluster and cluster != format.field:
        columns.append(cluster)
    for name in columns:
        if name not in names:
            raise InputError(
                "there is no column {name}",
                where=path,
                expected=listing(names[:20]),
                name=repr(name),
            )
        if names.count(name) > 1:
            what = message(
                "there are {name} columns {name_2}", name=names.count(name), name_2=repr(name)
            )
            raise InputError(what, where=path, expected="one of that name")
    return columns


def records_of_parquet(
    path: str, file_range: Range, format: Format, cluster: str
) -> Iterator[Record]:
    """Yield the records of a range of rows of a Parquet file; only the row groups (the blocks in
    which Parquet stores rows) that hold some of them are read.

    cluster: the column that groups records, "" for none.
    """
    parquet_file = open_parquet(path)
    columns = parquet_columns(parquet_file, path, format, cluster)
    start = 0  # the first row of the group
    for group in range(parquet_file.num_row_groups):
        rows = parquet_file.metadata.row_group(group).num_rows
        # the rows low..high-1 of the file are those of the range that this group holds
        low = max(file_range.first, start)
        high = min(file_range.first + file_range.count, start + rows)
        if low < high:
            line = start  # the first row of the batch, a part of the group
            for batch in parquet_file.iter_batches(ROWS, row_groups=[group], columns=columns):
                for row in range(max(low - line, 0), min(high - line, batch.num_rows)):
                    if cluster:
                        cluster_cell = batch.column(cluster)[row].as_py()
                    else:
                        cluster_cell = None
                    text = batch.column(format.field)[row].as_py()
                    yield _record_of_cell(file_range.file, line + row, text, cluster_cell)
                line += batch.num_rows
        start += rows


def _record_of_cell(file: int, line: int, text: object, cluster: object) -> Record:
    """The record of a cell in a Parquet file's column of texts.

    cluster: the value in the column that groups records, None for none.
    """
    if text is None:
        return Record(file, line, text=None, reason="empty")
    if not isinstance(text, str):
        return Record(file, line, text=None, reason="undecodable")
    if len(text) > LONGEST:
        return Record(file, line, text=None, reason="long")
    return _record_of_text(file, line, text, cluster)


CHUNK = 1 << 20


class File(Struct, frozen=True):
    """A file of the corpus.

    name: as asked for.
    path: where it is read; of copies, inside the scan's folder.
    size: in bytes.
    sha256: of the original's bytes.
    """

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
    sizes: ShardSizes,
    stdin: BinaryIO,
    cluster: str = "",
    files: list[File] | None = None,
) -> tuple[list[File], list[tuple[Range, ...]]]:
    """Read a corpus once, and return its files and, for each shard, its ranges.

    How many records a shard has depends on how many the corpus has, which is known only at its end.
    So each file is cut into ranges of every size that shards may still have; `ranges.count` drops
    the sizes for which there are too many records by then.

    names: the corpus's files, "-" for standard input, and addresses.
    format: of all files; None for that of each file's name.
    folder: where copies of packed, piped and remote files go.
    sizes: how many records a shard has.
    cluster: the column of Parquet files that groups records, "" for none.
    files: an empty list to fill with each file as it is read, so that the caller has those before
        one that fails; None for a new list.

    Raises InputError, UnsupportedError.
    """
    if files is None:
        files = []
    ranges = Ranges(sizes)
    for file_number, name in enumerate(names):
        if format is not None:
            file_format = format
        else:
            file_format = format_of(name)
        # sources that cannot be read again, or not from any byte on, are copied
        is_copy = name == "-" or "://" in name or name.lower().endswith(PACKED)
        if is_copy:
            path, digest = _copy_source(name, folder, file_number, stdin)
            place = Path(path).relative_to(folder).as_posix()  # reads alike on every system
        else:
            path = name
            digest = ""  # computed below, while the file is read
            place = str(Path(path).absolute())
        files.append(File(name, place, is_copy, file_format, Path(path).stat().st_size, digest))

        if file_format.kind == "parquet":
            groups = groups_of(path, file_format, cluster)
            ranges.count(sum(rows for rows, _ in groups))
            # the same rows, cut anew for each size of shards that is left
            for range_size in ranges.sizes:
                ranges.add(range_size, cut_groups(groups, range_size, file_number))
            file_sha256 = digest or file_digest(path)
        else:
            file_sha256 = _cut_file(path, file_number, ranges)
        # of a copy, which may be unpacked, the digest is that of the original
        files[file_number] = replace(files[file_number], sha256=digest or file_sha256)
    return files, ranges.shards()


def _cut_file(path: str, file: int, ranges: Ranges) -> str:
    """Cut a file of lines into ranges, in one pass, and add them to `ranges`; returns the sha256 of
    the whole file. The file is cut once for each size that shards may still have, as the right one
    is known only when the records of all files are counted.

    file: its number in the corpus.
    """
    whole = hashlib.sha256()
    counted_lines = 0  # of the lines so far those that `ranges` has counted
    # the last cutter is of the largest size, which is never given up: it counts the lines
    cutters = [LineCutter(file, size) for size in ranges.sizes]
    with _open_source(path) as stream:
        while chunk := stream.read(CHUNK):
            whole.update(chunk)
            for cutter in cutters:
                ranges.add(cutter.size, cutter.feed(chunk))
            ranges.count(cutters[-1].lines - counted_lines)
            counted_lines = cutters[-1].lines
            # without those of sizes that were given up because there are too many records
            cutters = [cutter for cutter in cutters if cutter.size in ranges.sizes]
    for cutter in cutters:
        ranges.add(cutter.size, cutter.end())
    ranges.count(cutters[-1].lines - counted_lines)
    return whole.hexdigest()


def file_digest(path: str) -> str:
    """sha256 of a file's bytes. Raises InputError where it cannot be read."""
    with _open_source(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]


@contextmanager
def _open_source(path: str) -> Iterator[BinaryIO]:
    """Context that gives a file of the corpus, open for reading. Raises InputError where it is not
    a file, or cannot be read."""
    what = message("a file of texts")
    with system_errors("cannot read the corpus: {strerror}", path):
        stream, _ = open_regular(Path(path), what=what, limit=LARGEST_FILE, may_be_empty=True)
        with stream:
            yield stream


def _copy_source(name: str, folder: Path, file_number: int, stdin: BinaryIO) -> tuple[str, str]:
    """Copy a source, decompressed, into the folder; returns (path of the copy, sha256 of the
    original's bytes).

    The copy has the digest in its name, and is put in place only when it is whole: another process
    may be reading such a copy, or one of other contents. Raises InputError where the source cannot
    be read, AttnError where the copy cannot be written.

    name: a file, an address, or "-" for standard input.
    file_number: its number in the corpus.
    """
    ending = Path(name.removesuffix(".gz").removesuffix(".zst")).suffix
    beside = folder / f".{file_number:03d}.copy.{temporary_name(PLANNING)}.tmp"
    digest = hashlib.sha256()
    try:
        with (
            _open_named_source(name, stdin) as source,
            system_errors("cannot write this file: {strerror}", str(folder), kind=AttnError),
        ):
            with new_file(beside) as copy:
                for piece in _unpacked_pieces(name, _DigestStream(source, digest)):
                    copy.write(piece)
            # an address may end in anything, which is no part of a file's name then
            if not ending.isascii() or len(ending) > LONGEST_ENDING:
                ending = ""
            target = folder / f"{file_number:03d}-{digest.hexdigest()[:16]}{ending}"
            os.replace(beside, target)  # noqa: PTH105 - beside the other calls on handles
    finally:
        with suppress(OSError):  # it has its final name already
            beside.unlink()
    return str(target), digest.hexdigest()


def _unpacked_pieces(name: str, source: io.RawIOBase) -> Iterator[bytes]:
    """Yield the decompressed bytes of a corpus file, piece by piece. Raises InputError for damaged
    ones.

    name: its ending tells how it is compressed.
    source: its bytes as they are stored.
    """
    content = _unpack(name, source)
    try:
        while piece := content.read(CHUNK):
            yield piece
    except _errors_of_damage(name) as error:
        raise InputError("cannot read the corpus: {error}", where=name, error=error) from error


def _errors_of_damage(name: str) -> tuple[type[Exception], ...]:
    """The types of exception that reading a damaged source may raise, which depend on how its name
    says that it is compressed.
    """
    if "://" in name:  # each protocol has types of its own
        return (Exception,)
    errors = (OSError, EOFError, ValueError, zlib.error)
    if not name.lower().endswith(".zst"):
        return errors
    import zstandard

    return (*errors, zstandard.ZstdError)


class _DigestStream(io.RawIOBase):
    """A read-only stream that adds every byte read through it to a digest."""

    def __init__(self, stream: IO[bytes], digest: Any) -> None:
        self._stream = stream
        self._digest = digest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer from the stream, add what was read to the digest, and return how many
        bytes there were.
        """
        data = self._stream.read(len(buffer))
        self._digest.update(data)
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def _open_named_source(name: str, stdin: BinaryIO) -> Iterator[IO[bytes]]:
    """Context that gives the bytes that a name of the corpus stands for as a stream: standard input
    for "-", a remote file for an address, or else a file on this machine."""
    if name == "-":
        yield stdin
    elif "://" in name:
        try:
            import fsspec
        except ImportError as error:
            raise UnsupportedError(
                "remote files need fsspec", where=name, hint=install_command("remote")
            ) from error
        try:
            remote_file = fsspec.open(name, "rb").open()
        except Exception as error:  # each kind of address has errors of its own
            raise InputError("cannot read the corpus: {error}", where=name, error=error) from error
        with remote_file as stream:
            yield stream
    else:
        with _open_source(name) as stream:
            yield stream


def _unpack(name: str, stream: io.RawIOBase) -> IO[bytes]:
    """A stream of the decompressed bytes, for a name that ends in .gz or .zst; else of the bytes as
    they are. Raises UnsupportedError where zstandard is missing."""
    buffer = io.BufferedReader(stream, CHUNK)
    if name.lower().endswith(".gz"):
        return cast(IO[bytes], gzip.GzipFile(fileobj=buffer))
    if not name.lower().endswith(".zst"):
        return buffer
    try:
        import zstandard
    except ImportError as error:
        raise UnsupportedError(
            "zstd files need zstandard", where=name, hint=install_command("scan")
        ) from error
    return cast(IO[bytes], zstandard.ZstdDecompressor().stream_reader(buffer))


def records(
    files: Sequence[File], ranges: Sequence[Range], folder: Path, cluster: str
) -> Iterator[Record]:
    """Yield the records of a shard.

    Raises InputError, naming the file, where one has changed since the plan was made. For a file of
    lines that is noticed only after its records were yielded, so that a caller may keep results
    only once the iterator has ended.

    files: of the whole corpus.
    ranges: those of the shard.
    folder: where the copies are.
    cluster: the field that groups records, "" for none.
    """
    for file_range in ranges:
        file = files[file_range.file]
        if file.copied:
            path = str(folder / file.path)
        else:
            path = file.path
        if file.format.kind == "parquet":
            # a file of another size may not even be a Parquet file any more
            if not is_file(Path(path)) or Path(path).stat().st_size != file.size:
                raise changed_error(file)
            if digest_of_groups(path, file_range, file.format, cluster) != file_range.sha256:
                raise changed_error(file)
            yield from records_of_parquet(path, file_range, file.format, cluster)
            continue
        digest = hashlib.sha256()
        with _open_source(path) as stream:
            stream.seek(file_range.start)
            lines = _lines_within(stream, file_range.stop - file_range.start, digest)
            for line, raw in enumerate(lines, file_range.first):
                yield _record_of_line(raw, file_range.file, line, file.format, cluster)
        if digest.hexdigest() != file_range.sha256:
            raise changed_error(file)


def _lines_within(stream: BinaryIO, size: int, digest: Any) -> Iterator[bytes | None]:
    """Yield the lines in the next `size` bytes of a stream, None for a line of more than `LONGEST`
    bytes; all bytes are added to `digest`."""
    # a line of `LONGEST` bytes is read whole, of a longer one a byte more than that
    while size > 0 and (piece := stream.readline(min(size, LONGEST + 1))):
        size -= len(piece)
        digest.update(piece)
        if len(piece) <= LONGEST:
            yield piece
            continue
        # of a line that is too long the bytes up to its end are read, but not kept
        while size > 0 and not piece.endswith(b"\n"):
            piece = stream.readline(min(size, CHUNK))
            if not piece:  # the file has become shorter
                break
            size -= len(piece)
            digest.update(piece)
        yield None


def changed_error(file: File) -> InputError:
    """The InputError, returned and not raised, that a file has changed since the scan was planned."""
    what = message("this file of the corpus has changed since the scan was planned")
    return InputError(
        what, where=file.name, expected=message("sha256 {sha256}", sha256=file.sha256)
    )


# Ranges of a corpus: which records of which files each shard holds, cut while the files go by.
#
# How many records there are is known when all have gone by, and decides how many a shard holds. So
# ranges are cut in all sizes at once, until it is known.


class Range(Struct, frozen=True):
    """Records first..first+count-1 of the corpus's file number `file`: its bytes start..stop-1, or
    rows of a Parquet file (start = stop = 0).

    sha256: of these bytes; for rows, of the digests of the row groups that hold them.
    """

    file: int
    first: int
    count: int
    start: int
    stop: int
    sha256: str


class ShardSizes(Struct, frozen=True):
    """How many records a shard has, by the number of records in the corpus.

    steps: (size, records) in rising order: shards of that size where the corpus has fewer records
        than that.
    largest: the size where it has more than any step says.
    """

    steps: tuple[tuple[int, int], ...]
    largest: int


class Ranges:
    """Collects the ranges of a corpus, cut for all sizes of shards; those of a size are dropped
    once there are too many records for it, so that a corpus of any size takes little memory."""

    def __init__(self, sizes: ShardSizes) -> None:
        """No ranges yet, for all of these sizes; the largest one is never given up."""
        self._limits = dict(sizes.steps)  # by size, the number of records that is too many for it
        self._limits.pop(sizes.largest, None)
        self._records = 0
        # by size, rising
        self._ranges: dict[int, list[Range]] = {size: [] for size in (*self._limits, sizes.largest)}

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of shards, in records, for which ranges are still collected."""
        return tuple(self._ranges)

    def count(self, records: int) -> None:
        """Add `records` to the number of records known, and give up the sizes for which there are
        too many now.
        """
        self._records += records
        for size, limit in self._limits.items():
            if self._records >= limit:
                self._ranges.pop(size, None)

    def add(self, size: int, additions: Sequence[Range]) -> None:
        """Add ranges cut for shards of `size` records; ignored where that size was given up."""
        if size in self._ranges:
            self._ranges[size] += additions

    def shards(self) -> list[tuple[Range, ...]]:
        """The ranges of each shard, once all records were counted; ranges that follow each other
        share a shard as long as they have no more records together than a shard may have."""
        size = self.sizes[0]  # the smallest that was not given up
        shards: list[tuple[Range, ...]] = []
        # the shard that is being filled, and the records of its ranges
        shard: list[Range] = []
        records = 0
        for next_range in self._ranges[size]:
            if shard and records + next_range.count > size:
                shards.append(tuple(shard))
                shard = []
                records = 0
            shard.append(next_range)
            records += next_range.count
        if shard:
            shards.append(tuple(shard))
        return shards


class LineCutter:
    """Cuts a file into ranges of `size` lines as its bytes are fed in."""

    def __init__(self, file: int, size: int) -> None:
        """A cutter to which no bytes are fed yet.

        file: its number in the corpus.
        size: lines of a range.
        """
        self.file = file
        self.size = size
        self.lines = 0  # whole ones that came so far
        self._position = 0  # of the next byte in the file
        self._last = b"\n"  # the last byte that came
        # the range that is being cut: its first line, its first byte, and its digest so far
        self._first = 0
        self._start = 0
        self._range_digest = hashlib.sha256()

    def feed(self, chunk: bytes) -> list[Range]:
        """Take the file's next bytes, which are not empty, and return the ranges that end in
        them."""
        ranges = []
        position = 0  # in the chunk, where the range that is being cut goes on
        while True:
            # how many line ends the range still needs
            missing_lines = self._first + self.size - self.lines
            end = _nth_newline(chunk, position, missing_lines)
            if end is None:
                break  # the range goes on in the next chunk
            self._range_digest.update(chunk[position:end])
            stop = self._position + end
            digest = self._range_digest.hexdigest()
            ranges.append(Range(self.file, self._first, self.size, self._start, stop, digest))
            self.lines = self._first + self.size
            self._first = self.lines
            self._start = stop
            self._range_digest = hashlib.sha256()
            position = end
        self.lines += chunk.count(b"\n", position)
        self._range_digest.update(chunk[position:])
        self._position += len(chunk)
        self._last = chunk[-1:]
        return ranges

    def end(self) -> list[Range]:
        """The range of the remaining lines after the file's last bytes, the last one perhaps
        without a line end; [] where none remain."""
        if self._position == self._start:
            return []
        if self._last != b"\n":
            self.lines += 1
        count = self.lines - self._first
        digest = self._range_digest.hexdigest()
        return [Range(self.file, self._first, count, self._start, self._position, digest)]


def _nth_newline(chunk: bytes, start: int, count: int) -> int | None:
    """The index just after the `count`-th newline from `start` on; None where there are fewer."""
    if chunk.count(b"\n", start) < count:
        return None
    # the smallest index before which there are `count` newlines, by halving: bytes.count is faster
    # than a loop over newlines
    stops = range(start, len(chunk))
    return start + bisect_left(stops, count, key=lambda stop: chunk.count(b"\n", start, stop))


# Row groups of Parquet files: which of them hold the rows of a shard, and whether they are what
# they were.

Group = tuple[int, bytes]
"""Rows of a row group, and the sha256 of its bytes in the columns that a scan reads."""


def groups_of(path: str, format: Format, cluster: str) -> list[Group]:
    """(rows, digest) of every row group (the blocks in which Parquet stores rows) of a Parquet
    file. Raises InputError for a file without the columns that are read.

    cluster: the column that groups records, "" for none.
    """
    return list(_group_digests(path, range(open_parquet(path).num_row_groups), format, cluster))


def cut_groups(groups: Sequence[Group], size: int, file: int) -> list[Range]:
    """Cut a Parquet file into ranges of `size` rows, the last one of fewer.

    file: its number in the corpus.
    """
    # each group's first row, then the number of all rows
    starts = list(accumulate((rows for rows, _ in groups), initial=0))
    ranges = []
    for first in range(0, starts[-1], size):
        count = min(size, starts[-1] - first)
        range_groups = [groups[number] for number in _groups_holding(starts, first, count)]
        digest = _joint_digest(group_digest for _, group_digest in range_groups)
        ranges.append(Range(file, first, count, start=0, stop=0, sha256=digest))
    return ranges


def digest_of_groups(path: str, rows: Range, format: Format, cluster: str) -> str:
    """The sha256 that a range of rows of a Parquet file has now, to compare with the `sha256` that
    it had when the scan was planned."""
    metadata = open_parquet(path).metadata
    sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    # each group's first row, then the number of all rows
    starts = list(accumulate(sizes, initial=0))
    groups = _group_digests(path, _groups_holding(starts, rows.first, rows.count), format, cluster)
    return _joint_digest(digest for _, digest in groups)


def _group_digests(
    path: str, groups: Iterable[int], format: Format, cluster: str
) -> Iterator[Group]:
    """Yield (rows, digest of the columns that a scan reads) of these row groups of a file.

    groups: their numbers.
    """
    parquet_file = open_parquet(path)
    columns = parquet_columns(parquet_file, path, format, cluster)
    stream, _ = open_regular(Path(path), what=message("a Parquet file"), limit=LARGEST_FILE)
    with stream:
        for number in groups:
            group = parquet_file.metadata.row_group(number)
            digest = hashlib.sha256()
            for column_number in range(group.num_columns):
                chunk = group.column(column_number)
                # a nested column is stored as several, such as "text.list.element"
                if any(f"{chunk.path_in_schema}.".startswith(f"{name}.") for name in columns):
                    # not every column has a dictionary, which stands before its data
                    starts = (chunk.dictionary_page_offset, chunk.data_page_offset)
                    stream.seek(min(start for start in starts if start is not None))
                    left = chunk.total_compressed_size
                    while left > 0 and (piece := stream.read(min(left, CHUNK))):
                        left -= len(piece)
                        digest.update(piece)
            yield group.num_rows, digest.digest()


def _groups_holding(starts: Sequence[int], first: int, count: int) -> range:
    """The numbers of the row groups that hold rows first..first+count-1.

    starts: each group's first row, then the number of all rows.
    """
    stop = min(first + count, starts[-1])
    if first >= stop:  # no row: the file has become shorter
        return range(0)
    # from the last group that starts at `first` or before, up to the first that starts at `stop` or
    # after; empty groups have the start of the next one
    return range(bisect_right(starts, first) - 1, bisect_left(starts, stop))


def _joint_digest(digests: Iterable[bytes]) -> str:
    """The sha256 of these digests joined, in hexadecimal digits."""
    return hashlib.sha256(b"".join(digests)).hexdigest()


MOST = 10**7
"""Texts above which repeated ones are not looked for."""


def find_repeated(records: Iterable[Record]) -> list[tuple[int, int]]:
    """(file, line) of every text that equals an earlier one, ascending. Texts are equal if they are
    the same without the spaces around them, in Unicode's composed form (NFC)."""
    hashes: set[int] = set()
    places = []
    for record in records:
        if record.text is None:
            continue
        # two seeds: 128 bits, so that different texts are never taken for equal
        key = text_hash(record.text) << 64 | text_hash(record.text, 1)
        if key in hashes:
            places.append((record.file, record.line))
        hashes.add(key)
    return sorted(places)


def sample_threshold(
    records: Iterable[Record], sample: int, seed: int, left_out: set[tuple[int, int]]
) -> int:
    """The hash up to which texts are drawn for a sample: the `sample`-th smallest of all texts'
    hashes, so that `sample` texts are drawn, whatever their order; 0 without texts.

    left_out: (file, line) of texts not to draw.
    """
    # the smallest hashes so far, negative, because a heap gives its smallest number first
    smallest: list[int] = []
    for record in records:
        if record.text is None or (record.file, record.line) in left_out:
            continue
        negative_hash = -text_hash(record.text, seed)
        if len(smallest) < sample:
            heapq.heappush(smallest, negative_hash)
        elif negative_hash > smallest[0]:  # a smaller hash than the largest in the heap, which goes
            heapq.heapreplace(smallest, negative_hash)
    if smallest:
        return -smallest[0]
    return 0


def name_of_duplicates(digest: str) -> str:
    """The name of the file that lists repeated texts; it holds the list's digest, so that different
    lists do not overwrite each other."""
    return f"duplicates-{digest[:16]}.npy"


def write_duplicates(folder: Path, places: list[tuple[int, int]]) -> str:
    """Write the list of repeated texts, (file, line) each, as a .npy file into the scan's folder;
    returns the sha256 of its numbers. Raises AttnError where it cannot be written."""
    array = np.array(places, np.int64).reshape((-1, 2))
    digest = hashlib.sha256(array.tobytes()).hexdigest()
    with synced_writer(folder / name_of_duplicates(digest), PLANNING) as stream:
        np.save(stream, array, allow_pickle=False)
    return digest


def read_duplicates(folder: Path, digest: str) -> frozenset[tuple[int, int]]:
    """The (file, line) of each repeated text, read from the list in a scan's folder; empty for the
    digest "". Raises InputError where the file holds another list.

    digest: sha256 of the list, as `write_duplicates` returned it.
    """
    if not digest:
        return frozenset()
    path = folder / name_of_duplicates(digest)
    stream, size = open_regular(path, what="the scan's list of repeated texts")
    with stream:
        header = read_npy_header(stream, path.name, str(path), size)
        array = read_npy_data(stream, header, path.name, str(path))
    if hashlib.sha256(array.tobytes()).hexdigest() != digest:
        raise InputError(
            "the list of repeated texts is not the plan's",
            where=str(path),
            expected="sha256 {digest}",
            digest=digest,
        )
    return frozenset(map(tuple, array.tolist()))


# Hashes of texts: which are equal, which are drawn, and how often each counts in a replicate; the
# same on every machine.
#
# Poisson bootstrap: in each replicate a text counts a Poisson(1) number of times, drawn from its
# own hash. Replicates of shards add up, in any order. Source: Chamandy et al., Estimating
# uncertainty for massive data streams, 2012.

REPLICATES = 200
"""Bootstrap replicates."""
_MOST = 12
"""A text counts at most so often; more has a chance of 6e-11."""
_EDGES = np.cumsum([math.exp(-1) / math.factorial(times) for times in range(_MOST)])
"""The chances that a text counts at most 0, 1, … times."""
Words = np.ndarray[Any, np.dtype[np.uint64]]


def text_hash(text: str, seed: int = 0) -> int:
    """A 64-bit hash of a text and a seed; the text is stripped and normalised to NFC."""
    data = unicodedata.normalize("NFC", text.strip()).encode("utf-8", "surrogatepass")
    hasher = hashlib.blake2b(data, digest_size=8, key=seed.to_bytes(8, "little"))
    return int.from_bytes(hasher.digest(), "little")


def replicate_counts(hashes: Sequence[int]) -> Ints:
    """How often each text is drawn in each bootstrap replicate, from its hash: integers [text,
    replicate].
    """
    # splitmix64 draws its next number from the one before plus this constant, the golden ratio
    steps = np.arange(1, REPLICATES + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = splitmix64(np.asarray(hashes, np.uint64)[:, None] + steps[None, :])
    # 53 random bits are a number from 0 to 1, at which the cumulated Poisson chances are looked up
    uniforms = (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53
    return np.searchsorted(_EDGES, uniforms, side="right").astype(np.int64)


def splitmix64(x: Words) -> Words:
    """The splitmix64 hash of each number. Source: Steele, Lea and Flood, Fast splittable
    pseudorandom number generators, 2014."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
