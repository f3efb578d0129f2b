"""Scanning a corpus against a padded transformers loop: `python scan.py CORPUS [TEXTS]`, CPU
seconds on one thread.

Three peers: the loop (eager attention, batches of 32 texts sorted by characters, weights only), the
same loop with `attn`'s metrics computed from its weights, and the matrix products alone that the
model takes. What is timed of `attn` is `Worker.compute` in a process with a worker's settings of
memory, as the command runs it. All take turns, so that a machine that slows down slows down all of
them; the least of each counts.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import torch

import attncli
from attncli.measure.metric import DEFAULT, measure
from attncli.mechanism.spec import Spec
from attncli.models.aliases import locate
from attncli.scan import plan
from attncli.scan.worker import MOST_TOKENS, Worker
from attncli.scan.worker_process import ALLOCATION, MemoryTrimmer

ROUNDS = 4
BATCH = 32
PLAIN: dict[str, object] = {"examples": 0, "links": False}
SCANS: dict[str, dict[str, object]] = {
    "scan": PLAIN,
    "scan with --find": PLAIN | {"find": ("from=it weight>=0.3",)},
    "with samples, links": {},
}
"""By name, what is asked for; samples and links are there unless they are declined."""
METRICS = (*DEFAULT, "normalised_entropy", "special", "punctuation", "diagonality", "band")


def seconds(run: Callable[[], object]) -> float:
    begun = time.process_time()
    run()
    return time.process_time() - begun


class Loop:
    """What a notebook does: pad, run, look at the weights."""

    def __init__(self, texts: list[str]) -> None:
        import transformers  # a worker has none of it

        folder = str(locate("minilm").folder)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = transformers.AutoModel.from_pretrained(
            folder, attn_implementation="eager"
        ).eval()
        self.texts = sorted(texts, key=len)
        self.padded = 0

    @torch.no_grad()
    def run(self, *, metrics: bool) -> None:
        self.padded = 0
        for at in range(0, len(self.texts), BATCH):
            given = self.tokenizer(
                self.texts[at : at + BATCH], padding=True, truncation=True, return_tensors="pt"
            )
            self.padded += given["input_ids"].numel()
            lengths = given["attention_mask"].sum(-1).tolist()
            for weights in self.model(**given, output_attentions=True).attentions:
                if metrics:
                    for text, length in enumerate(lengths):
                        measure(
                            weights[text, :, :length, :length],
                            metrics=("entropy", "confidence", "distance", "sink"),
                        )
                else:
                    weights.sum()


def products(spec: Spec, lengths: list[int]) -> Callable[[], None]:
    """The matrix products of the model on batches of the same sizes, and nothing else."""
    block = spec.blocks[0]
    width, heads, dim = spec.d_model, block.attention.heads, block.attention.head_dim
    inner = block.mlp.width if hasattr(block.mlp, "width") else 4 * width
    square, wide, narrow = (
        torch.randn(width, width),
        torch.randn(width, inner),
        torch.randn(inner, width),
    )

    batches = []
    for count in sorted(set(lengths)):
        left, most = lengths.count(count), max(MOST_TOKENS // count, 1)
        batches += [(min(most, left - at), count) for at in range(0, left, most)]
    given = [
        (torch.randn(texts * count, width), torch.randn(texts, heads, count, dim))
        for texts, count in batches
    ]

    def run() -> None:
        for x, q in given:
            for _ in spec.blocks:
                for _ in range(4):
                    x @ square
                q @ q.transpose(-1, -2) @ q
                x @ wide @ narrow

    return run


def serve(lines: list[str], folder: Path) -> None:
    """Scan a shard of all lines each time that standard input asks for it, and tell the CPU
    seconds.
    """
    corpus = folder / "corpus.txt"
    corpus.write_text("\n".join(lines), "utf-8")
    model = attncli.load("minilm", backend="torch")
    workers = {}
    for name, asking in SCANS.items():
        wanted, out = (
            plan.ScanRequest((str(corpus),), METRICS, labels=False, **asking),
            folder / name,
        )
        made = plan.write(plan.make_plan(wanted, model, "minilm", out, stdin=io.BytesIO()), out)
        workers[name] = Worker(made, out, model, between=MemoryTrimmer().trim_if_grown)
    for asked in sys.stdin:
        worker = workers[asked.strip()]
        print(seconds(lambda worker=worker: worker.compute(0)), flush=True)


def main() -> None:
    torch.set_num_threads(1)
    lines = (
        Path(sys.argv[1])
        .read_text("utf-8")
        .splitlines()[: int(sys.argv[2]) if len(sys.argv) > 2 else 768]
    )
    if ALLOCATION.items() <= os.environ.items():
        with tempfile.TemporaryDirectory() as folder:
            serve(lines, Path(folder))
        return
    model = attncli.load("minilm", backend="torch")
    lengths = [len(model.encode(line)) for line in lines]
    loop, multiply = Loop(lines), products(model.spec, lengths)
    # what the command's workers run in; the peers are left as they come
    setting = {**os.environ, **ALLOCATION}
    with subprocess.Popen(
        [sys.executable, *sys.argv],
        env=setting,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as scanning:
        asked, told = scanning.stdin, scanning.stdout
        assert asked is not None
        assert told is not None

        def scanned(name: str) -> float:
            print(name, file=asked, flush=True)
            return float(told.readline())

        runs: dict[str, Callable[[], float]] = {
            **{name: partial(scanned, name) for name in SCANS},
            "matrix products": partial(seconds, multiply),
            "loop, weights only": partial(seconds, partial(loop.run, metrics=False)),
        }
        for run in runs.values():
            run()
        rounds = [{name: run() for name, run in runs.items()} for _ in range(ROUNDS)]
        asked.close()
    best = {name: min(times[name] for times in rounds) for name in runs}
    best["loop, four metrics"] = seconds(partial(loop.run, metrics=True))
    print(
        f"{len(lines)} texts, {sum(lengths)} tokens, {loop.padded} padded by the loop, {len(METRICS)} metrics in the scan"
    )
    for name, found in best.items():
        print(f"{name:20} {found:7.2f} s CPU  {found / best['scan']:5.2f} × the scan")
    print(f"{best['matrix products'] / best['scan']:.0%} of the bound of the matrix products")


if __name__ == "__main__":
    main()
