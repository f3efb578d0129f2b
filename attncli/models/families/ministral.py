"""Ministral: Mistral whose layers may differ in their window. Source: Mistral AI, 2024."""

from __future__ import annotations

from attncli.mechanism.spec import Spec
from attncli.models.config import Config, layer_mask, layer_types, rope
from attncli.models.families import llama
from attncli.models.family import Family


def spec(config: Config) -> Spec:
    """The Spec of a Ministral."""
    window = config.optional("sliding_window", default=4096)
    position = rope(config, llama.head_dim(config))
    blocks = [
        llama.block(config, position=position, mask=layer_mask(config, kind, window), kv_heads=8)
        for kind in layer_types(config, llama.depth(config), lambda layer: window is not None)
    ]
    return llama.decoder(config, "ministral", blocks)


FAMILY = Family(spec, llama.NAMES)
