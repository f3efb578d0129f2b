"""A Ray cluster: actors that hold the model; only shard numbers travel. Extra `ray`.

Ray itself neither starts actors again nor retries: while a lost node is not yet known to be lost, each try on it
fails at once, and Ray's are used up in a moment. A shard whose actor is lost is given to a new one, as `here` does it.
"""

from __future__ import annotations

import os
import socket
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from attncli.errors import AttnError, UnsupportedError
from attncli.extras import install_command
from attncli.scan.engines.engine import TRIES, Job, ShardOutcome
from attncli.scan.engines.process import ALLOCATION, failure_text, ready, use_one_thread
from attncli.scan.shard_files import sweep

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
