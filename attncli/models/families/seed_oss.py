"""Seed-OSS: Llama with biases on queries, keys and values. Source: ByteDance Seed Team, 2025."""

from __future__ import annotations

from attncli.mechanism.spec import Spec
from attncli.models.config import Config, rope
from attncli.models.families import llama
from attncli.models.family import Family

BIASES = {
    "attention_bias": ("attn.[qkv]", True),
    "attention_out_bias": ("attn.o", False),
    "mlp_bias": ("mlp.[gud]*", False),
}


def spec(config: Config) -> Spec:
    """The Spec of a Seed-OSS."""
    dim = llama.head_dim(config, 128)
    block = llama.block(config, position=rope(config, dim), dim=dim, kv_heads=8)
    biases = tuple(pattern for key, (pattern, usual) in BIASES.items() if config.flag(key, default=usual))
    return llama.decoder(config, "seed_oss", [block] * llama.depth(config), biases=biases)


FAMILY = Family(spec, llama.NAMES)
