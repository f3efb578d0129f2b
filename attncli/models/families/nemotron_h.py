"""Nemotron-H: layers that are one part each, Mamba 2, attention without positions, a feed-forward
part or experts.
Source: NVIDIA, 2025."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.mask import Causal
from attncli.mechanism.spec import (
    Activation,
    Attention,
    Block,
    Experts,
    Mlp,
    Norm,
    Routing,
    Spec,
    StateSpace,
)
from attncli.models.config import ACTIVATIONS, GLOBAL, Config
from attncli.models.families import llama
from attncli.models.family import Family, Names, StackedTensor

KIND_OF_LETTER = {"M": "linear_attention", "E": "moe", "*": GLOBAL, "-": "mlp"}
"""Types of layers as `hybrid_override_pattern` spells them."""
OLD_KINDS = {"mamba": "linear_attention", "attention": GLOBAL}
"""What types of layers were called before."""

IDLE = (
    *(
        "mamba_hidden_act",
        "expand",
        "mamba_expand",
        "chunk_size",
        "mamba_chunk_size",
        "time_step_limit",
    ),
    *(
        "time_step_max",
        "time_step_floor",
        "mamba_dt_limit",
        "mamba_dt_max",
        "mamba_dt_init_floor",
        "mamba_proj_bias",
    ),
    *(
        "mamba_ssm_cache_dtype",
        "use_mamba_kernels",
        "moe_shared_expert_overlap",
        "attention_bias",
        "sliding_window",
    ),
    *(
        "mtp_layers_block_type",
        "mtp_hybrid_override_pattern",
        "num_nextn_predict_layers",
        "residual_in_fp32",
    ),
    *(
        "rescale_prenorm_residual",
        "num_logits_to_keep",
        "n_shared_experts",
        "max_position_embeddings",
    ),
    *("num_hidden_layers", "use_bias", "mlp_bias", "rope_theta", "partial_rotary_factor"),
)
"""Keys that no layer heeds, that speak of training or of further tokens, or that are read where
they matter.
"""

NAMES = Names(
    layer="layers.{layer}.",
    inside={
        "attn.in": "norm",
        "mlp.in": "norm",
        "mixer.input": "mixer.in_proj",
        "mixer.conv": "mixer.conv1d",
        "mixer.step": "mixer.dt_bias",
        "mixer.decay": "mixer.A_log",
        "mixer.straight": "mixer.D",
        "mixer.norm": "mixer.norm",
        "mixer.output": "mixer.out_proj",
        "attn.q": "mixer.q_proj",
        "attn.k": "mixer.k_proj",
        "attn.v": "mixer.v_proj",
        "attn.o": "mixer.o_proj",
        "mlp.up": "mixer.up_proj",
        "mlp.down": "mixer.down_proj",
        "experts.router": "mixer.gate",
        "experts.correction": "mixer.gate.e_score_correction_bias",
        "experts.into": "mixer.fc1_latent_proj",
        "experts.up": StackedTensor("mixer.experts.{item}.up_proj"),
        "experts.down": StackedTensor("mixer.experts.{item}.down_proj"),
        "experts.out": "mixer.fc2_latent_proj",
        "shared.up": "mixer.shared_experts.up_proj",
        "shared.down": "mixer.shared_experts.down_proj",
    },
    outside={"tokens": "embeddings", "final": "norm_f", "head": "lm_head"},
    prefixes=("model.", "backbone."),
    ignored=(*llama.NAMES.ignored, "mtp.*"),
)


def spec(config: Config) -> Spec:
    """The Spec of a Nemotron-H: each layer is one part with a norm before it: Mamba 2, attention
    without positions, a feed-forward part or experts."""
    kinds = _layer_types(config)
    norm = Norm("rms", config.number("layer_norm_epsilon", default=1e-5))
    activation = config.choice("mlp_hidden_act", among=ACTIVATIONS, default="relu2")
    part = Mlp(config.integer("intermediate_size", default=21504), activation)
    experts = _experts(config, activation)
    heads = config.integer("num_attention_heads", most=2**16)
    dim = llama.head_dim(config, default=128)
    kv_heads = config.optional("num_key_value_heads", default=8) or heads

    # the block of each type of layer; one of a feed-forward part has nothing else (`only`)
    attending = Block(
        Attention(heads, kv_heads, head_dim=dim, v_dim=dim, scale=dim**-0.5, mask=Causal()),
        norms={"attn.in": norm},
    )
    feeding = replace(attending, norms={"mlp.in": norm})
    blocks = {
        GLOBAL: attending,
        "linear_attention": attending.with_mixer(_state_space(config, norm)),
        "mlp": feeding.only(part),
        "moe": feeding.only(experts),
    }
    unknown = sorted(set(kinds) - set(blocks))
    if unknown:
        raise config.refuse("layers_block_type", ", ".join(blocks))

    biases: tuple[str, ...] = ()
    if config.flag("use_bias", default=False):
        biases += ("mixer.input", "mixer.output")
    if config.flag("use_conv_bias", "mamba_conv_bias", default=True):
        biases += ("mixer.conv",)
    if config.flag("mlp_bias", default=False):
        biases += ("mlp.[ud]*", "shared.*", "experts.into", "experts.out")
    # without effect, or read elsewhere
    config.get(*IDLE)
    return llama.decoder(config, [blocks[kind] for kind in kinds], biases=biases)


def _layer_types(config: Config) -> list[str]:
    """The type of each layer, in the names that configs use today: from a list, else from a pattern
    of one letter a layer ("M-M*"), else the family's default of four layers."""
    pattern = config.get("hybrid_override_pattern")
    kinds = config.list_of("layers_block_type", kind=str) or config.list_of("layer_types", kind=str)
    if kinds is None and pattern is not None:
        if not isinstance(pattern, str) or not set(pattern) <= set(KIND_OF_LETTER):
            raise config.refuse("hybrid_override_pattern", "".join(KIND_OF_LETTER))
        kinds = [KIND_OF_LETTER[letter] for letter in pattern]
    if kinds is None:
        kinds = ["linear_attention", "moe", GLOBAL, "mlp"]
    return [OLD_KINDS.get(kind, kind) for kind in kinds]


def _state_space(config: Config, norm: Norm) -> StateSpace:
    """The Mamba 2 that the config describes; its time steps have a lower limit.

    norm: of what it puts out.
    """
    heads = config.integer("mamba_num_heads", default=128, most=2**16)
    return StateSpace(
        heads=heads,
        head_dim=config.integer("mamba_head_dim", default=64, most=2**16),
        state=config.integer("ssm_state_size", default=128, most=2**16),
        groups=config.heads(heads, "n_groups", "mamba_n_groups", default=8),
        kernel=config.integer("conv_kernel", "mamba_d_conv", default=4, most=2**10),
        activation=config.choice("mamba_hidden_act", among=ACTIVATIONS, default="silu"),
        norm=norm,
        limits=(config.number("time_step_min", "mamba_dt_min", default=1e-3), None),
    )


def _experts(config: Config, activation: Activation) -> Experts:
    """The experts of a Nemotron-H: without gates, scored by a sigmoid each, with one more for every
    token."""
    count = config.integer("n_routed_experts", "num_local_experts", default=8, most=2**16)
    groups = config.integer("n_group", default=1, most=count)
    return Experts(
        count,
        config.integer("num_experts_per_tok", default=2, most=count),
        config.integer("moe_intermediate_size", default=7688),
        activation,
        renormalise=config.flag("norm_topk_prob", default=True),
        shared=Mlp(config.integer("moe_shared_expert_intermediate_size", default=7688), activation),
        routing=Routing(
            "sigmoid",
            factor=config.number("routed_scaling_factor", default=1.0),
            groups=groups,
            groups_chosen=config.integer("topk_group", default=1, most=groups),
            group_by=2,  # a group counts by its two best
            corrected=True,
            slack=1e-20,  # so that no sum of shares is 0
        ),
        gated=False,
        narrow=config.optional("moe_latent_size"),
    )


FAMILIES = {"nemotron_h": Family(spec, NAMES)}
