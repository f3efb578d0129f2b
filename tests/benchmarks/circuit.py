"""What `attn circuit` costs on a real model: a pair of 17 tokens beside one forward pass, in CPU seconds
of one thread, and 32 pairs from the command line.

    python tests/benchmarks/circuit.py [PAIRS] [--torch]

The model is smollm2, the texts are those of the package's indirect-object task behind two words
more. A pair's part is its scores by EAP-IG with five steps; its test, ten circuits of the curve and
the empty one. Each is the least of PAIRS (4). Memory is the largest resident set of a process that does both.
The 32 pairs run two at a time: choice, curve, random edges, interval, overlap and single cuts.
`--torch` runs the same file in transformers, six inputs at once forward and back to their embeddings:
what torch's gradients alone take, without the sums over edges.

On a loaded machine of two cores: a pass 0.36 s, a pair's scores 1.90 s (5.3 passes), its test 1.74 s,
1.11 GB. torch alone 1.02 s, its import not counted; `attn` takes gradients over NumPy.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

TOKENS, PAIRS = 17, 32
MOST_SECONDS, MOST_MEMORY, MOST_MINUTES = 3.0, 1.5e9, 4.0
"""The bounds: CPU seconds and bytes for a pair, minutes for 32 pairs."""
LEAD = "Last night, after"
BY_TRANSFORMERS = """
import sys, time, torch
from pathlib import Path
from transformers import AutoModelForCausalLM
torch.set_num_threads(1)
file = Path(sys.argv[1])
how = {"gguf_file": file.name, "attn_implementation": "eager", "dtype": torch.float32}
model = AutoModelForCausalLM.from_pretrained(file.parent, **how)
model = model.eval().requires_grad_(False)
times = []
for _ in range(4):
    vectors = model.get_input_embeddings().weight[: 6 * 17].reshape(6, 17, -1).clone().requires_grad_()
    start = time.process_time()
    logits = model.model(inputs_embeds=vectors).last_hidden_state[:, -1] @ model.lm_head.weight[:2].T
    (logits[:, 0] - logits[:, 1]).sum().backward()
    times.append(time.process_time() - start)
print(min(times))
"""


def write_pairs(file: Path) -> None:
    """Pairs of the task whose texts have 17 tokens: what stands before them makes them longer."""
    from attncli.inputs.pairs import read_pairs

    lines = []
    for pair in read_pairs("indirect-object", count=4 * PAIRS).pairs:
        texts = {
            name: text.replace("After", LEAD, 1)
            for name, text in (("clean", pair.clean), ("corrupt", pair.corrupt))
        }
        lines.append(json.dumps({**texts, "answer": pair.answer, "versus": pair.versus}))
    file.write_text("\n".join(lines) + "\n")


def measure_pairs(file: Path, count: int) -> dict[str, float]:
    """CPU seconds of one forward pass, of a pair's scores and of its test, and the bytes."""
    import attncli
    from attncli.features.circuit.edge_graph import edge_graph, random_edges
    from attncli.features.circuit.edge_run import CircuitModel
    from attncli.features.circuit.faithfulness import SHARES
    from attncli.inputs.pairs import read_pairs
    from attncli.measure.pair_measure import fit_pairs, measured_differences

    model = attncli.load("smollm2")
    graph = edge_graph(model.spec)
    circuit = CircuitModel(model, graph, "float32")
    whole = int(graph.mask.sum())
    masks = np.stack([random_edges(graph, round(whole * share), 0) for share in SHARES])
    fitted = fit_pairs(model, read_pairs(file)).pairs
    pairs = [pair for pair in fitted if len(pair.clean) == TOKENS][:count]
    assert len(pairs) == count
    times: dict[str, list[float]] = {"forward": [], "scores": [], "test": []}
    for pair in pairs:
        for name, work in (
            (
                "forward",
                lambda pair=pair: measured_differences(
                    model, [(pair.clean, pair.answer, pair.versus)]
                ),
            ),
            ("scores", lambda pair=pair: circuit.pair_gradients(pair, 5).scores(graph)),
            ("test", lambda pair=pair: circuit.measure_circuits(pair, masks)),
        ):
            start = time.process_time()
            work()
            times[name].append(time.process_time() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {name: min(seconds) for name, seconds in times.items()} | {"bytes": float(peak)}


def run_command(words: list[str], threads: int) -> tuple[float, float, float, str]:
    """Seconds, CPU seconds, bytes and standard output of one process."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    variables |= {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    start = time.monotonic()
    process = subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    out = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0
    return (
        time.monotonic() - start,
        used.ru_utime + used.ru_stime,
        used.ru_maxrss * 1024.0,
        out,
    )


def main(words: list[str]) -> int:
    """Print what was measured beside its bound; 1 where a bound does not hold."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pairs.jsonl"
        if words[:1] == ["--measure"]:
            print(json.dumps(measure_pairs(Path(words[1]), int(words[2]))))
            return 0
        write_pairs(file)
        count = next((word for word in words if word.isdecimal()), "4")
        own = [sys.executable, __file__, "--measure", str(file), count]
        found = json.loads(run_command(own, 1)[3])
        print(f"one forward pass of {TOKENS} tokens: {found['forward']:.2f} CPU s")
        for name in ("scores", "test"):
            ratio = found[name] / found["forward"]
            print(f"a pair's {name}: {found[name]:.2f} CPU s, {ratio:.1f} passes")
        print(f"bound of the scores: {MOST_SECONDS} CPU s")
        print(f"memory: {found['bytes'] / 1e9:.2f} GB (bound {MOST_MEMORY / 1e9})")
        if "--torch" in words:
            from attncli.models.aliases import local_folder

            place = local_folder("smollm2")
            told = run_command([sys.executable, "-c", BY_TRANSFORMERS, str(place)], 1)[3]
            print(f"torch, six inputs forward and back: {float(told.split()[-1]):.2f} CPU s")
        load = os.getloadavg()[0]
        line = ["circuit", "--model", "smollm2", "--pairs", str(file), "--count", str(PAIRS)]
        line += ["--workers", "2"]
        seconds, cpu, peak, _ = run_command([sys.executable, "-m", "attncli", *line], 1)
        print(
            f"{PAIRS} pairs: {seconds / 60:.1f} min (bound {MOST_MINUTES}), {cpu:.0f} CPU s,"
            f" {peak / 1e9:.2f} GB; {load:.1f} processes waited for {os.cpu_count()} cores before it"
        )
    holds = found["scores"] <= MOST_SECONDS and found["bytes"] <= MOST_MEMORY
    return int(not (holds and seconds <= 60 * MOST_MINUTES))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
