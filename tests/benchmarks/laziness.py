"""A checkpoint larger than the memory that a process may take: read once, layer by layer, near the
disk's own rate.

    python tests/benchmarks/laziness.py [--gib 6] [--limit-gib 2] [--tokens 5] [--folder DIR]
    [--warm]

Makes a synthetic Llama in bfloat16, sharded; runs `attn run` on it in a process under RLIMIT_AS;
and reads the same files sequentially. Both are timed with the files dropped from the page cache, or
both with them in it (--warm). Ends with 1 where the run fails, reads a weight byte twice, or is
slower than 70 % of the plain read.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ml_dtypes
import numpy as np

WIDTH, INNER, HEADS, KV_HEADS, VOCABULARY = 4096, 14336, 32, 8, 1009
SHARE = 0.70
BLOCK = 64 * 2**20
ROUNDS = 3
RUN = """
import json, resource, sys
limit, *arguments = json.loads(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
from attncli.cli import main
code = main(arguments)
told = dict(line.split(": ") for line in open("/proc/self/io").read().splitlines())
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"asked": int(told["rchar"]), "disk": int(told["read_bytes"]), "peak": int(peak) * 1024}), file=sys.stderr)
sys.exit(code)
"""


def shapes(layers: int) -> dict[str, tuple[int, ...]]:
    """Every tensor of the model, as a Llama names them."""
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, WIDTH),
        "model.norm.weight": (WIDTH,),
    }
    kv = WIDTH // HEADS * KV_HEADS
    inside = {
        "input_layernorm": (WIDTH,),
        "mlp.down_proj": (WIDTH, INNER),
        "mlp.gate_proj": (INNER, WIDTH),
        "mlp.up_proj": (INNER, WIDTH),
        "post_attention_layernorm": (WIDTH,),
        "self_attn.k_proj": (kv, WIDTH),
        "self_attn.o_proj": (WIDTH, WIDTH),
        "self_attn.q_proj": (WIDTH, WIDTH),
        "self_attn.v_proj": (kv, WIDTH),
    }
    for layer in range(layers):
        found |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in inside.items()}
    return found


def make(folder: Path, gib: float) -> tuple[int, int]:
    """Write the checkpoint. Returns the number of layers and the bytes of their tensors."""
    one = sum(2 * int(np.prod(shape)) for name, shape in shapes(1).items() if ".layers." in name)
    layers = max(1, round(gib * 2**30 / one))
    config = {
        "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": INNER, "num_attention_heads": HEADS, "num_hidden_layers": layers,
        "num_key_value_heads": KV_HEADS, "vocab_size": VOCABULARY, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0, "tie_word_embeddings": True, "hidden_act": "silu",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    # one block of numbers, written again and again from shifting places: making them takes longer
    # than writing them
    numbers = (
        (np.random.default_rng(0).standard_normal(BLOCK // 2 + 4096) * 0.02)
        .astype(ml_dtypes.bfloat16)
        .view(np.uint8)
    )
    wanted = shapes(layers)
    per_shard = -(-len(wanted) // max(1, round(gib / 2)))
    names = list(wanted)
    count = -(-len(names) // per_shard)
    places = {}
    for shard in range(count):
        file = f"model-{shard + 1:05}-of-{count:05}.safetensors"
        held = {name: wanted[name] for name in names[shard * per_shard : (shard + 1) * per_shard]}
        places |= dict.fromkeys(held, file)
        write_shard(folder / file, held, numbers)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": places})
    )
    return layers, layers * one


def write_shard(path: Path, held: dict[str, tuple[int, ...]], numbers: np.ndarray) -> None:
    """One file of these tensors."""
    header, end = {}, 0
    for name, shape in held.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    with path.open("wb") as stream:
        stream.write(len(raw).to_bytes(8, "little") + raw)
        for place, written in enumerate(range(0, end, BLOCK)):
            start = 2 * (place * 997 % 4096)
            stream.write(numbers[start : start + min(BLOCK, end - written)].data)
        stream.flush()
        os.fsync(stream.fileno())


def prepare(files: list[Path], warm: bool) -> None:
    """Put the files into the page cache, or drop them from it."""
    for path in files:
        if warm:
            plain_read([path])
            continue
        with path.open("rb") as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def plain_read(files: list[Path]) -> float:
    """Seconds that a plain sequential read of these files takes."""
    buffer = bytearray(8 * 2**20)
    begun = time.perf_counter()
    for path in files:
        with path.open("rb", buffering=0) as stream:
            while stream.readinto(buffer):
                continue
    return time.perf_counter() - begun


def attn(folder: Path, limit: int, tokens: int) -> tuple[float, dict[str, int]]:
    """Seconds of a whole `attn run` under the limit, and what it read and held."""
    ids = " ".join(str(7 + 13 * place) for place in range(tokens))
    options = [
        "run",
        "--model",
        str(folder),
        "--ids",
        ids,
        "--backend",
        "numpy",
        "--plain",
        "--output",
        os.devnull,
    ]
    begun = time.perf_counter()
    ran = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps([limit, *options])],
        capture_output=True,
        text=True,
        check=False,
    )
    taken = time.perf_counter() - begun
    if ran.returncode:
        sys.exit(f"the run ended with {ran.returncode}:\n{ran.stderr}")
    return taken, json.loads(ran.stderr.splitlines()[-1])


def main() -> None:
    """Make the checkpoint, time both in turn, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=float, default=6)
    parser.add_argument("--limit-gib", type=float, default=2)
    parser.add_argument("--tokens", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--warm", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as place:
        folder = Path(place)
        layers, size = make(folder, asked.gib)
        files = sorted(folder.glob("*.safetensors"))
        limit = int(asked.limit_gib * 2**30)
        state = "in the page cache" if asked.warm else "dropped from the page cache"
        print(
            f"{layers} layers, {size / 2**30:.2f} GiB of bfloat16, {asked.tokens} tokens, limit {limit / 2**30:.2f} GiB, files {state}"
        )
        print(f"{'':16}{'seconds':>9}{'GB/s':>7}{'peak MB':>9}{'asked/size':>12}{'disk/size':>11}")
        rates, good = [], True
        for _ in range(ROUNDS):
            prepare(files, asked.warm)
            plain = plain_read(files)
            prepare(files, asked.warm)
            taken, used = attn(folder, limit, asked.tokens)
            print(f"{'plain read':16}{plain:9.2f}{size / plain / 1e9:7.2f}")
            asked_share, disk_share = used["asked"] / size, used["disk"] / size
            print(
                f"{'attn run':16}{taken:9.2f}{size / taken / 1e9:7.2f}{used['peak'] / 1e6:9.0f}{asked_share:12.3f}{disk_share:11.3f}"
            )
            rates.append(plain / taken)
            good = good and 1 <= asked_share < 1.02
        best, worst = max(rates), min(rates)
        print(
            f"of the plain read's rate: {worst:.0%} to {best:.0%}, median {sorted(rates)[len(rates) // 2]:.0%} (wanted: {SHARE:.0%})"
        )
    sys.exit(0 if good and sorted(rates)[len(rates) // 2] >= SHARE else 1)


if __name__ == "__main__":
    main()
