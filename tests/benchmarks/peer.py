"""A sentence through MiniLM: `attn` against a transformers script that prints the same weights.

    python tests/benchmarks/peer.py [RUNS]

Whole processes, in turn; time by the wall, memory as the largest resident set. Needs the
extras `minilm` and `transformers`. Their answers are compared with each other, and with
transformers in float64.
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
            command,
            stdout=out,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
        if status:
            sys.exit(f"{command[0]} ended with status {status}")
        out.seek(0)
        return seconds, usage.ru_maxrss / 1024, out.read()


def main(runs: int) -> None:
    """Time both in turn, then compare their answers: torch, once imported here, would count as
    their children's memory."""
    from attncli.models.aliases import locate
    from attncli.models.verify import reference

    folder = str(locate("minilm").folder)
    commands = {
        "attn": [ATTN, "run", "--model", "minilm", SENTENCE, "--json"],
        "transformers": [sys.executable, "-c", PEER, folder, SENTENCE],
    }
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
    ours = json.loads(run(commands["attn"])[2])
    theirs = json.loads(run(commands["transformers"])[2])
    (exact,) = reference(Path(folder), [token["id"] for token in ours["tokens"]])
    print(
        f"max |difference| of all {sum(len(layer['heads']) for layer in ours['layers'])} heads' weights"
    )
    held = {
        layer["layer"]: np.stack([head["weights"] for head in layer["heads"]])
        for layer in ours["layers"]
    }
    single = dict(enumerate(np.asarray(theirs)))
    for what, a, b in (
        ("attn from transformers in float64", held, dict(enumerate(exact.weights))),
        (
            "transformers, as it is, from transformers in float64",
            single,
            dict(enumerate(exact.weights)),
        ),
        ("attn from transformers, as it is", held, single),
    ):
        print(f"  {what:54}{max(float(np.abs(a[layer] - b[layer]).max()) for layer in a):.1e}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
