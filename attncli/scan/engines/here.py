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
from attncli.scan.engines.allocation import ALLOCATION
from attncli.scan.engines.engine import TRIES, Ended, Job
from attncli.scan.engines.process import STOP
from attncli.scan.shard_files import sweep

TOLD = 400
"""Characters of a dead worker's last words."""


class _Process:
    """A running worker. errors: the file of its last words. shard: what it computes now, None for nothing."""

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        self.process, self.errors = process, errors
        self.shard: int | None = None
        self.buffer = b""


class Here:
    """Runs `workers` processes, one thread each."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def run(self, job: Job, shards: Sequence[int]) -> Iterator[Ended]:
        """Compute the shards. A shard whose worker dies is computed again, `TRIES` times in all."""
        sweep(job.folder, job.part)
        waiting, deaths = list(shards)[::-1], Counter[int]()
        chosen = selectors.DefaultSelector()
        running: list[_Process] = []
        try:
            while waiting or any(one.shard is not None for one in running):
                while waiting and len(running) < min(self.workers, len(waiting) + len(running)):
                    one = self._start(job)
                    running.append(one)
                    assert one.process.stdout is not None
                    chosen.register(one.process.stdout, selectors.EVENT_READ, one)
                for one in running:
                    if one.shard is None and waiting:
                        self._give(one, waiting.pop())
                for key, _ in chosen.select(timeout=1.0):
                    one = key.data
                    data = os.read(key.fd, 1 << 16)
                    if data:
                        yield from self._heard(job, one, data)
                        continue
                    chosen.unregister(key.fileobj)
                    running.remove(one)
                    ended = self._died(one, deaths)
                    if one.shard is not None and ended is None:
                        waiting.append(one.shard)
                    if ended is not None:
                        yield ended
            for one in running:
                self._say(one, STOP)
            for one in running:
                one.process.wait()
        finally:
            for one in running:
                with contextlib.suppress(OSError):
                    one.process.kill()
                one.process.wait()
                one.errors.close()
            chosen.close()
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
        one = _Process(process, errors)
        self._say(one, json.dumps(job.plan.places))
        return one

    def _give(self, one: _Process, shard: int) -> None:
        one.shard = shard
        self._say(one, str(shard))

    def _say(self, one: _Process, word: str) -> None:
        assert one.process.stdin is not None
        with contextlib.suppress(OSError):  # it has died, which its other pipe tells
            one.process.stdin.write(f"{word}\n".encode())
            one.process.stdin.flush()

    def _heard(self, job: Job, one: _Process, data: bytes) -> Iterator[Ended]:
        *lines, one.buffer = (one.buffer + data).split(b"\n")
        for line in lines:
            said: dict[str, Any] = json.loads(line)
            if "done" in said:
                if job.progress is not None:
                    job.progress(said["done"])
                continue
            one.shard = None
            yield Ended(said["shard"], said.get("failed", ""), said.get("texts", 0), said.get("tokens", 0))

    def _died(self, one: _Process, deaths: Counter[int]) -> Ended | None:
        """What is said of a dead worker's shard: nothing as long as it may be tried again."""
        status = one.process.wait()
        with one.errors as errors:
            errors.seek(0)
            words = errors.read().decode("utf-8", "replace").strip().splitlines()[-1:]
        if one.shard is None:
            return None
        deaths[one.shard] += 1
        if deaths[one.shard] < TRIES:
            return None
        how = f"signal {-status}" if status < 0 else f"exit {status}"
        last = f": {words[0][:TOLD]}" if words else ""
        return Ended(one.shard, f"its worker died {TRIES} times ({how}{last})")


def _last_words(folder: Path) -> IO[bytes]:
    """A file for what a worker says as it dies, in the scan's folder, or elsewhere where that may not be written.

    It has no name: whatever ends this process leaves none behind. Raises AttnError where there is no room for one.
    """
    for place in (folder, None):
        with contextlib.suppress(OSError):
            return TemporaryFile(dir=place)
    raise AttnError("no file can be made for what a worker says", where=str(folder), expected="room on the disk")
