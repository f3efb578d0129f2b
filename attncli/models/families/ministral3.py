"""Ministral 3: Mistral whose queries grow with their position, and whose positions are stretched. Source: Mistral AI,
2025."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import Spec, Temperature
from attncli.models.config import Config, causal, rope
from attncli.models.families import llama
from attncli.models.family import Family

GROWTH = "llama_4_scaling_beta"
"""How much queries grow, among the parameters of the rotary embedding."""


def spec(config: Config) -> Spec:
    """The Spec of a Ministral 3."""
    dim, norm = llama.head_dim(config, 128), llama.rms(config, default=1e-5)
    block = llama.block(
        config,
        position=rope(config, dim, beside=(GROWTH, "max_position_embeddings")),
        dim=dim,
        mask=causal(config.optional("sliding_window")),
        kv_heads=8,
        norms={"attn.in": norm, "mlp.in": norm},
    )
    parameters = config.under("rope_scaling") or config.under("rope_parameters") or Config({}, config.where)
    grows = Temperature(parameters.whole("original_max_position_embeddings"), parameters.number(GROWTH), first=0)
    block = replace(block, attention=replace(block.attention, temperature=grows))
    return llama.decoder(config, "ministral3", [block] * llama.depth(config), final=norm, biases=())


FAMILY = Family(spec, llama.NAMES)
