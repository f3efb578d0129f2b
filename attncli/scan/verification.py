"""Computing shards again: the files of a scan must hold what its plan gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from attncli import __version__
from attncli.analysis.documents.scan_verify import ScanVerifyDocument, VerifiedShard
from attncli.errors import InputError
from attncli.mechanism.random_streams import integers
from attncli.scan.fixed_point import UNIT
from attncli.scan.plan import ScanPlan
from attncli.scan.shard_files import ShardState, is_done
from attncli.scan.totals import read_committed
from attncli.scan.worker import Worker, machine

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
