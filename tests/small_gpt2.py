"""A small decoder with an output head, written without transformers: GPT-2's names, seeded numbers,
the sample tokenizer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from attncli.inputs.tensors import write_tensors

WIDTH, LAYERS, HEADS, LONGEST = 24, 2, 3, 32
TOKENIZER = Path(__file__).parents[1] / "sample_inputs" / "tokenizer.json"


def small_gpt2(
    folder: Path, vocabulary: int = 320, *, layers: int = LAYERS, longest: int = LONGEST
) -> Path:
    """Write the checkpoint into a folder, which is made. vocabulary: rows of its embedding; the
    tokenizer knows 320
    tokens. layers: how many. longest: its positions."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(TOKENIZER, folder / "tokenizer.json")
    config = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": vocabulary,
        "n_positions": longest,
        "n_embd": WIDTH,
        "n_layer": layers,
        "n_head": HEADS,
    }
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"wte.weight": (vocabulary, WIDTH), "wpe.weight": (longest, WIDTH)}
    for layer in range(layers):
        for name, shape in {
            "attn.c_attn": (WIDTH, 3 * WIDTH),
            "attn.c_proj": (WIDTH, WIDTH),
            "mlp.c_fc": (WIDTH, 4 * WIDTH),
            "mlp.c_proj": (4 * WIDTH, WIDTH),
            "ln_1": (WIDTH,),
            "ln_2": (WIDTH,),
        }.items():
            shapes |= {f"h.{layer}.{name}.weight": shape, f"h.{layer}.{name}.bias": shape[-1:]}
    shapes |= {"ln_f.weight": (WIDTH,), "ln_f.bias": (WIDTH,)}
    drawn = np.random.default_rng(5)
    tensors = {
        f"transformer.{name}": drawn.normal(0, 0.3, shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    write_tensors(folder / "model.safetensors", tensors, {})
    return folder


def byte_gpt2(folder: Path, *, layers: int = LAYERS) -> Path:
    """The same decoder with a vocabulary of bytes and a few merges: a Chinese character is three
    tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    small_gpt2(folder, layers=layers)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=260, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(["pty pty pty"] * 3, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
