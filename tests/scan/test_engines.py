"""Engines: nothing is lost when workers or the scan itself are killed, and every engine finds the
same numbers.
"""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL

import numpy as np
import pytest
from msgspec.structs import replace
from processes import attn, finish, start
from scanning import Inside, planned

import attncli
from attncli.errors import AttnError, InputError, UsageError
from attncli.scan import plan
from attncli.scan.engines import LocalWorkers, ScanPart, parse_part, run
from attncli.scan.shard_files import (
    failure_reasons,
    is_done,
    load_state,
    path_of,
    remove_leftovers,
    synced_writer,
    temporary_name,
)
from attncli.scan.totals import total

SHARDS = 10
OWN_RULES = "def third(text):\n    return text.j == 2\n"
OWN = "def thirds(rows):\n    return rows.weights[..., ::3].sum(-1)\n"


def planned_whole(model, corpus, folder, **wanted):
    """A plan with all that a digest is over: samples, links, a metric of a file, those that only a
    scan has, why heads look where they look, and rules, one of them of a file."""
    own = corpus.parent / "own.py"
    own.write_text(OWN)
    rules = corpus.parent / "own_rules.py"
    rules.write_text(OWN_RULES)
    metrics = ("entropy", "sink", "own.thirds", "sink_rate", "moved_norm", "massive")
    options = {"metrics": metrics, "metric_files": (str(own),), "why": ("L1H0",)}
    options |= {"rules": True, "rule_files": (str(rules),)}
    return planned(model, corpus, folder, **{**options, **wanted})


@pytest.fixture(scope="module")
def reference(encoder, lines, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("reference")
    corpus = folder / "corpus.txt"
    corpus.write_text("".join(f"{line}\n" for line in lines))
    made = planned_whole(encoder, corpus, folder / "out")
    outcome = run(made, folder / "out", str(encoder), Inside())
    assert (len(made.shards), outcome.computed_count, outcome.failed_shards) == (SHARDS, SHARDS, [])
    return str(outcome.totals.digest())


@pytest.mark.thorough
def test_several_processes_and_parts_find_the_same(encoder, corpus, tmp_path, reference):
    made = planned_whole(encoder, corpus, tmp_path / "two")
    beside: list[Path] = []

    def look(texts: int) -> None:
        beside.extend(
            path
            for path in (tmp_path / "two").iterdir()
            if path.name not in ("plan.json", "shards")
        )

    assert (
        run(made, tmp_path / "two", str(encoder), LocalWorkers(2), progress=look).totals.digest()
        == reference
    )
    assert beside == []  # nothing that could be left behind, whatever ends it
    made = planned_whole(encoder, corpus, tmp_path / "parts")
    first = run(made, tmp_path / "parts", str(encoder), Inside(), part=ScanPart(2, 3))
    assert first.totals is None
    assert first.computed_count == 3
    assert run(made, tmp_path / "parts", str(encoder), Inside(), part=ScanPart(1, 3)).totals is None
    assert (
        run(made, tmp_path / "parts", str(encoder), Inside(), part=ScanPart(3, 3)).totals.digest()
        == reference
    )
    again = run(made, tmp_path / "parts", str(encoder), LocalWorkers(2))
    assert again.computed_count == 0
    assert again.totals.digest() == reference


STARTED = """
import sys
from pathlib import Path
from attncli.scan import plan
from attncli.scan.engines import LocalWorkers
from attncli.scan.engines import run
folder = Path(sys.argv[1])
outcome = run(plan.read_plan(folder), folder, sys.argv[2], LocalWorkers(2))
sys.exit(0 if outcome.totals is not None and not outcome.failed_shards else 1)
"""


def workers_of(folder: Path) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"attncli.scan.worker_process" in command and str(folder).encode() in command:
            found.append(int(process.name))
    return found


def gone(folder: Path) -> bool:
    """Whether all workers of a scan end, as they do once their pipe has; a busy machine may take
    its time.
    """
    end = time.monotonic() + 180
    while left := workers_of(folder):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return not left


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks for processes in /proc")
@pytest.mark.thorough
def test_killed_workers_and_killed_scans_lose_nothing(encoder, corpus, tmp_path, reference):
    folder = tmp_path / "out"
    made = planned_whole(encoder, corpus, folder)
    drawn = random.Random(7)
    for round_ in range(4):
        command = [sys.executable, "-c", STARTED, str(folder), str(encoder)]
        process = start(command, start_new_session=True, stdout=DEVNULL, stderr=DEVNULL)
        wanted = sum(is_done(folder, shard) for shard in range(SHARDS)) + 1
        end = time.monotonic() + 180
        while (
            sum(is_done(folder, shard) for shard in range(SHARDS)) < wanted
            and process.poll() is None
        ):
            assert time.monotonic() < end
            time.sleep(0.02)
        time.sleep(drawn.random() * 0.2)
        alive = workers_of(folder)
        with suppress(ProcessLookupError):  # it was done first
            if round_ % 2:
                os.killpg(process.pid, signal.SIGKILL)
            elif alive:
                os.kill(drawn.choice(alive), signal.SIGKILL)
        process.wait(timeout=180)
        assert gone(folder)
        for shard in range(SHARDS):
            if is_done(folder, shard):
                load_state(folder, shard)
        if all(is_done(folder, shard) for shard in range(SHARDS)):
            break
    outcome = run(made, folder, str(encoder), Inside())
    assert outcome.totals.digest() == reference
    assert not list(folder.rglob("*.tmp"))
    assert workers_of(folder) == []


@pytest.mark.thorough
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_leaves_neither_workers_nor_half_written_files(
    encoder, corpus, tmp_path, sent, code
):
    for folder in (tmp_path / str(attempt) for attempt in range(5)):
        process = start(
            attn("scan", str(encoder), str(corpus), "-o", str(folder), "--workers", "1", "--rules")
        )
        end = time.monotonic() + 180
        while not (folder / "plan.json").exists() and process.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.01)
        time.sleep(0.05)
        process.send_signal(sent)
        out, err = process.communicate(timeout=180)
        assert gone(folder)
        if process.returncode:  # else it was done before it was told to end
            break
    assert (out, process.returncode) == (b"", code)
    assert err.startswith(b"interrupted: ") or err == b""  # it says what is kept once it is planned
    assert not [path for path in folder.rglob("*") if "tmp" in path.name or path.suffix == ".log"]
    digests = []
    for place in (folder, tmp_path / "whole"):  # the same command again goes on
        again = attn(
            "scan", str(encoder), str(corpus), "-o", str(place), "--workers", "1", "--rules"
        )
        assert finish(again).returncode == 0
        digests.append(json.loads((place / "scan.json").read_text())["digest"])
    assert digests[0] == digests[1]


@pytest.mark.thorough
def test_a_writer_without_rename_would_leave_broken_files(tmp_path):
    """The negative control: a process that dies while it writes in place leaves an unreadable file;
    ours leaves none."""
    path = path_of(tmp_path, 3, "state.npz")
    died = "import os, sys; stream.write(b'PK' * 100); stream.flush(); os._exit(9)"
    plain = f"from pathlib import Path; p = Path({str(path)!r}); p.parent.mkdir(parents=True)"
    plain += f"; stream = p.open('wb'); {died}"
    assert finish([sys.executable, "-c", plain]).returncode == 9
    with pytest.raises(InputError):
        load_state(tmp_path, 3)
    path.unlink()
    ours = (
        "from pathlib import Path\nfrom attncli.scan.shard_files import synced_writer\n"
        f"with synced_writer(Path({str(path)!r}), '1-of-1') as stream:\n    {died}"
    )
    assert finish([sys.executable, "-c", ours]).returncode == 9
    assert not path.exists()
    assert len(list(tmp_path.rglob("*.tmp"))) == 1
    remove_leftovers(tmp_path, "2-of-2")
    assert len(list(tmp_path.rglob("*.tmp"))) == 1
    remove_leftovers(tmp_path, "1-of-1")
    assert list(tmp_path.rglob("*.tmp")) == []
    plan, lines, copy = (
        tmp_path / "plan.json",
        tmp_path / "duplicates-0f.npy",
        tmp_path / "corpus/000-0f.txt",
    )
    for planned_ in (plan, lines, copy):
        code = ours.replace(repr(str(path)), repr(str(planned_))).replace("'1-of-1'", "'plan'")
        assert finish([sys.executable, "-c", code]).returncode == 9
    assert len(list(tmp_path.rglob("*.tmp"))) == 3
    remove_leftovers(tmp_path, "2-of-2")
    assert list(tmp_path.rglob("*.tmp")) == []


DYING = """
import os, sys
from attncli.scan import worker
compute = worker.Worker.compute
def dies(self, number, *others):
    if number == 4:
        os.write(2, b"it dies here")
        os.kill(os.getpid(), 9)
    return compute(self, number, *others)
worker.Worker.compute = dies
"""


@pytest.mark.thorough
def test_a_shard_that_kills_its_worker_is_given_up_after_three(
    encoder, corpus, tmp_path, monkeypatch
):
    (tmp_path / "dying").mkdir()
    (tmp_path / "dying/sitecustomize.py").write_text(DYING)
    monkeypatch.setenv(
        "PYTHONPATH", f"{tmp_path / 'dying'}{os.pathsep}{Path(attncli.__file__).parents[1]}"
    )
    made = planned_whole(encoder, corpus, tmp_path / "out")
    outcome = run(made, tmp_path / "out", str(encoder), LocalWorkers(2))
    assert [one.shard for one in outcome.failed_shards] == [4]
    assert "died 3 times (signal 9: it dies here)" in outcome.failed_shards[0].reason
    assert outcome.totals is not None
    assert sorted(outcome.totals.done_shards) == [shard for shard in range(SHARDS) if shard != 4]
    told = path_of(tmp_path / "out", 4, "failed.txt")
    told.write_text("x" * 10**6)
    assert failure_reasons(tmp_path / "out") == {4: "x" * 4096}
    healed = run(made, tmp_path / "out", str(encoder), Inside())
    assert (healed.computed_count, healed.failed_shards) == (1, [])
    assert failure_reasons(tmp_path / "out") == {}
    told.unlink(missing_ok=True)
    os.mkfifo(told)
    assert failure_reasons(tmp_path / "out") == {}


@pytest.mark.thorough
def test_a_broken_shard_is_computed_again(encoder, corpus, tmp_path, reference):
    made = planned_whole(encoder, corpus, tmp_path / "out")
    run(made, tmp_path / "out", str(encoder), Inside())
    path = path_of(tmp_path / "out", 2, "state.npz")
    path.write_bytes(path.read_bytes()[:1000])
    outcome = run(made, tmp_path / "out", str(encoder), Inside())
    assert outcome.recomputed_shards == [2]
    assert outcome.totals.digest() == reference


def test_another_scan_in_the_same_folder_is_refused(encoder, decoder, corpus, tmp_path):
    made = planned_whole(encoder, corpus, tmp_path / "out")
    assert planned_whole(encoder, corpus, tmp_path / "out") == made
    with pytest.raises(UsageError, match=r"its choice\.max_tokens is 0, and 9 is asked for"):
        planned_whole(encoder, corpus, tmp_path / "out", max_tokens=9)
    assert made.isa
    plan.write(replace(made, torch="1.0"), tmp_path / "older")
    with pytest.raises(UsageError, match=r"its torch is '1\.0', and '2"):
        plan.write(made, tmp_path / "older")
    assert (
        plan.write(made, tmp_path / "out").isa
        == plan.write(replace(made, isa="another"), tmp_path / "out").isa
    )
    with pytest.raises(UsageError, match=r"its model\.digest is"):
        planned(decoder, corpus, tmp_path / "out")
    corpus.write_text(corpus.read_text() + "w1 w2 more\n")
    with pytest.raises(UsageError, match=r"its files\[0\]\.size is"):
        planned_whole(encoder, corpus, tmp_path / "out")


@pytest.mark.thorough
def test_totals_of_two_kinds_of_machine_have_no_digest(encoder, corpus, tmp_path):
    made = planned_whole(encoder, corpus, tmp_path / "out")
    totals = run(made, tmp_path / "out", str(encoder), Inside()).totals
    totals.machines.add((("isa", "another"),))
    assert totals.is_mixed_fleet
    assert totals.digest() is None
    assert np.isfinite(total(made, tmp_path / "out").float_total("value")).all()


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "-1/2", "1/0", ""])
def test_parts_that_are_none(text):
    with pytest.raises(UsageError, match="--part"):
        parse_part(text)
    assert parse_part("2/8").shards(range(20)) == [1, 9, 17]


def test_temporary_names_tell_who_writes(tmp_path):
    with synced_writer(tmp_path / "a.state.npz", "3-of-7") as stream:
        stream.write(b"x")
        (name,) = [path.name for path in tmp_path.iterdir()]
        assert temporary_name("3-of-7") in name
        assert str(os.getpid()) in name
    assert [path.name for path in tmp_path.iterdir()] == ["a.state.npz"]


@pytest.mark.thorough
def test_a_full_disk_leaves_nothing_half_written(encoder, corpus, tmp_path, monkeypatch, reference):
    made = planned_whole(encoder, corpus, tmp_path / "out")

    def full(stream, *_: object, **__: object) -> None:
        stream.write(b"PK" * 500)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("attncli.scan.shard_files.write_npz", full)
        with pytest.raises(AttnError, match="No space left"):
            run(made, tmp_path / "out", str(encoder), Inside())
    assert [path.name for path in (tmp_path / "out").rglob("*") if path.is_file()] == ["plan.json"]
    assert run(made, tmp_path / "out", str(encoder), Inside()).totals.digest() == reference
