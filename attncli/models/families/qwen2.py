"""Qwen2: Llama with biases on queries, keys and values, and optional windows in its upper layers.
Source: Qwen Team,
2024."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from attncli.mechanism.mask import Mask
from attncli.mechanism.spec import Experts, Mlp, QkNorm, Spec
from attncli.models.config import Config, causal, layer_mask, layer_types, rope
from attncli.models.families import llama
from attncli.models.family import Family, Source, StackedTensor


def spec(config: Config) -> Spec:
    """The Spec of a Qwen2: Llama with biases on queries, keys and values, and perhaps windows in its
    upper layers."""
    position = rope(config, llama.head_dim(config))
    blocks = [
        llama.block(config, position=position, mask=mask, default_kv_heads=32)
        for mask in masks(config)
    ]
    return llama.decoder(config, blocks, biases=("attn.[qkv]",))


def masks(config: Config) -> list[Mask]:
    """The mask of each layer: windows from layer `max_window_layers` on, if they are switched on."""
    window = config.optional("sliding_window", default=4096)
    first = config.integer("max_window_layers", default=28, least=0)
    if not config.flag("use_sliding_window", default=False):
        window = None
    kinds = layer_types(
        config, llama.depth(config), lambda layer: window is not None and layer >= first
    )
    return [layer_mask(config, kind, window) for kind in kinds]


QWEN3_NAMES = llama.NAMES.with_roles(
    {"attn.q_norm": "self_attn.q_norm", "attn.k_norm": "self_attn.k_norm"}
)


def qwen3(config: Config) -> Spec:
    """The Spec of a Qwen3: Qwen2 without biases, with queries and keys normed head by head. Source:
    Qwen Team, 2025."""
    dim = llama.head_dim(config, default=128)
    position = rope(config, dim)
    normed = QkNorm(llama.rms(config))
    blocks = [
        llama.block(
            config, position=position, dim=dim, mask=mask, qk_norm=normed, default_kv_heads=32
        )
        for mask in masks(config)
    ]
    return llama.decoder(config, blocks)


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

QWEN2_MOE_NAMES = llama.NAMES.with_roles({**EXPERTS, **SHARED})


def qwen2_moe(config: Config) -> Spec:
    """The Spec of a Qwen2-MoE: Qwen2 with experts in some layers, and one more there that serves
    every token. Source: Qwen Team, 2024.
    """
    normed = config.flag("norm_topk_prob", default=False)
    experts = shared_experts(
        config,
        default_count=60,
        default_per_token=4,
        default_width=1408,
        default_shared_width=5632,
        renormalise=normed,
    )

    # windows, where they are switched on, in every other layer before `max_window_layers`
    window = config.optional("sliding_window", default=4096, least=0)
    layers_with_windows = config.integer("max_window_layers", default=28, least=0)
    has_windows = config.flag("use_sliding_window", default=False) and bool(window)
    kinds = layer_types(
        config,
        llama.depth(config),
        lambda layer: has_windows and layer < layers_with_windows and layer % 2 == 0,
    )
    position = rope(config, llama.head_dim(config))
    blocks = [
        llama.block(
            config,
            position=position,
            mask=layer_mask(config, kind, window if has_windows else None),
            default_kv_heads=16,
            mlp=experts if mixture else llama.gated_mlp(config, default=5632),
        )
        for kind, mixture in zip(kinds, has_experts(config), strict=True)
    ]
    biases = ("attn.[qkv]",) if config.flag("qkv_bias", default=True) else ()
    return llama.decoder(config, blocks, biases=biases)


def shared_experts(
    config: Config,
    *,
    default_count: int,
    default_per_token: int,
    default_width: int,
    default_shared_width: int,
    renormalise: bool,
) -> Experts:
    """The experts that the config describes, and one more for every token, how much of which counts
    the token decides by a gate.

    default_count, default_per_token: how many experts there are and are chosen where the config
        does not say; default_width, default_shared_width: of an expert, and of the one for every
        token.
    renormalise: whether the chosen experts' shares are made to sum to 1.
    """
    experts = llama.experts(
        config,
        default_count=default_count,
        default_per_token=default_per_token,
        default_width=default_width,
        count_keys=("num_experts",),
        width_key="moe_intermediate_size",
        renormalise=renormalise,
    )
    shared = config.integer("shared_expert_intermediate_size", default=default_shared_width)
    return replace(experts, shared=Mlp(shared, experts.activation, gated=True), shared_share=True)


def has_experts(config: Config) -> list[bool]:
    """Whether each layer has experts: every `decoder_sparse_step`th has, except those in
    `mlp_only_layers`.
    """
    # read so that it counts as known: where every layer has experts, nothing needs it
    config.optional("intermediate_size")
    every = config.integer("decoder_sparse_step", default=1)
    dense = config.list_of("mlp_only_layers", kind=int) or []
    return [layer not in dense and (layer + 1) % every == 0 for layer in range(llama.depth(config))]


QWEN3_MOE_NAMES = QWEN3_NAMES.with_roles(EXPERTS)


def qwen3_moe(config: Config) -> Spec:
    """The Spec of a Qwen3-MoE: Qwen3 with experts in all layers but those that the config leaves
    out. Source: Qwen Team, 2025.
    """
    normed_shares = config.flag("norm_topk_prob", default=False)
    experts = llama.experts(
        config,
        default_count=128,
        default_per_token=8,
        default_width=768,
        count_keys=("num_experts", "num_local_experts"),
        width_key="moe_intermediate_size",
        renormalise=normed_shares,
    )

    # a window, where it is switched on, is the same in all layers
    config.optional("max_window_layers", least=0)
    window = config.optional("sliding_window", default=4096)
    mask = causal(window if config.flag("use_sliding_window", default=False) else None)
    position = rope(config, llama.head_dim(config))
    normed = QkNorm(llama.rms(config))
    parts = [
        experts if mixture else llama.gated_mlp(config, default=6144)
        for mixture in has_experts(config)
    ]
    blocks = [
        llama.block(
            config, position=position, mask=mask, qk_norm=normed, default_kv_heads=4, mlp=part
        )
        for part in parts
    ]
    return llama.decoder(config, blocks)


FAMILIES = {
    "qwen2": Family(spec, llama.NAMES),
    "qwen3": Family(qwen3, QWEN3_NAMES),
    "qwen2_moe": Family(qwen2_moe, QWEN2_MOE_NAMES),
    "qwen3_moe": Family(qwen3_moe, QWEN3_MOE_NAMES),
}
