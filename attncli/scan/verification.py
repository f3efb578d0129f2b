"""Computing shards again: the files of a scan must hold what its plan gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from attncli import __version__
from attncli.analysis.documents.scan_verify import ScanVerifyDocument, VerifiedShard
from attncli.errors import InputError
from attncli.mechanism.random_streams import integers
from attncli.scan.fixed_point import ONE
from attncli.scan.plan import Plan
from attncli.scan.shard_files import State, is_done
from attncli.scan.totals import committed
from attncli.scan.worker import Worker, machine

TOLERANCE = 1e-5
"""What the mean of a metric may differ by between kinds of machine, times 1 plus its size."""


def verify_document(plan: Plan, folder: Path, worker: Worker, count: int) -> ScanVerifyDocument:
    """The `attn.scan_verify/1` document of `count` seeded shards of a scan, computed again.

    Raises InputError where nothing is done.
    """
    done = [shard for shard in range(len(plan.shards)) if is_done(folder, shard)]
    if not done:
        raise InputError("nothing of this scan is done", where=str(folder), expected="a scan with finished shards")
    here = machine(worker.model)
    found, same = [], True
    for shard in chosen(done, count, plan.seed):
        held = committed(plan, folder, shard)
        same &= held.facts["machine"] == here
        again, _ = worker.compute(shard)
        found.append(_compared(shard, held, again))
    return ScanVerifyDocument(
        version=__version__,
        plan=plan.digest,
        shards=found,
        same_machine=same,
        tolerance=TOLERANCE,
        passed=all(one.counts_equal and (one.same_bits or (not same and one.difference <= TOLERANCE)) for one in found),
        warnings=[] if same else ["another kind of machine computed these shards: bits may differ, numbers may not"],
    )


def chosen(done: Sequence[int], count: int, seed: int) -> list[int]:
    """`count` of the shards, drawn by the seed, ascending; all where there are no more."""
    if count >= len(done):
        return list(done)
    drawn = np.argsort(integers(seed, "verify", len(done)), kind="stable")[:count]
    return sorted(done[int(at)] for at in drawn)


def _compared(shard: int, held: State, again: State) -> VerifiedShard:
    same = held.arrays.keys() == again.arrays.keys() and all(
        np.array_equal(array, again.arrays[name]) for name, array in held.arrays.items()
    )
    texts = np.maximum(held.arrays["texts"], 1)
    means = [state.arrays["value"].astype(np.float64) / ONE / texts for state in (held, again)]
    apart = np.abs(means[0] - means[1]) / (1 + np.abs(means[0]))
    return VerifiedShard(
        shard=shard,
        same_bits=same,
        difference=float(apart.max(initial=0.0)),
        # a shard from before unknown words were counted has no count of them
        counts_equal=held.facts["counts"].items() <= again.facts["counts"].items(),
    )
