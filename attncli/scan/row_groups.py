"""Row groups of Parquet files: which of them hold the rows of a shard, and whether they are what they were."""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from attncli.scan.corpus import Format, columns_of, parquet

Group = tuple[int, bytes]
"""Rows of a row group, and the sha256 of its bytes in the columns that a scan reads."""


def groups_of(path: str, format: Format, cluster: str) -> list[Group]:
    """All row groups of a file. Raises InputError for a file without the columns."""
    return list(_digests(path, range(parquet(path).num_row_groups), format, cluster))


def cut_groups(groups: Sequence[Group], size: int) -> list[tuple[int, int, str]]:
    """Pieces of `size` rows each: (first row, rows, sha256 over the digests of the row groups that hold them)."""
    starts = list(accumulate((rows for rows, _ in groups), initial=0))
    pieces = []
    for first in range(0, starts[-1], size):
        count = min(size, starts[-1] - first)
        pieces.append((first, count, _whole(groups[number][1] for number in _holding(starts, first, count))))
    return pieces


def digest_of_groups(path: str, first: int, count: int, format: Format, cluster: str) -> str:
    """What `cuts` tells of rows first..first+count-1, read anew."""
    meta = parquet(path).metadata
    starts = list(accumulate((meta.row_group(number).num_rows for number in range(meta.num_row_groups)), initial=0))
    return _whole(digest for _, digest in _digests(path, _holding(starts, first, count), format, cluster))


def _digests(path: str, groups: Iterable[int], format: Format, cluster: str) -> Iterator[Group]:
    parquet_file = parquet(path)
    columns = columns_of(parquet_file, path, format, cluster)
    with Path(path).open("rb") as stream:
        for number in groups:
            group, digest = parquet_file.metadata.row_group(number), hashlib.sha256()
            for column_number in range(group.num_columns):
                chunk = group.column(column_number)
                if any(f"{chunk.path_in_schema}.".startswith(f"{name}.") for name in columns):
                    starts = (chunk.dictionary_page_offset, chunk.data_page_offset)
                    stream.seek(min(start for start in starts if start is not None))
                    digest.update(stream.read(chunk.total_compressed_size))
            yield group.num_rows, digest.digest()


def _holding(starts: Sequence[int], first: int, count: int) -> range:
    """Which row groups hold rows first..first+count-1. starts: their first rows, then the number of all rows."""
    last = min(first + count, starts[-1])
    return range(bisect_right(starts, first) - 1, bisect_left(starts, last)) if first < last else range(0)


def _whole(digests: Iterable[bytes]) -> str:
    return hashlib.sha256(b"".join(digests)).hexdigest()
