"""Tables of a shard for other programs: a row per text and head, a row per link, as Parquet.

A row names its text in two ways: `text` is a hash of what it says, the same in every scan, by which the rows of two
scans are joined; `file` and `line` are where it stands in this scan's corpus, both from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attncli.analysis.visible_keys import Floats, Ints
from attncli.errors import UnsupportedError
from attncli.scan.conditions import Link
from attncli.scan.shard_files import path_of, written


def library() -> Any:
    """pyarrow. Raises UnsupportedError where it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UnsupportedError("--rows and --find write Parquet files", hint="pip install 'attn[scan]'") from error
    return pyarrow


@dataclass(frozen=True)
class Place:
    """A text as tables name it. text: `text_hash` with seed 0, whatever the scan's seed. file, line: as of `Record`."""

    text: int
    file: int
    line: int


NAMED = ("text", "file", "line", "layer", "head", "tokens", "rows")
"""What a row is about, before the numbers."""


class Rows:
    """Collects the numbers of each text and head. heads: (layer, head) of each; columns: names of the metrics."""

    def __init__(self, heads: Sequence[tuple[int, int]], columns: Sequence[str]) -> None:
        self._heads = np.array(heads, np.int32).reshape((-1, 2))
        self._columns = tuple(columns)
        self._parts: list[dict[str, Any]] = []

    def add(self, places: Sequence[Place], tokens: int, values: Floats, rows: Ints) -> None:
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
        part |= {name: values[:, at].reshape(-1).astype(np.float32) for at, name in enumerate(self._columns)}
        self._parts.append(part)

    def save(self, folder: Path, shard: int, part: str) -> None:
        """Write the shard's rows, floats split by bytes, which packs them best."""
        arrow = library()
        names = [*NAMED, *self._columns]
        kinds = [np.uint64, np.int32, np.int64, *[np.int32] * 4, *[np.float32] * len(self._columns)]
        columns = {
            name: np.concatenate([one[name] for one in self._parts]) if self._parts else np.empty(0, kind)
            for name, kind in zip(names, kinds, strict=True)
        }
        table = arrow.table({name: arrow.array(column, from_pandas=True) for name, column in columns.items()})
        with written(path_of(folder, shard, "rows.parquet"), part) as stream:
            arrow.parquet.write_table(
                table,
                stream,
                compression="zstd",
                use_dictionary=list(NAMED),
                use_byte_stream_split=list(self._columns),
            )


LINK_FIELDS = ("condition", "text", "file", "line", "layer", "head", "query", "key", "query_text", "key_text", "weight")


class Links:
    """Collects the links that conditions found."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []

    def add(self, condition: int, found: Sequence[Link], places: Sequence[Place], names: Any) -> None:
        """Take links of a batch. places: of each text. names: a function (text, token) giving its text."""
        for link in found:
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
        whole, named = arrow.int32(), arrow.string()
        kinds = [whole, arrow.uint64(), whole, arrow.int64(), *[whole] * 4, named, named, arrow.float32()]
        ordered = sorted(self._rows, key=lambda row: (row[0], *row[2:]))
        columns = list(zip(*ordered, strict=True)) or [()] * len(LINK_FIELDS)
        arrays = [arrow.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]
        with written(path_of(folder, shard, "links.parquet"), part) as stream:
            arrow.parquet.write_table(arrow.table(arrays, names=list(LINK_FIELDS)), stream, compression="zstd")
        return len(self._rows)
