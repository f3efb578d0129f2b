"""Cohere Command A and R7B: Cohere with a window in three layers of four, which alone have positions. Source: Cohere,
2025."""

from __future__ import annotations

from attncli.mechanism.spec import Norm, Spec
from attncli.models.config import LOCAL, Config, FixedValue, layer_mask, layer_types, rope
from attncli.models.families import cohere, llama
from attncli.models.family import Family

FIXED = {
    "use_qk_norm": FixedValue(False, "queries and keys would be normed"),
    "use_parallel_block": FixedValue(True, "the parts would come one after the other"),
    "use_gated_activation": FixedValue(True, "the feed-forward part would have no gate"),
    "use_embedding_sharing": FixedValue(True, "the output head would have a matrix of its own"),
    "position_embedding_type": FixedValue("rope_gptj", "positions would enter otherwise"),
    "rotary_pct": FixedValue(1.0, "a share of each head would be rotated"),
    "order_of_interleaved_layers": FixedValue("local_attn_first", "other layers would have the window"),
}


def spec(config: Config) -> Spec:
    """The Spec of a Cohere 2 model."""
    norm = Norm("layer", config.number("layer_norm_eps", default=1e-5))
    window = config.optional("sliding_window", default=4096)
    every = config.whole("sliding_window_pattern", default=4)
    for idle in ("layer_switch", "use_parallel_embedding"):
        config.get(idle)  # repeats the pattern; how training was spread out
    position = rope(config, llama.head_dim(config), pairing="adjacent")
    blocks = [
        llama.block(
            config,
            position=position if kind == LOCAL else None,
            mask=layer_mask(config, kind, window),
            norms={"attn.in": norm},
            parallel=True,
        )
        for kind in layer_types(config, llama.depth(config), lambda layer: bool((layer + 1) % every))
    ]
    scale = config.number("logit_scale", default=0.0625)
    return llama.decoder(config, "cohere2", blocks, final=norm, tied=True, logit_scale=scale)


FAMILY = Family(spec, cohere.NAMES, fixed=FIXED)
