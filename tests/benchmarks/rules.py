"""What `attn heads --rules` says of a real model's heads, what it costs the model, and what it takes.

    python tests/benchmarks/rules.py [LINES]

The model is smollm2. LINES (500) are held out: lines of `sample_inputs` and first paragraphs of the
package's docstrings, every second of twice as many, drawn in an order that does not change; the
others are fitted to. The first token, an even spread and each head's mean by distance stand beside,
in the same run. Then the 24 paragraphs that the package holds, for time alone: CPU seconds of one
thread, all swaps included.
"""

from __future__ import annotations

import ast
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

ROOT = Path(__file__).parents[2]
LINES = 500
LEAST_OVERLAP, MOST_FACTOR, MOST_SECONDS = 0.70, 1.25, 90.0
"""The bounds: mean overlap, times the model's perplexity with rules in a quarter of its heads, and
CPU seconds for 24 paragraphs."""
SHORTEST, LONGEST = 20, 400
"""Characters of a line."""


def lines_of_the_package() -> list[str]:
    """Lines of the sample inputs and first paragraphs of docstrings, each once, in a drawn order."""
    import numpy as np

    lines = []
    for file in sorted((ROOT / "sample_inputs").glob("*.txt")):
        lines += file.read_text("utf-8", "replace").splitlines()
    for file in sorted((ROOT / "attncli").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                lines.append(" ".join((ast.get_docstring(node) or "").split("\n\n")[0].split()))
    texts = list(dict.fromkeys(line for line in lines if SHORTEST <= len(line) <= LONGEST))
    return [texts[place] for place in np.random.default_rng(0).permutation(len(texts))]


def print_document(document: Any) -> None:
    """The figures of a run, with their baselines."""
    means, stability = document.overlap, document.stability
    print(f"texts {document.texts}")
    print(
        f"overlap {means.rules:.4f}; first token {means.first:.4f}, even {means.even:.4f},"
        f" by distance {means.distance:.4f}"
    )
    parts = sum(len(head.parts) for head in document.heads) / len(document.heads)
    without = sum(not head.has_rule for head in document.heads)
    print(f"rules of a head {parts:.2f}; heads without a rule {without}")
    print(f"second half: weights {stability.weights:.3f}, strongest {stability.strongest:.3f}")
    for row in document.swapped:
        losses = (row.loss, row.loss_distance, row.loss_even, row.loss_drawn)
        factors = [math.exp(loss - row.loss_model) for loss in losses]
        print(
            f"{row.heads} heads: perplexity × {factors[0]:.3f}; by distance × {factors[1]:.2f},"
            f" even × {factors[2]:.2f}, drawn heads × {factors[3]:.3f};"
            f" the model's {math.exp(row.loss_model):.2f}"
        )


def main() -> None:
    """Print both parts beside the bounds."""
    import attncli

    count = int(sys.argv[1]) if len(sys.argv) > 1 else LINES
    model = attncli.load("smollm2", hold=True)
    start = time.process_time()
    document = attncli.rules(model)
    seconds = time.process_time() - start
    print(f"24 paragraphs: {seconds:.1f} CPU s (bound {MOST_SECONDS:.0f})")
    print_document(document)
    texts = lines_of_the_package()[: 2 * count]
    document = attncli.rules(model, texts, shares=[0.25], source="lines of the package")
    print(f"{document.texts.measured} held-out lines:")
    print_document(document)
    (row,) = document.swapped
    factor = math.exp(row.loss - row.loss_model)
    print(f"overlap {document.overlap.rules:.3f} (bound {LEAST_OVERLAP:.2f})")
    print(f"a quarter of the heads × {factor:.3f} (bound {MOST_FACTOR:.2f})")


if __name__ == "__main__":
    main()
