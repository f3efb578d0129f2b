"""The page's cost by length of text: size, time to write, the writer's memory, and what the browser takes; BertViz
beside it where it is installed.

    python tests/benchmarks/page.py [TOKENS ...]
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))
SIZES = (15, 128, 512, 4096)
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


def text(tokens: int) -> str:
    return " ".join(WORDS[(at * 7 + at // 13) % len(WORDS)] for at in range(tokens))


def write(tokens: int, file: str) -> None:
    """In a process of its own: run without and with the page, and what memory it took beyond the run."""
    import attncli
    from attncli.analysis.records.run import run_record
    from attncli.arrays.backend import choose
    from attncli.inputs.tokenize import tokenizer
    from attncli.models.one_layer import Settings, seeded_model
    from attncli.render.page.contents import Page
    from attncli.render.page.writer import page_bytes

    if tokens <= 512:
        model = attncli.load("minilm")
        found = model.encode(text(tokens - 2))
    else:  # minilm has 512 positions; twelve heads of 64 dimensions stand for a layer of a decoder
        backend = choose("numpy", device=None, dtype="float32")
        model = seeded_model(Settings(d_model=768, heads=12), 0, "seeded", tokenizer("whitespace"), backend)
        found = model.encode(" ".join(f"{word}{at}" for at, word in enumerate(text(tokens).split())))
    start = time.perf_counter()
    for _ in model.trace(found, keep=(), rows=64):
        pass
    alone, before = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    with open(file, "wb") as out:  # noqa: PTH123
        for piece in page_bytes(Page("benchmark", [run_record(model, "benchmark", found)])):
            out.write(piece)
    taken, memory = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{len(found)} {Path(file).stat().st_size} {alone:.3f} {taken:.3f} {before / 1024:.0f} {memory / 1024:.0f}")


LOOKS = {
    "one head": "attn.choose({head: attn.state.head ? 0 : 1})",
    "hover": "attn.choose({query: attn.state.query + 1})",
    "search": "attn.choose({view: 'search'})",
}
ONCE = """async () => {
  const start = performance.now();
  ACT;
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - start;
}"""


def browse(file: str) -> dict[str, float]:
    """Milliseconds of each thing that a reader does, in Chromium without a screen."""
    from browsing import browser, opened

    with browser() as started:
        start = time.perf_counter()
        window = opened(started, Path(file))
        found = {"open": (time.perf_counter() - start) * 1000}
        paint = "performance.getEntriesByType('paint').find((one) => one.name === 'first-contentful-paint')?.startTime"
        found["first paint"] = float(window.value(paint) or 0)
        window.page.wait_for_timeout(1500)
        for name, act in LOOKS.items():
            found[name] = min(float(window.value(ONCE.replace("ACT", act))) for _ in range(3))
        window.until("() => document.querySelectorAll('#view .found li').length", seconds=60)
        found["memory MB"] = float(window.value("performance.memory.usedJSHeapSize")) / 1e6
    return found


def bertviz(tokens: int) -> str:
    """BertViz's head view of as many weights, where it is installed."""
    script = (
        "import time,torch,resource\nfrom bertviz import model_view\nt=time.perf_counter()\n"
        f"n={tokens}\na=[torch.rand(1,12,n,n) for _ in range(6)]\n"
        "h=model_view(a,['w']*n,html_action='return')\n"
        "print(len(h.data),f'{time.perf_counter()-t:.1f}',resource.getrusage(resource.RUSAGE_SELF).ru_maxrss//1024)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "not installed"


def main(sizes: list[int]) -> None:
    for tokens in sizes:
        with TemporaryDirectory() as folder:
            file = str(Path(folder) / "page.html")
            told = subprocess.run(
                [sys.executable, __file__, "--write", str(tokens), file], capture_output=True, text=True, check=True
            )
            count, size, alone, taken, before, memory = told.stdout.split()
            print(
                f"{count} tokens: {int(size) / 1e6:.2f} MB, run {alone} s, run and page {taken} s, memory {before} to {memory} MB"
            )
            print("   " + ", ".join(f"{name} {value:.0f}" for name, value in browse(file).items()) + " (ms)")
            if tokens <= 512:
                print(f"    BertViz (bytes, seconds, MB): {bertviz(tokens)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write(int(sys.argv[2]), sys.argv[3])
    else:
        main([int(one) for one in sys.argv[1:]] or list(SIZES))
