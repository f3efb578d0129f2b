"""Who computes shards: worker processes on this machine, each with pipes of its own, or a Ray cluster.

One process that dies takes nobody with it. Ray's actors hold the model; only shard numbers travel (extra `ray`). Ray
itself neither starts actors again nor retries: while a lost node is not yet known to be lost, each try on it fails at
once, and Ray's are used up in a moment. A shard whose actor is lost is given to a new one, as with processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Protocol

from attncli.errors import AttnError, UnsupportedError
from attncli.extras import install_command
from attncli.scan.plan import ScanPlan
from attncli.scan.shard_files import sweep
from attncli.scan.worker_process import ALLOCATION, STOP, failure_text, ready, use_one_thread

TRIES = 3
"""Times that a shard may end its worker before it is given up."""


@dataclass(frozen=True)
class ShardOutcome:
    """What became of a shard. reason: "" where it is done, else why it failed. texts, tokens: of it."""

    shard: int
    reason: str = ""
    texts: int = 0
    tokens: int = 0


@dataclass(frozen=True)
class Job:
    """A scan as engines see it. folder: of the scan. model: what the workers load: a name or folder. part: told in
    temporary files' names. progress: told texts as they are done, by any worker; None for nobody."""

    plan: ScanPlan
    folder: Path
    model: str
    part: str
    progress: Callable[[int], None] | None


class Engine(Protocol):
    """Where shards are computed. Each shard's files are in the folder when it has ended well."""

    def run(self, job: Job, shards: Sequence[int]) -> Iterator[ShardOutcome]:
        """Compute the shards and yield each once, in any order. Closing the iterator ends all work at once."""


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
            [sys.executable, "-m", "attncli.scan.worker_process", str(job.folder), job.model, job.part],
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


LOCAL = "local"
ANSWER = 10.0
"""Seconds within which a cluster's address must answer."""
STORE = 80 * 2**20
"""Bytes of the object store of a cluster that is started here: only numbers of shards go through it."""


class Actor:
    """Computes shards inside a Ray worker process."""

    def __init__(self, folder: str, model: str, part: str, places: Sequence[str]) -> None:
        use_one_thread()
        os.environ.update(ALLOCATION)  # its process has begun: oneDNN reads its part, the C library has read its own
        sweep(Path(folder), part)
        self._worker_arguments = (folder, model, part, places)
        self._worker: Any = None

    def shard(self, number: int) -> tuple[int, str, int, int]:
        """A shard's number, why it failed ("" for done), its texts and tokens."""
        try:
            if self._worker is None:
                self._worker = ready(*self._worker_arguments)
            counts = self._worker.shard(number)
        except Exception as error:
            return number, failure_text(error), 0, 0
        return number, "", counts["texts"], counts["tokens"]


class RayCluster:
    """address: of a running cluster, "auto" for the one that this machine belongs to, "local" to start one here.
    workers: how many actors, at most one per processor but one; 0 for as many. note: is told where they are fewer than
    was asked for; None for nobody."""

    def __init__(self, address: str, workers: int, note: Callable[[str], None] | None = None) -> None:
        self.address, self.workers, self.note = address, workers, note

    def run(self, job: Job, shards: Sequence[int]) -> Iterator[ShardOutcome]:
        """Compute the shards on the cluster. Raises UnsupportedError without ray, AttnError where no cluster
        answers."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            import ray
        except ImportError as error:
            raise UnsupportedError("the engine ray needs ray", hint=install_command("ray")) from error
        _check_answers(self.address)
        try:
            ray.init(
                address=None if self.address == LOCAL else self.address,
                log_to_driver=False,
                logging_level="error",
                configure_logging=False,
                include_dashboard=False if self.address == LOCAL else None,
                object_store_memory=STORE if self.address == LOCAL else None,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise _silent(self.address, error) from error
        try:
            yield from self._run_shards(ray, job, shards)
        finally:
            ray.shutdown()
            sweep(job.folder, job.part)

    def _run_shards(self, ray: Any, job: Job, shards: Sequence[int]) -> Iterator[ShardOutcome]:
        free = max(int(ray.cluster_resources().get("CPU", 1)) - 1, 1)
        if self.workers > free and self.note is not None:
            self.note(f"{self.workers:,} workers are more than the cluster has processors to spare: {free:,} at most")
        count = max(min(self.workers or free, len(shards), free), 1)
        remote = ray.remote(max_restarts=0, max_task_retries=0, num_cpus=1)(Actor)
        if job.plan.device.startswith("cuda"):
            remote = remote.options(num_gpus=1)
        model = str(Path(job.model).absolute()) if Path(job.model).is_dir() else job.model
        worker_arguments = (
            str(job.folder.absolute()),
            model,
            job.part,
            job.plan.places,
        )  # other processes have other working folders
        waiting = deque(shards)
        running: dict[Any, tuple[Any, int]] = {}
        deaths: dict[int, int] = defaultdict(int)

        def give(actor: Any) -> None:
            shard = waiting.popleft()
            running[actor.shard.remote(shard)] = actor, shard

        for _ in range(count):
            give(remote.remote(*worker_arguments))
        while running:
            finished_tasks, _ = ray.wait(list(running), num_returns=1)
            actor, shard = running.pop(finished_tasks[0])
            try:
                outcome = ShardOutcome(*ray.get(finished_tasks[0]))
            except ray.exceptions.RayError as error:
                ray.kill(actor)  # it may only be out of reach
                actor = remote.remote(*worker_arguments)
                deaths[shard] += 1
                if deaths[shard] < TRIES:
                    waiting.append(shard)
                    give(actor)
                    continue
                outcome = ShardOutcome(shard, f"its worker died {TRIES} times ({type(error).__name__})")
            if job.progress is not None:
                job.progress(outcome.texts)
            yield outcome
            if waiting:
                give(actor)
            else:  # its processor may be what a new actor waits for
                ray.kill(actor)


def _check_answers(address: str) -> None:
    """Raise AttnError where nobody listens at a host and port, which Ray itself would wait minutes for."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), ANSWER).close()
    except (OSError, OverflowError) as error:
        raise _silent(address, error) from error


def _silent(address: str, error: Exception) -> AttnError:
    return AttnError(f"no Ray cluster answers at {address!r}: {error}", hint="ray start --head, or --engine ray:local")
