"""A Ray cluster: actors that hold the model; only shard numbers travel. Extra `ray`.

Source: Ray's own fault tolerance, with bounds: an actor is started again `TRIES` times, a shard likewise, as Ray's
defaults would go on for ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from attncli.errors import AttnError, UnsupportedError
from attncli.scan.engines.engine import TRIES, Ended, Job
from attncli.scan.engines.process import ready, told

LOCAL = "local"


class Actor:
    """Computes shards inside a Ray worker process."""

    def __init__(self, folder: str, model: str, part: str) -> None:
        self._asked = (folder, model, part)
        self._worker: Any = None

    def shard(self, number: int) -> tuple[int, str, int, int]:
        """A shard's number, why it failed ("" for done), its texts and tokens."""
        try:
            if self._worker is None:
                self._worker = ready(*self._asked)
            counts = self._worker.shard(number)
        except Exception as error:
            return number, told(error), 0, 0
        return number, "", counts["texts"], counts["tokens"]


class RayCluster:
    """address: of a running cluster, "auto" for the one that this machine belongs to, "local" to start one here.
    workers: how many actors; 0 for one per free processor but one."""

    def __init__(self, address: str, workers: int) -> None:
        self.address, self.workers = address, workers

    def run(self, job: Job, shards: Sequence[int]) -> Iterator[Ended]:
        """Compute the shards on the cluster. Raises UnsupportedError without ray, AttnError where no cluster
        answers."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            import ray
        except ImportError as error:
            raise UnsupportedError("the engine ray needs ray", hint="pip install 'attn[ray]'") from error
        try:
            ray.init(
                address=None if self.address == LOCAL else self.address,
                log_to_driver=False,
                logging_level="error",
                configure_logging=False,
                include_dashboard=False if self.address == LOCAL else None,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise AttnError(
                f"no Ray cluster answers at {self.address!r}: {error}", hint="ray start --head, or --engine ray:local"
            ) from error
        try:
            yield from self._run(ray, job, shards)
        finally:
            ray.shutdown()

    def _run(self, ray: Any, job: Job, shards: Sequence[int]) -> Iterator[Ended]:
        free = int(ray.cluster_resources().get("CPU", 1)) - 1
        count = max(min(self.workers or free, len(shards), max(free, 1)), 1)
        remote = ray.remote(max_restarts=TRIES, max_task_retries=TRIES, num_cpus=1)(Actor)
        if job.plan.device.startswith("cuda"):
            remote = remote.options(num_gpus=1)
        actors = [remote.remote(str(job.folder), job.model, job.part) for _ in range(count)]
        waiting = list(shards)[::-1]
        running: dict[Any, tuple[Any, int]] = {}
        for actor in actors:
            if waiting:
                shard = waiting.pop()
                running[actor.shard.remote(shard)] = (actor, shard)
        while running:
            done, _ = ray.wait(list(running), num_returns=1)
            actor, shard = running.pop(done[0])
            try:
                ended = Ended(*ray.get(done[0]))
            except ray.exceptions.RayError as error:
                ended = Ended(shard, f"its worker died {TRIES} times ({type(error).__name__})")
                actor = remote.remote(str(job.folder), job.model, job.part)
            if job.progress is not None:
                job.progress(ended.texts)
            yield ended
            if waiting:
                shard = waiting.pop()
                running[actor.shard.remote(shard)] = (actor, shard)
