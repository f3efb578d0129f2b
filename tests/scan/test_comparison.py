"""Two scans against each other: every number from the texts' own, by definition."""

from __future__ import annotations

import statistics
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from scanning import Inside, planned

from attncli.scan.comparison import compare_document
from attncli.scan.run import run

HEAD = (1, 2)


def scanned(model: Path, texts: list[str], folder: Path, **wanted: object) -> list[tuple[int, float]]:
    """Scan texts into a folder; (tokens, sink) of each text that counted, of one head."""
    folder.mkdir()
    (folder / "corpus.txt").write_text("\n".join(texts))
    made = planned(model, folder / "corpus.txt", folder, rows=True, shard=100, **wanted)
    run(made, folder, str(model), Inside())
    rows = parquet.read_table(folder / "shards/000/000000.rows.parquet").to_pylist()
    return [(row["tokens"], row["sink"]) for row in rows if (row["layer"], row["head"]) == HEAD]


def test_differences_are_those_of_the_texts(encoder, lines, tmp_path):
    sides = [
        scanned(encoder, some, tmp_path / name) for name, some in (("a", lines[:35]), ("b", [*lines[35:], "w1 " * 30]))
    ]
    found = compare_document(tmp_path / "a", tmp_path / "b")
    (row,) = (row for row in found.differences if (row.layer, row.head, row.metric) == (*HEAD, "sink"))
    strata = [[[value for tokens, value in side if (tokens > 16) == long and tokens <= 32] for side in sides]
              for long in (False, True)]  # fmt: skip
    assert found.strata == [16, 32]
    weights = [len(a) + len(b) for a, b in strata]
    means = [
        sum(weight * statistics.fmean(stratum[side]) for weight, stratum in zip(weights, strata, strict=True))
        / sum(weights)
        for side in (0, 1)
    ]
    assert (row.a, row.b) == (pytest.approx(means[0], abs=1e-6), pytest.approx(means[1], abs=1e-6))
    texts = [[value for stratum in strata for value in stratum[side]] for side in (0, 1)]
    pooled = sum((len(side) - 1) * statistics.variance(side) for side in texts) / (len(texts[0]) + len(texts[1]) - 2)
    assert row.cohens_d == pytest.approx((means[0] - means[1]) / pooled**0.5, rel=1e-4)
    assert row.ci95[0] < row.difference < row.ci95[1]
    assert row.z == pytest.approx(row.difference / ((row.ci95[1] - row.ci95[0]) / 3.92), rel=0.3)
    pairs = [(x > y) - (x < y) for _, x in sides[0] for _, y in sides[1]]
    assert abs(row.cliffs_delta - statistics.fmean(pairs)) <= row.cliffs_error
    assert not found.paired


def test_too_few_texts_have_no_interval_and_no_probability(encoder, lines, tmp_path):
    for name, some in (("a", lines[:30]), ("b", lines[:2])):
        scanned(encoder, some, tmp_path / name)
    for row in compare_document(tmp_path / "a", tmp_path / "b").differences:
        assert (row.ci95, row.z, row.p, row.q) == (None, None, None, None)
        assert row.cliffs_delta is not None


def test_scans_of_the_same_texts_are_paired_and_a_sample_is_not(encoder, lines, tmp_path):
    for name, wanted in (("a", {}), ("b", {"top": 1}), ("c", {"sample": 20})):
        scanned(encoder, lines, tmp_path / name, **wanted)
    assert compare_document(tmp_path / "a", tmp_path / "b").paired
    assert not compare_document(tmp_path / "a", tmp_path / "c").paired
