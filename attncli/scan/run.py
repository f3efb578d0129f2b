"""Running a scan: what is missing is computed; what is there is never computed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from attncli.errors import UsageError
from attncli.scan.engines.engine import Ended, Engine, Job
from attncli.scan.plan import Plan
from attncli.scan.report import failures
from attncli.scan.shard_files import give_up, is_done, path_of, remove
from attncli.scan.totals import Totals, total


@dataclass(frozen=True)
class Part:
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


def parse_part(text: str) -> Part:
    """A part as written: `2/8`. Raises UsageError."""
    number, slash, count = text.partition("/")
    counts = all(part.isascii() and part.isdecimal() and len(part) <= LONGEST_PART for part in (number, count))
    if not (slash and counts and 1 <= int(number) <= int(count) <= 100_000):
        raise UsageError(f"--part is {text!r}", expected="I/N with I from 1 to N, such as 2/8")
    return Part(int(number), int(count))


@dataclass(frozen=True, eq=False)
class Outcome:
    """totals: of all shards that are done, None where other parts still have some to do. failed: shards that were given
    up in this run; elsewhere: in those of other parts. computed: how many were done in it. recomputed: shards whose
    files were found broken."""

    totals: Totals | None
    failed: list[Ended] = field(default_factory=list)
    elsewhere: list[Ended] = field(default_factory=list)
    computed: int = 0
    recomputed: list[int] = field(default_factory=list)


def run(
    plan: Plan,
    folder: Path,
    model: str,
    engine: Engine,
    *,
    part: Part = Part(),
    progress: Callable[[int], None] | None = None,
    ended: Callable[[Ended], None] | None = None,
) -> Outcome:
    """Compute what is missing of a scan's part, then add up everything if nothing is missing any more.

    progress: told texts as they are done; ended: told what became of each shard.
    """
    shards = part.shards(range(len(plan.shards)))
    broken = _broken(plan, folder, [shard for shard in shards if is_done(folder, shard)])
    left = missing(plan, folder, part)
    failed, computed = [], 0
    if left:
        for one in engine.run(Job(plan, folder, model, part.name, progress), left):
            if one.reason:
                failed.append(one)
                give_up(folder, one.shard, one.reason, part.name)
            else:
                computed += 1
                remove(path_of(folder, one.shard, "failed.txt"))
            if ended is not None:
                ended(one)
    own = {one.shard for one in failed}
    elsewhere = [one for one in failures(folder) if one.shard not in own]
    lost = own | {one.shard for one in elsewhere}
    others = [shard for shard in missing(plan, folder) if shard not in lost]
    return Outcome(None if others else total(plan, folder), failed, elsewhere, computed, broken)


def missing(plan: Plan, folder: Path, part: Part = Part()) -> list[int]:
    """The shards of a part that are not done."""
    return [shard for shard in part.shards(range(len(plan.shards))) if not is_done(folder, shard)]


def _broken(plan: Plan, folder: Path, done: Sequence[int]) -> list[int]:
    """Shards whose files cannot be read; they are taken away, and computed again."""
    found = sorted(total(plan, folder, done).broken)
    for shard in found:
        remove(path_of(folder, shard, "state.npz"))
    return found
