"""The page's cost by length of text: size, time to write, the writer's memory, and what the browser
takes; BertViz beside it where it is installed. With `compare`, the longest tasks of a comparison of
two texts of 512 tokens.

    python tests/benchmarks/page.py [compare] [TOKENS ...]
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))
SIZES = (15, 128, 512, 4096)
WORDS = (
    "the", "animal", "did", "not", "cross", "street", "because", "it", "was", "too", "tired", "and", "then", "we", "went", "home",
    "to", "eat", "bread", "near", "river",
)  # fmt: skip


def text(tokens: int) -> str:
    return " ".join(WORDS[(at * 7 + at // 13) % len(WORDS)] for at in range(tokens))


def write(tokens: int, file: str) -> None:
    """In a process of its own: the run of `attn run` without and with the page, least of three, and
    the memory of either.
    """
    import attncli
    from attncli.arrays.backend import choose
    from attncli.draw.page import Page, page_bytes
    from attncli.features.run.compute import RunRequest, _measured_run
    from attncli.inputs.tokenize import tokenizer
    from attncli.measure.run_record import Recording, recorded_run
    from attncli.models.one_layer import Settings, seeded_model
    from attncli.models.run import LONG, rows_for

    if tokens <= 512:
        model = attncli.load("minilm")
        found = model.encode(text(tokens - 2))
    else:  # minilm has 512 positions; twelve heads of 64 dimensions stand for a layer of a decoder
        backend = choose("numpy", device=None, dtype="float32")
        model = seeded_model(
            Settings(d_model=768, heads=12), 0, "seeded", tokenizer("whitespace"), backend
        )
        found = model.encode(
            " ".join(f"{word}{at}" for at, word in enumerate(text(tokens).split()))
        )
    rows = rows_for(model.spec, len(found)) if len(found) > LONG else None
    alone = taken = 1e9
    for _ in range(2 if tokens > 512 else 3):
        start = time.perf_counter()
        _measured_run(model, "benchmark", found, RunRequest(matrices=False), rows=rows)
        alone = min(alone, time.perf_counter() - start)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(2 if tokens > 512 else 3):
        start = time.perf_counter()
        recording = Recording(model, found)
        _measured_run(
            model, "benchmark", found, RunRequest(matrices=False), rows=rows, recording=recording
        )
        with open(file, "wb") as out:  # noqa: PTH123
            for piece in page_bytes(
                Page("benchmark", [recorded_run(model, "benchmark", recording)])
            ):
                out.write(piece)
        taken = min(taken, time.perf_counter() - start)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{len(found)} {Path(file).stat().st_size} {alone:.3f} {taken:.3f} {before / 1024:.0f} {memory / 1024:.0f}"
    )


LOOKS = {
    "hover": "(at) => attn.choose({query: (7 * at) % attn.meta.runs[0].q.length, key: (5 * at) % attn.meta.runs[0].q.length})",
    "hover, links": "(at) => attn.choose({view: 'links', query: (7 * at) % attn.meta.runs[0].q.length})",
    "hover, rollout": "(at) => attn.choose({view: 'rollout', query: (7 * at) % attn.meta.runs[0].q.length})",
    "one head": "(at) => attn.choose({view: 'matrix', head: (at + 1) % attn.meta.runs[0].heads.length})",
}
SEVERAL = """async () => {
  const act = LOOK, waits = [], frames = [];
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const turn = () => new Promise((done) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = done;
    port2.postMessage(0);
  });
  for (let at = 0; at < 12; at++) {
    const start = performance.now();
    act(at);
    await turn();
    waits.push(performance.now() - start);
    await new Promise((done) => requestAnimationFrame(done));
    await turn();
    frames.push(performance.now() - start);
    await pause(30);
  }
  return [waits, frames].map((all) => all.sort((a, b) => a - b)[2]);
}"""
"""Milliseconds of what the script does, and until the frame with it is drawn: the third least of
twelve.
"""
SEARCH = """async () => {
  const start = performance.now();
  attn.choose({view: "search"});
  while (!document.querySelector("#view .found li")) await new Promise((done) => setTimeout(done, 1));
  return performance.now() - start;
}"""


ACTS = {
    "next head": "(n) => attn.choose({view: 'matrix', head: (7 * n + 1) % attn.meta.runs[0].heads.length})",
    "hover": "(n) => attn.choose({query: (71 * n) % attn.meta.runs[0].q.length, key: (53 * n) % attn.meta.runs[0].q.length})",
    "links": "(n) => attn.choose({view: 'links', query: (71 * n) % attn.meta.runs[0].q.length})",
    "pins": "(n) => attn.choose({pins: ['5.11,4.2', '3.1,2.2,1.1,0.0', '', '5.5'][n % 4]})",
    "tiles": "(n) => attn.choose({tiles: n % 2 ? 'lines' : 'maps', sort: n % 3 ? 'layer' : 'entropy'})",
    "search": "(n) => attn.choose({view: n % 2 ? 'search' : 'matrix', query: 40 * n})",
    "rollout": "(n) => attn.choose({view: 'rollout', query: 31 * n})",
    "language": "(n) => attn.choose({view: 'matrix', lang: n % 2 ? 'zh' : 'en'})",
}
"""What a reader does, again and again."""
COMPARING = {
    "difference on and off": "(n) => attn.choose({view: n % 2 ? 'matrix' : 'difference'})",
    "its next head": "(n) => attn.choose({view: 'difference', head: (7 * n + 2) % attn.meta.runs[0].heads.length})",
    "its hover": "(n) => attn.choose({view: 'difference', query: (71 * n + 9) % attn.meta.runs[0].q.length, key: (53 * n + 11) % attn.meta.runs[0].q.length})",
    "the other run": "(n) => attn.choose({view: 'matrix', run: n % 2})",
}
"""What a reader does besides on the page of a comparison."""


def longest_tasks(started: Any, file: str, acts: Mapping[str, str]) -> dict[str, float]:
    """The CPU milliseconds of the longest task of the page's own thread, by what is done: also on a
    busy machine the time in which nothing else is answered.

    The page is opened in a window that nobody inspects, as a reader's: for its inspector a browser
    keeps all that was loaded and decodes it once more at its end, which takes 50 to 80 ms of 13 MB.
    """
    address = Path(file).as_uri()
    control = started.new_browser_cdp_session()

    def traced(act: Callable[[], object]) -> float:
        started.start_tracing(categories=["toplevel"])
        act()
        events = json.loads(started.stop_tracing())["traceEvents"]
        threads = {
            (one["pid"], one["tid"])
            for one in events
            if one.get("args", {}).get("name") == "CrRendererMain"
        }
        tasks = [one for one in events if one.get("name", "").endswith("RunTask") and "tdur" in one]
        return max(one["tdur"] / 1000 for one in tasks if (one["pid"], one["tid"]) in threads)

    def open_alone() -> None:
        target = control.send("Target.createTarget", {"url": address, "width": 1280, "height": 860})
        time.sleep(3)
        control.send("Target.closeTarget", target)

    tasks = {"open": min(traced(open_alone) for _ in range(3))}
    page = started.new_page()
    page.goto(address)
    page.wait_for_timeout(3000)

    def several(act: str) -> None:
        for number in range(5):
            page.evaluate(act, number)
            page.wait_for_timeout(700)

    return tasks | {name: traced(lambda act=act: several(act)) for name, act in acts.items()}


def compare_two() -> None:
    """The longest tasks of a comparison of two texts of 512 tokens in 72 heads."""
    from browsing import browser

    with TemporaryDirectory() as folder:
        file = str(Path(folder) / "page.html")
        texts = [text(510), text(510).replace("river", "lake")]
        command = [sys.executable, "-m", "attncli", "compare", "--model", "minilm", *texts]
        subprocess.run([*command, "--html", file], capture_output=True, check=True)
        with browser() as started:
            tasks = longest_tasks(started, file, ACTS | COMPARING)
        print(
            f"two texts of 512 tokens: {Path(file).stat().st_size / 1e6:.2f} MB; longest tasks (CPU ms):"
        )
        print("   " + ", ".join(f"{name} {task:.0f}" for name, task in tasks.items()))


def browse(file: str) -> dict[str, str]:
    """Milliseconds of each thing that a reader does, in Chromium without a screen."""
    from browsing import browser, opened

    with browser() as started:
        start = time.perf_counter()
        window = opened(started, Path(file))
        found = {"open": f"{(time.perf_counter() - start) * 1000:.0f}"}
        paint = "performance.getEntriesByType('paint').find((one) => one.name === 'first-contentful-paint')?.startTime"
        window.page.wait_for_timeout(1500)
        found["first paint"] = f"{window.value(paint) or 0:.0f}"
        found["search"] = f"{window.value(SEARCH):.0f}"
        for name, act in LOOKS.items():
            window.value("(view) => attn.choose({view})", "matrix")
            window.page.wait_for_timeout(500)
            if name == "hover, rollout":
                window.value("(view) => attn.choose({view})", "rollout")
                window.page.wait_for_timeout(3000)
            found[name] = " to ".join(
                f"{one:.1f}" for one in window.value(SEVERAL.replace("LOOK", act))
            )
        tasks = longest_tasks(started, file, ACTS)
        found["longest tasks (CPU)"] = ", ".join(
            f"{name} {task:.0f}" for name, task in tasks.items()
        )
        found["memory"] = f"{window.value('performance.memory.usedJSHeapSize') / 1e6:.0f} MB"
    return found


def bertviz(tokens: int) -> str:
    """BertViz's model view of as many weights, where it is installed."""
    script = (
        "import time,torch,resource\nfrom bertviz import model_view\nt=time.perf_counter()\n"
        f"n={tokens}\na=[torch.rand(1,12,n,n) for _ in range(6)]\n"
        "h=model_view(a,['w']*n,html_action='return')\n"
        "print(len(h.data),f'{time.perf_counter()-t:.1f}',resource.getrusage(resource.RUSAGE_SELF).ru_maxrss//1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else "not installed"


def main(sizes: list[int]) -> None:
    for tokens in sizes:
        with TemporaryDirectory() as folder:
            file = str(Path(folder) / "page.html")
            told = subprocess.run(
                [sys.executable, __file__, "--write", str(tokens), file],
                capture_output=True,
                text=True,
                check=True,
            )
            count, size, alone, taken, before, memory = told.stdout.split()
            print(
                f"{count} tokens: {int(size) / 1e6:.2f} MB, run {alone} s, run and page {taken} s, memory {before} to {memory} MB"
            )
            print(
                "   "
                + ", ".join(f"{name} {value}" for name, value in browse(file).items())
                + " (ms)"
            )
            if tokens <= 512:
                print(f"    BertViz's model view (bytes, seconds, MB): {bertviz(tokens)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write(int(sys.argv[2]), sys.argv[3])
    elif sys.argv[1:2] == ["compare"]:
        compare_two()
        main([int(one) for one in sys.argv[2:]])
    else:
        main([int(one) for one in sys.argv[1:]] or list(SIZES))
