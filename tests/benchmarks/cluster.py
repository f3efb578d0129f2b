"""What a Ray cluster costs beside worker processes: `python cluster.py MODEL CORPUS [SHARDS]`.

Two nodes on this machine, two actors. Printed: seconds until the cluster and the first actor
answer, memory of Ray's own processes and of an actor, and what a shard takes more than in a process
here, from shards of one text each.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import ray
from ray.cluster_utils import Cluster

import attncli
from attncli.scan import plan
from attncli.scan.engines import STORE, Engine, LocalWorkers, RayCluster, run

SMALL = {"object_store_memory": STORE, "include_dashboard": False}


def memory(word: str) -> int:
    """Bytes that processes with the word in their command line hold for themselves."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (process / "cmdline").read_bytes() and process.name != str(
                os.getpid()
            ):
                fields = dict(
                    line.split(":", 1) for line in (process / "status").read_text().splitlines()
                )
                total += int(fields["RssAnon"].split()[0]) * 1024
        except (OSError, KeyError):
            continue
    return total


def per_shard(
    engine: Engine, model: str, corpus: Path, shards: int, folder: Path
) -> tuple[float, float, int]:
    """Seconds until the first shard is done, seconds of each later one, and the actors' memory."""
    asked = plan.ScanRequest((str(corpus),), ("entropy",), labels=False, shard=1)
    loaded = attncli.load(model, backend="torch")
    made = plan.write(plan.make_plan(asked, loaded, model, folder, stdin=io.BytesIO()), folder)
    begun, ends, held = time.perf_counter(), [], 0

    def ended(_: object) -> None:
        nonlocal held
        ends.append(time.perf_counter() - begun)
        if len(ends) == shards // 2:
            held = memory("ray::Actor")

    outcome = run(made, folder, model, engine, on_shard=ended)
    assert not outcome.failed_shards
    late = ends[len(ends) // 4 :]
    return ends[0], (late[-1] - late[0]) / (len(late) - 1), held


def main() -> None:
    model, shards = sys.argv[1], int(sys.argv[3]) if len(sys.argv) > 3 else 200
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.txt"
        corpus.write_text(
            "\n".join(Path(sys.argv[2]).read_text("utf-8").splitlines()[:shards]), "utf-8"
        )
        here = per_shard(LocalWorkers(2), model, corpus, shards, Path(folder) / "here")
        begun = time.perf_counter()
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, **SMALL})
        cluster.add_node(num_cpus=1, **SMALL)
        started = time.perf_counter() - begun
        try:
            there = per_shard(
                RayCluster(cluster.address, 2), model, corpus, shards, Path(folder) / "ray"
            )
            held = memory("ray")
        finally:
            ray.shutdown()
            cluster.shutdown()
    print(
        f"start of two nodes: {started:.1f} s; first shard: {there[0]:.1f} s with Ray, {here[0]:.1f} s here"
    )
    print(
        f"memory: {held / 2**20:.0f} MiB of Ray's own processes, {there[2] / 2 / 2**20:.0f} MiB an actor"
    )
    print(
        f"a shard of one text: {there[1] * 1e3:.1f} ms with Ray, {here[1] * 1e3:.1f} ms here, 2 workers each"
    )


if __name__ == "__main__":
    main()
