"""Start and key times of the explorer on MiniLM's 72 heads: `python tests/benchmarks/explore.py
[TOKENS]`.

Start: seconds of CPU and of the clock from the import of the application to the first picture with
weights, beside those of the model's own run. A key: CPU in the whole process from the press until
the screen is written, the median and the largest over one walk through heads, words and views,
where 512 tokens are the size of the aim: 40 ms.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from statistics import median

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
TOKENS = int(sys.argv[1]) if len(sys.argv) > 1 else 512
WORDS = [
    "the",
    "animal",
    "did",
    "not",
    "cross",
    "street",
    "because",
    "it",
    "was",
    "too",
    "tired",
    "and",
    "then",
    "we",
    "went",
    "home",
    "to",
    "eat",
    "bread",
    "near",
    "river",
]
WALK = (
    *("right", "right", "down", "left", "up"), *("tab", "down", "down", "right", "right", "up", "left"),
    *("r", "right", "r", "m", "right", "m", "c", "c", "c", "c", "z", "down", "right", "z"),
    *("2", "down", "1", "d", "right", "d", "b", "f", "right_square_bracket", "comma", "question_mark", "escape"),
)  # fmt: skip


def main() -> None:
    """Measure, and print."""
    started()
    from attncli.models.load import load

    model = load("minilm")
    text = " ".join(WORDS[(at * 7 + at // 13) % len(WORDS)] for at in range(TOKENS - 2))
    clock, cpu = time.perf_counter(), time.process_time()
    for _ in model.trace(model.encode(text), keep=("weights",)):
        pass
    asyncio.run(walk(model, text, (time.perf_counter() - clock, time.process_time() - cpu)))


def started() -> None:
    """What importing the application takes in a process of its own, beside what a run imports."""
    run = "import attncli.models.load, attncli.measure.run_record, attncli.cli.request, attncli.features.run.screen"
    for name, code in {
        "imports of a run": run,
        "with the explorer": f"{run}; import attncli.explore.explorer",
    }.items():
        took = min(_seconds(code) for _ in range(3))
        print(f"{name:22} {took:6.2f} CPU seconds")


def _seconds(code: str) -> float:
    told = f"import time; {code}; print(time.process_time())"
    return float(
        subprocess.run(
            [sys.executable, "-c", told], capture_output=True, text=True, check=True
        ).stdout
    )


async def walk(model: object, text: str, own: tuple[float, float]) -> None:
    """Start, walk, and print the times. own: clock and CPU seconds of the model's own run."""
    clock, cpu = time.perf_counter(), time.process_time()
    from attncli.draw.view import View
    from attncli.explore.explorer import Explorer
    from attncli.explore.loaded_run import LiveSource
    from attncli.models.model import Model

    assert isinstance(model, Model)
    app = Explorer(LiveSource.of(model, text), View(width=120, color=True))
    async with app.run_test(size=(120, 40)) as pilot:
        while app.walk.loaded_run is None or not app.walk.loaded_run.heads:
            await asyncio.sleep(0.005)
        await pilot.pause()
        first = time.perf_counter() - clock, time.process_time() - cpu
        while app.walk.work is not None:
            await asyncio.sleep(0.01)
        await pilot.pause()
        whole = time.perf_counter() - clock, time.process_time() - cpu
        times = []
        for key in WALK:
            await asyncio.sleep(0.02)
            begun = time.process_time()
            await pilot.press(key)
            times.append((1000 * (time.process_time() - begun), key))
    print(f"{TOKENS} tokens × 72 heads, 120 × 40; seconds as clock (CPU)")
    for name, (a, b) in {
        "the model's own run": own,
        "first picture": first,
        "all heads known": whole,
    }.items():
        print(f"{name:22} {a:6.2f} ({b:.2f})")
    worst = sorted(times, reverse=True)[:5]
    print(
        f"a key: median {median(taken for taken, _ in times):.1f} ms CPU, largest {worst[0][0]:.1f} ms"
    )
    print("largest: " + ", ".join(f"{key} {taken:.1f}" for taken, key in worst))


if __name__ == "__main__":
    main()
