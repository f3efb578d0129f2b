"""A small LoRA adapter of the small trained encoder, as PEFT writes one: what a reader of the examples
has who tuned it. Its numbers are drawn by a seed.
"""

from __future__ import annotations

import json

import numpy as np
from safetensors.numpy import save

RANK = 2
LAYERS = (3, 4, 5)
WIDTH = 384
SIZE = 0.1
"""Standard deviation of the adapter's numbers: large enough to move some heads and not all."""


def adapter_config() -> bytes:
    """The adapter's configuration: the queries and keys of three layers."""
    config = {
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": 2 * RANK,
        "target_modules": ["query", "key"],
        "layers_to_transform": list(LAYERS),
        "bias": "none",
        "base_model_name_or_path": "sentence-transformers/all-MiniLM-L6-v2",
    }
    return (json.dumps(config, indent=2) + "\n").encode()


def adapter_weights() -> bytes:
    """The adapter's matrices, as a safetensors file."""
    random = np.random.default_rng(0)
    tensors = {}
    for layer in LAYERS:
        for name in ("query", "key"):
            module = f"base_model.model.encoder.layer.{layer}.attention.self.{name}"
            tensors[f"{module}.lora_A.weight"] = random.normal(0, SIZE, (RANK, WIDTH))
            tensors[f"{module}.lora_B.weight"] = random.normal(0, SIZE, (WIDTH, RANK))
    return save({name: array.astype(np.float32) for name, array in tensors.items()})
