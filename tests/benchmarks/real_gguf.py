"""CPU seconds of one thread for short commands on real GGUF files, as ratios to importing NumPy,
tokenizers, Typer and rich.table in the same run.

python tests/benchmarks/real_gguf.py [RUNS] [--transformers] [FILE.gguf …]

smollm2 and gemma3 are timed where their packages are installed, and each file that is named: a file
called qwen05b.gguf is taken for a Qwen2.5 of half a billion parameters, which has a bound. Each
command is timed between two imports; the least of each is compared. `--transformers` also loads
each file with transformers and runs it once, which takes minutes. The last column has the bound.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

from attncli.errors import AttnError
from attncli.models.aliases import locate

ATTN = [sys.executable, "-m", "attncli"]
FLOOR = [sys.executable, "-c", "import numpy, tokenizers, typer, rich.table"]
SENTENCE = "The animal didn't cross the street because it was too tired"
BOUNDS = {
    ("smollm2", "look"): 3.5,
    ("gemma3", "look"): 7.0,
    ("qwen05b", "look"): 9.0,
    ("smollm2", "generate 8"): 12.0,
    ("smollm2", "ablate"): 55.0,
}
"""Of "ablate": 270 heads one at a time, ten of them moved at random in 8 directions each, 12 tokens
through what remains of 30 layers. That is 435 GFLOP of products that no exact rule leaves out, 5.1
to 5.8 CPU seconds at the 75 to 85 GFLOP/s of OpenBLAS on this kind of core, or 23 to 26 imports. The
rest is start, decoding, activations and page faults.
"""
COMMANDS = {
    "look": ["run", SENTENCE, "--query", "it", "--brief"],
    "generate 8": ["run", "The capital of France is", "--generate", "8", "--brief"],
    "ablate": ["ablate", SENTENCE],
}
TIMED = {"ablate": ("smollm2",)}
"""Models that a command is timed with; others with every one."""
BY_TRANSFORMERS = (
    "import sys, torch, transformers as t; from pathlib import Path; p = Path(sys.argv[1]); "
    "how = dict(gguf_file=p.name); "
    "m = t.AutoModelForCausalLM.from_pretrained(p.parent, attn_implementation='eager', **how); "
    "k = t.AutoTokenizer.from_pretrained(p.parent, **how); "
    "m(**k(sys.argv[2], return_tensors='pt'), output_attentions=True)"
)


def cpu_seconds(words: list[str]) -> float:
    """User and system seconds of one process with one thread."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    variables |= {"OMP_NUM_THREADS": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, check=True, env=variables, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def models(files: list[str]) -> dict[str, Path]:
    """The models to time by name, each with its file."""
    places = {}
    for name in ("smollm2", "gemma3"):
        try:
            location = locate(name, variables={**os.environ, "HF_HUB_OFFLINE": "1"})
        except AttnError as error:
            print(f"{name}: {error}; try: {error.hint}")
            continue
        places[name] = location.folder
    return places | {Path(file).stem: Path(file) for file in files}


def main(words: list[str]) -> int:
    """Time every command, print a line for each; 1 where a bound does not hold."""
    runs = int(words.pop(0)) if words and words[0].isdecimal() else 5
    with_reference = "--transformers" in words
    files = [word for word in words if word != "--transformers"]
    failures = 0
    print(f"{'model':12}{'command':14}{'CPU s':>8}{'imports':>9}{'ratio':>8}{'bound':>8}")
    for name, place in models(files).items():
        for command, arguments in COMMANDS.items():
            if name not in TIMED.get(command, (name,)):
                continue
            line = [*ATTN, *arguments, "--model", str(place)]
            floors, times = [], []
            for _ in range(runs):
                floors.append(cpu_seconds(FLOOR))
                times.append(cpu_seconds(line))
            ratio = min(times) / min(floors)
            bound = BOUNDS.get((name, command))
            failures += bound is not None and ratio > bound
            stated = "-" if bound is None else f"{bound:.1f}"
            print(
                f"{name:12}{command:14}{min(times):8.2f}{min(floors):9.2f}{ratio:8.2f}{stated:>8}"
            )
        if with_reference:
            reference = cpu_seconds([sys.executable, "-c", BY_TRANSFORMERS, str(place), SENTENCE])
            print(f"{name:12}{'transformers':14}{reference:8.2f}")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
