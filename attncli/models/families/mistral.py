"""Mistral: Llama with a sliding window. Source: Jiang et al., 2023."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import Spec, Temperature
from attncli.models.config import Config, causal, layer_mask, layer_types, rope
from attncli.models.families import llama
from attncli.models.family import Family


def spec(config: Config) -> Spec:
    """The Spec of a Mistral. A config that does not speak of a window means 4096, null means none."""
    mask = causal(config.optional("sliding_window", default=4096))
    block = llama.block(config, position=rope(config, llama.head_dim(config)), mask=mask, kv_heads=8)
    return llama.decoder(config, "mistral", [block] * llama.depth(config))


def ministral(config: Config) -> Spec:
    """Ministral: Mistral whose layers may differ in their window. Source: Mistral AI, 2024."""
    window = config.optional("sliding_window", default=4096)
    position = rope(config, llama.head_dim(config))
    blocks = [
        llama.block(config, position=position, mask=layer_mask(config, kind, window), kv_heads=8)
        for kind in layer_types(config, llama.depth(config), lambda layer: window is not None)
    ]
    return llama.decoder(config, "ministral", blocks)


GROWTH = "llama_4_scaling_beta"
"""How much queries grow, among the parameters of the rotary embedding."""


def ministral3(config: Config) -> Spec:
    """Ministral 3: Mistral whose queries grow with their position, and whose positions are stretched. Source: Mistral
    AI, 2025."""
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


FAMILIES = {
    "mistral": Family(spec, llama.NAMES),
    "ministral": Family(ministral, llama.NAMES),
    "ministral3": Family(ministral3, llama.NAMES),
}
