"""Killing scans: `python kills.py MODEL CORPUS [ROUNDS]`. 24 shards of 32 texts; in each round a
worker (even rounds) or the whole process group (odd rounds) is killed after a drawn number of
commits and up to 300 ms, and the scan started again.

A scan that is done is compared with the reference and begun anew, until the rounds are over. Then
the same is done with a writer that writes in place, in fifty pieces: it must leave unreadable
files, or the test proves nothing.
"""

from __future__ import annotations

import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import attncli
from attncli.errors import AttnError
from attncli.scan import plan
from attncli.scan.engines import LocalWorkers, run
from attncli.scan.shard_files import is_done, load_state
from attncli.scan.totals import total

SHARDS, TEXTS, SEED = 24, 32, 16
PATIENCE = 5.0
"""Seconds after which no worker may outlive its parent."""
STARTED = """
import sys
from pathlib import Path
from attncli.scan import plan
from attncli.scan.engines import LocalWorkers
from attncli.scan.engines import run
folder = Path(sys.argv[1])
outcome = run(plan.read(folder), folder, sys.argv[2], LocalWorkers(2))
sys.exit(0 if outcome.totals is not None and not outcome.failed_shards else 1)
"""
WATCHED = """
import os, time
from contextlib import contextmanager
from pathlib import Path
if "attncli.scan.worker_process" in " ".join(__import__("sys").orig_argv):
    from attncli.scan import shard_files, worker
    compute = worker.Worker.compute
    def noted(self, number, *others):
        with (Path(os.environ["SEEN"]) / str(number)).open("a") as file:
            file.write("x")
        return compute(self, number, *others)
    worker.Worker.compute = noted
    if os.environ.get("IN_PLACE"):
        @contextmanager
        def write_in_place(path, part):
            import io
            held = io.BytesIO()
            yield held
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb", buffering=0) as stream:
                piece = len(held.getvalue()) // 50 + 1
                for at in range(0, len(held.getvalue()), piece):
                    stream.write(held.getvalue()[at : at + piece])
                    time.sleep(0.004)
        shard_files.synced_writer = write_in_place
"""


def workers(folder: Path) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"attncli.scan.worker_process" in command and str(folder).encode() in command:
            found.append(int(process.name))
    return found


def committed(folder: Path) -> list[int]:
    return [shard for shard in range(SHARDS) if is_done(folder, shard)]


class Trial:
    """Rounds in one folder after the other. fails: what went wrong, in words."""

    def __init__(self, model: str, made: plan.ScanPlan, folder: Path, *, in_place: bool) -> None:
        self.model, self.plan, self.folder, self.in_place = model, made, folder, in_place
        self.drawn, self.fails = random.Random(SEED), Counter[str]()
        self.kills, self.looked, self.unreadable, self.finished = 0, 0, 0, 0
        self._begin()

    def _begin(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.folder.with_suffix(".seen"), ignore_errors=True)
        self.folder.with_suffix(".seen").mkdir(parents=True)
        plan.write(self.plan, self.folder)
        self.kills = 0

    def round(self, number: int, reference: str) -> None:
        site = self.folder.parent / "site"
        environment = {
            **os.environ,
            "SEEN": str(self.folder.with_suffix(".seen")),
            "IN_PLACE": "1" * self.in_place,
        }
        environment["PYTHONPATH"] = f"{site}{os.pathsep}{Path(attncli.__file__).parents[1]}"
        begun = time.time()
        process = subprocess.Popen(
            [sys.executable, "-c", STARTED, str(self.folder), self.model],
            env=environment, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        enough = min(len(committed(self.folder)) + self.drawn.randint(1, 4), SHARDS)
        while len(committed(self.folder)) < enough and process.poll() is None:
            time.sleep(0.005)
        time.sleep(self.drawn.random() * 0.3)
        alive = workers(self.folder)
        if number % 2:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self.kills += 2
        elif alive:
            os.kill(self.drawn.choice(alive), signal.SIGKILL)
            self.kills += 1
            time.sleep(self.drawn.random() * 0.3)
            os.kill(
                process.pid, signal.SIGKILL
            )  # the parent alone: its workers must end by themselves
            process.wait()
            self.kills += 1
        end = time.monotonic() + PATIENCE
        while workers(self.folder) and time.monotonic() < end:
            time.sleep(0.05)
        self.fails["a worker outlives its parent"] += bool(workers(self.folder))
        for shard in committed(self.folder):
            self.looked += 1
            try:
                load_state(self.folder, shard)
            except AttnError:
                self.unreadable += 1
        old = [path for path in self.folder.rglob("*.tmp") if path.stat().st_mtime < begun - 1]
        self.fails["a temporary file is older than the run"] += bool(old)
        if len(committed(self.folder)) == SHARDS:
            self._compare(reference)

    def _compare(self, reference: str) -> None:
        found = run(self.plan, self.folder, self.model, LocalWorkers(1)).totals
        self.fails["another digest"] += found is None or found.digest() != reference
        most = max(path.stat().st_size for path in self.folder.with_suffix(".seen").iterdir())
        self.fails["a shard computed more often than 1 + kills"] += most > 1 + self.kills
        self.finished += 1
        self._begin()


def main() -> None:
    model, rounds = sys.argv[1], int(sys.argv[3]) if len(sys.argv) > 3 else 20
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "site").mkdir()
        (root / "site/sitecustomize.py").write_text(WATCHED)
        corpus = root / "corpus.txt"
        corpus.write_text(
            "\n".join(Path(sys.argv[2]).read_text("utf-8").splitlines()[: SHARDS * TEXTS]), "utf-8"
        )
        asked = plan.ScanRequest((str(corpus),), ("entropy", "sink"), shard=TEXTS, labels=False)
        loaded = attncli.load(model, backend="torch")
        made = plan.write(
            plan.make_plan(asked, loaded, model, root / "reference", stdin=io.BytesIO()),
            root / "reference",
        )
        run(made, root / "reference", model, LocalWorkers(2))
        reference = total(made, root / "reference").digest()
        assert reference is not None
        ours = Trial(model, made, root / "ours", in_place=False)
        number = 0
        while number < rounds or ours.finished == 0:
            ours.round(number, reference)
            number += 1
        print(
            f"{number} rounds, {ours.finished} scans finished, {ours.unreadable} of {ours.looked} files unreadable"
        )
        wrong = {said: count for said, count in ours.fails.items() if count} | (
            {"unreadable files": ours.unreadable} if ours.unreadable else {}
        )
        print("passed" if not wrong else f"FAILED: {wrong}")
        control = Trial(model, made, root / "control", in_place=True)
        for number in range(1, 2 * max(rounds // 2, 4), 2):
            control.round(number, reference)
        print(
            f"negative control, written in place: {control.unreadable} of {control.looked} files unreadable"
        )
        if wrong or not control.unreadable:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
