"""SmolLM3: Llama in which every fourth layer has no positions. Source: Bakouch et al., 2025."""

from __future__ import annotations

from attncli.mechanism.spec import Spec
from attncli.models.config import Config, layer_mask, layer_types, rope
from attncli.models.families import llama
from attncli.models.family import Family


def spec(config: Config) -> Spec:
    """The Spec of a SmolLM3."""
    count = llama.depth(config)
    every = config.whole("no_rope_layer_interval", default=4)
    rotary_layers = config.list_of("no_rope_layers", kind=int, count=count) or [
        int(bool((layer + 1) % every)) for layer in range(count)
    ]
    window = config.optional("sliding_window")
    windows = config.flag("use_sliding_window", default=False) and window is not None
    config.optional("max_window_layers", least=0)
    position = rope(config, llama.head_dim(config), default_theta=2e6)
    kinds = layer_types(config, count, lambda layer: windows and not rotary_layers[layer])
    blocks = [
        llama.block(config, position=position if rotary else None, mask=layer_mask(config, kind, window), kv_heads=4)
        for kind, rotary in zip(kinds, rotary_layers, strict=True)
    ]
    return llama.decoder(config, "smollm3", blocks, tied=True)


FAMILY = Family(spec, llama.NAMES, permuted=True)
