"""Metrics of a hundred texts of MiniLM: `attn` with its weights held, against a transformers loop
that takes the same.

    python tests/benchmarks/many_texts.py [TEXTS] [RUNS]

In one process, in turn, loading left out on both sides; each side warmed by one run; the least of
RUNS. The loop is a notebook's: each text by itself with `output_attentions`, the weights of all
heads stacked, and every metric computed in NumPy for all heads at once. `weights` are the same
without metrics. Both answers are compared first. Texts: those of sample_inputs/corpus.txt, and then
pairs of them, in turn. Needs the extras `minilm` and `transformers`.

Two idle cores, 100 texts of 27 tokens, three runs: 0.30 to 0.32 of the loop's time by the wall,
0.29 to 0.30 of its seconds of CPU. It was 0.40 and 0.37 with `functional.linear`, 0.33 to 0.35 and
0.31 to 0.33 with weights that oneDNN has put in order, before layers were measured together.
Products of matrices alone are two thirds of what is left.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

METRICS = ("entropy", "confidence", "distance", "previous", "self", "next", "sink", "special")
CORPUS = Path(__file__).parents[2] / "sample_inputs" / "corpus.txt"


def texts(number: int) -> list[str]:
    """Sentences of the sample corpus, then each beside the one after it, and so on."""
    lines = CORPUS.read_text("utf-8").splitlines()
    joined = (
        " ".join(lines[(start + place) % len(lines)] for place in range(size))
        for size in count(1)
        for start in range(len(lines))
    )
    return list(islice(joined, number))


class Loop:
    """A transformers model, a text at a time."""

    def __init__(self) -> None:
        from transformers import AutoModel, AutoTokenizer

        from attncli.models.aliases import locate

        folder = str(locate("minilm").folder)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.model: Any = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

    def weights(self, text: str) -> tuple[np.ndarray[Any, Any], list[int]]:
        """The weights [layer, head, query, key] and ids of a text."""
        import torch

        with torch.no_grad():
            inputs = self.tokenizer(text, return_tensors="pt")
            attentions = self.model(**inputs, output_attentions=True).attentions
        return torch.cat(attentions).numpy(), inputs["input_ids"][0].tolist()

    def run(self, lines: list[str]) -> list[dict[str, np.ndarray[Any, Any]]]:
        """The metrics [layer, head] of each text."""
        special_ids = set(self.tokenizer.all_special_ids)
        return [measure(*self.weights(line), special_ids) for line in lines]

    def weights_alone(self, lines: list[str]) -> None:
        for line in lines:
            self.weights(line)


def measure(
    weights: np.ndarray[Any, Any], ids: list[int], special_ids: set[int]
) -> dict[str, np.ndarray[Any, Any]]:
    """The metrics of weights [layer, head, query, key], as one writes them in a notebook."""
    i, j = np.indices(weights.shape[-2:])
    special = np.array([token in special_ids for token in ids])
    logs = np.log(weights, where=weights > 0, out=np.zeros_like(weights))
    return {
        "entropy": -(weights * logs).sum(-1).mean(-1),
        "confidence": weights.max(-1).mean(-1),
        "distance": (weights * abs(i - j)).sum(-1).mean(-1),
        "previous": np.diagonal(weights, -1, -2, -1).mean(-1),
        "self": np.diagonal(weights, 0, -2, -1).mean(-1),
        "next": np.diagonal(weights, 1, -2, -1).mean(-1),
        "sink": weights[..., 1:, 0].mean(-1),
        "special": weights[..., special].sum(-1).mean(-1),
    }


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """By the wall, and of the processor."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def main(number: int, runs: int) -> None:
    import attncli

    lines = texts(number)
    model = attncli.load("minilm", hold=True)
    loop = Loop()

    def ours() -> list[dict[str, Any]]:
        return list(attncli.metrics.measure_texts(model, lines, metrics=METRICS))

    def forward() -> None:
        for group in model.batches(lines, keep=("weights",), at_once=1 << 14):
            for batch in group:
                for _ in batch.layers:
                    pass

    sides: dict[str, Callable[[], object]] = {
        "attn": ours,
        "attn, weights": forward,
        "transformers": lambda: loop.run(lines),
        "transformers, weights": lambda: loop.weights_alone(lines),
    }
    apart = max(
        float(np.abs(result[name].value - expected[name]).max())
        for result, expected in zip(ours(), loop.run(lines), strict=True)
        for name in METRICS
    )
    tokens = sum(len(model.encode(line)) for line in lines)
    print(f"{number} texts, {tokens} tokens; the metrics are {apart:.1e} apart at most")
    for side in sides.values():
        side()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(runs):
        for name, side in sides.items():
            times[name].append(seconds(side))
    least = {
        name: [min(values) for values in zip(*pairs, strict=True)] for name, pairs in times.items()
    }
    for name, (wall, processor) in least.items():
        print(
            f"{name:22} {wall:6.2f} s, {wall / number * 1e3:5.1f} ms a text; {processor:6.2f} s of the processor"
        )
    ratios = [
        ours / theirs for ours, theirs in zip(least["attn"], least["transformers"], strict=True)
    ]
    print(f"attn / transformers: {ratios[0]:.2f} by the wall, {ratios[1]:.2f} by the processor")


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:3]), *(100, 3)[len(sys.argv) - 1 :])
