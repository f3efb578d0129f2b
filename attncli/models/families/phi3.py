"""Phi 3: Llama with fused projections, a window, and LongRoPE. Source: Abdin et al., 2024."""

from __future__ import annotations

from attncli.mechanism.spec import Spec
from attncli.models.config import Config, causal, rope
from attncli.models.families import llama
from attncli.models.family import Concat, Family

NAMES = llama.NAMES.with_roles(
    {"attn.q attn.k attn.v": Concat("self_attn.qkv_proj"), "mlp.gate mlp.up": Concat("mlp.gate_up_proj")},
    without=("attn.q", "attn.k", "attn.v", "mlp.gate", "mlp.up"),
)


def spec(config: Config) -> Spec:
    """The Spec of a Phi 3 or 4."""
    config.optional("original_max_position_embeddings")
    mask = causal(config.optional("sliding_window"))
    norm = llama.rms(config, default=1e-5)
    block = llama.block(
        config,
        position=rope(config, llama.head_dim(config), default_partial=1.0, original=4096),
        mask=mask,
        norms={"attn.in": norm, "mlp.in": norm},
    )
    return llama.decoder(config, "phi3", [block] * llama.depth(config), final=norm)


FAMILY = Family(spec, NAMES)
