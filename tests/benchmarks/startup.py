"""How long whole commands take: medians, and ratios to Python's own start, to importing Typer and
NumPy, and torch.

python tests/benchmarks/startup.py [RUNS]

The last column has the most that a command may take of the time of importing Typer and NumPy, in
the same run.
"""

from __future__ import annotations

import os
import pty
import statistics
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread
from typing import NamedTuple

ATTN = str(Path(sys.executable).with_name("attn"))
SENTENCE = "The animal didn't cross the street because it was too tired"


class Timed(NamedTuple):
    """A command. terminal: whether it answers to a terminal. most: its bound, × typer and numpy;
    None without one.
    """

    words: list[str]
    variables: tuple[tuple[str, str], ...] = ()
    terminal: bool = False
    most: float | None = None


COMPLETING = (("_ATTN_COMPLETE", "complete_bash"), ("COMP_WORDS", "attn r"), ("COMP_CWORD", "1"))
COMMANDS = {
    "python -c pass": Timed([sys.executable, "-c", "pass"]),
    "python -c 'import numpy'": Timed([sys.executable, "-c", "import numpy"]),
    "python -c 'import typer, numpy'": Timed([sys.executable, "-c", "import typer, numpy"]),
    "python -c 'import torch'": Timed([sys.executable, "-c", "import torch"]),
    "attn --version": Timed([ATTN, "--version"], most=0.4),
    "attn --help, to a terminal": Timed([ATTN, "--help"], terminal=True, most=1.7),
    "attn --help, piped": Timed([ATTN, "--help"]),
    "attn run --help, to a terminal": Timed([ATTN, "run", "--help"], terminal=True, most=1.7),
    "shell completion": Timed([ATTN], COMPLETING),
    "attn run, to a terminal": Timed([ATTN, "run", SENTENCE], terminal=True, most=2.0),
    "attn run, piped": Timed([ATTN, "run", SENTENCE], most=2.0),
    "attn run --json": Timed([ATTN, "run", SENTENCE, "--json"], most=1.6),
    "attn heads": Timed([ATTN, "heads", SENTENCE]),
}
UNSET = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "NO_COLOR")
"""Variables under which a start takes longer than it does for others, or draws less."""


def seconds(timed: Timed) -> float:
    """Wall time of one whole process."""
    variables = {name: value for name, value in os.environ.items() if name not in UNSET}
    variables |= {"TERM": "xterm-256color", "COLUMNS": "100"} | dict(timed.variables)
    if not timed.terminal:
        begun = time.perf_counter()
        subprocess.run(
            timed.words, env=variables, stdin=subprocess.DEVNULL, capture_output=True, check=True
        )
        return time.perf_counter() - begun
    ours, theirs = pty.openpty()
    reader = Thread(target=drained, args=(ours,))
    reader.start()
    begun = time.perf_counter()
    subprocess.run(
        timed.words,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        check=True,
    )
    taken = time.perf_counter() - begun
    os.close(theirs)
    reader.join()
    os.close(ours)
    return taken


def drained(terminal: int) -> None:
    """Read what a terminal is shown until nobody holds its other end."""
    try:
        while os.read(terminal, 1 << 16):
            pass
    except OSError:  # how Linux tells the end
        pass


def main(runs: int) -> None:
    """Time every command in turn, `runs` times after a warm-up, and print the table."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for run in range(runs + 1):
        for name, timed in COMMANDS.items():
            taken = seconds(timed)
            if run:
                times[name].append(taken)
    medians = {name: statistics.median(found) for name, found in times.items()}
    python, torch = medians["python -c pass"], medians["python -c 'import torch'"]
    base = medians["python -c 'import typer, numpy'"]
    heads = ("median s", "min s", "max s", "× python", "× torch", "× typer, numpy", "at most")
    print(f"{'command':32}" + "".join(f"{head:>{max(len(head) + 2, 9)}}" for head in heads))
    for name, found in times.items():
        middle, most = medians[name], COMMANDS[name].most
        shown = (
            f"{middle:.3f}", f"{min(found):.3f}", f"{max(found):.3f}", f"{middle / python:.1f}", f"{middle / torch:.2f}",
            f"{middle / base:.2f}", "" if most is None else f"{most:.1f}{' OVER' if middle / base > most else ''}",
        )  # fmt: skip
        print(
            f"{name:32}"
            + "".join(
                f"{one:>{max(len(head) + 2, 9)}}" for one, head in zip(shown, heads, strict=True)
            )
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
