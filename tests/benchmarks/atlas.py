"""A scan with samples and pairs of tokens against one without: `python atlas.py CORPUS TEXTS`, of
MiniLM.

Two processes with a worker's settings scan the same shards in turn, so that a machine that slows
down slows down both; what is timed is the CPU seconds of one thread. Then `attn scan` itself is run
on each folder, which finds all shards done and brings them together in its document: its CPU
seconds, the program's start among them, and its memory come last. Told after each shard is what
both took so far, how many times as much the one with samples and pairs, and the most memory that
each process had.

Measured over 40,000 sentences of documentation, on a machine that others used as well: 623.7 s of
CPU with both and
566.8 s without, 1.100 times (1.03 to 1.10 after each shard); workers of 633 and 533 MiB (575 and
499 after the first of ten shards), and 490 and 461 MiB of `attn scan` itself as it brings all
shards together.
"""

from __future__ import annotations

import io
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from attncli.scan.worker_process import ALLOCATION, MemoryTrimmer, on_one_thread, use_one_thread

SIDES: dict[str, dict[str, object]] = {"without": {"examples": 0, "links": False}, "with": {}}
"""By name, what is asked for; samples and pairs are there unless they are declined."""


def serve(corpus: str, folder: Path, side: str) -> None:
    """Scan the shards that standard input names, and tell their CPU seconds and the most memory in
    MiB.
    """
    use_one_thread()
    import attncli
    from attncli.scan import plan
    from attncli.scan.corpus_scan import USUAL
    from attncli.scan.worker import Worker

    on_one_thread()
    model, out = attncli.load("minilm", backend="torch"), folder / side
    request = plan.ScanRequest((corpus,), USUAL, **SIDES[side])  # type: ignore[arg-type]
    made = plan.write(plan.make_plan(request, model, "minilm", out, stdin=io.BytesIO()), out)
    worker = Worker(made, out, model, between=MemoryTrimmer().trim_if_grown)
    print(len(made.shards), flush=True)
    for line in sys.stdin:
        begun = time.process_time()
        worker.shard(int(line))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(time.process_time() - begun, memory, flush=True)


def bring_together(corpus: Path, out: Path, side: str) -> tuple[float, float]:
    """What `attn scan` takes where all shards are done: CPU seconds, and the most memory in MiB."""
    options = ["--examples", "0", "--no-links"] if side == "without" else []
    command = [
        sys.executable,
        "-m",
        "attncli",
        "scan",
        "minilm",
        str(corpus),
        "-o",
        str(out),
        "--brief",
        *options,
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    if len(sys.argv) > 3:
        serve(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
        return
    lines = Path(sys.argv[1]).read_text("utf-8").splitlines()[: int(sys.argv[2])]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        corpus = Path(folder) / "corpus.txt"
        corpus.write_text("\n".join(lines), "utf-8")
        sides = {}
        for side in SIDES:
            command = [sys.executable, __file__, str(corpus), folder, side]
            sides[side] = stack.enter_context(
                subprocess.Popen(
                    command,
                    env={**os.environ, **ALLOCATION},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        shards = 0
        for process in sides.values():
            assert process.stdout is not None
            shards = int(process.stdout.readline())
        seconds = dict.fromkeys(sides, 0.0)
        for shard in range(shards):
            memory = {}
            for side in list(sides) if shard % 2 == 0 else reversed(sides):
                process = sides[side]
                assert process.stdin is not None
                assert process.stdout is not None
                print(shard, file=process.stdin, flush=True)
                took, memory[side] = map(float, process.stdout.readline().split())
                seconds[side] += took
            tell(f"shard {shard}", seconds, memory)
        for side, process in sides.items():
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
            took, memory[side] = bring_together(corpus, Path(folder) / side, side)
            seconds[side] += took
        tell("together", seconds, memory)


def tell(after: str, seconds: Mapping[str, float], memory: Mapping[str, float]) -> None:
    """A line of what both sides took so far."""
    told = ", ".join(
        f"{side} {seconds[side]:.1f} s CPU, {memory[side]:.0f} MiB" for side in seconds
    )
    print(f"{after:8} {told}: {seconds['with'] / seconds['without']:.3f} times", flush=True)


if __name__ == "__main__":
    main()
