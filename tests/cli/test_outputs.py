"""A command's files are all there or none: they take their places together, when everything has
gone well.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from asking import ask
from processes import BUFFERINGS, attn, finish, start

from attncli.errors import AttnError, VerdictError
from attncli.inputs.files import atomic_writer, discard_all, present_path, together

SAMPLES = Path(__file__).parents[2] / "sample_inputs"
ONE_FAILS = [
    ("run", "a b", "--save", "{t}/s.npz", "--svg", "{t}/no/x.svg"),
    ("run", "a b", "--svg", "{t}/x.svg", "--output", "{t}/no/out"),
    ("run", "a b", "--svg", "{t}/x.svg", "--save", "{t}/s.safetensors", "--output", "/dev/full"),
    ("heads", "a b", "--csv", "{t}/x.csv", "--svg", "{t}/x.svg", "--output", "/dev/full"),
    ("heads", "a b", "--csv", "{t}/no/x.csv", "--svg", "{t}/x.svg"),
    ("mask", "--svg", "{t}/x.svg", "--output", "/dev/full"),
    ("weights", "init", "{t}/w.npz", "--output", "/dev/full"),
    (
        "weights",
        "convert",
        str(SAMPLES / "mha.safetensors"),
        "{t}/w.npz",
        "--num-heads",
        "4",
        "--output",
        "{t}/no/x",
    ),
    ("run", "a b", "--html", "{t}/p.html", "--figure", "{t}/no/x.png"),
    ("run", "a b", "--figure", "{t}/x.png", "--html", "{t}/p.html", "--output", "/dev/full"),
    (
        "ablate",
        "a b",
        "--num-heads",
        "2",
        "--html",
        "{t}/p.html",
        "--figure",
        "{t}/x.svg",
        "--output",
        "/dev/full",
    ),
    ("patch", "a b", "a c", "--num-heads", "2", "--figure", "{t}/x.pdf", "--output", "/dev/full"),
    ("find", "a b", "--from", "a", "--to", "b", "--html", "{t}/p.html", "--figure", "{t}/no/x.svg"),
    ("compare", "a b", "a c", "--html", "{t}/p.html", "--output", "/dev/full"),
    ("view", "{t}/whole.json", "--html", "{t}/p.html", "--figure", "{t}/no/x.svg"),
    ("view", "{t}/whole.json", "--html", "{t}/p.html", "--output", "/dev/full"),
    ("view", "{t}/broken.json", "--html", "{t}/p.html"),
    ("view", "{t}/broken.json", "--svg", "{t}/x.svg"),
    ("view", "{t}/broken.json", "--svg", "{t}/x.svg", "--output", "{t}/y"),
]


@pytest.mark.parametrize("command", ONE_FAILS, ids=" ".join)
def test_where_one_output_fails_none_is_left(command: tuple[str, ...], tmp_path: Path) -> None:
    whole = ask("run", "a b", "--json").json
    (tmp_path / "whole.json").write_text(json.dumps(whole))
    whole["links"][0]["key"] = 99
    (tmp_path / "broken.json").write_text(json.dumps(whole))
    (tmp_path / "x.svg").write_text("before")
    found = ask(*(part.replace("{t}", str(tmp_path)) for part in command))
    assert found.code in (1, 3), found
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "broken.json",
        "whole.json",
        "x.svg",
    ]
    assert (tmp_path / "x.svg").read_text() == "before"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@BUFFERINGS
def test_an_answer_that_cannot_be_written_leaves_no_file(
    buffering: dict[str, str], tmp_path: Path
) -> None:
    with Path("/dev/full").open("wb") as full:
        done = finish(attn("run", "a b", "--save", str(tmp_path / "s.npz")), buffering, stdout=full)
    assert done.returncode == 1
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_has_gone_leaves_the_files(tmp_path: Path) -> None:
    long = " ".join(f"word{n}" for n in range(120))
    with start(attn("run", long, "--plain", "--save", str(tmp_path / "s.npz"))) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["s.npz"]


def test_what_cannot_be_written_is_told_before_work_starts(tmp_path: Path) -> None:
    for option in ("--output", "--svg", "--save"):
        found = ask(
            "run",
            "a b",
            "--d-model=100000000",
            option,
            str(tmp_path / "no" / "x.svg").replace("svg", "npz"),
        )
        assert found.code in (1, 2), "not the 5 of the memory, which is looked at later"


def test_an_answer_that_is_no_keeps_its_files(tmp_path: Path) -> None:
    found = ask("compare", "a b", "a c", "--fail-above", "0", "--output", str(tmp_path / "told"))
    assert found.code == 1
    assert "a weight differs" in found.err
    assert (tmp_path / "told").stat().st_size > 100


def test_files_written_together_come_or_go_together(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("before")

    def write(*names: str, end: Exception | None = None) -> None:
        with together():
            for name in names:
                with atomic_writer(tmp_path / name) as stream:
                    stream.write(b"new")
                assert present_path(tmp_path / name).read_bytes() == b"new"
                assert (tmp_path / "old").read_text() == "before"
            if end is not None:
                raise end

    def found() -> dict[str, str]:
        return {path.name: path.read_text() for path in tmp_path.iterdir() if path.is_file()}

    for fails in (ValueError(), AttnError("no")):
        with pytest.raises(type(fails)):
            write("old", "other", end=fails)
        assert found() == {"old": "before"}
    for ends in (BrokenPipeError(), VerdictError("no")):
        with pytest.raises(type(ends)):
            write("other", end=ends)
        assert found() == {"old": "before", "other": "new"}
        (tmp_path / "other").unlink()
    write("old", "other")
    assert found() == {"old": "new", "other": "new"}


def test_where_one_cannot_take_its_place_the_others_are_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("before")

    def write() -> None:
        with together():
            for name in ("old", "new", "folder"):
                with atomic_writer(tmp_path / name) as stream:
                    stream.write(b"new")
            (tmp_path / "folder").mkdir()

    with pytest.raises(AttnError):
        write()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "old"]
    assert (tmp_path / "old").read_text() == "before"


def test_without_hard_links_no_file_is_deleted_for_an_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the file system has none, the old file cannot be put back, and the new one stays."""

    def refuse(source: Path, target: Path) -> None:
        raise OSError("no hard links here")

    monkeypatch.setattr("attncli.inputs.files.os.link", refuse)
    (tmp_path / "old").write_text("before")

    def write() -> None:
        with together():
            for name in ("old", "new", "folder"):
                with atomic_writer(tmp_path / name) as stream:
                    stream.write(b"new")
            (tmp_path / "folder").mkdir()

    with pytest.raises(AttnError):
        write()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "old"]
    assert (tmp_path / "old").read_text() == "new"


def test_a_process_that_ends_at_once_removes_what_it_began(tmp_path: Path) -> None:
    def stopped() -> None:
        with together(), atomic_writer(tmp_path / "x") as stream:
            stream.write(b"half")
            assert len(list(tmp_path.iterdir())) == 1
            discard_all()
            assert list(tmp_path.iterdir()) == []
            raise SystemExit

    with pytest.raises(SystemExit):
        stopped()


@pytest.mark.parametrize(
    "command",
    [
        ("ablate", 'said "no, no"', "--num-heads", "2", "--residual", "--baseline", "none"),
        ("find", 'a "b" , c', "--from", "a", "--to", ","),
        ("run", "a,b\nc", "--lines"),
        ("tokens", 'a "b", c\td'),
        ("compare", "a b", "a c"),
    ],
    ids=lambda command: command[0],
)
def test_a_table_with_commas_is_the_plain_one(command: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    if "--lines" in command:
        (tmp_path / "texts").write_text(command[1])
        command = (command[0], "--file", str(tmp_path / "texts"), *command[2:])
    told = ask(*command, "--plain", "--csv", str(file))
    assert told.code == 0, told.err
    rows = list(csv.reader(file.open(newline="", encoding="utf-8"), strict=True))
    assert rows == [line.split("\t") for line in told.out.splitlines()]
    assert ask(*command, "--csv", str(tmp_path / "again.csv")).out == ask(*command).out
    assert file.read_bytes() == (tmp_path / "again.csv").read_bytes()
    assert ask(*command, "--csv", str(file), "-o", str(file)).code == 2


def test_a_reader_that_has_gone_leaves_the_whole_table(tmp_path: Path) -> None:
    file, texts = tmp_path / "table.csv", tmp_path / "texts"
    texts.write_text("\n".join(f"one two three {number}" for number in range(60)))
    told = ("run", "--file", str(texts), "--lines", "--plain")
    with start(attn(*told, "--csv", str(file))) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 0
    rows = list(csv.reader(file.open(newline="", encoding="utf-8")))
    assert rows == [line.split("\t") for line in ask(*told).out.splitlines()]
