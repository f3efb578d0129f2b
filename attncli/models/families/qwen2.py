"""Qwen2: Llama with biases on queries, keys and values, and optional windows in its upper layers. Source: Qwen Team,
2024."""

from __future__ import annotations

from attncli.mechanism.mask import Mask
from attncli.mechanism.spec import Spec
from attncli.models.config import Config, layer_mask, layer_types, rope
from attncli.models.families import llama
from attncli.models.family import Family


def spec(config: Config) -> Spec:
    """The Spec of a Qwen2."""
    position = rope(config, llama.head_dim(config))
    blocks = [llama.block(config, position=position, mask=mask, kv_heads=32) for mask in masks(config)]
    return llama.decoder(config, "qwen2", blocks, biases=("attn.[qkv]",))


def masks(config: Config) -> list[Mask]:
    """The mask of each layer: windows from layer `max_window_layers` on, if they are switched on."""
    window = config.optional("sliding_window", default=4096)
    first = config.whole("max_window_layers", default=28, least=0)
    if not config.flag("use_sliding_window", default=False):
        window = None
    kinds = layer_types(config, llama.depth(config), lambda layer: window is not None and layer >= first)
    return [layer_mask(config, kind, window) for kind in kinds]


FAMILY = Family(spec, llama.NAMES)
