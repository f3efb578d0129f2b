"""Worker processes on this machine, each with pipes of its own: one that dies takes nobody with it."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from attncli.errors import AttnError
from attncli.scan.engines.engine import TRIES, Job, ShardOutcome
from attncli.scan.engines.process import ALLOCATION, STOP
from attncli.scan.shard_files import sweep

LAST_WORDS = 400
"""Characters of a dead worker's last words."""


class _Process:
    """A running worker. errors: the file of its last words. shard: what it computes now, None for nothing."""

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        self.process, self.errors = process, errors
        self.shard: int | None = None
        self.buffer = b""


class LocalWorkers:
    """Runs `workers` processes, one thread each."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def run(self, job: Job, shards: Sequence[int]) -> Iterator[ShardOutcome]:
        """Compute the shards. A shard whose worker dies is computed again, `TRIES` times in all."""
        sweep(job.folder, job.part)
        waiting, deaths = list(shards)[::-1], Counter[int]()
        selector = selectors.DefaultSelector()
        running: list[_Process] = []
        try:
            while waiting or any(worker.shard is not None for worker in running):
                while waiting and len(running) < min(self.workers, len(waiting) + len(running)):
                    worker = self._start(job)
                    running.append(worker)
                    assert worker.process.stdout is not None
                    selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
                for worker in running:
                    if worker.shard is None and waiting:
                        self._give(worker, waiting.pop())
                for key, _ in selector.select(timeout=1.0):
                    worker = key.data
                    data = os.read(key.fd, 1 << 16)
                    if data:
                        yield from self._read_answers(job, worker, data)
                        continue
                    selector.unregister(key.fileobj)
                    running.remove(worker)
                    outcome = self._report_death(worker, deaths)
                    if worker.shard is not None and outcome is None:
                        waiting.append(worker.shard)
                    if outcome is not None:
                        yield outcome
            for worker in running:
                self._say(worker, STOP)
            for worker in running:
                worker.process.wait()
        finally:
            for worker in running:
                with contextlib.suppress(OSError):
                    worker.process.kill()
                worker.process.wait()
                worker.errors.close()
            selector.close()
            sweep(job.folder, job.part)

    def _start(self, job: Job) -> _Process:
        errors = _last_words(job.folder)
        process = subprocess.Popen(
            [sys.executable, "-m", "attncli.scan.engines.process", str(job.folder), job.model, job.part],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**ALLOCATION, **os.environ},
        )
        worker = _Process(process, errors)
        self._say(worker, json.dumps(job.plan.places))
        return worker

    def _give(self, worker: _Process, shard: int) -> None:
        worker.shard = shard
        self._say(worker, str(shard))

    def _say(self, worker: _Process, word: str) -> None:
        assert worker.process.stdin is not None
        with contextlib.suppress(OSError):  # it has died, which its other pipe tells
            worker.process.stdin.write(f"{word}\n".encode())
            worker.process.stdin.flush()

    def _read_answers(self, job: Job, worker: _Process, data: bytes) -> Iterator[ShardOutcome]:
        *lines, worker.buffer = (worker.buffer + data).split(b"\n")
        for line in lines:
            answer: dict[str, Any] = json.loads(line)
            if "done" in answer:
                if job.progress is not None:
                    job.progress(answer["done"])
                continue
            worker.shard = None
            yield ShardOutcome(
                answer["shard"], answer.get("failed", ""), answer.get("texts", 0), answer.get("tokens", 0)
            )

    def _report_death(self, worker: _Process, deaths: Counter[int]) -> ShardOutcome | None:
        """What is said of a dead worker's shard: nothing as long as it may be tried again."""
        status = worker.process.wait()
        with worker.errors as errors:
            errors.seek(0)
            words = errors.read().decode("utf-8", "replace").strip().splitlines()[-1:]
        if worker.shard is None:
            return None
        deaths[worker.shard] += 1
        if deaths[worker.shard] < TRIES:
            return None
        cause = f"signal {-status}" if status < 0 else f"exit {status}"
        last = f": {words[0][:LAST_WORDS]}" if words else ""
        return ShardOutcome(worker.shard, f"its worker died {TRIES} times ({cause}{last})")


def _last_words(folder: Path) -> IO[bytes]:
    """A file for what a worker says as it dies, in the scan's folder, or elsewhere where that may not be written.

    It has no name: whatever ends this process leaves none behind. Raises AttnError where there is no room for one.
    """
    for place in (folder, None):
        with contextlib.suppress(OSError):
            return TemporaryFile(dir=place)
    raise AttnError("no file can be made for what a worker says", where=str(folder), expected="room on the disk")
