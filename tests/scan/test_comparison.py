"""Two scans against each other: every number from the texts' own, by definition."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from asking import ask
from scanning import Inside, planned

from attncli.draw.safe import cells
from attncli.scan import report
from attncli.scan.engines import run
from attncli.scan.report import scan_compare_document

HEAD = (1, 2)


def scanned(
    model: Path, texts: list[str], folder: Path, **wanted: object
) -> list[tuple[int, float]]:
    """Scan texts into a folder; (tokens, sink) of each text that counted, of one head."""
    folder.mkdir()
    (folder / "corpus.txt").write_text("\n".join(texts))
    made = planned(model, folder / "corpus.txt", folder, rows=True, shard=100, **wanted)
    run(made, folder, str(model), Inside())
    rows = parquet.read_table(folder / "shards/000/000000.rows.parquet").to_pylist()
    return [(row["tokens"], row["sink"]) for row in rows if (row["layer"], row["head"]) == HEAD]


def test_differences_are_those_of_the_texts(encoder, lines, tmp_path):
    sides = [
        scanned(encoder, some, tmp_path / name)
        for name, some in (("a", lines[:30]), ("b", [*lines[30:], "w1 " * 30]))
    ]
    found = scan_compare_document(tmp_path / "a", tmp_path / "b")
    (row,) = (
        row for row in found.differences if (row.layer, row.head, row.metric) == (*HEAD, "sink")
    )
    strata = [[[value for tokens, value in side if (tokens > 16) == long and tokens <= 32] for side in sides]
              for long in (False, True)]  # fmt: skip
    assert found.strata == [16, 32]
    weights = [len(a) + len(b) for a, b in strata]
    means = [
        sum(
            weight * statistics.fmean(stratum[side])
            for weight, stratum in zip(weights, strata, strict=True)
        )
        / sum(weights)
        for side in (0, 1)
    ]
    assert (row.a, row.b) == (pytest.approx(means[0], abs=1e-6), pytest.approx(means[1], abs=1e-6))
    texts = [[value for stratum in strata for value in stratum[side]] for side in (0, 1)]
    pooled = sum((len(side) - 1) * statistics.variance(side) for side in texts) / (
        len(texts[0]) + len(texts[1]) - 2
    )
    assert row.cohens_d == pytest.approx((means[0] - means[1]) / pooled**0.5, rel=1e-4)
    parts = [
        ((weight / sum(weights)) ** 2 * statistics.variance(texts) / len(texts), len(texts) - 1)
        for weight, stratum in zip(weights, strata, strict=True)
        for texts in stratum
    ]
    error = sum(part for part, _ in parts) ** 0.5
    free = error**4 / sum(part**2 / free for part, free in parts)
    wanted = 1.96 * error / ((1 - 0.25 / free) ** 2 - 1.96**2 / (2 * free)) ** 0.5
    assert row.ci95 == pytest.approx(
        [row.difference - wanted, row.difference + wanted], rel=1e-3, abs=1e-6
    )
    t = row.difference / error
    assert row.z == pytest.approx(t * (1 - 0.25 / free) / (1 + t * t / (2 * free)) ** 0.5, rel=1e-4)
    pairs = [(x > y) - (x < y) for _, x in sides[0] for _, y in sides[1]]
    assert abs(row.cliffs_delta - statistics.fmean(pairs)) <= row.cliffs_error
    assert not found.paired


def spread(sides: list[list[tuple[str, int, float]]]) -> float:
    """The standard error of a difference within strata of texts [(document, tokens, value)]: a sum
    over documents of the square of what each adds to it."""
    of = [[(book, sum(tokens > most for most in (16, 32, 64)), value) for book, tokens, value in side]
          for side in sides]  # fmt: skip
    common = {stratum for _, stratum, _ in of[0]} & {stratum for _, stratum, _ in of[1]}
    every = sum(stratum in common for side in of for _, stratum, _ in side)
    added: dict[tuple[int, str], float] = {}
    for number, side in enumerate(of):
        for stratum in common:
            values = [value for _, at, value in side if at == stratum]
            share = sum(at == stratum for one in of for _, at, _ in one) / every
            for book, at, value in side:
                if at == stratum:
                    part = share * (value - statistics.fmean(values)) / len(values)
                    added[number, book] = added.get((number, book), 0.0) + part
    return sum(one * one for one in added.values()) ** 0.5


def test_documents_widen_an_interval_and_texts_in_common_narrow_it(encoder, lines, tmp_path):
    """Each document holds a text and a longer one that begins so, twice each."""
    books = [[line, f"{line}{' w3' * 24}"] * 2 for line in lines]

    def scanned_books(name: str, some: list[list[str]], cluster: str) -> None:
        (tmp_path / name).mkdir()
        corpus = tmp_path / name / "corpus.jsonl"
        records = [{"text": text, "book": book[0]} for book in some for text in book]
        corpus.write_text("".join(f"{json.dumps(record)}\n" for record in records))
        made = planned(encoder, corpus, tmp_path / name, shard=400, cluster=cluster, rows=True)
        run(made, tmp_path / name, str(encoder), Inside())

    for name, some, cluster in (
        ("a", books[:30], ""), ("more", books[:36], ""), ("a documents", books[:30], "book"),
        ("b documents", books[30:], "book"),
    ):  # fmt: skip
        scanned_books(name, some, cluster)

    def widths(a: str, b: str) -> list[float]:
        rows = scan_compare_document(tmp_path / a, tmp_path / b).differences
        return [
            row.ci95[1] - row.ci95[0]
            for row in sorted(rows, key=lambda row: (row.layer, row.head, row.metric))
        ]

    sides: list[dict[tuple[int, int, str], list[tuple[str, int, float]]]] = [{}, {}]
    for side, name in zip(sides, ("a documents", "b documents"), strict=True):
        for row in parquet.read_table(
            tmp_path / name / "shards/000/000000.rows.parquet"
        ).to_pylist():
            for metric in ("entropy", "sink"):
                told = str(row["line"] // 4), row["tokens"], row[metric]
                side.setdefault((row["layer"], row["head"], metric), []).append(told)
    wanted = [2 * 1.96 * spread([side[place] for side in sides]) for place in sorted(sides[0])]
    ratios = [a / b for a, b in zip(widths("a documents", "b documents"), wanted, strict=True)]
    assert 0.9 < statistics.fmean(ratios) < 1.15
    shared = zip(widths("a", "more"), widths("a documents", "b documents"), strict=True)
    assert (
        statistics.fmean(a / b for a, b in shared) < 0.35
    )  # 0.5 if no text was known to be in both


def test_too_few_texts_have_no_interval_and_no_probability(encoder, lines, tmp_path):
    for name, some in (("a", lines[:30]), ("b", lines[:2])):
        scanned(encoder, some, tmp_path / name)
    for row in scan_compare_document(tmp_path / "a", tmp_path / "b").differences:
        assert (row.ci95, row.z, row.p, row.q) == (None, None, None, None)
        assert row.cliffs_delta is not None


def test_scans_of_the_same_texts_are_paired_and_a_sample_is_not(encoder, lines, tmp_path):
    for name, wanted in (("a", {}), ("b", {"top": 1}), ("c", {"sample": 20})):
        scanned(encoder, lines, tmp_path / name, **wanted)
    assert scan_compare_document(tmp_path / "a", tmp_path / "b").paired
    assert not scan_compare_document(tmp_path / "a", tmp_path / "c").paired


@pytest.mark.thorough
def test_a_head_is_shown_beside_the_same_in_another_scan(encoder, lines, tmp_path):
    for name, part in (("a", lines[:30]), ("b", lines[30:])):
        (tmp_path / f"{name}.txt").write_text("\n".join(part))
        made = planned(encoder, tmp_path / f"{name}.txt", tmp_path / name)
        outcome = run(made, tmp_path / name, str(encoder), Inside())
        report.write(report.scan_document(outcome.totals), tmp_path / name)
    places = (str(tmp_path / "a"), str(tmp_path / "b"))
    whole = ask("scan", "compare", *places, "--json").json
    rows = [row for row in whole["differences"] if (row["layer"], row["head"]) == (1, 2)]
    for width in (60, 80, 120):
        for lang in ("en", "zh"):
            shown = ask(
                "scan",
                "show",
                *places,
                "--head",
                "L1H2",
                "--show",
                "changes",
                "--lang",
                lang,
                width=width,
            )
            assert shown.code == 0, shown.err
            assert max(map(cells, shown.out.splitlines())) <= width
            for row in rows:
                assert f"{row['a']:.3f}" in shown.out
                assert f"{row['b']:.3f}" in shown.out
                assert f"{row['cliffs_delta']:.3f}" in shown.out
    assert "which tokens L1 H2 links most" in ask("scan", "show", *places, "--head", "L1H2").out
    for more in (
        ("--head", "L1H2", "--plain"),
        ("--head", "L1H2", "-o", str(tmp_path / "told.txt")),
        (),
    ):
        assert ask("scan", "show", *places, *more).code == 2
