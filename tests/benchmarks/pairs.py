"""CPU seconds of every head over twenty pairs, as a ratio to a plain ablation of one sentence.

    python tests/benchmarks/pairs.py [MODEL] [ROUNDS]

MODEL: smollm2 where none is named. Whole processes of one thread, start and reading included, taken
in turn; the least of `ROUNDS` each is compared. Each of SmolLM2's 270 heads gets a mean over the
pairs with its interval. Aim: at most 20 times the plain ablation.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

BAR = 20.0
PAIRS = 20
SENTENCE = "After John and Mary went to the store, John gave a drink to"
ONE = ["ablate", SENTENCE, "--target", "Mary", "--versus", "John", "--json"]
MANY = ["ablate", "--pairs", "indirect-object", "--count", f"{PAIRS}", "--json"]


def measured(words: list[str], model: str) -> tuple[float, dict[str, object]]:
    """User and system seconds of one process with one thread, and the document that it writes."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    variables |= {"OMP_NUM_THREADS": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "attncli", *words, "--model", model],
        check=True,
        env=variables,
        stdout=subprocess.PIPE,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return taken, json.loads(done.stdout)


def main() -> None:
    """Print both and their ratio, and end with 1 where it is above the bar."""
    model, rounds, *_ = [*sys.argv[1:], *("smollm2", "2")[len(sys.argv) - 1 :]]
    one, many = [], []
    for _ in range(int(rounds)):
        one.append(measured(ONE, model)[0])
        seconds, document = measured(MANY, model)
        many.append(seconds)
    effects = document["effects"]
    with_interval = sum(row["difference"].get("low") is not None for row in effects)
    ratio = min(many) / min(one)
    print(
        f"one sentence {min(one):.2f} s, {PAIRS} pairs {min(many):.2f} s: {ratio:.1f} (bar {BAR:g})"
    )
    print(f"{len(effects)} heads, {with_interval} with an interval")
    sys.exit(ratio > BAR or with_interval < len(effects))


if __name__ == "__main__":
    main()
