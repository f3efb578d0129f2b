"""Qwen3-MoE: Qwen3 with experts in all layers but those the config leaves out. Source: Qwen Team, 2025."""

from __future__ import annotations

from attncli.mechanism.spec import Experts, QkNorm, Spec
from attncli.models.config import ACTIVATIONS, Config, causal, rope
from attncli.models.families import llama, qwen2_moe, qwen3
from attncli.models.family import Family

NAMES = qwen3.NAMES.with_roles(qwen2_moe.EXPERTS)


def spec(config: Config) -> Spec:
    """The Spec of a Qwen3-MoE."""
    count = config.whole("num_experts", "num_local_experts", default=128, most=2**16)
    experts = Experts(
        count,
        config.whole("num_experts_per_tok", default=8, most=count),
        config.whole("moe_intermediate_size", default=768),
        config.choice("hidden_act", among=ACTIVATIONS, default="silu"),
        renormalise=config.flag("norm_topk_prob", default=False),
    )
    config.optional("max_window_layers", least=0)
    window = config.optional("sliding_window", default=4096)
    mask = causal(window if config.flag("use_sliding_window", default=False) else None)
    position, normed = rope(config, llama.head_dim(config)), QkNorm(llama.rms(config))
    blocks = [
        llama.block(
            config,
            position=position,
            mask=mask,
            qk_norm=normed,
            kv_heads=4,
            mlp=experts if mixture else llama.gated_mlp(config, default=6144),
        )
        for mixture in qwen2_moe.mixtures(config)
    ]
    return llama.decoder(config, "qwen3_moe", blocks)


FAMILY = Family(spec, NAMES)
