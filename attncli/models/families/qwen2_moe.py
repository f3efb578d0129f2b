"""Qwen2-MoE: Qwen2 with experts in some layers, besides one that serves every token. Source: Qwen Team, 2024."""

from __future__ import annotations

from collections.abc import Mapping

from attncli.mechanism.spec import Experts, Mlp, Spec
from attncli.models.config import ACTIVATIONS, Config, layer_mask, layer_types, rope
from attncli.models.families import llama
from attncli.models.family import Family, Source, StackedTensor

EXPERTS: Mapping[str, Source] = {
    "experts.router": "mlp.gate",
    "experts.gate": StackedTensor("mlp.experts.{item}.gate_proj"),
    "experts.up": StackedTensor("mlp.experts.{item}.up_proj"),
    "experts.down": StackedTensor("mlp.experts.{item}.down_proj"),
}

SHARED: Mapping[str, Source] = {
    "shared.gate": "mlp.shared_expert.gate_proj",
    "shared.up": "mlp.shared_expert.up_proj",
    "shared.down": "mlp.shared_expert.down_proj",
    "shared.share": "mlp.shared_expert_gate",
}

NAMES = llama.NAMES.with_roles({**EXPERTS, **SHARED})


def spec(config: Config) -> Spec:
    """The Spec of a Qwen2-MoE."""
    count = config.whole("num_experts", default=60, most=2**16)
    activation = config.choice("hidden_act", among=ACTIVATIONS, default="silu")
    experts = Experts(
        count,
        config.whole("num_experts_per_tok", default=4, most=count),
        config.whole("moe_intermediate_size", default=1408),
        activation,
        renormalise=config.flag("norm_topk_prob", default=False),
        shared=Mlp(config.whole("shared_expert_intermediate_size", default=5632), activation, gated=True),
        shared_share=True,
    )
    mixed = mixtures(config)
    window = config.optional("sliding_window", default=4096, least=0)
    first = config.whole("max_window_layers", default=28, least=0)
    windows = config.flag("use_sliding_window", default=False) and bool(window)
    kinds = layer_types(config, llama.depth(config), lambda layer: windows and layer < first and layer % 2 == 0)
    position = rope(config, llama.head_dim(config))
    blocks = [
        llama.block(
            config,
            position=position,
            mask=layer_mask(config, kind, window if windows else None),
            kv_heads=16,
            mlp=experts if mixture else llama.gated_mlp(config, default=5632),
        )
        for kind, mixture in zip(kinds, mixed, strict=True)
    ]
    biases = ("attn.[qkv]",) if config.flag("qkv_bias", default=True) else ()
    return llama.decoder(config, "qwen2_moe", blocks, biases=biases)


def mixtures(config: Config) -> list[bool]:
    """Which layers have experts: every so many, but for those that the config lists."""
    config.optional("intermediate_size")  # of layers without experts
    every = config.whole("decoder_sparse_step", default=1)
    dense = config.list_of("mlp_only_layers", kind=int) or []
    return [layer not in dense and (layer + 1) % every == 0 for layer in range(llama.depth(config))]


FAMILY = Family(spec, NAMES)
