"""Checkpoints of one size for every family, and how far their weights are from float64 in another
type.

512 wide, 400 tokens, three layers: the sums are as long as in models that people run. The distance
is the mean one of all weights of the last layer, which has every error of the layers before it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import attncli
from attncli.mechanism.spec import Spec
from attncli.models.verify import reference

WIDTH, TOKENS, LAYERS = 512, 400, 3
IDS = np.random.default_rng(0).integers(5, 300, TOKENS).tolist()
SIZES = {
    "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": 8, "num_key_value_heads": 2,
    "intermediate_size": 700, "head_dim": 64, "vocab_size": 300, "max_position_embeddings": 512, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_layers": LAYERS, "moe_intermediate_size": 256,
    "num_local_experts": 4, "num_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "shared_expert_intermediate_size": 256, "embedding_size": WIDTH, "ffn_dim": 700,
    "encoder_ffn_dim": 700, "decoder_ffn_dim": 700, "d_kv": 64, "d_ff": 700, "layer_types": None,
    "sliding_window": 100, "n_group": 1, "topk_group": 1, "type_vocab_size": 2,
    "attention_types": [[["global", "local", "global"], 1]],
}  # fmt: skip
"""What every family has of these is set; the rest stays as its config class says."""
_SIDE = {
    name: SIZES[name]
    for name in (
        "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size",
        "head_dim", "vocab_size", "max_position_embeddings", "sliding_window", "layer_types", "pad_token_id",
    )
}  # fmt: skip
OWN: dict[str, dict[str, Any]] = {
    "ministral": {"head_dim": 64}, "nemotron": {"num_key_value_heads": 2},
    "t5gemma": {"encoder": _SIDE, "decoder": _SIDE},
    "whisper": {"decoder_attention_heads": 8, "encoder_layers": 1, "num_mel_bins": 4, "max_source_positions": 50,
                "begin_suppress_tokens": None, "decoder_start_token_id": 1},
}  # fmt: skip
"""What the config class of a family leaves open, or has in parts."""
STATES = np.random.default_rng(1).standard_normal((50, WIDTH))
"""What a decoder alone reads."""
AS_FAR = {"float32": 2.0, "bfloat16": 1.2, "float16": 1.2}
"""How many times as far from float64 as transformers' own numbers of the type may be."""


def checkpoint(family: str, folder: Path) -> Path:
    """Such a checkpoint, its numbers ones that every type here holds: only the computation differs."""
    import torch
    import transformers

    kind = transformers.CONFIG_MAPPING[family]
    usual = kind()
    names: dict[str, Any] = {
        getattr(usual, "attribute_map", {}).get(name, name): name for name in SIZES
    }
    given = {
        own: SIZES[name]
        for own, name in names.items()
        if getattr(usual, own, None) is not None
        and not isinstance(getattr(kind, own, None), property)
    }
    if hasattr(usual, "kv_lora_rank"):  # keys of a latent are shared by all heads or none
        given["num_key_value_heads"] = SIZES["num_attention_heads"]
    if hasattr(usual, "n_routed_experts"):  # which some config classes leave open
        given["num_experts_per_tok"] = SIZES["num_experts_per_tok"]
    config = kind(**{**given, **OWN.get(family, {})})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.AutoModel.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for weight in model.parameters():
                if not weight.requires_grad:  # a table that is computed
                    continue
                if weight.ndim == 2:  # scores of a few units: neither uniform nor one key alone
                    weight.copy_(1.5 * WIDTH**-0.5 * torch.randn(weight.shape))
                weight.copy_(weight.to(torch.bfloat16).float())
    model.save_pretrained(folder)
    return folder


def weights_of_transformers(folder: Path, dtype: str) -> np.ndarray:
    """The last layer's weights, [head, query, key], as transformers computes them; of two sides,
    the encoder's.
    """
    spec = attncli.load(folder).spec
    target, states = None if spec.decoder is None else IDS[:3], STATES if _reads(spec) else None
    return (
        reference(folder, IDS, target=target, dtype=dtype, states=states)[0]
        .weights[-1]
        .astype(np.float64)
    )


def weights(folder: Path, library: str, dtype: str) -> np.ndarray:
    """The same as they are computed here; in the type asked for where `compute_dtype` is replaced."""
    model = attncli.load(folder, backend=library, dtype=dtype)
    model = model.decoder_over(STATES) if _reads(model.spec) else model
    tokens = model.tokenizer.ids_to_tokens(IDS)
    (last,) = model.trace(tokens, layers=[len(model.spec.blocks) - 1], keep=("weights",))
    return np.asarray(model.backend.numpy(last.stages["weights"]), np.float64)


def _reads(spec: Spec) -> bool:
    """Whether it is a decoder that reads what an encoder made, and no encoder is here."""
    return any(block.cross is not None for block in spec.blocks)


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """The mean distance of two layers' weights."""
    return float(np.abs(one - other).mean())
