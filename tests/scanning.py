"""Planning and computing small scans, for tests of scans."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import attncli
from attncli.models.model import Model
from attncli.scan import plan
from attncli.scan.engines import Job
from attncli.scan.shard_files import ShardOutcome
from attncli.scan.worker import Worker


@cache
def loaded(model: str) -> Model:
    """The model on torch, read once."""
    return attncli.load(model, backend="torch")


def planned(model: Path, corpus: Path, folder: Path, **wanted: object) -> plan.ScanPlan:
    """The plan of a scan, of two metrics without labels where nothing else is wanted, in its
    folder.
    """
    usual = {"metrics": ("entropy", "sink"), "shard": 6, "top": 3, "labels": False}
    asked = plan.ScanRequest((str(corpus),), **{**usual, **wanted})
    return plan.write(
        plan.make_plan(asked, loaded(str(model)), str(model), folder, stdin=io.BytesIO()), folder
    )


class Inside:
    """An engine without processes: the worker of this very process computes the shards, the last
    one first.
    """

    def run(self, job: Job, shards: Sequence[int]) -> Iterator[ShardOutcome]:
        worker = Worker(job.plan, job.folder, loaded(job.model), part=job.part)
        for shard in reversed(shards):
            counts = worker.shard(shard, job.progress, job.on_work)
            yield ShardOutcome(shard, "", counts["texts"], counts["tokens"])


def inside() -> AbstractContextManager[Any]:
    """A block in which `attn scan` computes in this process: that its workers find the same is
    tested where they are what is tested, and each takes seconds to start."""
    return patch("attncli.scan.engines.LocalWorkers", lambda workers: Inside())
