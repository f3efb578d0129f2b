"""Corpora of every kind are read alike, and what others read is never changed under them."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Iterator
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from asking import ask
from msgspec import structs
from scanning import Inside, inside, loaded, planned

from attncli.errors import InputError, UsageError
from attncli.scan import intake, plan
from attncli.scan.engines import run
from attncli.scan.intake import Format, Ranges, ShardSizes, find_files
from attncli.scan.intake import _unpacked_pieces as intake_pieces
from attncli.scan.worker import Worker


def written(folder: Path, kind: str, lines: list[str]) -> tuple[Path, Format | None]:
    """A corpus file of a kind, and the format to ask for."""
    path, plain = folder / f"corpus.{kind}", "\n".join(lines).encode()
    match kind:
        case "txt.gz":
            path.write_bytes(gzip.compress(plain))
        case "txt.zst":
            path.write_bytes(zstandard.ZstdCompressor().compress(plain))
        case "jsonl":
            path.write_text("".join(json.dumps({"body": line}) + "\n" for line in lines))
            return path, Format("jsonl", "body")
        case "parquet":
            pyarrow.parquet.write_table(pyarrow.table({"body": lines}), path, row_group_size=7)
            return path, Format("parquet", "body")
        case _:
            path.write_bytes(plain)
    return path, None


@pytest.mark.thorough
def test_every_kind_of_corpus_gives_the_same_scan(encoder, lines, tmp_path):
    digests = set()
    for kind in ("txt", "txt.gz", "txt.zst", "jsonl", "parquet", "remote"):
        path, format = written(tmp_path, kind, lines)
        name = path.as_uri() if kind == "remote" else str(path)
        asked = plan.ScanRequest((name,), ("entropy", "sink"), format, labels=False, shard=6)
        out = tmp_path / f"out-{kind}"
        made = plan.make_plan(asked, loaded(str(encoder)), str(encoder), out, stdin=io.BytesIO())
        outcome = run(plan.write(made, out), out, str(encoder), Inside())
        assert len(made.shards) == 10
        digests.add(outcome.totals.digest())
    assert len(digests) == 1


def test_another_corpus_that_is_refused_leaves_the_copy_of_the_first_alone(
    encoder, lines, tmp_path
):
    path, _ = written(tmp_path, "txt.gz", [*lines, lines[0]])
    made = planned(encoder, path, tmp_path / "out", dedupe=True)
    before = {
        one.relative_to(tmp_path): one.read_bytes()
        for one in (tmp_path / "out").rglob("*")
        if one.is_file()
    }
    path, _ = written(tmp_path, "txt.gz", ["w1 w2", "w1 w2", "w3"])
    with pytest.raises(UsageError, match="another scan"):
        planned(encoder, path, tmp_path / "out", dedupe=True)
    after = {
        one.relative_to(tmp_path): one.read_bytes()
        for one in (tmp_path / "out").rglob("*")
        if one.is_file()
    }
    assert after == before
    assert run(made, tmp_path / "out", str(encoder), Inside()).failed_shards == []


def test_a_copy_stays_whole_while_others_plan(encoder, lines, tmp_path, monkeypatch):
    path, _ = written(tmp_path, "txt.zst", lines)
    made = planned(encoder, path, tmp_path / "out")
    (copy,) = (tmp_path / "out/corpus").iterdir()
    seen = []

    def pieces(name: str, source: io.RawIOBase) -> Iterator[bytes]:
        for piece in intake_pieces(name, source):
            seen.append(copy.read_bytes())
            yield piece

    monkeypatch.setattr("attncli.scan.intake._unpacked_pieces", pieces)
    assert planned(encoder, path, tmp_path / "out") == made
    assert set(seen) == {"\n".join(lines).encode()}
    assert [one.name for one in (tmp_path / "out/corpus").iterdir()] == [copy.name]


@pytest.mark.parametrize(
    ("address", "told"), [("memory://nothing.txt", "nothing.txt"), ("nope://x.txt", "nope")]
)
def test_an_address_that_cannot_be_read_is_bad_input(address, told, encoder, tmp_path):
    with inside():
        answer = ask("scan", str(encoder), address, "-o", str(tmp_path / "out"))
    assert (answer.code, answer.out) == (3, "")
    assert answer.err.startswith("error: cannot read the corpus: ")
    assert told in answer.err


def test_rows_that_change_are_named_though_their_file_keeps_its_size(encoder, lines, tmp_path):
    path = tmp_path / "corpus.parquet"
    other = [" ".join(reversed(line.split())) for line in lines]

    def write(texts: list[str]) -> int:
        table = pyarrow.table({"text": texts, "other": lines})
        pyarrow.parquet.write_table(
            table,
            path,
            row_group_size=20,
            compression="none",
            use_dictionary=False,
            write_statistics=False,
        )
        return path.stat().st_size

    size = write(lines)
    made = planned(encoder, path, tmp_path / "out", shard=20)
    worker = Worker(made, tmp_path / "out", loaded(str(encoder)))
    assert write([*lines[:20], *other[20:40], *lines[40:]]) == size
    worker.compute(0)
    with pytest.raises(InputError, match="changed since") as caught:
        worker.compute(1)
    assert caught.value.where == str(path)
    worker.compute(2)
    path.unlink()
    with pytest.raises(InputError, match="changed since"):
        worker.compute(0)


def test_a_column_that_is_not_there_is_bad_input_before_anything_runs(encoder, lines, tmp_path):
    path, _ = written(tmp_path, "parquet", lines)
    answer = ask("scan", str(encoder), str(path), "-o", str(tmp_path / "out"))
    assert (answer.code, "there is no column 'text'" in answer.err, "body" in answer.err) == (
        3,
        True,
        True,
    )


def cut_by_hand(files: list[Path], size: int) -> list[list[tuple[int, int, bytes]]]:
    """(file, first line, bytes) of each range of each shard: whole files in pieces, and what fits
    together.
    """
    pieces = []
    for number, path in enumerate(files):
        every = path.read_bytes().splitlines(keepends=True)
        pieces += [(number, at, every[at : at + size]) for at in range(0, len(every), size)]
    shards: list[list[tuple[int, int, list[bytes]]]] = []
    for piece in pieces:
        if shards and sum(len(one[2]) for one in [*shards[-1], piece]) <= size:
            shards[-1].append(piece)
        else:
            shards.append([piece])
    return [[(number, at, b"".join(some)) for number, at, some in shard] for shard in shards]


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize("many", [1, 23, 24, 25, 100])
def test_a_corpus_of_many_texts_is_cut_into_large_shards(many, chunk, tmp_path, monkeypatch):
    monkeypatch.setattr(intake, "CHUNK", chunk)
    files = []
    for name, texts in (
        ("a", b"one\ntwo\n\n" * 3),
        ("b", b""),
        ("c", b"w\n" * 11 + b"last"),
        ("d", b"x\ny\nz\n"),
    ):
        files.append(tmp_path / name)
        files[-1].write_bytes(texts)
    usual: list[tuple[int, int]] = []

    def count(self: Ranges, records: int) -> None:
        counted(self, records)
        usual.append((self._records, len(self._ranges.get(2, ()))))

    counted = Ranges.count
    monkeypatch.setattr(Ranges, "count", count)
    names = [str(path) for path in files]
    _, shards = intake.take_in(
        names, Format("lines"), tmp_path, sizes=ShardSizes(((2, many),), 5), stdin=io.BytesIO()
    )
    found = []
    for shard in shards:
        found.append(
            [
                (one.file, one.first, files[one.file].read_bytes()[one.start : one.stop])
                for one in shard
            ]
        )
        assert [sha256(raw).hexdigest() for *_, raw in found[-1]] == [one.sha256 for one in shard]
        assert [len(raw.splitlines()) for *_, raw in found[-1]] == [one.count for one in shard]
    assert found == cut_by_hand(files, 5 if many <= 24 else 2)
    assert [kept for records, kept in usual if records >= many] == [0] * sum(
        records >= many for records, _ in usual
    )


def test_rows_are_cut_as_lines_are(lines, tmp_path):
    for name, size in (("a", 7), ("b", 1), ("c", 60)):
        path = tmp_path / f"{name}.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"text": lines}), path, row_group_size=size)
        for many, wanted in ((60, [25, 25, 10]), (61, [10] * 6)):
            _, shards = intake.take_in(
                [str(path)], None, tmp_path, sizes=ShardSizes(((10, many),), 25), stdin=io.BytesIO()
            )
            assert [[one.count for one in shard] for shard in shards] == [
                [count] for count in wanted
            ]
            for (one,) in shards:
                told = intake.digest_of_groups(str(path), one, Format("parquet", "text"), "")
                assert told == one.sha256


def test_a_small_corpus_has_many_shards_that_hold_all_its_texts(lines, tmp_path):
    sizes = ShardSizes(((1, 8), (2, 16), (4, 32)), 8)
    for count, size in ((3, 1), (7, 1), (8, 2), (15, 2), (31, 4), (32, 8)):
        path = tmp_path / f"{count}.txt"
        path.write_text("".join(f"{line}\n" for line in lines[:count]), "utf-8")
        _, shards = intake.take_in([str(path)], None, tmp_path, sizes=sizes, stdin=io.BytesIO())
        counts = [part.count for shard in shards for part in shard]
        assert counts == [size] * (count // size) + [count % size] * (count % size > 0)


@pytest.mark.parametrize(("width", "layers"), [(64, 2), (384, 6), (576, 30), (4096, 32)])
def test_a_shard_takes_a_worker_seconds_and_a_corpus_has_sixteen(width, layers, encoder):
    spec = loaded(str(encoder)).spec
    spec = structs.replace(spec, d_model=width, blocks=spec.blocks[:1] * layers)
    sizes = plan.shard_sizes(spec)
    seconds = 2 * 12 * width**2 * layers * plan.TEXT_TOKENS / plan.OPERATIONS_PER_SECOND
    (least, _), *_, (usual, most) = [sizes.steps[0], *sizes.steps]
    assert most == plan.LARGE
    for size, bound in ((least, plan.LEAST_SECONDS), (usual, plan.SHARD_SECONDS)):
        assert size == 1 or size * seconds <= bound
        assert size == plan.SHARD or bound < 2 * size * seconds
    for (size, records), (longer, _) in pairwise(sizes.steps):
        assert longer == 2 * size
        # a corpus that just needs the larger shards has sixteen of them
        assert records == plan.SHARDS * longer


def test_a_large_corpus_has_large_shards_and_is_not_searched_for_repeats(
    encoder, lines, tmp_path, monkeypatch
):
    path, _ = written(tmp_path, "txt", [*lines[:7], lines[0]])
    monkeypatch.setattr(plan, "SHARD", 2)
    monkeypatch.setattr(plan, "LARGE_SHARD", 5)
    for many, wanted in ((9, [2, 2, 2, 2]), (8, [5, 3])):
        monkeypatch.setattr(plan, "LARGE", many)
        made = planned(encoder, path, tmp_path / str(many) / "plan", shard=0)
        assert [part.count for shard in made.shards for part in shard] == wanted
    notes: list[str] = []
    for most, wanted in ((8, True), (7, False)):
        monkeypatch.setattr("attncli.scan.intake.MOST", most)
        asked = plan.ScanRequest((str(path),), ("entropy",), dedupe=True)
        folder = tmp_path / str(most)
        made = plan.make_plan(
            asked, loaded(str(encoder)), str(encoder), folder, stdin=io.BytesIO(), note=notes.append
        )
        assert bool(made.choice.duplicates) is wanted
    assert notes == ["repeated texts are not looked for: the corpus has more than 7 records"]


@pytest.mark.parametrize(
    ("given", "more", "told"),
    [
        (b"", (), "the corpus holds no texts"),
        (
            b'{"text": "w1"}\n',
            ("--format", "jsonl", "--cluster", "book"),
            "no record has a field 'book'",
        ),
        (b"w1 w2", ("--format", "parquet"), "this is no Parquet file"),
        (b"w1 w2", ("--cluster", "book"), "lines of text have none"),
    ],
)
def test_a_corpus_that_is_refused_leaves_nothing_behind(given, more, told, encoder, tmp_path):
    answer = ask("scan", str(encoder), "-", "-o", str(tmp_path / "new/out"), *more, stdin=given)
    assert (answer.code in (2, 3), told in answer.err) == (True, True), answer.err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "out/corpus").mkdir(parents=True)
    ask("scan", str(encoder), "-", "-o", str(tmp_path / "out"), *more, stdin=given)
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "corpus"]


def test_a_corpus_without_a_text_that_counts_is_told_why_and_leaves_nothing_behind(
    encoder, lines, tmp_path
):
    given = "\n".join(["", *lines[:3]]).encode()
    asked = (
        "scan",
        str(encoder),
        "-",
        "-o",
        str(tmp_path / "new/out"),
        "--max-tokens",
        "1",
        "--workers",
        "1",
    )
    with inside():
        answer = ask(*asked, stdin=given)
        assert (answer.code, answer.out, list(tmp_path.iterdir())) == (3, "", [])
        assert "no record of the corpus could be counted: 1 empty, 3 too long" in answer.err
        assert "shorter texts, or --over truncate" in answer.err
        (tmp_path / "new/out").mkdir(parents=True)
        (tmp_path / "new/out/mine.txt").write_text("mine")
        assert "3 条过长" in ask(*asked, "--lang", "zh", stdin=given).err
        assert [path.name for path in tmp_path.rglob("*")] == ["new", "out", "mine.txt"]


def test_two_columns_of_the_name_are_bad_input(encoder, lines, tmp_path):
    columns = [pyarrow.array(lines)] * 3
    pyarrow.parquet.write_table(
        pyarrow.table(columns, names=["text", "other", "text"]), tmp_path / "two.parquet"
    )
    answer = ask("scan", str(encoder), str(tmp_path / "two.parquet"), "-o", str(tmp_path / "out"))
    assert (answer.code, "there are 2 columns 'text'" in answer.err) == (3, True), answer.err
    pyarrow.parquet.write_table(
        pyarrow.table(columns, names=["a", "text", "a"]), tmp_path / "one.parquet"
    )
    assert planned(encoder, tmp_path / "one.parquet", tmp_path / "out").texts == len(lines)


def test_a_column_with_a_dot_in_its_name_is_digested(encoder, lines, tmp_path):
    found = set()
    for some in (lines, lines[::-1]):
        pyarrow.parquet.write_table(pyarrow.table({"my.text": some}), tmp_path / "x.parquet")
        found.update(
            intake.groups_of(str(tmp_path / "x.parquet"), Format("parquet", "my.text"), "")
        )
    assert len(found) == 2


@pytest.mark.thorough
def test_what_scans_wrote_is_no_part_of_a_corpus(encoder, lines, tmp_path):
    """A folder, and a pattern, that hold the scan's own folder and another scan's."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    notes: list[str] = []
    for pattern in (tmp_path / "texts", tmp_path / "texts/**/*.*"):
        for out in ("one", "two"):
            folder = tmp_path / "texts" / f"{out}-{pattern.name[0]}"
            for _ in range(2):
                made = planned(encoder, pattern, folder)
                assert [file.name for file in made.files] == [str(tmp_path / "texts/a.txt.gz")]
                run(made, folder, str(encoder), Inside())
    assert find_files([str(tmp_path / "texts")], note=notes.append) == [
        str(tmp_path / "texts/a.txt.gz")
    ]
    assert len(notes) == 4
    inside_a_scan = tmp_path / "texts/one-t/corpus"
    assert len(find_files([str(inside_a_scan)])) == 1
    with pytest.raises(InputError, match="there is no corpus"):
        find_files([str(inside_a_scan)], out=tmp_path / "texts/one-t")


def test_a_corpus_that_becomes_a_pipe_is_not_waited_for(encoder, corpus, tmp_path):
    made = planned(encoder, corpus, tmp_path / "out")
    corpus.unlink()
    os.mkfifo(corpus)
    with pytest.raises(InputError, match="a pipe or device, not a file"):
        Worker(made, tmp_path / "out", loaded(str(encoder))).compute(0)


@pytest.mark.parametrize("kind", ["txt", "jsonl"])
@pytest.mark.parametrize("tail", [b"\n", b""])
def test_records_are_read_line_by_line_and_none_that_is_too_long(
    kind, tail, encoder, tmp_path, monkeypatch
):
    """A range of a shard may be of any size: never more than a record's most is read at once."""
    monkeypatch.setattr(intake, "LONGEST", 40)
    monkeypatch.setattr(intake, "CHUNK", 16)
    texts = ["w1 w2", "w3 " * 40, "", "w4", "w5 " * 200, "w6 w7", "w8 " * 30]
    lines = [json.dumps({"text": text}) if kind == "jsonl" else text for text in texts]
    path = tmp_path / f"corpus.{kind}"
    path.write_bytes("\n".join(lines).encode() + tail)
    most: list[int] = []

    class Measured(io.FileIO):
        def readline(self, size: int = -1) -> bytes:
            piece = super().readline(size)
            most.append(len(piece))
            return piece

    made = planned(encoder, path, tmp_path / "out")
    monkeypatch.setattr(intake, "_open_source", lambda name: Measured(name))
    every = [
        record
        for shard in made.shards
        for record in intake.records(made.files, shard, tmp_path, "")
    ]
    assert [(record.line, record.text, record.reason) for record in every] == [
        (0, "w1 w2", ""), (1, None, "long"), (2, None, "empty"), (3, "w4", ""), (4, None, "long"), (5, "w6 w7", ""),
        (6, None, "long"),
    ]  # fmt: skip
    assert max(most) <= 41
    path.write_bytes(path.read_bytes().replace(b"w7", b"w9"))
    with pytest.raises(InputError, match="has changed since"):
        list(intake.records(made.files, made.shards[0], tmp_path, ""))


def test_rows_of_a_parquet_file_are_read_a_few_at_once(encoder, lines, tmp_path, monkeypatch):
    path, format = written(tmp_path, "parquet", lines)
    made = planned(encoder, path, tmp_path / "out", format=format)
    monkeypatch.setattr("attncli.scan.intake.ROWS", 3)
    monkeypatch.setattr("attncli.scan.intake.LONGEST", 50)
    every = [
        record
        for shard in made.shards
        for record in intake.records(made.files, shard, tmp_path, "")
    ]
    assert [record.line for record in every] == list(range(len(lines)))
    assert [record.text for record in every] == [
        None if len(line) > 50 else line.strip() for line in lines
    ]
    assert {record.reason for record in every} == {"", "long"}
