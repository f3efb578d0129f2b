"""How long it takes to know which heads matter: whole processes, beside a loop of hooked
transformers forwards.

    python tests/benchmarks/effects.py

MiniLM: 72 heads, 15 tokens. GPT-2's size (124 million random parameters): 144 heads, 11 tokens, the
last vector. Both sides take each head away by zero and print the largest change; the figure is the
least of `ROUNDS` alternating runs, imports, reading and start included. Aims: MiniLM at most 0.8 s;
GPT-2's size at most 3 s, and at least 5 times as fast as the loop.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SENTENCE = "The animal didn't cross the street because it was too tired"
IDS = (464, 5044, 1422, 470, 3272, 262, 4675, 780, 340, 373, 1165)
ROUNDS = 3
OURS = "import sys; from attncli.cli import main; sys.exit(main())"
PEER = """
import sys, json, re, torch, transformers
from transformers import AutoModel
folder, ids, at = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
outs = [m for n, m in model.named_modules() if re.search(r"attention.output.dense$|attn.c_proj$", n)]
heads = model.config.num_attention_heads
given = torch.tensor([ids])
with torch.no_grad():
    own = model(given).last_hidden_state[0, at]
    found = []
    for layer, module in enumerate(outs):
        for head in range(heads):
            def zero(module, args):
                x = args[0].clone(); w = x.shape[-1] // heads; x[..., head * w : (head + 1) * w] = 0; return (x,)
            handle = module.register_forward_pre_hook(zero)
            found.append((1 - torch.cosine_similarity(model(given).last_hidden_state[0, at], own, 0).item(), layer, head))
            handle.remove()
print(max(found))
"""


def random_gpt2(folder: Path) -> None:
    """A GPT-2 of 124 million random parameters."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.GPT2Config(initializer_range=0.05)
    transformers.GPT2Model(config).save_pretrained(folder)


def seconds(command: list[str]) -> tuple[float, str]:
    """Of a whole process, and what it printed."""
    begun = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return time.perf_counter() - begun, done.stdout


def ours(*options: str) -> list[str]:
    return [sys.executable, "-c", OURS, "ablate", *options, "--baseline", "none", "--json"]


def first(document: str) -> str:
    found = json.loads(document)["effects"][0]
    return f"L{found['layer']} H{found['head']} {found['vector']['cosine']:.5f}"


def compare(
    name: str, command: list[str], folder: Path, ids: list[int], at: int, limit: float
) -> None:
    peer = [sys.executable, "-c", PEER, str(folder), json.dumps(ids), str(at)]
    times: dict[str, list[float]] = {"attn": [], "hooked transformers": []}
    for _ in range(ROUNDS):
        taken, said = seconds(command)
        times["attn"].append(taken)
        taken, theirs = seconds(peer)
        times["hooked transformers"].append(taken)
    own, other = min(times["attn"]), min(times["hooked transformers"])
    print(f"{name:44} {'seconds':>8}   largest change")
    print(f"  {'attn ablate':42} {own:8.2f}   {first(said)}")
    print(f"  {'a loop of hooked transformers forwards':42} {other:8.2f}   {theirs.strip()}")
    print(
        f"  {other / own:.1f} times as fast; at most {limit} s wanted: {'yes' if own <= limit else 'no'}\n"
    )


def main() -> None:
    from attncli.models.aliases import locate

    minilm = locate("minilm").folder
    ids = [101, 1996, 4111, 2134, 1005, 1056, 2892, 1996, 2395, 2138, 2009, 2001, 2205, 5458, 102]
    compare(
        "MiniLM, 72 heads, 15 tokens",
        ours("--model", "minilm", SENTENCE, "--query", "#10"),
        minilm,
        ids,
        10,
        0.8,
    )
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        random_gpt2(folder)
        told = " ".join(map(str, IDS))
        compare(
            "GPT-2's size, 144 heads, 11 tokens",
            ours("--model", made, "--ids", told),
            folder,
            list(IDS),
            -1,
            3.0,
        )


if __name__ == "__main__":
    main()
