"""Cohere Command R: parallel parts under one layer norm without bias, adjacent entries rotated.
Source: Cohere,
2024."""

from __future__ import annotations

from attncli.mechanism.spec import Norm, QkNorm, Spec
from attncli.models.config import LOCAL, Config, FixedValue, layer_mask, layer_types, rope
from attncli.models.families import llama
from attncli.models.family import Family

NAMES = llama.NAMES.with_roles(
    {"attn.q_norm": "self_attn.q_norm", "attn.k_norm": "self_attn.k_norm"}, without=("mlp.in",)
)


def spec(config: Config) -> Spec:
    """The Spec of a Cohere Command R: attention and feed-forward part in parallel, both reading one
    norm. Where queries and keys are normed, each head has norm weights of its own.
    """
    norm = Norm("layer", config.number("layer_norm_eps", default=1e-5))
    block = llama.block(
        config,
        position=rope(config, llama.head_dim(config), default_theta=500000.0, pairing="adjacent"),
        qk_norm=QkNorm(norm, over="own") if config.flag("use_qk_norm", default=False) else None,
        norm=norm,
        places=("attn.in",),
        parallel=True,
    )
    scale = config.number("logit_scale", default=0.0625)
    return llama.decoder(config, block, default_tied=True, logit_scale=scale)


COHERE2_FIXED = {
    "use_qk_norm": FixedValue(False, "queries and keys would be normed"),
    "use_parallel_block": FixedValue(True, "the parts would come one after the other"),
    "use_gated_activation": FixedValue(True, "the feed-forward part would have no gate"),
    "use_embedding_sharing": FixedValue(True, "the output head would have a matrix of its own"),
    "position_embedding_type": FixedValue("rope_gptj", "positions would enter otherwise"),
    "rotary_pct": FixedValue(1.0, "a share of each head would be rotated"),
    "order_of_interleaved_layers": FixedValue(
        "local_attn_first", "other layers would have the window"
    ),
}


def cohere2(config: Config) -> Spec:
    """The Spec of a Cohere Command A or R7B: Command R with a window in three layers of four; only
    these layers have rotary positions. Source: Cohere, 2025."""
    norm = Norm("layer", config.number("layer_norm_eps", default=1e-5))
    window = config.optional("sliding_window", default=4096)
    every = config.integer("sliding_window_pattern", default=4)
    # without effect: the first repeats the pattern, the second says how training was distributed
    config.get("layer_switch", "use_parallel_embedding")
    position = rope(config, llama.head_dim(config), pairing="adjacent")
    # every fourth layer sees all earlier tokens
    kinds = layer_types(config, llama.depth(config), lambda layer: bool((layer + 1) % every))
    blocks = [
        llama.block(
            config,
            position=position if kind == LOCAL else None,
            mask=layer_mask(config, kind, window),
            norm=norm,
            places=("attn.in",),
            parallel=True,
        )
        for kind in kinds
    ]
    scale = config.number("logit_scale", default=0.0625)
    return llama.decoder(config, blocks, default_tied=True, logit_scale=scale)


FAMILIES = {
    "cohere": Family(spec, NAMES),
    "cohere2": Family(cohere2, NAMES, fixed=COHERE2_FIXED),
}
