"""What every engine does: compute shards by number, and tell what became of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from attncli.scan.plan import ScanPlan

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
