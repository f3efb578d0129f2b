"""Qwen3: Qwen2 with queries and keys normed by head. Source: Qwen Team, 2025."""

from __future__ import annotations

from attncli.mechanism.spec import QkNorm, Spec
from attncli.models.config import Config, rope
from attncli.models.families import llama, qwen2
from attncli.models.family import Family

NAMES = llama.NAMES.with_roles({"attn.q_norm": "self_attn.q_norm", "attn.k_norm": "self_attn.k_norm"})


def spec(config: Config) -> Spec:
    """The Spec of a Qwen3."""
    dim = llama.head_dim(config, 128)
    position, normed = rope(config, dim), QkNorm(llama.rms(config))
    blocks = [
        llama.block(config, position=position, dim=dim, mask=mask, qk_norm=normed, kv_heads=32)
        for mask in qwen2.masks(config)
    ]
    return llama.decoder(config, "qwen3", blocks)


FAMILY = Family(spec, NAMES)
