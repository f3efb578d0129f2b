"""A whole scan, as the command runs it: `python corpus.py CORPUS TEXTS [WORKERS] [LOOP_TEXTS]`.

Printed: texts a second, CPU seconds of a text, each worker's memory over time and at the end, the
CPU seconds of a text in a padded transformers loop that computes weights only (over the first
LOOP_TEXTS texts, in a process of its own), and the labels.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PACE = 2.0
"""Seconds between looks at the memory."""
LOOP = """
import sys, time
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
from pathlib import Path
from scan import Loop
lines = Path(sys.argv[2]).read_text("utf-8").splitlines()[: int(sys.argv[3])]
loop = Loop(lines)
begun = time.process_time()
loop.run(metrics=False)
print((time.process_time() - begun) / len(lines))
"""


def memory(parent: int) -> list[int]:
    """Bytes that each process below this one holds for itself, the parent's first."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = dict(
                line.split(":", 1) for line in (process / "status").read_text().splitlines()
            )
            if int(process.name) == parent or int(fields["PPid"]) == parent:
                found.append((int(process.name) != parent, int(fields["VmRSS"].split()[0]) * 1024))
        except (OSError, KeyError):
            continue
    return [held for _, held in sorted(found)]


def main() -> None:
    texts, workers = int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "1"
    few = int(sys.argv[4]) if len(sys.argv) > 4 else 768
    with tempfile.TemporaryDirectory() as folder:
        corpus, out = Path(folder) / "corpus.txt", Path(folder) / "out"
        corpus.write_text(
            "\n".join(Path(sys.argv[1]).read_text("utf-8").splitlines()[:texts]), "utf-8"
        )
        begun = time.perf_counter()
        command = [
            sys.executable,
            "-m",
            "attncli",
            "scan",
            "minilm",
            str(corpus),
            "-o",
            str(out),
            "--workers",
            workers,
        ]
        process = subprocess.Popen(
            [*command, "--full", "--quiet"], stdout=subprocess.PIPE, text=True
        )
        held: list[list[int]] = []
        while process.poll() is None:
            time.sleep(PACE)
            held.append(memory(process.pid))
        took = time.perf_counter() - begun
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert process.stdout is not None
        screen = process.stdout.read()
        document = json.loads((out / "scan.json").read_text("utf-8"))
    done = document["done"]
    spent = used.ru_utime + used.ru_stime
    print(
        f"{done['texts']:,} texts, {done['tokens']:,} tokens, {workers} workers: {took:.0f} s, {done['texts'] / took:.0f} texts/s"
    )
    print(f"{spent:.0f} s CPU in all, {spent / done['texts'] * 1e3:.2f} ms CPU a text")
    most = [max(look[1:], default=0) for look in held]
    for share in (0.1, 0.25, 0.5, 0.75, 1.0):
        at = max(int(len(most) * share) - 1, 0)
        print(
            f"largest worker up to {share:.0%} of the time: {max(most[: at + 1]) / 2**20:.0f} MiB"
        )
    print(f"the scan itself: {max(look[0] for look in held if look) / 2**20:.0f} MiB")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    loop = subprocess.run(
        [sys.executable, "-c", LOOP, str(Path(__file__).parent), sys.argv[1], str(few)],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    print(
        f"a transformers loop, weights only: {float(loop.stdout) * 1e3:.2f} ms CPU a text of the first {few}"
    )
    print(screen)


if __name__ == "__main__":
    main()
