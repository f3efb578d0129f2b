"""Odd configurations of every family, drawn from a seed: sizes that do not divide evenly, any
option on or off.

Each option that a family's config class has, or that its code reads all the same, is drawn or left
out. What the library cannot build or run is no configuration of that family.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tiny_two_sided import TWO_SIDED

VOCABULARY = 23
FURTHEST = 19
"""Positions that a model has, where it has so many."""
STORED = ("float32", "float32", "float32", "bfloat16", "float16", "float64")
ROTARY_TYPES = ("default", "default", "linear", "dynamic", "llama3", "yarn", "longrope")
PARTIAL = (
    "bamba",
    "glm",
    "glm4",
    "glm4_moe",
    "gpt_neox",
    "minimax_m2",
    "nemotron",
    "phi",
    "phi3",
    "stablelm",
)
BOTH_KINDS = ("gemma3_text", "modernbert", "olmo3")
"""Families whose rotary parameters are told by type of layer."""
LATENT = ("deepseek_v2", "deepseek_v3")
ACTIVATIONS = (
    "gelu",
    "gelu_new",
    "relu2",
    "relu",
    "silu",
    "gelu_pytorch_tanh",
    "quick_gelu",
    "gelu_fast",
    "swish",
    "tanh",
)


YARN = {
    "beta_fast": 3.0,
    "beta_slow": 0.5,
    "mscale": 0.7,
    "mscale_all_dim": 0.9,
    "attention_factor": 1.3,
    "truncate": False,
}
WITH_GLOBALS = ("led", "longformer")
NEVER_LEFT_OUT = (
    "head_dim",
    "sliding_window",
    "rotary_dim",
    "n_group",
    "topk_group",
    "attention_window",
)
"""Options whose usual values are those of large models."""


@dataclass(frozen=True)
class Odd:
    """A drawn model. stored: the type of its tensors. ids, target: what the model reads, and a
    decoder's beginning.
    everywhere: the places of its global tokens."""

    config: dict[str, Any]
    stored: str
    seed: int
    ids: tuple[int, ...]
    target: tuple[int, ...] | None
    everywhere: tuple[int, ...]


@dataclass(frozen=True)
class Sizes:
    """What other options depend on."""

    heads: int
    kv_heads: int
    dim: int
    width: int
    layers: int


def sizes_of(family: str, draw: Random) -> Sizes:
    """Heads, widths and layers."""
    heads, layers = draw.choice((1, 2, 3, 4, 5, 6, 7)), draw.choice((1, 2, 2, 3))
    dim = draw.choice((2, 4, 6, 8, 10) if family in EVEN else (1, 2, 3, 4, 5, 7, 8))
    shared = draw.choice([count for count in range(1, heads + 1) if heads % count == 0])
    return Sizes(heads, shared, dim, heads * dim, layers)


EVEN = frozenset({
    "cohere", "cohere2", "deepseek_v2", "deepseek_v3", "ernie4_5", "exaone4", "falcon", "gemma", "gemma2", "gemma3_text",
    "bamba", "falcon_h1", "glm", "glm4", "glm4_moe", "gpt_neox", "gpt_oss", "gptj", "granitemoehybrid", "lfm2", "lfm2_moe", "granite", "granitemoe", "gte", "hunyuan_v1_dense", "hunyuan_v1_moe", "jina_embeddings_v3", "llama",
    "llama4_text", "minimax", "minimax_m2", "ministral", "ministral3", "mistral", "mixtral", "modernbert", "nemotron", "nomic_bert", "olmo", "olmo2", "olmo3",
    "phi", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "seed_oss", "smollm3", "stablelm", "starcoder2", "t5gemma",
    "whisper", "xlnet",
})  # fmt: skip


def rotary(family: str, draw: Random, dims: int) -> dict[str, Any]:
    """Parameters of the rotary embedding of heads of `dims` entries, as the family has them."""
    if family in BOTH_KINDS:
        return {kind: scaled(draw, dims) for kind in ("full_attention", "sliding_attention")}
    if family not in PARTIAL:
        return scaled(draw, dims)
    share = draw.choice(
        [
            share
            for share in (0.5, 0.25, 0.7, 0.34, 1.0)
            if int(dims * share) in range(2, dims + 1, 2)
        ]
    )
    return {**scaled(draw, int(dims * share)), "partial_rotary_factor": share}


def scaled(draw: Random, dims: int) -> dict[str, Any]:
    """Parameters of a rotary embedding of so many entries, of any type."""
    kind = draw.choice([kind for kind in ROTARY_TYPES if kind != "dynamic" or dims > 2])
    parameters: dict[str, Any] = {
        "rope_type": kind,
        "rope_theta": draw.choice((97.0, 1000.0, 11.0, 10000.0)),
    }
    if kind != "default":
        parameters["factor"] = draw.choice((1.5, 2.0, 4.0, 8.0))
    if kind == "llama3":
        parameters |= {"low_freq_factor": 1.0, "high_freq_factor": draw.choice((3.0, 4.0))}
    if kind in ("llama3", "yarn", "longrope"):
        parameters["original_max_position_embeddings"] = draw.choice((4, 7, 16))
    if kind == "yarn":
        parameters |= {key: value for key, value in YARN.items() if draw.random() < 0.4}
    if kind == "longrope":
        parameters["short_factor"] = [1.0 + 0.1 * pair for pair in range(dims // 2)]
        parameters["long_factor"] = [1.2 + 0.7 * pair for pair in range(dims // 2)]
    return parameters


def windows(draw: Random, sizes: Sizes) -> list[str]:
    return [draw.choice(("sliding_attention", "full_attention")) for _ in range(sizes.layers)]


Draw = Callable[[Random, Sizes], Any]


def flag(draw: Random, sizes: Sizes) -> bool:
    return draw.random() < 0.5


def one_of(*values: Any) -> Draw:
    return lambda draw, sizes: draw.choice(values)


SIZES: dict[str, Draw] = {
    "vocab_size": one_of(VOCABULARY), "pad_token_id": one_of(0, 1), "bos_token_id": one_of(1), "eos_token_id": one_of(2),
    "sep_token_id": one_of(2), "cls_token_id": one_of(1), "decoder_start_token_id": one_of(0, 2, 5), "num_mel_bins": one_of(4),
    "max_position_embeddings": one_of(FURTHEST, FURTHEST + 1, 28), "n_positions": one_of(FURTHEST, 28), "max_source_positions": one_of(11),
    "max_encoder_position_embeddings": one_of(32, 40), "max_decoder_position_embeddings": one_of(FURTHEST, 28), "max_target_positions": one_of(FURTHEST),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim"), lambda draw, sizes: sizes.width),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"), lambda draw, sizes: sizes.layers),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"), lambda draw, sizes: sizes.heads),
    **dict.fromkeys(("decoder_layers", "num_decoder_layers"), one_of(1, 2)),
    "decoder_attention_heads": lambda draw, sizes: draw.choice([count for count in range(1, sizes.width + 1) if sizes.width % count == 0]),
    "num_key_value_heads": lambda draw, sizes: sizes.kv_heads, "intermediate_size": one_of(11, 16), "n_inner": one_of(None, 13),
    "encoder_ffn_dim": one_of(9), **dict.fromkeys(("hidden_dim", "decoder_ffn_dim", "ffn_dim", "d_ff", "d_inner"), one_of(11)),
    "ffn_hidden_size": one_of(13), "d_kv": one_of(1, 3, 4, 7), "intermediate_size_mlp": one_of(7), "num_local_experts": one_of(3, 4),
    "num_experts": one_of(3, 5), "n_routed_experts": one_of(6), "num_experts_per_tok": one_of(1, 2), "moe_topk": one_of(1, 2), "moe_intermediate_size": one_of(5, 7),
    "shared_expert_intermediate_size": one_of(5), "embedding_size": one_of(7), "initializer_range": one_of(0.3),
}  # fmt: skip
"""What every model of a family with such a key is told."""

OPTIONS: dict[str, Draw] = {
    "tie_word_embeddings": flag, "hidden_act": one_of(*ACTIVATIONS), "activation_function": one_of(*ACTIVATIONS), "hidden_activation": one_of(*ACTIVATIONS),
    "activation": one_of(*ACTIVATIONS), "ff_activation": one_of(*ACTIVATIONS),
    "rms_norm_eps": one_of(1e-3, 1e-6), "layer_norm_eps": one_of(1e-3, 1e-6), "layer_norm_epsilon": one_of(1e-3), "norm_eps": one_of(1e-3), "norm_epsilon": one_of(1e-3),
    "attention_bias": flag, "mlp_bias": flag, "norm_bias": flag, "use_bias": flag, "qkv_bias": flag, "bias": flag, "attention_out_bias": flag, "use_qkv_bias": flag,
    "enable_bias": flag, "use_qk_norm": flag, "qk_layernorm": flag, "layer_norm_elementwise_affine": flag, "_remove_final_layer_norm": flag, "do_layer_norm_before": flag,
    "head_dim": one_of(2, 4, 6, 8, 10, 12),
    "sliding_window": one_of(1, 2, 3, 5, 7, 50), "layer_types": windows, "use_sliding_window": flag, "max_window_layers": one_of(0, 1, 2),
    "type_vocab_size": one_of(1, 2, 3), "scale_embedding": flag, "use_parallel_residual": flag, "norm_topk_prob": flag,
    "relative_attention_num_buckets": one_of(4, 6, 10, 32), "relative_attention_max_distance": one_of(5, 8, 11, 40),
    "feed_forward_proj": one_of("relu", "gated-gelu", "gelu", "silu", "gated-silu", "gated-relu"), "scale_decoder_outputs": flag,
    "use_bidirectional_attention": flag, "query_pre_attn_scalar": one_of(3, 7, 24), "final_logit_softcapping": one_of(None, 3.0),
    "attn_logit_softcapping": one_of(None, 2.0, 0.7), "logit_scale": one_of(0.3),
    "first_k_dense_replace": one_of(0, 1, 9), "kv_lora_rank": one_of(3, 8), "q_lora_rank": one_of(None, 5), "n_group": one_of(1, 2, 3), "topk_group": one_of(1, 2),
    "n_shared_experts": one_of(1, 2), "qk_nope_head_dim": one_of(1, 4, 5), "qk_rope_head_dim": one_of(2, 4, 6), "v_head_dim": one_of(1, 3, 8),
    "routed_scaling_factor": one_of(1.7, 0.6), "topk_method": one_of("greedy", "group_limited_greedy"), "rope_interleave": flag,
    "embedding_multiplier": one_of(1.9), "logits_scaling": one_of(3.0), "residual_multiplier": one_of(0.7), "attention_multiplier": one_of(0.31, 1.2),
    "attention_window": lambda draw, sizes: draw.choice((4, 6, 8, [draw.choice((4, 8)) for _ in range(sizes.layers)])),
    "no_rope_layers": lambda draw, sizes: [draw.choice((0, 1)) for _ in range(sizes.layers)], "no_rope_layer_interval": one_of(1, 2),
    "decoder_sparse_step": one_of(1, 2), "mlp_only_layers": one_of([], [0], [1]),
    "num_hidden_groups": one_of(1, 2), "inner_group_num": one_of(1, 2),
    "attention_type": one_of("original_full", "block_sparse"), "rescale_embeddings": flag, "block_size": one_of(1, 2), "num_random_blocks": one_of(1, 2),
    "relative_attention": flag, "max_relative_positions": one_of(-1, 5, 9), "position_biased_input": flag, "position_buckets": one_of(-1, 4, 6), "share_att_key": flag,
    "norm_rel_ebd": one_of("none", "layer_norm", "layer_norm|none"), "pos_att_type": one_of(None, "c2p", "p2c", "p2c|c2p", ["c2p", "p2c"]), "conv_kernel_size": one_of(0, 1, 3, 5, 4),
    "conv_act": one_of("tanh", "gelu", "relu", "silu"), "conv_groups": one_of(1, 2, 3),
    "sinusoidal_pos_embds": flag, "sliding_window_pattern": one_of(2, 3, 4), "_sliding_window_pattern": one_of(2, 3),
    "num_kv_heads": lambda draw, sizes: sizes.kv_heads, "alibi": flag, "new_decoder_architecture": flag, "multi_query": flag,
    "parallel_attn": flag, "scale_attn_weights": flag, "scale_attn_by_inverse_layer_idx": flag, "window_size": one_of(1, 2, 4, 9),
    "swiglu_limit": one_of(0.9, 7.0), "swiglu_alpha": one_of(1.702, 1.1), "rotary_dim": lambda draw, sizes: draw.choice(range(2, sizes.dim + 1, 2)),
    "interleave_moe_layer_step": one_of(1, 2), "attention_chunk_size": one_of(2, 3, 5, 40), "attn_temperature_tuning": flag, "floor_scale": one_of(2, 3), "attn_scale": one_of(0.8),
    "decoder_vocab_size": one_of(VOCABULARY, 17), "share_encoder_decoder_embeddings": flag, "local_attention": one_of(2, 4, 5, 6), "clip_qkv": one_of(None, 0.7),
    "word_embed_proj_dim": one_of(5, 9), "original_max_position_embeddings": one_of(7, 16), "d_head": lambda draw, sizes: sizes.dim, "attn_type": one_of("bi", "uni"),
    "clamp_len": one_of(-1, 3, 5), "same_length": flag, "mem_len": one_of(None, 4), "apply_residual_connection_post_layernorm": flag, "slow_but_exact": flag,
    "partial_rotary_factor": one_of(0.5, 0.25, 0.7, 1.0), "rotary_pct": one_of(0.5, 0.25, 0.7),
    "untie_r": flag, "position_embedding_type": one_of("absolute"), "classifier_activation": one_of("gelu"), "num_mem": flag, "moe_layer_freq": one_of(1),
    "max_position_embeddings": one_of(FURTHEST, 28),
}  # fmt: skip
"""What a model may be told besides."""

UNDECLARED: dict[str, tuple[str, ...]] = {
    "deberta-v2": ("position_buckets", "share_att_key", "norm_rel_ebd", "conv_kernel_size", "conv_act", "conv_groups"),
    "gpt_neox": ("rotary_pct",),
    "xlnet": ("untie_r",),
    "phi": ("partial_rotary_factor",), "nemotron": ("partial_rotary_factor",), "stablelm": ("partial_rotary_factor",),
    "glm": ("partial_rotary_factor",), "glm4": ("partial_rotary_factor",),
}  # fmt: skip
"""Options that a family's code reads although its config class does not declare them."""


def drawn(family: str, seed: int) -> Odd:
    """The odd model of a family by this seed."""
    import transformers

    draw = Random(f"{family} {seed}")
    if family == "t5gemma":
        side = transformers.CONFIG_MAPPING["gemma2"]
        encoder, decoder = (options_of("gemma2", side, draw) for _ in range(2))
        if draw.random() < 0.5:
            decoder["hidden_size"] = encoder["hidden_size"]
        config: dict[str, Any] = {
            "encoder": encoder,
            "decoder": decoder,
            "tie_word_embeddings": draw.random() < 0.5,
        }
    else:
        config = options_of(family, transformers.CONFIG_MAPPING[family], draw)
    ids = tuple(
        draw.randrange(3, VOCABULARY - 1) if draw.random() < 0.95 else draw.randrange(VOCABULARY)
        for _ in range(draw.choice((1, 2, 3, 5, 8, 13, 13, 17)))
    )
    target = (
        tuple(draw.randrange(3, 17) for _ in range(draw.choice((1, 2, 5, 9))))
        if family in TWO_SIDED
        else None
    )
    count = draw.choice((0, 1, 2)) if family in WITH_GLOBALS else 0
    everywhere = tuple(sorted({draw.randrange(len(ids)) for _ in range(count)}))
    return Odd(
        {"model_type": family, **config},
        draw.choice(STORED),
        draw.randrange(2**30),
        ids,
        target,
        everywhere,
    )


def options_of(family: str, kind: Any, draw: Random) -> dict[str, Any]:
    """The options of one side of a model, by the family's config class."""
    usual = kind()
    aliases = getattr(usual, "attribute_map", {})
    keys = {aliases.get(key, key) for key in vars(usual)} | set(UNDECLARED.get(family, ()))
    sizes = sizes_of(family, draw)
    config = {key: value(draw, sizes) for key, value in SIZES.items() if key in keys}
    config |= {
        key: value(draw, sizes)
        for key, value in OPTIONS.items()
        if key in keys and draw.random() < 0.6
    }
    for key in NEVER_LEFT_OUT:
        if key in keys and (
            getattr(usual, key, None) is not None
            or family in ("hunyuan_v1_dense", "ministral", "mixtral", "deepseek_v2")
        ):
            config.setdefault(key, OPTIONS[key](draw, sizes))
    if "hidden_size" in config and "head_dim" in config:
        config["hidden_size"] = sizes.heads * draw.choice((1, 3, 4, sizes.dim))
    if "layer_types" in config and "sliding_window" in keys:
        config.setdefault("sliding_window", draw.choice((2, 5)))
    if "rope_parameters" in keys and "partial_rotary_factor" not in config and draw.random() < 0.8:
        dims = (
            config.get("head_dim")
            or config.get("qk_rope_head_dim")
            or config["hidden_size"] // sizes.heads
        )
        config["rope_parameters"] = rotary(family, draw, dims)
    return config | own_options(family, config, draw)


def own_options(family: str, config: dict[str, Any], draw: Random) -> dict[str, Any]:
    """What goes together in some families."""
    if family in LATENT:
        narrow = {"qk_nope_head_dim": 4, "kv_lora_rank": 8} if draw.random() < 0.6 else {}
        groups = min(config["topk_group"], config["n_group"])
        config.pop("head_dim", None)
        if family == "deepseek_v2":
            config.pop("norm_topk_prob", None)
        return {
            **narrow,
            "num_key_value_heads": config["num_attention_heads"],
            "topk_group": groups,
        }
    if family == "ministral3":
        parameters = config.get("rope_parameters") or {"rope_type": "default", "rope_theta": 97.0}
        return {
            "rope_parameters": {
                "original_max_position_embeddings": 4,
                **parameters,
                "llama_4_scaling_beta": 0.3,
            }
        }
    if family == "glm4_moe":
        return {"topk_group": min(config.get("topk_group", 1), config.get("n_group", 1))}
    if (
        family == "hunyuan_v1_dense"
        and config.get("rope_parameters", {}).get("rope_type") == "dynamic"
    ):
        return {
            "rope_parameters": {**config["rope_parameters"], "alpha": draw.choice((2.0, 1000.0))}
        }
    if family == "gpt_neo":
        kinds = [draw.choice(("global", "local")) for _ in range(draw.choice((1, 2)))]
        times = draw.choice((1, 2))
        return {"attention_types": [[kinds, times]], "num_layers": len(kinds) * times}
    if family in ("lfm2", "lfm2_moe"):
        kinds = [
            draw.choice(("full_attention", "conv")) for _ in range(config["num_hidden_layers"] - 1)
        ]
        own = {"conv_L_cache": draw.choice((2, 3, 5)), "block_multiple_of": draw.choice((1, 8))}
        return {
            **own,
            "layer_types": [*kinds, "full_attention"],
            "num_dense_layers": draw.choice((0, 1, 9)),
        }
    if family in ("bamba", "granitemoehybrid"):
        inner = 2 * config["hidden_size"]
        heads = draw.choice([count for count in (1, 2, 3, 4, 6) if inner % count == 0])
        groups = draw.choice([count for count in (1, 2, 3) if heads % count == 0])
        state = {
            "mamba_expand": 2,
            "mamba_n_heads": heads,
            "mamba_d_head": inner // heads,
            "mamba_n_groups": groups,
        }
        state |= {
            "mamba_d_state": draw.choice((3, 7)),
            "mamba_d_conv": draw.choice((2, 4)),
            "mamba_chunk_size": 4,
        }
        attending = [
            layer for layer in range(config["num_hidden_layers"]) if draw.random() < 0.5
        ] or [0]
        if family == "bamba":
            return {**state, "attn_layer_indices": attending}
        kinds = [
            "full_attention" if layer in attending else "mamba"
            for layer in range(config["num_hidden_layers"])
        ]
        return {**state, "layer_types": kinds, "shared_intermediate_size": draw.choice((7, 12))}
    if family == "falcon_h1":
        heads, dim = draw.choice((1, 2, 4)), draw.choice((2, 3))
        own = {
            "mamba_n_heads": heads,
            "mamba_d_head": dim,
            "mamba_d_ssm": heads * dim,
            "mamba_n_groups": draw.choice((1, heads)),
        }
        own |= {
            key: draw.choice((True, False))
            for key in ("mamba_rms_norm", "mamba_norm_before_gate", "mamba_conv_bias")
        }
        own |= {
            key: draw.choice((True, False))
            for key in ("mamba_proj_bias", "projectors_bias", "mlp_bias")
        }
        places = ("key", "attention_in", "attention_out", "ssm_in", "ssm_out", "lm_head")
        own |= {f"{place}_multiplier": draw.choice((1.0, 0.6, 1.7)) for place in places}
        own |= {
            "mlp_multipliers": [draw.choice((1.0, 0.7)), 1.4],
            "ssm_multipliers": [draw.choice((1.0, 0.6)) for _ in range(5)],
        }
        return {
            **own,
            "mamba_d_state": draw.choice((3, 7)),
            "mamba_d_conv": draw.choice((2, 4)),
            "mamba_chunk_size": 4,
        }
    if family == "kimi_linear":
        kinds = [
            draw.choice(("full_attention", "linear_attention"))
            for _ in range(config["num_hidden_layers"] - 1)
        ]
        own = {
            "layer_types": [*kinds, "full_attention"],
            "num_key_value_heads": config["num_attention_heads"],
        }
        own |= {
            "linear_head_dim": draw.choice((2, 3)),
            "linear_num_heads": draw.choice((1, 2, 4)),
            "num_expert_group": draw.choice((1, 3)),
        }
        own |= {
            "kv_lora_rank": 8,
            "qk_nope_head_dim": draw.choice((1, 4)),
            "v_head_dim": draw.choice((1, 3)),
            "qk_rope_head_dim": 2,
        }
        parts = [draw.choice(("dense", "sparse")) for _ in range(config["num_hidden_layers"])]
        return {
            **own,
            "topk_group": 1,
            "num_experts": 6,
            "num_experts_per_token": draw.choice((1, 2)),
            "mlp_layer_types": parts,
            "linear_conv_kernel_dim": draw.choice((1, 3, 4)),
        }
    if family == "minimax":
        kinds = [
            draw.choice(("full_attention", "linear_attention"))
            for _ in range(config["num_hidden_layers"] - 1)
        ]
        places = [
            f"{place}_{side}_factor"
            for place in ("full_attn", "linear_attn", "mlp")
            for side in ("alpha", "beta")
        ]
        own = {place: draw.choice((1, 0.6, 1.7)) for place in places}
        return {
            **own,
            "layer_types": [*kinds, "full_attention"],
            "block_size": draw.choice((1, 3, 50)),
        }
    if family == "nemotron_h":
        heads = draw.choice((1, 2, 4))
        kinds = [
            draw.choice(("full_attention", "linear_attention", "mlp", "moe")) for _ in range(3)
        ]
        own = {
            "layers_block_type": [*kinds, "full_attention"],
            "mamba_num_heads": heads,
            "mamba_head_dim": draw.choice((3, 4)),
        }
        own |= {
            "ssm_state_size": draw.choice((3, 7)),
            "n_groups": draw.choice((1, heads)),
            "conv_kernel": draw.choice((2, 4)),
        }
        own |= {
            "moe_shared_expert_intermediate_size": 7,
            "moe_latent_size": draw.choice((None, 5)),
            "topk_group": 1,
        }
        return {
            **own,
            "n_group": draw.choice((1, 2, 3)),
            "mlp_hidden_act": draw.choice(ACTIVATIONS),
        }
    if family == "jamba":
        own = {
            "attn_layer_period": draw.choice((1, 2)),
            "attn_layer_offset": 0,
            "expert_layer_period": draw.choice((1, 2)),
        }
        own |= {
            "expert_layer_offset": 0,
            "mamba_d_state": draw.choice((3, 7)),
            "mamba_d_conv": draw.choice((2, 4)),
        }
        return {
            **own,
            "mamba_expand": draw.choice((1, 2)),
            "mamba_dt_rank": draw.choice((2, 5)),
            "use_mamba_kernels": False,
        }
    if family in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"):
        kinds = [
            draw.choice(("full_attention", "linear_attention"))
            for _ in range(config["num_hidden_layers"] - 1)
        ]
        heads, rotated = draw.choice((1, 2, 4)), draw.choice((0.25, 0.5))
        delta = {"linear_num_key_heads": draw.choice((1, heads)), "linear_num_value_heads": heads}
        delta |= {
            "linear_key_head_dim": draw.choice((2, 5)),
            "linear_value_head_dim": draw.choice((3, 4)),
        }
        parameters = {"rope_type": "default", "rope_theta": 97.0, "partial_rotary_factor": rotated}
        own = {
            "layer_types": [*kinds, "full_attention"],
            "head_dim": 8,
            "rope_parameters": parameters,
        }
        return {**own, **delta, "linear_conv_kernel_dim": draw.choice((1, 3, 4))}
    if family == "llama4_text" and "layer_types" in config:
        return {
            "layer_types": [kind.replace("sliding", "chunked") for kind in config["layer_types"]]
        }
    return {"begin_suppress_tokens": None} if family == "whisper" else {}


def make(odd: Odd, folder: Path) -> None:
    """Write the model into a folder that exists. Raises whatever the library raises for what it
    cannot build.
    """
    import torch
    import transformers

    config = dict(odd.config)
    family = config.pop("model_type")
    with torch.random.fork_rng():
        torch.manual_seed(odd.seed)
        model = transformers.AutoModel.from_config(
            transformers.AutoConfig.for_model(family, **config), dtype=torch.float32
        )
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.requires_grad:  # others are tables that are computed
                    norm = weight.ndim == 1 and name.endswith("weight")
                    weight.copy_((1.0 if norm else 0.0) + 0.3 * torch.randn(weight.shape))
            for name, buffer in model.named_buffers():
                if name.endswith("e_score_correction_bias"):
                    buffer.copy_(0.3 * torch.randn(buffer.shape))
    model.to(getattr(torch, odd.stored)).save_pretrained(folder)
    path = folder / "config.json"
    kept = {key: config[key] for key in UNDECLARED.get(family, ()) if key in config}
    path.write_text(json.dumps({**kept, **json.loads(path.read_text())}))
