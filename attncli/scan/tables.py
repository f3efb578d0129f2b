"""Tables of a shard for other programs: a row per text and head, a row per link, as Parquet."""

from __future__ import annotations

from collections.abc import Sequence
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


class Rows:
    """Collects the numbers of each text and head. heads: (layer, head) of each; columns: names of the metrics."""

    def __init__(self, heads: Sequence[tuple[int, int]], columns: Sequence[str]) -> None:
        self._heads = np.array(heads, np.int32).reshape((-1, 2))
        self._columns = tuple(columns)
        self._parts: list[dict[str, Any]] = []

    def add(self, places: Sequence[tuple[int, int]], tokens: int, values: Floats, rows: Ints) -> None:
        """Take a batch. places: (file, line) of each text; values: [text, column, head]; rows: [column, head]."""
        texts, heads = len(places), len(self._heads)
        part: dict[str, Any] = {
            "file": np.repeat(np.array([file for file, _ in places], np.int32), heads),
            "line": np.repeat(np.array([line for _, line in places], np.int64), heads),
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
        names = ["file", "line", "layer", "head", "tokens", "rows", *self._columns]
        kinds = [np.int32, np.int64, np.int32, np.int32, np.int32, np.int32, *[np.float32] * len(self._columns)]
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
                use_dictionary=["file", "line", "layer", "head", "tokens", "rows"],
                use_byte_stream_split=list(self._columns),
            )


LINK_FIELDS = ("condition", "file", "line", "layer", "head", "query", "key", "query_text", "key_text", "weight")


class Links:
    """Collects the links that conditions found."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []

    def add(self, condition: int, found: Sequence[Link], places: Sequence[tuple[int, int]], names: Any) -> None:
        """Take links of a batch. places: (file, line) of each text. names: a function (text, token) giving its text."""
        self._rows += [
            (
                condition, *places[link.text], link.layer, link.head, link.query, link.key,
                names(link.text, link.query), names(link.text, link.key), link.weight,
            )
            for link in found
        ]  # fmt: skip

    def save(self, folder: Path, shard: int, part: str) -> int:
        """Write the shard's links; returns how many there are."""
        arrow = library()
        kinds = [
            arrow.int32(),
            arrow.int32(),
            arrow.int64(),
            *[arrow.int32()] * 4,
            *[arrow.string()] * 2,
            arrow.float32(),
        ]
        columns = list(zip(*sorted(self._rows), strict=True)) or [()] * len(LINK_FIELDS)
        arrays = [arrow.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]
        with written(path_of(folder, shard, "links.parquet"), part) as stream:
            arrow.parquet.write_table(arrow.table(arrays, names=list(LINK_FIELDS)), stream, compression="zstd")
        return len(self._rows)
