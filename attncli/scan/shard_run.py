"""Running a scan: missing shards are computed, complete ones never again, except to verify them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from attncli import __version__
from attncli.errors import InputError, UsageError
from attncli.mechanism.random_streams import integers
from attncli.scan.document import ScanVerifyDocument, VerifiedShard
from attncli.scan.engines import Engine, Job, ShardOutcome
from attncli.scan.plan import ScanPlan
from attncli.scan.report import failures
from attncli.scan.shard_files import ShardState, give_up, is_done, path_of, remove
from attncli.scan.statistics import UNIT
from attncli.scan.totals import Totals, read_committed, total
from attncli.scan.worker import Worker, machine


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


# Computing shards again: the files of a scan must hold what its plan gives.

TOLERANCE = 1e-5
"""What the mean of a metric may differ by between kinds of machine, times 1 plus its size."""


def verify_document(plan: ScanPlan, folder: Path, worker: Worker, count: int) -> ScanVerifyDocument:
    """The `attn.scan_verify/1` document of `count` seeded shards of a scan, computed again.

    Raises InputError where nothing is done.
    """
    done_shards = [shard for shard in range(len(plan.shards)) if is_done(folder, shard)]
    if not done_shards:
        raise InputError("nothing of this scan is done", where=str(folder), expected="a scan with finished shards")
    here = machine(worker.model)
    shard_results, same = [], True
    for shard in draw_shards(done_shards, count, plan.seed):
        committed_state = read_committed(plan, folder, shard)
        same &= committed_state.facts["machine"] == here
        again, _ = worker.compute(shard)
        shard_results.append(_compare_shard(shard, committed_state, again))
    return ScanVerifyDocument(
        version=__version__,
        plan=plan.digest,
        shards=shard_results,
        same_machine=same,
        tolerance=TOLERANCE,
        passed=all(
            result.counts_equal and (result.same_bits or (not same and result.difference <= TOLERANCE))
            for result in shard_results
        ),
        warnings=[] if same else ["another kind of machine computed these shards: bits may differ, numbers may not"],
    )


def draw_shards(done_shards: Sequence[int], count: int, seed: int) -> list[int]:
    """`count` of the shards, drawn by the seed, ascending; all where there are no more."""
    if count >= len(done_shards):
        return list(done_shards)
    order = np.argsort(integers(seed, "verify", len(done_shards)), kind="stable")[:count]
    return sorted(done_shards[int(index)] for index in order)


def _compare_shard(shard: int, committed_state: ShardState, again: ShardState) -> VerifiedShard:
    same = committed_state.arrays.keys() == again.arrays.keys() and all(
        np.array_equal(array, again.arrays[name]) for name, array in committed_state.arrays.items()
    )
    texts = np.maximum(committed_state.arrays["texts"], 1)
    means = [state.arrays["value"].astype(np.float64) / UNIT / texts for state in (committed_state, again)]
    apart = np.abs(means[0] - means[1]) / (1 + np.abs(means[0]))
    return VerifiedShard(
        shard=shard,
        same_bits=same,
        difference=float(apart.max(initial=0.0)),
        # a shard from before unknown words were counted has no count of them
        counts_equal=committed_state.facts["counts"].items() <= again.facts["counts"].items(),
    )
