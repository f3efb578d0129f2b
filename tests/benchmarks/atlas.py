"""A scan with samples and pairs of tokens against one without: `python atlas.py CORPUS TEXTS`, of MiniLM.

Two processes with a worker's settings scan the same shards in turn, so that a machine that slows down slows down both;
what is timed is the CPU seconds of one thread, and at the end those of bringing the shards together in a document. Told
after each shard is what both took so far, how many times as much the one with samples and pairs, and the most memory
that each process had.

Measured over 40,000 sentences of documentation, on a machine that others used as well: 672 s of CPU with both and 612 s
without, 1.10 times; workers of 621 and 513 MiB (600 and 504 after the first of ten shards), and 737 and 618 MiB with all
shards brought together in the same process.
"""

from __future__ import annotations

import io
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from attncli.scan.worker_process import ALLOCATION, MemoryTrimmer, on_one_thread, use_one_thread

SIDES: dict[str, dict[str, object]] = {"without": {"examples": 0, "links": False}, "with": {}}
"""By name, what is asked for; samples and pairs are there unless they are declined."""


def serve(corpus: str, folder: Path, side: str) -> None:
    """Scan the shards that standard input names, and tell their CPU seconds and the most memory in MiB; after the last
    of them bring them together."""
    use_one_thread()
    import attncli
    from attncli.scan import plan, report
    from attncli.scan.corpus_scan import USUAL
    from attncli.scan.totals import total
    from attncli.scan.worker import Worker

    on_one_thread()
    model, out = attncli.load("minilm", backend="torch"), folder / side
    request = plan.ScanRequest((corpus,), USUAL, **SIDES[side])  # type: ignore[arg-type]
    made = plan.write(plan.make_plan(request, model, "minilm", out, stdin=io.BytesIO()), out)
    worker = Worker(made, out, model, between=MemoryTrimmer().keep)
    print(len(made.shards), flush=True)
    for line in sys.stdin:
        begun = time.process_time()
        if (shard := int(line)) < len(made.shards):
            worker.shard(shard)
        else:
            report.write(report.scan_document(total(made, out)), out)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(time.process_time() - begun, memory, flush=True)


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
                    command, env={**os.environ, **ALLOCATION}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
        shards = 0
        for process in sides.values():
            assert process.stdout is not None
            shards = int(process.stdout.readline())
        seconds = dict.fromkeys(sides, 0.0)
        for shard in range(shards + 1):
            memory = {}
            for side in list(sides) if shard % 2 == 0 else reversed(sides):
                process = sides[side]
                assert process.stdin is not None
                assert process.stdout is not None
                print(shard, file=process.stdin, flush=True)
                took, memory[side] = map(float, process.stdout.readline().split())
                seconds[side] += took
            what = f"shard {shard}" if shard < shards else "together"
            told = ", ".join(f"{side} {seconds[side]:.1f} s CPU, {memory[side]:.0f} MiB" for side in sides)
            print(f"{what:8} {told}: {seconds['with'] / seconds['without']:.3f} times", flush=True)
        for process in sides.values():
            assert process.stdin is not None
            process.stdin.close()


if __name__ == "__main__":
    main()
