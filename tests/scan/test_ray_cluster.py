"""A Ray cluster of two nodes on this machine: a worker, the driver and a node are killed, and the
numbers stay.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from processes import start
from scanning import Inside, planned

import attncli
from attncli.errors import AttnError, UnsupportedError
from attncli.extras import install_command
from attncli.inputs.token import ignore
from attncli.scan.engines import Job, RayCluster, run
from attncli.scan.shard_files import is_done, load_state
from attncli.scan.totals import total

SHARDS = 12
SMALL = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
DRIVER = """
import sys
from pathlib import Path
from attncli.scan.plan import read_plan
from attncli.scan.engines import RayCluster
from attncli.scan.engines import run
folder = Path(sys.argv[1])
outcome = run(read_plan(folder), folder, sys.argv[2], RayCluster(sys.argv[3], 0))
print(outcome.failed_shards, flush=True)
sys.exit(0 if outcome.totals is not None and not outcome.failed_shards else 1)
"""
SLOW = """
import os, time
from pathlib import Path
try:
    from attncli.scan import worker
except ImportError:
    worker = None
if worker is not None:
    compute = worker.Worker.compute
    def slowly(self, number, *others):
        seen = Path(os.environ["SEEN"])
        late = not (seen / str(number)).exists() and len(list(seen.iterdir())) >= 6
        with (seen / str(number)).open("a") as file:
            file.write(f"{os.getpid()}\\n")
        time.sleep(0.25)
        while late and not (seen.parent / "on").exists():
            time.sleep(0.02)
        return compute(self, number, *others)
    worker.Worker.compute = slowly
"""


def until(true: Callable[[], bool], process: Any, seconds: float = 180.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert process.poll() is None, f"the driver ended with {process.returncode}"
        assert time.monotonic() < end
        time.sleep(0.02)


def alive(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which each computation of a shard leaves its process; workers are slow enough to
    be killed, and but six shards, or some more that began at once, are computed before a file `on`
    is beside it."""
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow/sitecustomize.py").write_text(SLOW)
    (tmp_path / "seen").mkdir()
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    monkeypatch.setenv(
        "PYTHONPATH", f"{tmp_path / 'slow'}{os.pathsep}{Path(attncli.__file__).parents[1]}"
    )
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_DISABLE_MEMORY_MONITOR", "1")
    return tmp_path / "seen"


@pytest.fixture
def cluster(seen: Path) -> Iterator[object]:
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, **SMALL})
    try:
        yield made
    finally:
        made.shutdown()


def processes(seen: Path) -> list[int]:
    return [int(line) for path in seen.iterdir() for line in path.read_text().split()]


@pytest.mark.cluster
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_a_killed_worker_driver_and_node_change_no_digest(encoder, corpus, tmp_path, seen, cluster):
    reference = tmp_path / "reference"
    run(planned(encoder, corpus, reference, shard=5), reference, str(encoder), Inside())
    for path in seen.iterdir():
        path.unlink()
    node = cluster.add_node(num_cpus=2, **SMALL)
    folder = tmp_path / "out"
    made = planned(encoder, corpus, folder, shard=5)
    assert len(made.shards) == SHARDS

    def done() -> int:
        return sum(is_done(folder, shard) for shard in range(SHARDS))

    command = [sys.executable, "-c", DRIVER, str(folder), str(encoder), cluster.address]
    first = start(command, stdout=DEVNULL, stderr=DEVNULL)
    until(lambda: done() >= 1, first)
    victim = next(one for one in processes(seen)[::-1] if alive(one))
    with suppress(ProcessLookupError):  # it was done first
        os.kill(victim, signal.SIGKILL)
    before = done()
    until(lambda: done() > min(before + 1, 5), first)
    first.kill()
    first.wait()
    killed = set(processes(seen))
    end = time.monotonic() + 180
    while any(alive(one) for one in killed) and time.monotonic() < end:
        time.sleep(0.1)
    assert not [one for one in killed if alive(one)], "workers outlive their driver"
    assert done() < SHARDS
    for shard in range(SHARDS):
        if is_done(folder, shard):
            load_state(folder, shard)

    (tmp_path / "on").touch()
    said = tmp_path / "said"
    with said.open("w") as file:
        second = start(command, stdout=file, stderr=DEVNULL)
    before = done()
    until(lambda: done() > before, second)
    cluster.remove_node(node, allow_graceful=False)
    assert second.wait(timeout=240) == 0, said.read_text()
    found = total(made, folder)
    assert sorted(found.done_shards) == list(range(SHARDS))
    assert found.digest() == total(made, reference).digest()
    # a worker, a driver's three and a node's two at most were killed: nothing else was computed
    # twice
    assert (
        SHARDS < sum(len(path.read_text().split()) for path in seen.iterdir()) <= SHARDS + 1 + 3 + 3
    )
    assert not list(folder.rglob("*.tmp"))


@pytest.mark.thorough
def test_without_ray_the_extra_is_named(encoder, corpus, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    made = planned(encoder, corpus, tmp_path / "out")
    with pytest.raises(UnsupportedError) as caught:
        list(
            RayCluster("auto", 0).run(
                Job(made, tmp_path / "out", str(encoder), "1-of-1", ignore), [0]
            )
        )
    assert caught.value.hint == install_command("ray")


@pytest.mark.thorough
def test_an_address_where_nobody_listens_is_told_at_once(encoder, corpus, tmp_path):
    pytest.importorskip("ray")
    made = planned(encoder, corpus, tmp_path / "out")
    with pytest.raises(AttnError, match=r"no Ray cluster answers at '127\.0\.0\.1:1'"):
        list(
            RayCluster("127.0.0.1:1", 0).run(
                Job(made, tmp_path / "out", str(encoder), "1-of-1", ignore), [0]
            )
        )


def test_a_cluster_of_fewer_processors_says_so(encoder, corpus, tmp_path, monkeypatch):
    class BegunError(Exception):
        pass

    monkeypatch.setitem(
        sys.modules,
        "ray",
        SimpleNamespace(
            init=lambda **_: None,
            shutdown=lambda: None,
            cluster_resources=lambda: {"CPU": 3.0},
            remote=Mock(side_effect=BegunError),
        ),
    )
    made = planned(encoder, corpus, tmp_path / "out")
    notes: list[str] = []
    for workers in (0, 2, 1024):
        with pytest.raises(BegunError):
            list(
                RayCluster("auto", workers, notes.append).run(
                    Job(made, tmp_path / "out", str(encoder), "1-of-1", ignore), [0]
                )
            )
    assert notes == ["1,024 workers are more than the cluster has processors to spare: 2 at most"]
