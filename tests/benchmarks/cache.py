"""What `attn cache` costs on a model of the size that people run: beside a plain forward pass, in
turn.

    python tests/benchmarks/cache.py [FOLDER] [RUNS] [LAYERS]

The model is that of `real.py`, a random Llama of 1.1 billion parameters (32 heads on 4 in each
layer), with its first 2 layers of 22: each takes as long as any other. The text has 2,048 tokens.
Printed: the least seconds and the largest resident set of RUNS alternating runs of `attn run --show
links`, which is a forward pass that looks at every weight, of transformers' own forward pass, and
of `attn cache` with one policy and with all five; and how many passes each is worth. One policy is
two passes: with every key, and without.

Measured on two cores that others used as well, so that processor seconds count (2,048 tokens, a
budget of 256): `attn run --show links` 6.0 s in 866 MiB, transformers' forward pass 12.5 s in 1,630
MiB (float32); `attn cache` with h2o
14.1 s, snapkv 13.8, tova 14.1, sinks 14.9, random 13.8, each in at most 707 MiB: 1.2 of a pass of
`attn run` for each of its two. What a policy chooses takes 0.3 s a layer for h2o and tova, 0.1 for
snapkv and random (once 0.6 to 1.1).
"""

from __future__ import annotations

import resource
import sys
import tempfile
from pathlib import Path

import numpy as np
import real

TOKENS, BUDGET = 2048, 256
POLICIES = ("h2o", "snapkv", "tova", "sinks", "random")
PASSES = 1.5
"""How many times a pass of `attn run` a pass of `attn cache` may take."""
PEER = """
import sys, torch
from transformers import AutoModelForCausalLM
folder, ids = sys.argv[1], [int(part) for part in sys.argv[2].split()]
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
with torch.no_grad():
    print(model(torch.tensor([ids]), logits_to_keep=1).logits.argmax())
"""


def main(folder: Path, runs: int, layers: int) -> None:
    """Make the model, then time all in turn."""
    behind = tuple(
        f"model.layers.{layer}." for layer in range(layers, real.LLAMA["num_hidden_layers"])
    )
    tensors = [(name, shape) for name, shape in real.llama() if not name.startswith(behind)]
    model = str(
        real.make(
            folder / f"llama-{layers}-layers", {**real.LLAMA, "num_hidden_layers": layers}, tensors
        )
    )
    ids = " ".join(map(str, np.random.default_rng(1).integers(0, 32_000, TOKENS).tolist()))
    line = ["--ids", ids, "--model", model, "--quiet"]
    cache = [real.ATTN, "cache", *line, "--budget", str(BUDGET)]
    ways = {
        "attn run --show links": ([real.ATTN, "run", *line, "--show", "links"], 1),
        "transformers, a forward pass": ([sys.executable, "-c", PEER, model, ids], 1),
        **{f"attn cache --policy {name}": ([*cache, "--policy", name], 2) for name in POLICIES},
        "attn cache, all five": (cache, 1 + len(POLICIES)),
    }
    times: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, (command, _) in ways.items():
            before = processor_seconds()
            times[name].append((*real.run(command), processor_seconds() - before))
            print(f"  {name}: {times[name][-1]}", flush=True)
    own = min(work for *_, work in times["attn run --show links"])
    for name, (_, passes) in ways.items():
        seconds, work = (min(one[place] for one in times[name]) for place in (0, 2))
        memory = max(one[1] for one in times[name])
        asked = (
            f", {work / passes / own:.2f} of one for each of its {passes} (asked: {PASSES:g})"
            if passes > 1
            else ""
        )
        print(
            f"{name:30} {seconds:7.1f} s {work:7.1f} CPU s {memory:6.0f} MiB {work / own:5.2f} runs{asked}",
            flush=True,
        )


def processor_seconds() -> float:
    """What the processes started from here have computed: other work on the machine does not count."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.gettempdir()) / "attn-real"
    main(where, *(int(part) for part in (*sys.argv[2:4], *("2", "2")[len(sys.argv[2:4]) :])))
