"""Tables of a shard for other programs: a row per text and head, a row per link, as Parquet.

A row names its text in two ways: `text` is a hash of what it says, the same in every scan, by which the rows of two
scans are joined; `file` and `line` are where it stands in this scan's corpus, both from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attncli.analysis.visible_keys import Floats, Ints
from attncli.errors import UnsupportedError
from attncli.scan.conditions import MatchedLink
from attncli.scan.shard_files import path_of, synced_writer


def library() -> Any:
    """pyarrow. Raises UnsupportedError where it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UnsupportedError("--rows and --find write Parquet files", hint="pip install 'attn[scan]'") from error
    return pyarrow


@dataclass(frozen=True)
class TextPlace:
    """A text as tables name it. text: `text_hash` with seed 0, whatever the scan's seed. file, line: as of `Record`."""

    text: int
    file: int
    line: int


KEY_COLUMNS = ("text", "file", "line", "layer", "head", "tokens", "rows")
"""What a row is about, before the numbers."""


GROUP = 2**20
"""Rows of a row group, at least: what is held of a shard's rows before they are written."""


class RowTable:
    """Takes the numbers of each text and head, and writes them a row group at a time, floats split by bytes, which
    packs them best.

    heads: (layer, head) of each; columns: names of the metrics; write: takes a table.
    """

    def __init__(self, heads: Sequence[tuple[int, int]], columns: Sequence[str], write: Callable[[Any], None]) -> None:
        self._heads = np.array(heads, np.int32).reshape((-1, 2))
        self._columns = tuple(columns)
        self._write = write
        self._parts: list[dict[str, Any]] = []
        self._row_count = 0

    def add(self, places: Sequence[TextPlace], tokens: int, values: Floats, rows: Ints) -> None:
        """Take a batch. places: of each text; values: [text, column, head]; rows: [column, head]."""
        texts, heads = len(places), len(self._heads)
        part: dict[str, Any] = {
            "text": np.repeat(np.array([place.text for place in places], np.uint64), heads),
            "file": np.repeat(np.array([place.file for place in places], np.int32), heads),
            "line": np.repeat(np.array([place.line for place in places], np.int64), heads),
            "layer": np.tile(self._heads[:, 0], texts),
            "head": np.tile(self._heads[:, 1], texts),
            "tokens": np.full(texts * heads, tokens, np.int32),
            "rows": np.tile(rows.max(0).astype(np.int32), texts),
        }
        part |= {name: values[:, column].reshape(-1).astype(np.float32) for column, name in enumerate(self._columns)}
        self._parts.append(part)
        self._row_count += texts * heads
        if self._row_count >= GROUP:
            self.flush()

    def flush(self) -> None:
        """Write what is held."""
        if self._parts:
            arrow = library()
            columns = {name: np.concatenate([values[name] for values in self._parts]) for name in self._parts[0]}
            self._parts, self._row_count = [], 0
            self._write(arrow.table({name: arrow.array(values, from_pandas=True) for name, values in columns.items()}))


@contextmanager
def row_writer(
    folder: Path, shard: int, part: str, heads: Sequence[tuple[int, int]], columns: Sequence[str]
) -> Iterator[RowTable]:
    """What takes the rows of a shard; they are its file when the block ends well. part: as of `synced_writer`."""
    arrow = library()
    kinds = [arrow.uint64(), arrow.int32(), arrow.int64(), *[arrow.int32()] * 4, *[arrow.float32()] * len(columns)]
    schema = arrow.schema(list(zip((*KEY_COLUMNS, *columns), kinds, strict=True)))
    settings = {"compression": "zstd", "use_dictionary": list(KEY_COLUMNS), "use_byte_stream_split": list(columns)}
    with (
        synced_writer(path_of(folder, shard, "rows.parquet"), part) as stream,
        arrow.parquet.ParquetWriter(stream, schema, **settings) as writer,
    ):
        rows = RowTable(heads, columns, lambda table: writer.write_table(table, row_group_size=table.num_rows))
        yield rows
        rows.flush()


LINK_FIELDS = ("condition", "text", "file", "line", "layer", "head", "query", "key", "query_text", "key_text", "weight")


class LinkTable:
    """Collects the links that conditions found."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []

    def add(self, condition: int, additions: Sequence[MatchedLink], places: Sequence[TextPlace], names: Any) -> None:
        """Take links of a batch. places: of each text. names: a function (text, token) giving its text."""
        for link in additions:
            place = places[link.text]
            query, key = names(link.text, link.query), names(link.text, link.key)
            self._rows.append(
                (
                    condition, place.text, place.file, place.line, link.layer, link.head, link.query, link.key,
                    query, key, link.weight,
                )
            )  # fmt: skip

    def save(self, folder: Path, shard: int, part: str) -> int:
        """Write the shard's links in the order of condition, file and line; returns how many there are."""
        arrow = library()
        whole, string = arrow.int32(), arrow.string()
        kinds = [whole, arrow.uint64(), whole, arrow.int64(), *[whole] * 4, string, string, arrow.float32()]
        sorted_rows = sorted(self._rows, key=lambda row: (row[0], *row[2:]))
        columns = list(zip(*sorted_rows, strict=True)) or [()] * len(LINK_FIELDS)
        arrays = [arrow.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]
        with synced_writer(path_of(folder, shard, "links.parquet"), part) as stream:
            arrow.parquet.write_table(arrow.table(arrays, names=list(LINK_FIELDS)), stream, compression="zstd")
        return len(self._rows)
