"""Mistral: Llama with a sliding window. Source: Jiang et al., 2023."""

from __future__ import annotations

from attncli.mechanism.spec import Spec
from attncli.models.config import Config, causal, rope
from attncli.models.families import llama
from attncli.models.family import Family


def spec(config: Config) -> Spec:
    """The Spec of a Mistral. A config that does not speak of a window means 4096, null means none."""
    mask = causal(config.optional("sliding_window", default=4096))
    block = llama.block(config, position=rope(config, llama.head_dim(config)), mask=mask, kv_heads=8)
    return llama.decoder(config, "mistral", [block] * llama.depth(config))


FAMILY = Family(spec, llama.NAMES)
