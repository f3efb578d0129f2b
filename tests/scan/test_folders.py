"""Folders of scans: what is in them is read within bounds, what they hold goes with them, and what
cannot be written is told."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
from pathlib import Path
from unittest.mock import patch

import pytest
from asking import ask
from scanning import Inside, inside, planned

from attncli import load as load_model
from attncli.errors import AttnError
from attncli.scan import plan
from attncli.scan.engines import LocalWorkers, ScanPart, run
from attncli.scan.shard_files import path_of, remove_leftovers


@pytest.fixture(scope="module")
def scanned(encoder: Path, lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished scan."""
    folder = tmp_path_factory.mktemp("scanned")
    (folder / "corpus.txt").write_text("".join(f"{line}\n" for line in lines))
    with inside():
        asked = (
            "scan",
            str(encoder),
            str(folder / "corpus.txt"),
            "-o",
            str(folder / "out"),
            "--quiet",
        )
        assert ask(*asked).code == 0
    return folder / "out"


@pytest.mark.thorough
def test_a_corpus_is_known_by_its_bytes_wherever_it_is(encoder, lines, tmp_path):
    """Moved, renamed so that its files go by in another order, and its folder moved with the
    scan's.
    """
    home = tmp_path / "home"
    (home / "texts").mkdir(parents=True)
    for name, some in (("a.txt", lines[:20]), ("b.txt", lines[20:45]), ("c.txt", lines[:20])):
        (home / "texts" / name).write_text("".join(f"{line}\n" for line in some))
    wanted = {"dedupe": True, "sample": 30}
    made = planned(encoder, home / "texts", home / "out", **wanted)
    digest = run(made, home / "out", str(encoder), Inside()).totals.digest()
    away = tmp_path / "away"
    home.rename(away)
    (away / "texts/a.txt").rename(away / "texts/z.txt")
    for shard in range(0, len(made.shards), 2):
        path_of(away / "out", shard, "state.npz").unlink()
    again = planned(encoder, away / "texts", away / "out", **wanted)
    assert (again.digest, plan.read_plan(away / "out")) == (made.digest, again)
    assert all(Path(file.path).parent == away / "texts" for file in again.files)
    outcome = run(again, away / "out", str(encoder), LocalWorkers(1))
    assert (outcome.computed_count, outcome.totals.digest()) == (
        (len(made.shards) + 1) // 2,
        digest,
    )
    (away / "texts").rename(tmp_path / "elsewhere")
    command = ("scan", "verify", str(away / "out"))
    assert ask(*command).code == 3
    assert ask(*command, str(tmp_path / "elsewhere"), "--json").json["passed"] is True
    moved = shutil.copytree(encoder, tmp_path / "model")
    assert ask(*command, str(tmp_path / "elsewhere"), "--model", str(moved), "--brief").code == 0
    refused = ask(*command, str(tmp_path / "elsewhere"), "--model", "minilm")
    assert (refused.code, "another model than the one that was scanned" in refused.err) == (3, True)
    (tmp_path / "elsewhere/b.txt").write_text("w1 w2\n")
    told = ask(*command, str(tmp_path / "elsewhere"))
    assert (told.code, "no file that is named holds this part" in told.err) == (3, True)


@pytest.mark.thorough
def test_workers_read_the_corpus_where_their_own_scan_has_it(encoder, lines, tmp_path):
    """Another part sees the same bytes under another path, and was the last to say where they are."""
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(f"{line}\n" for line in lines))
    made = planned(encoder, corpus, tmp_path / "out")
    path = tmp_path / "out/plan.json"
    path.write_text(path.read_text().replace(str(corpus), "/nowhere/corpus.txt"))
    outcome = run(made, tmp_path / "out", str(encoder), LocalWorkers(1), part=ScanPart(1, 5))
    assert (outcome.failed_shards, outcome.computed_count) == ([], 2)


def test_a_copy_is_found_under_another_name(encoder, lines, tmp_path):
    before, after = tmp_path / "before.text.gz", tmp_path / "after.txt.gz"
    before.write_bytes(gzip.compress("\n".join(lines).encode()))
    made = planned(encoder, before, tmp_path / "out")
    before.rename(after)
    again = planned(encoder, after, tmp_path / "out")
    assert again.digest == made.digest
    assert len(list((tmp_path / "out/corpus").iterdir())) == 1
    assert run(again, tmp_path / "out", str(encoder), Inside()).failed_shards == []


@pytest.mark.thorough
def test_nothing_is_unexpected_where_the_folder_cannot_be_written(
    encoder, corpus, tmp_path, monkeypatch
):
    folder = tmp_path / "out"
    made = planned(encoder, corpus, folder)
    whole = run(
        planned(encoder, corpus, tmp_path / "whole"), tmp_path / "whole", str(encoder), Inside()
    )
    run(made, folder, str(encoder), Inside(), part=ScanPart(1, 2))
    path_of(folder, 0, "state.npz").write_bytes(b"PK")

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refused)
        with pytest.raises(AttnError, match="cannot remove this file: Permission denied"):
            run(made, folder, str(encoder), Inside())
        remove_leftovers(folder, "1-of-1")
    with monkeypatch.context() as patched:
        patched.setattr("attncli.scan.engines.TemporaryFile", refused)
        with pytest.raises(AttnError, match="no file can be made for what a worker says"):
            run(made, folder, str(encoder), LocalWorkers(1))
    with monkeypatch.context() as patched:
        patched.setattr(plan, "_write_to_disk", refused)
        assert planned(encoder, corpus, folder) == made  # what is there is not written again
        with pytest.raises(AttnError, match="cannot write the plan: Permission denied"):
            planned(encoder, corpus, tmp_path / "other")
    assert run(made, folder, str(encoder), LocalWorkers(1)).totals.digest() == whole.totals.digest()


def nested(path: Path) -> None:
    path.write_text('{"nested":' * 100_000)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def vast(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(2**40)


@pytest.mark.parametrize("name", ["plan.json", "scan.json"])
@pytest.mark.parametrize(
    ("spoil", "code", "told"),
    [
        (nested, 3, "nested"),
        (os.mkfifo, 3, "this is a pipe or device, not a file"),
        (endless, 3, "this is a pipe or device, not a file"),
        (vast, 5, "this file has 1,099,511,627,776 bytes"),
    ],
)
def test_files_of_a_scan_are_read_within_bounds(spoil, code, told, name, scanned, tmp_path):
    shutil.copytree(scanned, tmp_path / "scan")
    (tmp_path / "scan" / name).unlink()
    spoil(tmp_path / "scan" / name)
    answer = ask("scan", "show", str(tmp_path / "scan"))
    assert (answer.code, told in answer.err) == (code, True), answer.err
    assert "recursion" not in answer.err


@pytest.mark.thorough
def test_no_more_workers_than_processors_are_started(encoder, corpus, tmp_path):
    started: list[int] = []

    def here(workers: int) -> Inside:
        started.append(workers)
        return Inside()

    usable = len(os.sched_getaffinity(0))
    asked = ("scan", str(encoder), str(corpus), "--no-labels", "--brief")
    with patch("attncli.scan.engines.LocalWorkers", here):
        many = ask(*asked, "-o", str(tmp_path / "many"), "--workers", "1024")
        few = ask(*asked, "-o", str(tmp_path / "few"), "--workers", "1")
        ask(*asked, "-o", str(tmp_path / "usual"))
    assert started == [usable, 1, usable]
    assert f"1,024 workers are no faster than {usable}" in many.err
    assert few.err == ""


@pytest.mark.many
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_every_type_that_the_help_names_scans(dtype, encoder, corpus, scanned, tmp_path):
    with (
        inside(),
        patch("scanning.loaded", lambda model: load_model(model, backend="torch", dtype=dtype)),
    ):
        asked = ("scan", str(encoder), str(corpus), "-o", str(tmp_path / "out"))
        document = ask(*asked, "--dtype", dtype, "--json").json
    assert document["plan"]["dtype"] == dtype
    for head, other in zip(
        document["heads"], json.loads((scanned / "scan.json").read_text())["heads"], strict=True
    ):
        for name, one in head["metrics"].items():
            assert one["mean_texts"] == pytest.approx(
                other["metrics"][name]["mean_texts"], rel=0.03, abs=0.03
            ), name
    assert dtype in ask("scan", "--help").out


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ("a.b", "1", "2")),
        ({"a": {"b": 1, "c": 3}}, {"a": {"b": 1}}, ("a.c", "3", "None")),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 3}}, ("a.c", "None", "3")),
        ({"a": [{}]}, {"a": [{"c": 3}]}, ("a[0].c", "None", "3")),
    ],
)
def test_the_first_difference_of_plans_is_named(
    old: dict[str, object], new: dict[str, object], difference: tuple[str, str, str]
) -> None:
    assert plan._first_difference(old, new, "") == difference
