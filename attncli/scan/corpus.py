"""The texts of a corpus: which files, in which order, and how their records are read.

A corpus is lines of text, JSON lines with a text in a field, or a column of a Parquet file. Nothing is dropped in
silence: a record that is no text carries the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any

from attncli.errors import InputError, UnsupportedError, UsageError
from attncli.extras import install_command
from attncli.inputs.files import is_there
from attncli.language import listing, message

TEXTS = (".txt", ".text", ".md")
"""Endings of files whose lines are texts."""
PACKED = (".gz", ".zst")
LONGEST = 64 * 2**20
"""Bytes of one record, at most: a longer line is too long, whatever a model takes."""
ROWS = 1024
"""Rows of a Parquet file that are read at once."""


@dataclass(frozen=True)
class Format:
    """How a file holds texts. kind: "lines", "jsonl" or "parquet". field: of an object, or a column; "" for lines."""

    kind: str
    field: str = ""


@dataclass(frozen=True)
class Record:
    """One record of a corpus. line: 0-based, in its file. text: None where it is none; reason: "empty", "long" or
    "undecodable" then. cluster: what it belongs together with, such as a document's name; "" for itself alone."""

    file: int
    line: int
    text: str | None
    reason: str = ""
    cluster: str = ""


def parse_format(text: str) -> Format:
    """What `--format` says: `lines`, `jsonl:FIELD`, `parquet:COLUMN`. Raises UsageError."""
    kind, _, field = text.partition(":")
    if kind == "lines" and not field:
        return Format("lines")
    if kind in ("jsonl", "parquet"):
        return Format(kind, field or "text")
    raise UsageError(
        "there is no corpus format {text}", expected="lines, jsonl:FIELD or parquet:COLUMN", text=repr(text)
    )


def format_of(name: str) -> Format:
    """The format that a file's name tells: .jsonl is `jsonl:text`, .parquet is `parquet:text`, all others are lines."""
    plain = name.lower().removesuffix(".gz").removesuffix(".zst")
    if plain.endswith((".jsonl", ".ndjson")):
        return Format("jsonl", "text")
    return Format("parquet", "text") if plain.endswith(".parquet") else Format("lines")


def find(
    names: Sequence[str], *, out: Path | None = None, note: Callable[[str], None] = lambda message: None
) -> list[str]:
    """The files that names, folders and globs stand for, in order: as asked, and by name within a folder or glob.

    `-` is standard input; an address with `://` stays as it is. What scans wrote is no part of a folder or glob: `out`,
    and folders that hold a plan and shards. note: told of those. Raises InputError for what is not there.
    """
    files: list[str] = []
    scans = _Scans(out)
    for name in names:
        if name == "-" or "://" in name:
            files.append(name)
            continue
        path = Path(name)
        if is_there(path) and path.is_dir():
            inside = sorted(str(entry) for entry in path.rglob("*") if entry.is_file() and _is_corpus(entry))
            inside = [entry for entry in inside if not scans.hold(entry, path)]
        else:
            inside = [name] if path.is_file() else [entry for entry in sorted(_matching(name)) if not scans.hold(entry)]
        if not inside:
            raise InputError(
                "there is no corpus {name}",
                expected="a file, a folder or a pattern of .txt, .jsonl or .parquet files",
                name=repr(name),
            )
        files += inside
    for folder in scans.passed:
        note(message("{folder} was written by a scan, and is no part of the corpus", folder=folder))
    if len(files) != len(set(files)):
        twice = next(name for index, name in enumerate(files) if name in files[:index])
        raise UsageError("{twice} is named twice", expected="each file once", twice=repr(twice))
    return files


class _Scans:
    """Folders that scans wrote, found on the way. passed: those that files were left out of."""

    def __init__(self, out: Path | None) -> None:
        self._out = out
        self._known: dict[Path, Path | None] = {} if out is None else {out.absolute(): out}
        self.passed: dict[Path, None] = {}

    def hold(self, name: str, root: Path | None = None) -> bool:
        """Whether a file is in a folder that a scan wrote. root: the folder that was asked for; what another scan wrote
        around it is asked for with it."""
        scan_folder = self._of(Path(name).absolute().parent)
        if scan_folder is None or (
            scan_folder is not self._out and root is not None and root.absolute().is_relative_to(scan_folder)
        ):
            return False
        self.passed[scan_folder] = None
        return True

    def _of(self, folder: Path) -> Path | None:
        if folder not in self._known:
            own = (folder / "plan.json").is_file() and (folder / "shards").is_dir()
            parent = folder.parent
            self._known[folder] = folder if own else None if parent == folder else self._of(parent)
        return self._known[folder]


def _matching(pattern: str) -> list[str]:
    """Files that a pattern with `*`, `?` or `**` matches."""
    return [file_name for file_name in glob(pattern, recursive=True) if Path(file_name).is_file()]  # noqa: PTH207 - `..` and absolute ones


def _is_corpus(path: Path) -> bool:
    plain = path.name.lower().removesuffix(".gz").removesuffix(".zst")
    return not path.name.startswith(".") and plain.endswith((*TEXTS, ".jsonl", ".ndjson", ".parquet"))


def records_of_lines(
    lines: Iterable[bytes | None], *, file: int, first: int, format: Format, cluster: str
) -> Iterator[Record]:
    """The records of lines, each with or without its end; None stands for one of more than `LONGEST` bytes. first:
    number of the first line. cluster: a JSON field, "" for none."""
    for line, piece in enumerate(lines, first):
        if piece is None:
            yield Record(file, line, None, "long")
        else:
            yield _record(piece.removesuffix(b"\n"), file, line, format, cluster)


def _record(raw: bytes, file: int, line: int, format: Format, cluster: str) -> Record:
    try:
        text = raw.decode("utf-8-sig" if line == 0 else "utf-8")
    except UnicodeDecodeError:
        return Record(file, line, None, "undecodable")
    if format.kind == "lines":
        return _text(file, line, text)
    if not text.strip():
        return Record(file, line, None, "empty")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return Record(file, line, None, "undecodable")
    if not isinstance(value, dict) or not isinstance(value.get(format.field), str):
        return Record(file, line, None, "undecodable")
    group = value.get(cluster) if cluster else ""
    return _text(file, line, value[format.field], "" if group is None else str(group))


def _text(file: int, line: int, text: str, cluster: str = "") -> Record:
    content = text.strip()
    try:
        content.encode()
    except UnicodeEncodeError:  # half of a character, as JSON can name it
        return Record(file, line, None, "undecodable")
    return Record(file, line, content, cluster=cluster) if content else Record(file, line, None, "empty")


def parquet(path: str) -> Any:
    """The Parquet file, open. Raises UnsupportedError without pyarrow, InputError for a damaged file."""
    try:
        import pyarrow.parquet as library
    except ImportError as error:
        raise UnsupportedError("Parquet files need pyarrow", hint=install_command("scan")) from error
    try:
        return library.ParquetFile(path)
    except Exception as error:  # pyarrow raises its own kinds
        raise InputError("this is no Parquet file: {error}", where=path, error=error) from error


def columns_of(parquet_file: Any, path: str, format: Format, cluster: str) -> list[str]:
    """The columns of a Parquet file that a scan reads. Raises InputError for one that is not there."""
    names = list(parquet_file.schema_arrow.names)
    columns = list(dict.fromkeys([format.field, *([cluster] if cluster else ())]))
    for name in columns:
        if name not in names:
            raise InputError("there is no column {name}", where=path, expected=listing(names[:20]), name=repr(name))
        if names.count(name) > 1:
            raise InputError(
                "there are {name} columns {name_2}",
                where=path,
                expected="one of that name",
                name=names.count(name),
                name_2=repr(name),
            )
    return columns


def records_of_parquet(
    path: str, *, file: int, first: int, count: int, format: Format, cluster: str
) -> Iterator[Record]:
    """`count` rows from row `first` on; only the row groups that hold them are read."""
    parquet_file = parquet(path)
    columns = columns_of(parquet_file, path, format, cluster)
    start = 0
    for group in range(parquet_file.num_row_groups):
        rows = parquet_file.metadata.row_group(group).num_rows
        low, high = max(first, start), min(first + count, start + rows)
        if low < high:
            line = start
            for batch in parquet_file.iter_batches(ROWS, row_groups=[group], columns=columns):
                for row in range(max(low - line, 0), min(high - line, batch.num_rows)):
                    group_name = batch.column(cluster)[row].as_py() if cluster else None
                    text = batch.column(format.field)[row].as_py()
                    yield _cell(file, line + row, text, "" if group_name is None else str(group_name))
                line += batch.num_rows
        start += rows


def _cell(file: int, line: int, text: object, cluster: str) -> Record:
    if not isinstance(text, str):
        return Record(file, line, None, "empty" if text is None else "undecodable")
    if len(text) > LONGEST:
        return Record(file, line, None, "long")
    return _text(file, line, text, cluster)
