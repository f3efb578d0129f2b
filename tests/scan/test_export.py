"""A scan's tables in one file hold what the scan holds, in each format."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import polars
import pyarrow.parquet
import pytest
from asking import ask
from scanning import inside

import attncli
from attncli.mechanism import trace
from attncli.scan import export_tables


@pytest.fixture(scope="module")
def scan(encoder: Path, lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    (folder / "corpus.txt").write_text("".join(f"{line}\n" for line in lines[:8]))
    with inside():
        answer = ask(
            *("scan", str(encoder), str(folder / "corpus.txt"), "-o", str(folder / "out")),
            *("--metric", "entropy,sink", "--no-labels", "--rows", "--find", "from=w1"),
        )
    assert answer.code == 0, answer.err
    return folder / "out"


def read(file: Path) -> list[dict[str, object]]:
    """The lines of a file, numbers as numbers."""
    if file.suffix == ".parquet":
        return pyarrow.parquet.read_table(file).to_pylist()
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in file.read_text().splitlines()]
    return polars.read_csv(file, infer_schema_length=None).to_dicts()


def test_a_table_is_written_where_no_name_of_python_was_used(scan, tmp_path, monkeypatch):
    """As in a process of the command alone, which registers nothing that draws."""
    monkeypatch.setattr(trace, "VIEWS", [])
    assert ask("scan", "export", str(scan), str(tmp_path / "heads.csv")).code == 0


@pytest.mark.parametrize("table", ["heads", "rows", "links"])
def test_every_format_holds_the_table(scan, tmp_path, table):
    opened = attncli.open_scan(scan)
    expected = opened.document.rows() if table == "heads" else opened.tables(table)
    expected = (
        expected if table == "heads" else [row for part in expected for row in part.to_pylist()]
    )
    assert expected
    for suffix in export_tables.FORMATS:
        file = tmp_path / f"table{suffix}"
        answer = ask("scan", "export", str(scan), str(file), "--table", table)
        assert (answer.code, answer.out) == (0, "")
        assert f"{len(expected):,} lines in" in answer.err
        lines = read(file)
        assert len(lines) == len(expected)
        for line, row in zip(lines, expected, strict=True):
            assert line.keys() == row.keys()
            for name, value in row.items():
                numbers = isinstance(value, float)
                assert line[name] == (pytest.approx(value, rel=1e-6) if numbers else value)


def test_polars_writes_parquet_where_pyarrow_is_missing(scan, tmp_path, monkeypatch):
    one, other = tmp_path / "one.parquet", tmp_path / "other.parquet"
    assert ask("scan", "export", str(scan), str(one)).code == 0
    modules = {"polars": polars}
    monkeypatch.setattr(export_tables, "_module", modules.get)
    assert ask("scan", "export", str(scan), str(other)).code == 0
    assert polars.read_parquet(other).to_dicts() == polars.read_parquet(one).to_dicts()
    modules.clear()
    answer = ask("scan", "export", str(scan), str(tmp_path / "none.parquet"))
    assert answer.code == 4
    assert "pyarrow or polars" in answer.err
    assert "pyarrow" in answer.err.splitlines()[-1]  # the command that installs it
    assert not (tmp_path / "none.parquet").exists()


def test_what_cannot_be_exported_is_said(scan, encoder, lines, tmp_path):
    answer = ask("scan", "export", str(scan), str(tmp_path / "table.xlsx"))
    assert answer.code == 2
    assert ".parquet" in answer.err
    (tmp_path / "corpus.txt").write_text(lines[0])
    with inside():
        bare = ("-o", str(tmp_path / "bare"), "--no-labels", "--metric", "sink")
        assert ask("scan", str(encoder), str(tmp_path / "corpus.txt"), *bare).code == 0
    answer = ask(
        "scan", "export", str(tmp_path / "bare"), str(tmp_path / "t.csv"), "--table", "rows"
    )
    assert answer.code == 3
    assert "--rows" in answer.err


def test_show_writes_its_table_with_commas(scan, tmp_path):
    file = tmp_path / "heads.csv"
    assert ask("scan", "show", str(scan), "--csv", str(file), "--brief").code == 0
    rows = list(csv.DictReader(file.open()))
    assert len(rows) == len(attncli.open_scan(scan).document.rows())
    one = ask("scan", "show", str(scan), "--head", "L0H1", "--csv", "-").out
    lines = list(csv.DictReader(one.splitlines()))
    assert {(row["layer"], row["head"]) for row in lines} == {("0", "1")}


def shown(scan: Path, *words: str) -> list[dict[str, str]]:
    """The table that `attn scan show --csv -` writes."""
    answer = ask("scan", "show", str(scan), *words, "--csv", "-")
    assert answer.code == 0, answer.err
    return list(csv.DictReader(answer.out.splitlines()))


def test_show_chooses_the_table_with_commas(scan, tmp_path):
    """Each row is a record of the document; a file holds the same as standard output."""
    document = attncli.open_scan(scan).document
    found = shown(scan, "--show", "find")
    heads = document.find[0].heads
    assert [(int(row["layer"]), int(row["head"]), float(row["share"])) for row in found] == [
        (head.layer, head.head, pytest.approx(head.share)) for head in heads
    ]
    assert all(row["condition"] == document.find[0].condition for row in found)
    links = shown(scan, "--show", "links", "--head", "L0H1")
    (head,) = (head for head in document.heads if (head.layer, head.head) == (0, 1))
    pairs = [(link.query.text, link.key.text, str(link.links)) for link in head.links]
    assert [(row["query_text"], row["key_text"], row["links"]) for row in links] == pairs
    assert [float(row["share"]) for row in links] == [link.texts / 8 for link in head.links]
    examples = shown(scan, "--show", "examples")
    assert len(examples) == sum(
        example.metric == "entropy" for head in document.heads for example in head.top
    )
    assert {row["metric"] for row in shown(scan, "--show", "grid")} == {"entropy"}
    file = tmp_path / "found.csv"
    assert ask("scan", "show", str(scan), "--show", "find,answer", "--csv", str(file)).code == 0
    assert list(csv.DictReader(file.open())) == found
    file = tmp_path / "metrics.csv"
    assert ask("scan", "show", str(scan), "--show", "all", "--csv", str(file)).code == 0
    assert list(csv.DictReader(file.open())) == shown(scan)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--show", "find,links"), "find or links"),
        (("--show", "answer"), "examples"),
        (("--show", "labels"), "grid"),
    ],
)
def test_what_is_no_one_table_is_not_written(scan, words, expected):
    answer = ask("scan", "show", str(scan), *words, "--csv", "-")
    assert (answer.code, answer.out) == (2, "")
    assert expected in answer.err.splitlines()[1]
