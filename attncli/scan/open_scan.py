"""A scan's folder, opened in Python: what it says of every head, and the tables that it kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, json

from attncli.errors import InputError
from attncli.inputs.files import LARGEST_FILE, is_there, open_regular
from attncli.language import message
from attncli.scan import plan, report
from attncli.scan.document import ScanDocument
from attncli.scan.plan import ScanPlan
from attncli.scan.shard_files import FOLDER, import_pyarrow, link_schema
from attncli.scan.totals import total

MISSING = {
    "rows": (message("this scan kept no row for each text and head"), "--rows"),
    "links": (message("this scan looked for no links"), "--find WHICH"),
}
"""By kind of table, what is said where a scan has none, and the option that keeps it."""


LINES = 4096
"""Lines of a table that are read at once."""


class OpenScan(Struct, frozen=True, eq=False):
    """A scan that was opened.

    folder: Where it is.
    plan: What was counted, over which corpus.
    document: What every head does, as `attn scan show --json` says it; `document.to_pandas()` is a
        frame with a line for each head and metric.
    """

    folder: Path
    plan: ScanPlan
    document: ScanDocument

    def __repr__(self) -> str:
        """The folder, and how much is done."""
        done, shards = self.document.done.shards
        texts = self.document.done.texts
        return f"<scan {self.folder}: {texts} texts, {done} of {shards} shards>"

    def rows(self) -> Any:
        """Every text and head of a scan that was made with `--rows`.

        Returns:
            A pyarrow Table with a row for each text and head: text (a hash of it), file, line,
            layer, head, tokens, rows, and a column for each metric; of the shards that are done,
            in their order. Its `to_pandas()` is a frame.

        Raises:
            InputError: Where the scan kept none.
            UnsupportedError: Where pyarrow is not installed.
        """
        return import_pyarrow().concat_tables(list(self.tables("rows")))

    def links(self) -> Any:
        """The links that a scan with `--find` kept.

        Returns:
            A pyarrow Table with a row for each link: condition (its number), text (a hash of it),
            file, line, layer, head, query, key, query_text, key_text and weight; of the shards that
            are done, in their order.

        Raises:
            InputError: Where the scan kept none.
            UnsupportedError: Where pyarrow is not installed.
        """
        return import_pyarrow().concat_tables(list(self.tables("links")))

    def link_lines(self) -> Iterator[Mapping[str, Any]]:
        """The links that a scan with `--find` kept, one at a time; needs no pyarrow where the scan
        was made without it.

        Yields:
            A dictionary for each link, with the columns of `links()` as its keys.

        Raises:
            InputError: Where the scan kept none.
            UnsupportedError: Where they are Parquet, and pyarrow is not installed.
        """
        paths = self._paths("links")
        for path in paths:
            if path.suffix == ".jsonl":
                yield from _lines_of(path)
                continue
            for batch in import_pyarrow().parquet.read_table(path).to_batches(max_chunksize=LINES):
                yield from batch.to_pylist()

    def _paths(self, kind: Literal["rows", "links"]) -> list[Path]:
        """The paths of the files that hold a table, one for each shard that is done, in the order
        of shards. Raises InputError where the scan kept no such table."""
        folder = self.folder / FOLDER
        paths = [*folder.glob(f"*/*.{kind}.parquet"), *folder.glob(f"*/*.{kind}.jsonl")]
        if not paths:
            missing, option = MISSING[kind]
            raise InputError(
                missing,
                where=str(self.folder),
                expected=message("a scan made with {option}", option=option),
            )
        return sorted(paths)  # a file's name begins with the shard's number

    def tables(self, kind: Literal["rows", "links"]) -> Iterator[Any]:
        """The tables of `rows()` or of `links()`, one for each shard that is done, read one at a
        time.

        Raises:
            InputError: Where the scan kept none.
            UnsupportedError: Where pyarrow is not installed.
        """
        paths = self._paths(kind)
        arrow = import_pyarrow()

        def table(path: Path) -> Any:
            """One shard's table, of either format."""
            if path.suffix == ".jsonl":
                return arrow.Table.from_pylist(list(_lines_of(path)), schema=link_schema())
            return arrow.parquet.read_table(path)

        return map(table, paths)


def _lines_of(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the lines of a shard's links.jsonl, each decoded to a dictionary."""
    stream, _ = open_regular(path, what=message("a shard"), limit=LARGEST_FILE)
    with stream:
        yield from map(json.decode, stream)


def open_scan(folder: str | Path) -> OpenScan:
    """Open the folder of a scan; of an unfinished one, what is done so far.

    Args:
        folder: Where `attn scan` or `attncli.scan_corpus` has written it.

    Returns:
        The scan: its document, and the tables that it kept.

    Raises:
        InputError: Where there is no scan, or it is damaged.
    """
    place = Path(folder)
    scan_plan = plan.read_plan(place)
    document = None
    if is_there(place / report.NAME):
        document = report.read_report(place)
    # a finished scan keeps its document; of any other the finished shards are added up now. The
    # document's `shards` are how many are done, and how many there are
    if document is None or document.done.shards[0] < len(scan_plan.shards):
        document = report.scan_document(total(scan_plan, place), report.failures(place))
    return OpenScan(place, scan_plan, document)
