"""A scan's folder, opened in Python, holds what its files hold."""

from __future__ import annotations

import pyarrow.parquet
import pytest
from scanning import loaded, planned

import attncli
from attncli.errors import InputError
from attncli.scan.worker import Worker


def scanned(model, corpus, folder, shards=None, **options):
    """A scan of which so many shards are done; None for all."""
    made = planned(model, corpus, folder, shard=20, **options)
    worker = Worker(made, folder, loaded(str(model)))
    for shard in range(len(made.shards))[:shards]:
        worker.shard(shard)
    return made


def test_the_tables_of_all_shards_are_one(encoder, corpus, tmp_path):
    made = scanned(encoder, corpus, tmp_path, rows=True, find=("from=w1 weight>=0.25",))
    scan = attncli.open_scan(tmp_path)
    assert len(made.shards) > 1
    rows = scan.rows()
    assert rows.num_rows == scan.document.done.texts * len(scan.document.heads)
    # each text's mean, summed over the rows of a head, is the head's mean over texts
    frame = rows.to_pandas()
    for head in scan.document.heads:
        own = frame[(frame.layer == head.layer) & (frame["head"] == head.head)]
        assert own.entropy.mean() == pytest.approx(head.metrics["entropy"].mean_texts, abs=1e-5)
    links = scan.links()
    parts = [
        pyarrow.parquet.read_table(path)
        for path in sorted(tmp_path.glob("shards/*/*.links.parquet"))
    ]
    assert links.num_rows == sum(part.num_rows for part in parts) > 0
    assert set(links["query_text"].to_pylist()) == {"w1"}
    assert len(scan.document.to_pandas()) == 2 * len(scan.document.heads)  # a line for each metric


def test_an_unfinished_scan_tells_what_is_done(encoder, corpus, tmp_path):
    made = scanned(encoder, corpus, tmp_path, shards=1)
    scan = attncli.open_scan(tmp_path)
    assert repr(scan) == f"<scan {tmp_path}: 20 texts, 1 of {len(made.shards)} shards>"
    for table, option in ((scan.rows, "--rows"), (scan.links, "--find WHICH")):
        with pytest.raises(InputError) as caught:
            table()
        assert option in str(caught.value.expected)


def test_a_folder_without_a_scan_is_refused(tmp_path):
    with pytest.raises(attncli.AttnError):
        attncli.open_scan(tmp_path)
