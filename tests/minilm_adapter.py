"""A small LoRA adapter of the small trained encoder, as PEFT writes one: what a reader of the examples
has who tuned it. Its numbers are drawn by a seed.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

RANK = 2
LAYERS = (3, 4, 5)
WIDTH = 384
SIZE = 0.1
"""Standard deviation of the adapter's numbers: large enough to move some heads and not all."""


def write_minilm_adapter(target: Path) -> Path:
    """Write the adapter of the queries and keys of three layers into a folder, and return it."""
    target.mkdir()
    config = {
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": 2 * RANK,
        "target_modules": ["query", "key"],
        "layers_to_transform": list(LAYERS),
        "bias": "none",
        "base_model_name_or_path": "sentence-transformers/all-MiniLM-L6-v2",
    }
    (target / "adapter_config.json").write_text(json.dumps(config))
    random = np.random.default_rng(0)
    tensors = {}
    for layer in LAYERS:
        for name in ("query", "key"):
            module = f"base_model.model.encoder.layer.{layer}.attention.self.{name}"
            tensors[f"{module}.lora_A.weight"] = random.normal(0, SIZE, (RANK, WIDTH))
            tensors[f"{module}.lora_B.weight"] = random.normal(0, SIZE, (WIDTH, RANK))
    save_file(
        {name: array.astype(np.float32) for name, array in tensors.items()},
        target / "adapter_model.safetensors",
    )
    return target
