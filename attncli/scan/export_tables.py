"""A scan's tables in one file for other programs: Parquet, CSV, or a JSON object a line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from attncli.draw.encoding import comma_separated, ndjson_line
from attncli.errors import UnsupportedError, UsageError
from attncli.extras import install_command
from attncli.inputs.files import atomic_writer
from attncli.scan.document import ScanDocument
from attncli.scan.open_scan import OpenScan
from attncli.scan.screen import scan_rows

Table = Literal["heads", "rows", "links"]
"""A line for each head and metric; for each text and head (`--rows`); for each link (`--find`)."""
FORMATS = (".parquet", ".csv", ".jsonl")
"""What a file's name ends in, which says what is written."""
LINES = 4096
"""Lines that are written at once."""
Line = Mapping[str, Any]


def export_table(scan: OpenScan, file: Path, table: Table = "heads") -> int:
    """Write one of a scan's tables to a file, in the format that its name ends in; whole or not at
    all.

    Returns:
        How many lines it has.

    Raises:
        UsageError: For a name that ends in no format.
        InputError: For a table that the scan did not keep.
        UnsupportedError: Where what reads or writes Parquet is not installed.
    """
    suffix = file.suffix.lower()
    if suffix not in FORMATS:
        raise UsageError(
            "{file} names no format",
            expected="a file ending in .parquet, .csv or .jsonl",
            hint="attn scan export OUT heads.csv",
            file=repr(str(file)),
        )
    if table == "heads":
        lines = _lines_of_heads(scan.document)
        if suffix == ".parquet":
            return _write_parquet(lines, file)
        with atomic_writer(file) as stream:
            return _write_lines(iter(lines), suffix, stream)
    # without pyarrow links are kept as JSON, which is read here without it, too
    if table == "links" and suffix != ".parquet":
        with atomic_writer(file) as stream:
            return _write_lines(scan.link_lines(), suffix, stream)
    tables = scan.tables(table)
    if suffix == ".parquet":
        return _copy_parquet(tables, file)
    with atomic_writer(file) as stream:
        return _write_lines(chain.from_iterable(map(_lines_of, tables)), suffix, stream)


def _lines_of_heads(document: ScanDocument) -> list[Line]:
    """A scan's table as `attn scan show --csv` writes it, a dictionary (column to value) for each
    line."""
    rows = iter(scan_rows(document))
    names = [str(name) for name in next(rows)]
    return [dict(zip(names, map(_plain_value, row), strict=True)) for row in rows]


def _plain_value(value: object) -> object:
    """A value for pyarrow and JSON: a NumPy scalar as Python's own number, any other as it is."""
    if isinstance(value, np.generic):
        return value.item()
    return value


def _lines_of(table: Any) -> Iterator[Line]:
    """Yield the lines of a pyarrow Table, converting at most `LINES` of them at a time, so that a
    large table does not stand in memory twice."""
    for batch in table.to_batches(max_chunksize=LINES):
        yield from batch.to_pylist()


def _write_lines(lines: Iterator[Line], suffix: str, stream: BinaryIO) -> int:
    """Write lines to a stream, at most `LINES` at a time, and return how many.

    suffix: ".csv" for CSV with a header; any other for a JSON object a line.
    """
    count = 0
    while batch := list(islice(lines, LINES)):
        if suffix == ".csv":
            rows: list[Sequence[object]] = [list(line.values()) for line in batch]
            if count == 0:  # the header stands before the first line alone
                rows.insert(0, list(batch[0]))
            stream.write(comma_separated(rows).encode())
        else:
            stream.write(b"".join(map(ndjson_line, batch)))
        count += len(batch)
    return count


def _write_parquet(lines: Sequence[Line], file: Path) -> int:
    """Write lines to a Parquet file, by pyarrow, or by polars where only that is installed, and
    return how many. Raises UnsupportedError where neither is installed."""
    arrow = _module("pyarrow.parquet")
    polars = None if arrow is not None else _module("polars")
    if arrow is None and polars is None:
        raise UnsupportedError(
            "{file} takes pyarrow or polars, and neither is installed",
            expected="one of them, or a file ending in .csv or .jsonl",
            hint=install_command("scan"),
            file=repr(str(file)),
        )
    with atomic_writer(file) as stream:
        if arrow is not None:
            table = import_module("pyarrow").Table.from_pylist([dict(line) for line in lines])
            arrow.write_table(table, stream, compression="zstd")
        else:
            assert polars is not None
            frame = polars.DataFrame([dict(line) for line in lines], infer_schema_length=None)
            frame.write_parquet(stream)
    return len(lines)


def _copy_parquet(tables: Iterator[Any], file: Path) -> int:
    """Write pyarrow Tables with the same columns to one Parquet file, one Table in memory at a
    time, and return how many rows they have.

    tables: one for each finished shard, at least one.
    """
    parquet = import_module("pyarrow.parquet")
    first = next(tables)
    count = 0
    with (
        atomic_writer(file) as stream,
        parquet.ParquetWriter(stream, first.schema, compression="zstd") as writer,
    ):
        for table in chain([first], tables):
            writer.write_table(table)
            count += table.num_rows
    return count


def _module(name: str) -> Any:
    """The module `name`, imported; None where it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        return None
