"""How long whole commands take: medians, and ratios to Python's own start, to importing Typer and NumPy, and torch.

python tests/benchmarks/startup.py [RUNS]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ATTN = str(Path(sys.executable).with_name("attn"))
SENTENCE = "The animal didn't cross the street because it was too tired"
COMMANDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "python -c pass": ([sys.executable, "-c", "pass"], {}),
    "python -c 'import numpy'": ([sys.executable, "-c", "import numpy"], {}),
    "python -c 'import typer, numpy'": ([sys.executable, "-c", "import typer, numpy"], {}),
    "python -c 'import torch'": ([sys.executable, "-c", "import torch"], {}),
    "attn --version": ([ATTN, "--version"], {}),
    "attn --help": ([ATTN, "--help"], {}),
    "attn run --help": ([ATTN, "run", "--help"], {}),
    "shell completion": ([ATTN], {"_ATTN_COMPLETE": "complete_bash", "COMP_WORDS": "attn r", "COMP_CWORD": "1"}),
    "attn run": ([ATTN, "run", SENTENCE], {}),
    "attn run --json": ([ATTN, "run", SENTENCE, "--json"], {}),
    "attn heads": ([ATTN, "heads", SENTENCE], {}),
}


def seconds(command: list[str], variables: dict[str, str]) -> float:
    """Wall time of one whole process."""
    begun = time.perf_counter()
    subprocess.run(command, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return time.perf_counter() - begun


def main(runs: int) -> None:
    """Time every command in turn, `runs` times after a warm-up, and print the table."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for run in range(runs + 1):
        for name, (command, variables) in COMMANDS.items():
            taken = seconds(command, variables)
            if run:
                times[name].append(taken)
    medians = {name: statistics.median(found) for name, found in times.items()}
    python, torch = medians["python -c pass"], medians["python -c 'import torch'"]
    base = medians["python -c 'import typer, numpy'"]
    print(f"{'command':28}{'median s':>10}{'min s':>8}{'max s':>8}{'× python':>10}{'× typer, numpy':>16}{'× torch':>9}")
    for name, found in times.items():
        middle = medians[name]
        print(
            f"{name:28}{middle:10.3f}{min(found):8.3f}{max(found):8.3f}{middle / python:10.1f}{middle / base:16.2f}{middle / torch:9.2f}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
