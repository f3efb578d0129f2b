"""What taking a score apart costs on a model of the size that people run: `attn why` beside `attn
run`, in turn.

    python tests/benchmarks/why.py [FOLDER] [RUNS]

The model and the text are those of `real.py`: a random Llama of 1.1 billion parameters (22 layers,
32 heads), 348 tokens. The link is of a head of the last layer, before which there are most parts.
Printed: the least seconds and the largest resident set of RUNS alternating runs of either command,
their ratios, and what is asked of each. What the head writes is beside `attn logits`, which reads
the output matrix as it does.

A text runs once, whatever is asked of it. What the head writes needs the statistics of the norms
behind it and the target, which the end of the run gives: until then the head's output matrix goes
along. A split by token needs the queries and keys that the run ended with: what entered each
attention is kept, and its weights are made again from that.

On two idle cores, one run each: `attn run` 7.7 s and 125 MiB, parts 7.7 s and 232 MiB (1.00 times,
1.87 times), by token
10.6 s and 249 MiB (1.58 times, 2.04 times); `attn logits` 8.2 s and 461 MiB, with what the head
writes 8.4 s and 486 MiB (1.02 times, 1.05 times).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import real

TOKENS, LAYER, HEAD = 348, 21, 5
MORE_SECONDS, MORE_MEMORY = 2.5, 3.0
"""How many times as long, and as much memory, `attn why` may take."""
WAYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "parts": ("run", ()),
    "by token": ("run", ("--by", "token")),
    "writes": ("logits", ("--writes",)),
}
"""The command that each is beside, and its options."""


def main(folder: Path, runs: int) -> None:
    """Make the model, then time both commands in turn."""
    model = str(real.make(folder / "llama-1.1b", real.LLAMA, list(real.llama())))
    ids = " ".join(map(str, np.random.default_rng(1).integers(0, 32_000, TOKENS).tolist()))
    line = ["--ids", ids, "--model", model]
    link = ["--from", f"#{TOKENS - 1}", "--to", f"#{TOKENS // 2}", "--head", f"L{LAYER}H{HEAD}"]
    print(
        f"{'':12} {'beside it':>17} {'attn why':>19} {'times as long':>22} {'times as much memory':>26}"
    )
    for name, (beside, options) in WAYS.items():
        pairs = [
            (
                real.run([real.ATTN, beside, *line]),
                real.run([real.ATTN, "why", *line, *link, *options]),
            )
            for _ in range(runs)
        ]
        fast, slow = (min(pair[side][0] for pair in pairs) for side in (0, 1))
        small, large = (max(pair[side][1] for pair in pairs) for side in (0, 1))
        print(
            f"{name:12} {fast:6.2f} s {small:5.0f} MiB {slow:8.2f} s {large:5.0f} MiB {slow / fast:8.2f} "
            f"(asked: {MORE_SECONDS:g}) {large / small:12.2f} (asked: {MORE_MEMORY:g})",
            flush=True,
        )


if __name__ == "__main__":
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.gettempdir()) / "attn-real"
    main(where, int(sys.argv[2]) if len(sys.argv) > 2 else 3)
