"""Two scans against each other: every number from the texts' own, by definition."""

from __future__ import annotations

import json
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
    parts = [
        ((weight / sum(weights)) ** 2 * statistics.variance(texts) / len(texts), len(texts) - 1)
        for weight, stratum in zip(weights, strata, strict=True)
        for texts in stratum
    ]
    error = sum(part for part, _ in parts) ** 0.5
    free = error**4 / sum(part**2 / free for part, free in parts)
    wanted = 1.96 * error / ((1 - 0.25 / free) ** 2 - 1.96**2 / (2 * free)) ** 0.5
    assert row.ci95 == pytest.approx([row.difference - wanted, row.difference + wanted], rel=1e-3, abs=1e-6)
    t = row.difference / error
    assert row.z == pytest.approx(t * (1 - 0.25 / free) / (1 + t * t / (2 * free)) ** 0.5, rel=1e-4)
    pairs = [(x > y) - (x < y) for _, x in sides[0] for _, y in sides[1]]
    assert abs(row.cliffs_delta - statistics.fmean(pairs)) <= row.cliffs_error
    assert not found.paired


def test_documents_widen_an_interval_and_texts_in_common_narrow_it(encoder, lines, tmp_path):
    def written(name: str, some: list[str], cluster: str) -> None:
        (tmp_path / name).mkdir()
        corpus = tmp_path / name / "corpus.jsonl"
        corpus.write_text("".join(json.dumps({"text": text, "book": text[:9]}) + "\n" for text in some))
        made = planned(encoder, corpus, tmp_path / name, shard=400, cluster=cluster)
        run(made, tmp_path / name, str(encoder), Inside())

    for name, some, cluster in (
        ("a", 4 * lines[:30], ""), ("b", 4 * lines[30:], ""), ("a documents", 4 * lines[:30], "book"),
        ("b documents", 4 * lines[30:], "book"), ("more", 4 * lines[:36], ""),
    ):  # fmt: skip
        written(name, some, cluster)

    def widths(a: str, b: str) -> list[float]:
        rows = compare_document(tmp_path / a, tmp_path / b).differences
        return [row.ci95[1] - row.ci95[0] for row in sorted(rows, key=lambda row: (row.metric, row.layer, row.head))]

    plain = widths("a", "b")
    # equal texts are drawn together with and without documents, so what documents do is what is told of them
    assert 1.6 < statistics.fmean(a / b for a, b in zip(widths("a documents", "b documents"), plain, strict=True)) < 2.4
    assert statistics.fmean(a / b for a, b in zip(widths("a", "more"), plain, strict=True)) < 0.7


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
