"""Row groups of Parquet files: which of them hold the rows of a shard, and whether they are what they were."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from attncli.scan.corpus import Format, columns_of, parquet


def cuts(path: str, size: int, format: Format, cluster: str) -> list[tuple[int, int, str]]:
    """Pieces of `size` rows each: (first row, rows, sha256 over the digests of the row groups that hold them).

    Raises InputError for a file without the columns.
    """
    groups = list(_digests(path, range(parquet(path).num_row_groups), format, cluster))
    sizes = [rows for rows, _ in groups]
    found = []
    for first in range(0, sum(sizes), size):
        count = min(size, sum(sizes) - first)
        found.append((first, count, _whole(groups[at][1] for at in _holding(sizes, first, count))))
    return found


def digest_of(path: str, first: int, count: int, format: Format, cluster: str) -> str:
    """What `cuts` tells of rows first..first+count-1, read anew."""
    meta = parquet(path).metadata
    sizes = [meta.row_group(at).num_rows for at in range(meta.num_row_groups)]
    return _whole(digest for _, digest in _digests(path, _holding(sizes, first, count), format, cluster))


def _digests(path: str, groups: Iterable[int], format: Format, cluster: str) -> Iterator[tuple[int, bytes]]:
    """Rows of each row group, and the sha256 of its bytes in the columns that a scan reads."""
    opened = parquet(path)
    columns = set(columns_of(opened, path, format, cluster))
    with Path(path).open("rb") as stream:
        for number in groups:
            group, digest = opened.metadata.row_group(number), hashlib.sha256()
            for at in range(group.num_columns):
                chunk = group.column(at)
                if chunk.path_in_schema.partition(".")[0] in columns:
                    starts = (chunk.dictionary_page_offset, chunk.data_page_offset)
                    stream.seek(min(start for start in starts if start is not None))
                    digest.update(stream.read(chunk.total_compressed_size))
            yield group.num_rows, digest.digest()


def _holding(sizes: Sequence[int], first: int, count: int) -> list[int]:
    """Which row groups, of so many rows each, hold rows first..first+count-1."""
    starts = accumulate(sizes, initial=0)
    there = enumerate(zip(starts, sizes, strict=False))
    return [at for at, (start, rows) in there if start < first + count and start + rows > first]


def _whole(digests: Iterable[bytes]) -> str:
    return hashlib.sha256(b"".join(digests)).hexdigest()
