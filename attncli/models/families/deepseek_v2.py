"""DeepSeek-V2: latent attention, and experts chosen from groups. Source: DeepSeek-AI, 2024."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec.structs import replace

from attncli.errors import InputError
from attncli.inputs.gguf_file import Metadata
from attncli.language import message
from attncli.mechanism.mask import Causal
from attncli.mechanism.spec import Attention, Block, Experts, Latent, Mlp, Norm, Routing, Spec
from attncli.models.config import ACTIVATIONS, Config, FixedValue, rope, stretched_scale
from attncli.models.families import llama, qwen2
from attncli.models.family import Family, Source

MIXTURE: Mapping[str, Source] = {
    **qwen2.EXPERTS,
    "experts.correction": "mlp.gate.e_score_correction_bias",
    "shared.gate": "mlp.shared_experts.gate_proj",
    "shared.up": "mlp.shared_experts.up_proj",
    "shared.down": "mlp.shared_experts.down_proj",
}

NAMES = llama.NAMES.with_roles(
    {
        "attn.q_down": "self_attn.q_a_proj",
        "attn.q_down_norm": "self_attn.q_a_layernorm",
        "attn.q": "self_attn.q_b_proj|self_attn.q_proj",
        "attn.kv_down": "self_attn.kv_a_proj_with_mqa",
        "attn.kv_down_norm": "self_attn.kv_a_layernorm",
        "attn.kv": "self_attn.kv_b_proj",
        **MIXTURE,
    },
    without=("attn.k", "attn.v"),
)

IDLE = (
    "head_dim",
    "qk_head_dim",
    "aux_loss_alpha",
    "seq_aux",
    "ep_size",
    "num_nextn_predict_layers",
    "num_mtp_layers",
)
"""Keys that repeat others, or speak of training and of layers that predict further tokens."""

FIXED = {
    "moe_layer_freq": FixedValue(1, "layers without experts would stand between those with"),
    "scoring_func": FixedValue(
        "softmax", "each expert's share would come from its own number alone"
    ),
    "norm_topk_prob": FixedValue(False, "shares would be made to sum to 1"),
}

GROUPED = "group_limited_greedy"


def spec(config: Config) -> Spec:
    """The Spec of a DeepSeek-V2: latent attention, and experts chosen by a softmax over all of them,
    in the larger models from the best groups of experts only."""
    methods = {"greedy": "greedy", GROUPED: GROUPED}
    by_group = config.choice("topk_method", among=methods, default="greedy") == GROUPED
    # both keys are read in either case, so that neither counts as unknown
    groups = config.optional("n_group")
    groups_chosen = config.optional("topk_group")
    if not by_group:
        groups = 1
        groups_chosen = 1
    # None where the config is silent: all experts are one group
    routing = Routing(
        factor=config.number("routed_scaling_factor", default=1.0),
        groups=groups or 1,
        groups_chosen=groups_chosen or 1,
    )
    part = experts(
        config,
        routing,
        default_count=64,
        default_shared_count=2,
        default_width=1407,
        renormalise=False,
    )
    return latent_decoder(
        config, part, pairing="adjacent", default_dense=0, biases=llama.linear_biases(config)
    )


def corrected_routing(
    config: Config, *, default_factor: float, default_groups: int, default_groups_chosen: int
) -> Routing:
    """The routing of experts by a sigmoid score each, to which a stored correction is added for the
    choice alone; groups of experts are ranked by their two best.

    default_factor: what shares are multiplied with, default_groups: how many groups there are,
        default_groups_chosen: from how many of them a token's experts come; used where the config
        does not set them.
    """
    return Routing(
        "sigmoid",
        factor=config.number("routed_scaling_factor", default=default_factor),
        groups=config.integer("n_group", default=default_groups),
        groups_chosen=config.integer("topk_group", default=default_groups_chosen),
        group_by=2,
        corrected=True,
    )


def experts(
    config: Config,
    routing: Routing,
    *,
    default_count: int,
    default_shared_count: int,
    default_width: int,
    renormalise: bool,
    default_per_token: int | None = None,
) -> Experts:
    """The experts that the config describes, with a shared one that takes part for every token.

    default_count: how many experts there are where the config does not say, default_per_token: how
        many are chosen for a token, default_width: of an expert, default_shared_count: how many
        experts wide the shared one is.
    renormalise: whether the chosen experts' shares are made to sum to 1.

    Raises InputError for more chosen experts than the chosen groups have.
    """
    activation = config.choice("hidden_act", among=ACTIVATIONS, default="silu")
    inner = config.integer("moe_intermediate_size", default=default_width)
    total = config.integer(
        "n_routed_experts", "num_local_experts", "num_experts", default=default_count, most=2**16
    )
    best = config.integer(
        "num_experts_per_tok", "num_experts_per_token", default=default_per_token, most=total
    )

    # experts lie in groups of one size, and the best are taken from the best groups
    groups = routing.groups
    within = routing.groups_chosen
    eligible = total // groups * min(within, groups)  # experts in the chosen groups
    if total % groups or best > eligible:
        raise InputError(
            "config.json has {best} of {total} experts chosen, from {within} of {groups} groups",
            where=config.where,
            expected=(
                "groups of as many experts each, with as many in the chosen ones as are chosen"
            ),
            best=best,
            total=total,
            within=within,
            groups=groups,
        )

    shared_width = inner * config.integer(
        "n_shared_experts", "num_shared_experts", default=default_shared_count
    )
    return Experts(
        total,
        best,
        inner,
        activation,
        renormalise=renormalise,
        shared=Mlp(shared_width, activation, gated=True),
        routing=routing,
    )


def latent_decoder(
    config: Config,
    mixture: Experts,
    *,
    pairing: Literal["half", "adjacent"],
    default_dense: int,
    default_kv_heads: int | None = None,
    biases: tuple[str, ...],
) -> Spec:
    """The Spec of a decoder with latent attention (MLA) in each layer, and experts in all layers but
    the first ones.

    pairing: which entries of a head RoPE rotates together.
    default_dense: how many first layers have no experts where the config does not say,
        default_kv_heads: how many key heads there are, None for as many as query heads. Another
        number of key heads than of query heads is refused.
    biases: patterns of roles that have a bias, as of a Llama.
    """
    heads = config.integer("num_attention_heads", most=2**16)
    kv_heads = config.optional("num_key_value_heads", default=default_kv_heads) or heads
    if kv_heads != heads:
        raise config.refuse(
            "num_key_value_heads", message("{heads}, as many as heads", heads=heads)
        )
    content_dim = config.integer("qk_nope_head_dim", default=128)
    rotary_dim = config.integer("qk_rope_head_dim", default=64)
    rotary = rope(config, rotary_dim, pairing=pairing)
    # a head's first entries carry content, its last ones are rotated
    attention = Attention(
        heads,
        kv_heads=kv_heads,
        head_dim=content_dim + rotary_dim,
        v_dim=config.integer("v_head_dim", default=128),
        # YaRN's factor for longer texts is on the scores here
        scale=(content_dim + rotary_dim) ** -0.5 * stretched_scale(config),
        mask=Causal(),
        position=replace(rotary, first=content_dim),
        latent=Latent(
            query=config.optional("q_lora_rank", default=1536),
            keys=config.integer("kv_lora_rank", default=512),
            norm=Norm("rms", 1e-6),
            straight=rotary_dim,
        ),
    )
    # without effect: read, so that they do not count as unknown keys
    config.get(*IDLE)
    norm = llama.rms(config)
    # the first layers have a plain feed-forward part
    dense_count = config.integer("first_k_dense_replace", default=default_dense, least=0)
    blocks = [
        Block(
            attention,
            llama.gated_mlp(config) if layer < dense_count else mixture,
            {"attn.in": norm, "mlp.in": norm},
        )
        for layer in range(llama.depth(config))
    ]
    config.optional("intermediate_size")  # of layers without experts, which there may be none of

    # where a Llama has biases: here on the maps to the narrow vectors, and on the shared expert, too
    bias_patterns: tuple[str, ...] = ()
    if "attn.[qkvo]" in biases:
        bias_patterns += ("attn.q_down", "attn.kv_down", "attn.o")
    if "mlp.[gud]*" in biases:
        bias_patterns += ("mlp.[gud]*", "shared.*")
    return llama.decoder(config, blocks, biases=bias_patterns)


DEEPSEEK_V3_NAMES = replace(NAMES, ignored=(*NAMES.ignored, "layers.61.*"))
"""The 62nd layer of the published model predicts further tokens."""

DEEPSEEK_V3_FIXED = {
    "moe_layer_freq": FixedValue(1, "layers without experts would stand between those with"),
    "scoring_func": FixedValue("sigmoid", "experts would share a softmax"),
    "topk_method": FixedValue("noaux_tc", "experts would be chosen without corrections"),
}


def deepseek_v3(config: Config) -> Spec:
    """The Spec of a DeepSeek-V3 or R1: DeepSeek-V2 whose experts are scored by a sigmoid each, with
    corrections to their choice. Source: DeepSeek-AI, 2024."""
    routing = corrected_routing(
        config, default_factor=2.5, default_groups=8, default_groups_chosen=4
    )
    normed = config.flag("norm_topk_prob", default=True)
    part = experts(
        config,
        routing,
        default_count=256,
        default_shared_count=1,
        default_width=2048,
        renormalise=normed,
        default_per_token=8,
    )
    neighbours = config.flag("rope_interleave", default=True)
    biases = ("attn.[qkvo]",) if config.flag("attention_bias", default=False) else ()
    return latent_decoder(
        config,
        part,
        pairing="adjacent" if neighbours else "half",
        default_dense=3,
        default_kv_heads=128,
        biases=biases,
    )


def gguf_keys(metadata: Metadata) -> dict[str, object]:
    """Config values by key that GGUF files name otherwise: the sizes of heads and of latent
    vectors, and how experts are chosen."""
    scores = {1: "softmax", 2: "sigmoid"}  # by the numbers that llama.cpp gives them
    # a head's key is its content and the rotated entries; newer files give its length as "…_mla"
    rotated = metadata.architecture_value("rope.dimension_count")
    key_length = metadata.architecture_value("attention.key_length_mla")
    if not key_length:
        key_length = metadata.architecture_value("attention.key_length")
    content = None
    if isinstance(rotated, int) and isinstance(key_length, int) and 0 < rotated < key_length:
        content = key_length - rotated
    heads = metadata.architecture_value("attention.head_count")

    # stored corrections mean DeepSeek-V3, whose method is fixed
    groups = metadata.architecture_value("expert_group_count")
    by_group = isinstance(groups, int) and groups > 1
    method: str | None = "greedy"
    if any("exp_probs_b" in name for name in metadata.tensors):
        method = None  # as if the config did not state one
    elif by_group:
        method = GROUPED
    return {
        "num_key_value_heads": heads,
        "head_dim": rotated,
        "qk_rope_head_dim": rotated,
        "qk_nope_head_dim": content,
        "v_head_dim": metadata.architecture_value("attention.value_length_mla")
        or metadata.architecture_value("attention.value_length"),
        "q_lora_rank": metadata.architecture_value("attention.q_lora_rank"),
        "kv_lora_rank": metadata.architecture_value("attention.kv_lora_rank"),
        "partial_rotary_factor": 1.0,  # `head_dim` is here that of the rotated entries alone
        "norm_topk_prob": bool(metadata.architecture_value("expert_weights_norm")),
        "scoring_func": scores.get(metadata.architecture_value("expert_gating_func")),
        "topk_method": method,
    }


FAMILIES = {
    "deepseek_v2": Family(spec, NAMES, fixed=FIXED, gguf=gguf_keys),
    "deepseek_v3": Family(deepseek_v3, DEEPSEEK_V3_NAMES, fixed=DEEPSEEK_V3_FIXED, gguf=gguf_keys),
}
