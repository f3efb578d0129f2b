"""Running a scan: what is missing is computed; what is there is never computed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from attncli.errors import UsageError
from attncli.scan.engines.engine import Engine, Job, ShardOutcome
from attncli.scan.plan import ScanPlan
from attncli.scan.report import failures
from attncli.scan.shard_files import give_up, is_done, path_of, remove
from attncli.scan.totals import Totals, total


@dataclass(frozen=True)
class ScanPart:
    """One of `count` parts of a scan that run side by side; number counts from 1."""

    number: int = 1
    count: int = 1

    @property
    def name(self) -> str:
        """How temporary files call it."""
        return f"{self.number}-of-{self.count}"

    def shards(self, every: Sequence[int]) -> list[int]:
        """The shards of `every` that are this part's own."""
        return [shard for shard in every if shard % self.count == self.number - 1]


LONGEST_PART = 6
"""Digits of the number of a part."""


def parse_part(text: str) -> ScanPart:
    """A part as written: `2/8`. Raises UsageError."""
    number, slash, count = text.partition("/")
    counts = all(part.isascii() and part.isdecimal() and len(part) <= LONGEST_PART for part in (number, count))
    if not (slash and counts and 1 <= int(number) <= int(count) <= 100_000):
        raise UsageError(f"--part is {text!r}", expected="I/N with I from 1 to N, such as 2/8")
    return ScanPart(int(number), int(count))


@dataclass(frozen=True, eq=False)
class Outcome:
    """totals: of all shards that are done, None where other parts still have some to do. failed_shards: those that were
    given up in this run; elsewhere: in those of other parts. computed_count: how many were done in it.
    recomputed_shards: those whose files were found broken."""

    totals: Totals | None
    failed_shards: list[ShardOutcome] = field(default_factory=list)
    elsewhere: list[ShardOutcome] = field(default_factory=list)
    computed_count: int = 0
    recomputed_shards: list[int] = field(default_factory=list)


def run(
    plan: ScanPlan,
    folder: Path,
    model: str,
    engine: Engine,
    *,
    part: ScanPart = ScanPart(),
    progress: Callable[[int], None] | None = None,
    on_shard: Callable[[ShardOutcome], None] | None = None,
) -> Outcome:
    """Compute what is missing of a scan's part, then add up everything if nothing is missing any more.

    progress: told texts as they are done; on_shard: told what became of each shard.
    """
    shards = part.shards(range(len(plan.shards)))
    broken = _broken(plan, folder, [shard for shard in shards if is_done(folder, shard)])
    missing_shards = missing(plan, folder, part)
    failed_shards, computed_count = [], 0
    if missing_shards:
        for outcome in engine.run(Job(plan, folder, model, part.name, progress), missing_shards):
            if outcome.reason:
                failed_shards.append(outcome)
                give_up(folder, outcome.shard, outcome.reason, part.name)
            else:
                computed_count += 1
                remove(path_of(folder, outcome.shard, "failed.txt"))
            if on_shard is not None:
                on_shard(outcome)
    failed_numbers = {outcome.shard for outcome in failed_shards}
    elsewhere = [outcome for outcome in failures(folder) if outcome.shard not in failed_numbers]
    lost = failed_numbers | {outcome.shard for outcome in elsewhere}
    others = [shard for shard in missing(plan, folder) if shard not in lost]
    return Outcome(None if others else total(plan, folder), failed_shards, elsewhere, computed_count, broken)


def missing(plan: ScanPlan, folder: Path, part: ScanPart = ScanPart()) -> list[int]:
    """The shards of a part that are not done."""
    return [shard for shard in part.shards(range(len(plan.shards))) if not is_done(folder, shard)]


def _broken(plan: ScanPlan, folder: Path, done_shards: Sequence[int]) -> list[int]:
    """Shards whose files cannot be read; they are taken away, and computed again."""
    broken_shards = sorted(total(plan, folder, done_shards).broken)
    for shard in broken_shards:
        remove(path_of(folder, shard, "state.npz"))
    return broken_shards
