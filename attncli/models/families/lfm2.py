"""LFM2: gated convolutions over a few tokens, and attention in some layers. Source: Liquid AI,
2025.
"""

from __future__ import annotations

from collections.abc import Sequence

from attncli.mechanism.spec import Experts, Mlp, Norm, QkNorm, Routing, ShortConvolution, Spec
from attncli.models.config import GLOBAL, Config, rope
from attncli.models.families import llama
from attncli.models.family import Family, Names, StackedTensor

CONVOLUTION = "conv"

IDLE = (
    *(
        "block_dim",
        "block_mlp_init_scale",
        "block_norm_eps",
        "block_out_init_scale",
        "block_use_swiglu",
        "conv_dim",
    ),
    *(
        "block_use_xavier_init",
        "conv_dim_out",
        "conv_use_xavier_init",
        "num_heads",
        "use_pos_enc",
        "theta",
    ),
)
"""Keys that repeat others, or speak of training."""

NAMES = Names(
    layer="layers.{layer}.",
    inside={
        "attn.in": "operator_norm",
        "mixer.input": "conv.in_proj",
        "mixer.conv": "conv.conv",
        "mixer.output": "conv.out_proj",
        "attn.q": "self_attn.q_proj",
        "attn.k": "self_attn.k_proj",
        "attn.v": "self_attn.v_proj",
        "attn.o": "self_attn.out_proj",
        "attn.q_norm": "self_attn.q_layernorm",
        "attn.k_norm": "self_attn.k_layernorm",
        "mlp.in": "ffn_norm",
        "mlp.gate": "feed_forward.w1",
        "mlp.up": "feed_forward.w3",
        "mlp.down": "feed_forward.w2",
    },
    outside={"tokens": "embed_tokens", "final": "embedding_norm", "head": "lm_head"},
    prefixes=("model.",),
    ignored=llama.NAMES.ignored,
)


def spec(config: Config) -> Spec:
    """The Spec of an LFM2: short convolutions in place of attention in most layers."""
    return whole_model(config, [_mlp(config)] * llama.depth(config))


def whole_model(config: Config, parts: Sequence[Mlp | Experts]) -> Spec:
    """The Spec of an LFM2 with these feed-forward parts, one for each layer; only its convolutions
    may have biases.
    """
    count = len(parts)
    attending = config.list_of("full_attn_idxs", kind=int)
    kinds = config.list_of("layer_types", kind=str, count=count)
    if kinds is None:
        # a config with neither key has attention in every layer
        if attending is None:
            attending = list(range(count))
        kinds = [GLOBAL if layer in attending else CONVOLUTION for layer in range(count)]
    if not set(kinds) <= {GLOBAL, CONVOLUTION}:
        raise config.refuse("layer_types", f"{GLOBAL}, {CONVOLUTION}")

    norm = Norm("rms", config.number("norm_eps", default=1e-5))
    mixer = ShortConvolution(config.integer("conv_L_cache", default=3, most=2**10))
    position = rope(config, llama.head_dim(config), default_theta=1e6)
    blocks = []
    for kind, part in zip(kinds, parts, strict=True):
        block = llama.block(
            config, position=position, qk_norm=QkNorm(norm), default_kv_heads=8, norm=norm, mlp=part
        )
        blocks.append(block if kind == GLOBAL else block.with_mixer(mixer))
    # without effect: read, so that they do not count as unknown keys
    config.get(*IDLE)
    biases = ("mixer.*",) if config.flag("conv_bias", default=False) else ()
    return llama.decoder(
        config, blocks, default_tied=config.flag("tie_embedding", default=True), biases=biases
    )


def _mlp(config: Config) -> Mlp:
    """The gated feed-forward part of an LFM2. Unless `block_auto_adjust_ff_dim` is false, its width
    is two thirds of the config's, times a multiplier and rounded up to a multiple of 256 or so."""
    width = config.integer("block_ff_dim", "intermediate_size", default=12288)
    multiplier = config.cap("block_ffn_dim_multiplier", default=1.0)
    unit = config.integer("block_multiple_of", default=256)
    if config.flag("block_auto_adjust_ff_dim", default=True):
        width = int(2 * width / 3)
        if multiplier is not None:
            width = unit * ((int(multiplier * width) + unit - 1) // unit)  # rounded up to units
    return Mlp(width, "silu", gated=True)


LFM2_MOE_NAMES = NAMES.with_roles(
    {
        "experts.router": "feed_forward.gate",
        "experts.correction": "feed_forward.expert_bias",
        "experts.gate": StackedTensor("feed_forward.experts.{item}.w1"),
        "experts.up": StackedTensor("feed_forward.experts.{item}.w3"),
        "experts.down": StackedTensor("feed_forward.experts.{item}.w2"),
    }
)


def lfm2_moe(config: Config) -> Spec:
    """The Spec of an LFM2 MoE: LFM2 with experts in all layers but the first ones. Source: Liquid AI,
    2025."""
    dense = Mlp(config.integer("intermediate_size", default=7168), "silu", gated=True)
    count = config.integer("num_experts", default=32, most=2**16)
    experts = Experts(
        count,
        config.integer("num_experts_per_tok", default=4, most=count),
        config.integer("moe_intermediate_size", default=1792),
        "silu",
        renormalise=config.flag("norm_topk_prob", default=True),
        routing=Routing(
            "sigmoid",
            factor=config.number("routed_scaling_factor", default=1.0),
            corrected=config.flag("use_expert_bias", default=True),
            slack=1e-6,  # so that no sum of shares is 0
        ),
    )
    dense_count = config.integer("num_dense_layers", default=2, least=0)
    return whole_model(
        config, [dense if layer < dense_count else experts for layer in range(llama.depth(config))]
    )


FAMILIES = {
    "lfm2": Family(spec, NAMES),
    "lfm2_moe": Family(lfm2_moe, LFM2_MOE_NAMES),
}
