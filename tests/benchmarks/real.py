"""A model of the size that people run: `attn` beside a transformers script, whole processes, in
turn.

    python tests/benchmarks/real.py [FOLDER] [RUNS]

A random Llama of 1.1 billion parameters (22 layers, 2,048 wide, 32 heads on 4, bfloat16, 2.2 GB)
and a random GPT-2 of 124 million are made once in FOLDER, by default one of the system's for
temporary files. The script loads the model in bfloat16, runs the same ids with the weights of all
heads, and prints each layer's strongest link, as `attn` does. Printed: the least seconds and the
largest resident set of RUNS alternating runs, their ratios, and what is asked of each. Needs the
extra `transformers`; a GGUF file of the large model, in the usual mix of Q4_K and Q6_K, is written
with the package `gguf` and run in turn with the folder that it was made of. On two cores:
1.9 s, 1.8 times the 1.0 s of the folder, and 60 MiB.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import gguf
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import gguf_files

ATTN = str(Path(sys.executable).with_name("attn"))
PEER = """
import json, sys, torch
from transformers import AutoModel
folder, ids = sys.argv[1], [int(part) for part in sys.argv[2].split()]
model = AutoModel.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="eager").eval()
with torch.no_grad():
    layers = model(torch.tensor([ids]), output_attentions=True).attentions
for layer, weights in enumerate(layers):
    flat = weights[0].float().flatten()
    at = int(flat.argmax())
    print(json.dumps([layer, at // len(ids) ** 2, at // len(ids) % len(ids), at % len(ids), float(flat[at])]))
"""
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632,
    "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 32_000,
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": False, "dtype": "bfloat16",
}  # fmt: skip
GPT2 = {
    "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
    "vocab_size": 50_257, "n_positions": 1024, "n_ctx": 1024, "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5, "dtype": "bfloat16",
}  # fmt: skip
CASES = (
    # what, model, tokens, options of attn, times as fast at least (seconds at most for the small
    # one)
    ("11 tokens", "llama", 11, (), 5.0),
    ("348 tokens", "llama", 348, (), 1.2),
    ("348 tokens, bfloat16", "llama", 348, ("--dtype", "bfloat16"), 2.0),
    ("348 tokens, layer 0", "llama", 348, ("--layer", "0"), 15.0),
    ("GPT-2's size, 11 tokens", "gpt2", 11, (), math.nan),
)
LESS_MEMORY = 6.0
SMALL_SECONDS = 0.4
SLOWER, MEBIBYTES = 2.5, 150
"""How many times as long as its folder a GGUF file may take, and in what memory."""


def llama() -> Iterator[tuple[str, tuple[int, ...]]]:
    """The tensors of the large model in the order of their layers."""
    wide, inner, kv = 2048, 5632, 256
    yield "model.embed_tokens.weight", (32_000, wide)
    for layer in range(22):
        here = f"model.layers.{layer}."
        yield here + "input_layernorm.weight", (wide,)
        for name, out in (("q", wide), ("k", kv), ("v", kv), ("o", wide)):
            yield f"{here}self_attn.{name}_proj.weight", (out, wide)
        yield here + "post_attention_layernorm.weight", (wide,)
        yield here + "mlp.gate_proj.weight", (inner, wide)
        yield here + "mlp.up_proj.weight", (inner, wide)
        yield here + "mlp.down_proj.weight", (wide, inner)
    yield "model.norm.weight", (wide,)
    yield "lm_head.weight", (32_000, wide)


def gpt2() -> Iterator[tuple[str, tuple[int, ...]]]:
    """The tensors of the small one."""
    yield "transformer.wte.weight", (50_257, 768)
    yield "transformer.wpe.weight", (1024, 768)
    for layer in range(12):
        here = f"transformer.h.{layer}."
        for name, shape in (
            ("ln_1", (768,)), ("attn.c_attn", (768, 2304)), ("attn.c_proj", (768, 768)),
            ("ln_2", (768,)), ("mlp.c_fc", (768, 3072)), ("mlp.c_proj", (3072, 768)),
        ):  # fmt: skip
            yield f"{here}{name}.weight", shape
            yield f"{here}{name}.bias", shape[-1:]
    yield "transformer.ln_f.weight", (768,)
    yield "transformer.ln_f.bias", (768,)


def make(
    folder: Path, config: Mapping[str, object], tensors: list[tuple[str, tuple[int, ...]]]
) -> Path:
    """Write the checkpoint unless it is there: normal numbers of the variance 1/fan-in, norms near
    1.
    """
    done = folder / "config.json"
    if done.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    chance, header, at = np.random.default_rng(0), {}, 0
    for name, shape in tensors:
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, shape in tensors:
            for part in np.array_split(np.arange(shape[0]), max(math.prod(shape) // 2**22, 1)):
                numbers = chance.standard_normal((len(part), *shape[1:]), np.float32)
                numbers = numbers * shape[-1] ** -0.5 if len(shape) > 1 else 1 + 0.1 * numbers
                file.write(
                    (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
                )
    done.write_text(json.dumps(config), "utf-8")
    return folder


def quantise(folder: Path, target: Path) -> Path:
    """Write the large model as a GGUF file unless it is there, a matrix at a time."""
    if target.exists():
        return target
    stored = np.memmap(folder / "model.safetensors", np.uint8, "r")
    begin = 8 + int(stored[:8].view("<u8")[0])
    header, names = (
        json.loads(bytes(stored[8:begin])),
        gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 22),
    )
    writer = gguf.GGUFWriter(target.with_suffix(".part"), "llama")
    writer.add_embedding_length(2048)
    writer.add_block_count(22)
    writer.add_head_count(32)
    writer.add_head_count_kv(4)
    writer.add_feed_forward_length(5632)
    writer.add_context_length(2048)
    writer.add_layer_norm_rms_eps(1e-5)
    for own, info in header.items():
        start, stop = (begin + place for place in info["data_offsets"])
        array = (
            (stored[start:stop].view("<u2").astype(np.uint32) << 16)
            .view(np.float32)
            .reshape(info["shape"])
        )
        name = names.get_name(own, try_suffixes=(".weight",)) or own
        if array.ndim == 1:
            writer.add_tensor(name, array)
            continue
        if "q_proj" in own or "k_proj" in own:
            array = gguf_files.permuted(array, 32 if "q_proj" in own else 4)
        kind = gguf_files.mixed(name, 22)
        parts = np.array_split(array, max(array.size // 2**21, 1))
        writer.add_tensor(
            name, np.concatenate([gguf_files.pack(part, kind) for part in parts]), raw_dtype=kind
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target.with_suffix(".part").rename(target)


def run(command: list[str]) -> tuple[float, float]:
    """Seconds and mebibytes of one process."""
    begun = time.perf_counter()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    with subprocess.Popen(command, env={**os.environ, "HF_HUB_OFFLINE": "1"}, **quiet) as process:
        told = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
    seconds = time.perf_counter() - begun
    if status:
        sys.exit(f"{command[0]} ended with status {status}: {told.decode()[-500:]}")
    return seconds, usage.ru_maxrss / 1024


def main(folder: Path, runs: int) -> None:
    """Make the models, then time both in turn."""
    with ProcessPoolExecutor(
        1
    ) as pool:  # what this process once held would count as memory of those that it starts
        made = {
            "llama": pool.submit(make, folder / "llama-1.1b", LLAMA, list(llama())).result(),
            "gpt2": pool.submit(make, folder / "gpt2", GPT2, list(gpt2())).result(),
        }
        packed_file = pool.submit(quantise, made["llama"], folder / "llama-1.1b.gguf").result()
    ids = np.random.default_rng(1).integers(0, 32_000, 348).tolist()
    few = " ".join(map(str, ids[:11]))
    files = made["llama"], packed_file
    turns = [
        [run([ATTN, "run", "--ids", few, "--model", str(file)]) for file in files]
        for _ in range(runs)
    ]
    plain, packed = (min(turn[side][0] for turn in turns) for side in (0, 1))
    print(
        f"11 tokens, GGUF in Q4_K: {packed:.2f} s, {packed / plain:.2f} times the folder's {plain:.2f} s (at most "
        f"{SLOWER:g}), {max(turn[1][1] for turn in turns):.0f} MiB (at most {MEBIBYTES})",
        flush=True,
    )
    print(
        f"{'':26} {'attn':>17} {'transformers':>19} {'times as fast':>22} {'times less memory':>22}"
    )
    for what, name, count, options, wanted in CASES:
        given = " ".join(map(str, ids[:count]))
        ours = [ATTN, "run", "--ids", given, "--model", str(made[name]), *options]
        theirs = [sys.executable, "-c", PEER, str(made[name]), given]
        pairs = [(run(ours), run(theirs)) for _ in range(runs)]
        fast, slow = (min(pair[side][0] for pair in pairs) for side in (0, 1))
        small, large = (max(pair[side][1] for pair in pairs) for side in (0, 1))
        asked = f"(at most {SMALL_SECONDS} s)" if math.isnan(wanted) else f"(asked: {wanted:g})"
        print(
            f"{what:26} {fast:6.2f} s {small:5.0f} MiB {slow:8.2f} s {large:5.0f} MiB {slow / fast:7.2f} {asked:>14}"
            f" {large / small:8.1f} (asked: {LESS_MEMORY:g})",
            flush=True,
        )


if __name__ == "__main__":
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.gettempdir()) / "attn-real"
    main(where, int(sys.argv[2]) if len(sys.argv) > 2 else 3)
