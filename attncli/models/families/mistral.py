"""Mistral: Llama with a sliding window. Source: Jiang et al., 2023."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.inputs.gguf_file import Metadata
from attncli.mechanism.spec import Spec, Temperature
from attncli.models.config import Config, causal, layer_mask, layer_types, rope
from attncli.models.families import llama
from attncli.models.family import Family


def spec(config: Config) -> Spec:
    """The Spec of a Mistral: Llama with a window of 4,096 keys where the config lacks the key
    `sliding_window`; null means no window.
    """
    mask = causal(config.optional("sliding_window", default=4096))
    block = llama.block(
        config, position=rope(config, llama.head_dim(config)), mask=mask, default_kv_heads=8
    )
    return llama.decoder(config, block)


def ministral(config: Config) -> Spec:
    """The Spec of a Ministral: Mistral in which some layers may have no window. Source: Mistral AI,
    2024."""
    window = config.optional("sliding_window", default=4096)
    position = rope(config, llama.head_dim(config))
    blocks = [
        llama.block(
            config, position=position, mask=layer_mask(config, kind, window), default_kv_heads=8
        )
        for kind in layer_types(config, llama.depth(config), lambda layer: window is not None)
    ]
    return llama.decoder(config, blocks)


GROWTH = "llama_4_scaling_beta"
"""How much queries grow, among the parameters of the rotary embedding."""


def ministral3(config: Config) -> Spec:
    """The Spec of a Ministral 3: Mistral whose queries are multiplied by a factor that grows with
    their position, with YaRN scaling. Source: Mistral AI, 2025."""
    dim = llama.head_dim(config, default=128)
    norm = llama.rms(config, default=1e-5)
    # `beside`: keys among the rotary settings that are read here, or have no effect
    block = llama.block(
        config,
        position=rope(config, dim, beside=(GROWTH, "max_position_embeddings")),
        dim=dim,
        mask=causal(config.optional("sliding_window")),
        default_kv_heads=8,
        norm=norm,
    )

    # how much queries grow stands among the rotary settings; 0 for not at all
    parameters = (
        config.section("rope_scaling")
        or config.section("rope_parameters")
        or Config({}, config.where)
    )
    if parameters.get(GROWTH) != 0:
        growth = parameters.number(GROWTH)  # refuses a config that does not say
        positions = parameters.integer("original_max_position_embeddings")
        # the first position counts as 0
        temperature = Temperature(positions, growth, first=0)
        block = replace(block, attention=replace(block.attention, temperature=temperature))
    return llama.decoder(config, block, biases=())


def gguf_keys(metadata: Metadata) -> dict[str, object]:
    """The config's `sliding_window` from GGUF metadata; None, no window, where they do not state
    one.
    """
    return {"sliding_window": metadata.architecture_value("attention.sliding_window")}


def ministral3_gguf_keys(metadata: Metadata) -> dict[str, object]:
    """Config values by key that GGUF files name otherwise: the scaling of rotary positions, and in
    it how much queries grow with their position."""
    stretched = {
        "rope_type": metadata.architecture_value("rope.scaling.type"),
        "factor": metadata.architecture_value("rope.scaling.factor"),
        "original_max_position_embeddings": metadata.architecture_value(
            "rope.scaling.original_context_length"
        ),
        "beta_fast": metadata.architecture_value("rope.scaling.yarn_beta_fast"),
        "beta_slow": metadata.architecture_value("rope.scaling.yarn_beta_slow"),
        "mscale": metadata.architecture_value("rope.scaling.yarn_log_multiplier"),
        "mscale_all_dim": metadata.architecture_value("rope.scaling.yarn_log_multiplier"),
        GROWTH: metadata.architecture_value("attention.temperature_scale"),
    }
    scaling = {key: value for key, value in stretched.items() if value is not None}
    # the growth stands among the rotary settings alone: null beside them takes away what all
    # families get there
    return {"rope_scaling": scaling, GROWTH: None}


FAMILIES = {
    "mistral": Family(spec, llama.NAMES, permuted=True, gguf=gguf_keys),
    "ministral": Family(ministral, llama.NAMES),
    "ministral3": Family(ministral3, llama.NAMES, permuted=True, gguf=ministral3_gguf_keys),
}
