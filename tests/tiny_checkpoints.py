"""Tiny random checkpoints of every family, made by transformers, with knobs that bite.

Weights have standard deviation 0.3, biases are not zero, norm weights are not one, soft caps are
near 2 and windows shorter than the texts: with a library's own initialisation attention is nearly
uniform and a model without its soft cap passes.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from tiny_sizes import (
    BARE,
    BERT,
    DEBERTA,
    DELTA,
    FALCON_H1,
    GPT2,
    KIMI,
    LATENT,
    LAYER_NORM,
    LLAMA,
    LLAMA4,
    MAMBA,
    MIXED,
    NEMOTRON_H,
    PLAIN,
    XLNET,
    Case,
    rope,
)
from tiny_two_sided import TWO_SIDED_CASES

__all__ = ["CASES", "Case", "make"]

CASES: dict[str, Case] = {
    "bert": Case("bert", BERT),
    "bert for masked words": Case("bert", BERT, "AutoModelForMaskedLM"),
    "roberta": Case("roberta", {**BERT, "type_vocab_size": 1, "pad_token_id": 1}),
    "xlm-roberta": Case("xlm-roberta", {**BERT, "type_vocab_size": 1, "pad_token_id": 0, "hidden_act": "gelu_new"}, "AutoModelForMaskedLM"),
    "camembert": Case("camembert", {**BERT, "pad_token_id": 1}, "AutoModelForMaskedLM"),
    "mpnet": Case("mpnet", BERT, "AutoModelForMaskedLM"),
    "distilbert": Case(
        "distilbert", {"vocab_size": 61, "dim": 30, "n_layers": 2, "n_heads": 3, "hidden_dim": 37, "max_position_embeddings": 29}
    ),
    "electra": Case("electra", {**BERT, "embedding_size": 14}),
    "modernbert": Case(
        "modernbert",
        {
            "vocab_size": 61, "hidden_size": 36, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 37,
            "local_attention": 6, "norm_eps": 1e-3, "norm_bias": True, "attention_bias": True, "mlp_bias": True, "pad_token_id": 0,
            "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 97.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 11.0},
            },
        },
    ),
    "albert": Case("albert", {**BERT, "embedding_size": 14}, "AutoModelForMaskedLM"),
    "albert by silence": Case("albert", {**BERT, "type_vocab_size": 3, "hidden_act": "relu"}),
    "nomic_bert": Case("nomic_bert", {**BERT, **rope("default")}),
    "nomic_bert by silence": Case("nomic_bert", {**BERT, "head_dim": 8, "pad_token_id": 0}, "AutoModelForMaskedLM"),
    "gte": Case("gte", {**BERT, **rope("default"), "type_vocab_size": 0}, "AutoModelForMaskedLM"),
    "gte by silence": Case("gte", BERT),
    "jina_embeddings_v3": Case("jina_embeddings_v3", {**BERT, **rope("default")}, "AutoModelForMaskedLM"),
    "jina_embeddings_v3 by silence": Case("jina_embeddings_v3", {**BERT, "type_vocab_size": 2}),
    "deberta-v2": Case("deberta-v2", {**BERT, **DEBERTA, "position_buckets": 6, "share_att_key": True, "norm_rel_ebd": "layer_norm",
                                      "position_biased_input": False, "pos_att_type": "p2c|c2p"}, "AutoModelForMaskedLM"),
    "deberta-v2 with projections": Case(
        "deberta-v2", {**BERT, **DEBERTA, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 7, "type_vocab_size": 2}
    ),
    "deberta-v2 one way": Case("deberta-v2", {**BERT, **DEBERTA, "pos_att_type": ["p2c"], "position_buckets": 4, "max_relative_positions": 9}),
    "deberta-v2 by silence": Case("deberta-v2", BERT),
    "deberta-v2 with a convolution": Case(
        "deberta-v2", {**BERT, **DEBERTA, "pos_att_type": "c2p|p2c", "conv_kernel_size": 3, "conv_act": "gelu", "attention_head_size": 10}
    ),
    "xlnet": Case("xlnet", XLNET, "AutoModelForSequenceClassification"),
    "xlnet reading on": Case("xlnet", {**XLNET, "attn_type": "uni", "clamp_len": 5}),
    "longformer": Case("longformer", {**BERT, "type_vocab_size": 1, "pad_token_id": 1, "attention_window": [8, 4]},
                       "AutoModelForSequenceClassification"),
    "longformer by silence": Case("longformer", {**BERT, "attention_window": 4}, "AutoModelForMaskedLM"),
    "big_bird": Case("big_bird", {**BERT, "block_size": 1, "num_random_blocks": 2, "rescale_embeddings": True}, "AutoModelForMaskedLM"),
    "big_bird, longer blocks": Case("big_bird", {**BERT, "block_size": 2, "num_random_blocks": 1, "use_bias": False}),
    "big_bird, whole": Case("big_bird", {**BERT, "attention_type": "original_full", "is_decoder": True}),
    "gpt2": Case("gpt2", {**GPT2, "scale_attn_by_inverse_layer_idx": True}),
    "gpt2 with head": Case("gpt2", GPT2, "AutoModelForCausalLM"),
    "gpt_neo": Case(
        "gpt_neo",
        {
            "vocab_size": 61, "hidden_size": 30, "num_layers": 4, "num_heads": 3, "attention_types": [[["global", "local"], 2]],
            "window_size": 5, "intermediate_size": 37, "max_position_embeddings": 29, "layer_norm_epsilon": 1e-3,
            "bos_token_id": 1, "eos_token_id": 2,
        },
    ),
    "gptj": Case("gptj", {**GPT2, "n_embd": 36, "rotary_dim": 8}, "AutoModelForCausalLM"),
    "gpt_neox": Case(
        "gpt_neox",
        {
            "vocab_size": 61, "hidden_size": 36, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 37,
            "layer_norm_eps": 1e-3, **rope("default", partial_rotary_factor=0.5), "bos_token_id": 1, "eos_token_id": 2,
        },
    ),
    "gpt_neox in sequence": Case(
        "gpt_neox",
        {
            "vocab_size": 61, "hidden_size": 36, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 37,
            "use_parallel_residual": False, **rope("dynamic", factor=3.0, partial_rotary_factor=0.5), "max_position_embeddings": 7,
            "bos_token_id": 1, "eos_token_id": 2,
        },
        "AutoModelForCausalLM",
    ),
    "opt": Case(
        "opt",
        {"vocab_size": 61, "hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 3, "ffn_dim": 37,
         "max_position_embeddings": 29, "word_embed_proj_dim": 30},
    ),
    "opt post-norm": Case(
        "opt",
        {"vocab_size": 61, "hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 3, "ffn_dim": 37,
         "max_position_embeddings": 29, "word_embed_proj_dim": 22, "do_layer_norm_before": False},
        "AutoModelForCausalLM",
    ),
    "bloom": Case("bloom", {"vocab_size": 61, "hidden_size": 30, "n_layer": 2, "n_head": 5, "layer_norm_epsilon": 1e-3}),
    "llama": Case("llama", {**LLAMA, **rope("default"), "attention_bias": True, "mlp_bias": True}, "AutoModelForCausalLM"),
    "llama linear": Case("llama", {**LLAMA, **rope("linear", factor=3.0)}),
    "llama 3.1": Case(
        "llama",
        {**LLAMA, **rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=19)},
    ),
    "llama yarn": Case(
        "llama", {**LLAMA, **rope("yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=3.0, beta_slow=0.5)}
    ),
    "llama dynamic": Case("llama", {**LLAMA, **rope("dynamic", factor=2.0), "max_position_embeddings": 7}),
    "mistral": Case("mistral", {**LLAMA, **rope("default"), "sliding_window": 5}),
    "mistral seen both ways": Case("mistral", {**LLAMA, **rope("default"), "sliding_window": 3, "is_causal": False}),
    "mixtral": Case(
        "mixtral", {**LLAMA, **rope("default"), "num_hidden_layers": 2, "num_local_experts": 5, "num_experts_per_tok": 2,
         "sliding_window": 5}
    ),
    "qwen2": Case(
        "qwen2",
        {**PLAIN, **rope("default"), "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    ),
    "qwen3": Case("qwen3", {**LLAMA, **rope("default"), "attention_bias": True}, "AutoModelForCausalLM"),
    "qwen3_moe": Case(
        "qwen3_moe",
        {**LLAMA, **rope("default"), "num_hidden_layers": 2, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 23},
    ),
    "qwen3_moe, some layers without": Case(
        "qwen3_moe",
        {**LLAMA, **rope("default"), "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 23, "mlp_only_layers": [0]},
    ),
    "gemma": Case("gemma", {**LLAMA, **rope("default")}),
    "gemma2": Case(
        "gemma2",
        {**LLAMA, **rope("default"), "sliding_window": 5, "query_pre_attn_scalar": 7, "attn_logit_softcapping": 2.0,
         "final_logit_softcapping": 3.0},
        "AutoModelForCausalLM",
    ),
    "gemma3_text": Case(
        "gemma3_text",
        {
            **LLAMA, "sliding_window": 5, "query_pre_attn_scalar": 7,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 97.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 11.0},
            },
        },
    ),
    "embedding gemma": Case(
        "gemma3_text",
        {**LLAMA, "sliding_window": 6, "use_bidirectional_attention": True,
         "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    ),
    "phi": Case(
        "phi", {**LAYER_NORM, **rope("default", partial_rotary_factor=0.7), "qk_layernorm": True}, "AutoModelForCausalLM"
    ),
    "phi3": Case("phi3", {**PLAIN, **rope("default"), "sliding_window": 5}),
    "phi3 long": Case(
        "phi3",
        {
            **PLAIN, "original_max_position_embeddings": 8, "max_position_embeddings": 32,
            **rope("longrope", short_factor=[1.0, 1.1, 1.3], long_factor=[1.2, 2.3, 4.1]),
        },
    ),
    "olmo2": Case("olmo2", {**PLAIN, **rope("default"), "attention_bias": True}),
    "cohere": Case("cohere", {**LAYER_NORM, **rope("default"), "use_qk_norm": True, "attention_bias": True}, "AutoModelForCausalLM"),
    "stablelm": Case(
        "stablelm", {**LAYER_NORM, **rope("default", partial_rotary_factor=0.7), "use_qkv_bias": True, "qk_layernorm": True}
    ),
    "stablelm parallel": Case("stablelm", {**LAYER_NORM, **rope("default", partial_rotary_factor=0.34), "use_parallel_residual": True}),
    "smollm3": Case("smollm3", {**LLAMA, **rope("default"), "no_rope_layers": [1, 0, 1]}),
    "falcon": Case(
        "falcon",
        {"vocab_size": 61, "hidden_size": 36, "num_hidden_layers": 2, "num_attention_heads": 6, "bias": True, **rope("default"),
         "layer_norm_epsilon": 1e-3},
    ),
    "falcon new": Case(
        "falcon",
        {"vocab_size": 61, "hidden_size": 36, "num_hidden_layers": 2, "num_attention_heads": 6, "num_kv_heads": 3,
         "new_decoder_architecture": True, "ffn_hidden_size": 41, **rope("default")},
        "AutoModelForCausalLM",
    ),
    "falcon in sequence": Case(
        "falcon",
        {"vocab_size": 61, "hidden_size": 36, "num_hidden_layers": 2, "num_attention_heads": 6, "multi_query": False,
         "parallel_attn": False, **rope("default")},
    ),
    "falcon alibi": Case(
        "falcon",
        {"vocab_size": 61, "hidden_size": 36, "num_hidden_layers": 2, "num_attention_heads": 12, "multi_query": False,
         "parallel_attn": False, "bias": True, "alibi": True},
    ),
    "granite": Case(
        "granite",
        {**PLAIN, **rope("default"), "attention_multiplier": 0.31, "residual_multiplier": 0.7, "embedding_multiplier": 1.9,
         "logits_scaling": 3.0, "attention_bias": True, "mlp_bias": True},
        "AutoModelForCausalLM",
    ),
    "granite without multipliers": Case("granite", {**PLAIN, "tie_word_embeddings": True}, "AutoModelForCausalLM"),
    "granitemoe": Case(
        "granitemoe",
        {**PLAIN, **rope("default"), "num_hidden_layers": 2, "attention_multiplier": 0.31, "residual_multiplier": 0.7,
         "embedding_multiplier": 1.9, "num_local_experts": 5, "num_experts_per_tok": 2},
    ),
    "glm": Case("glm", {**LLAMA, **rope("default", partial_rotary_factor=0.6)}),
    "glm without biases": Case("glm", {**LLAMA, "head_dim": 12, "attention_bias": False}, "AutoModelForCausalLM"),
    "glm4": Case("glm4", {**LLAMA, **rope("default", partial_rotary_factor=0.6)}, "AutoModelForCausalLM"),
    "olmo": Case("olmo", {**BARE, **rope("default"), "clip_qkv": 0.7}, "AutoModelForCausalLM"),
    "olmo without bounds": Case("olmo", {**BARE, "attention_bias": True}),
    "olmo3": Case(
        "olmo3",
        {**PLAIN, "sliding_window": 5, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
         "rope_parameters": {
             "full_attention": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 97.0},
             "sliding_attention": {"rope_type": "default", "rope_theta": 11.0},
         }},
    ),
    "olmo3 by silence": Case("olmo3", {**PLAIN, "num_hidden_layers": 4, "sliding_window": 5, "attention_bias": True}),
    "starcoder2": Case("starcoder2", {**BARE, **rope("default"), "norm_epsilon": 1e-3, "sliding_window": 5}, "AutoModelForCausalLM"),
    "starcoder2 without biases": Case("starcoder2", {**BARE, **rope("linear", factor=2.0), "use_bias": False}),
    "cohere2": Case(
        "cohere2", {**LAYER_NORM, **rope("default"), "num_hidden_layers": 5, "sliding_window": 5, "attention_bias": True},
        "AutoModelForCausalLM",
    ),
    "ministral": Case("ministral", {**LLAMA, **rope("default"), "sliding_window": 5, "layer_types": MIXED}),
    "exaone4": Case("exaone4", {**PLAIN, **rope("default"), "num_hidden_layers": 5, "sliding_window": 5}, "AutoModelForCausalLM"),
    "exaone4 without windows": Case("exaone4", {**PLAIN, **rope("default"), "sliding_window": None, "layer_types": ["full_attention"] * 3}),
    "nemotron": Case("nemotron", {**BARE, **rope("default", partial_rotary_factor=0.7), "norm_eps": 1e-3, "attention_bias": True, "mlp_bias": True}),
    "nemotron by silence": Case("nemotron", {**BARE, "hidden_size": 48, "norm_eps": 1e-3}, "AutoModelForCausalLM"),
    "qwen2_moe": Case(
        "qwen2_moe",
        {**PLAIN, **rope("default"), "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 23,
         "shared_expert_intermediate_size": 19, "mlp_only_layers": [1], "use_sliding_window": True, "sliding_window": 5},
    ),
    "qwen2_moe in steps": Case(
        "qwen2_moe",
        {**PLAIN, **rope("default"), "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 23,
         "shared_expert_intermediate_size": 19, "decoder_sparse_step": 2, "norm_topk_prob": True, "qkv_bias": False},
        "AutoModelForCausalLM",
    ),
    "ernie4_5": Case("ernie4_5", {**LLAMA, **rope("default"), "use_bias": True}),
    "ernie4_5 without biases": Case("ernie4_5", LLAMA, "AutoModelForCausalLM"),
    "seed_oss": Case("seed_oss", {**LLAMA, **rope("default"), "attention_out_bias": True, "mlp_bias": True}),
    "seed_oss without biases": Case("seed_oss", {**LLAMA, "attention_bias": False}, "AutoModelForCausalLM"),
    "ministral3": Case(
        "ministral3",
        {**LLAMA, "sliding_window": 5,
         **rope("yarn", factor=4.0, original_max_position_embeddings=5, max_position_embeddings=64, beta_fast=3.0, beta_slow=0.5, mscale=1.0,
                mscale_all_dim=1.0, llama_4_scaling_beta=0.3)},
        "AutoModelForCausalLM",
    ),
    "hunyuan_v1_dense": Case(
        "hunyuan_v1_dense", {**LLAMA, **rope("dynamic", alpha=7.0, factor=1.0), "attention_bias": True}, "AutoModelForCausalLM"
    ),
    "hunyuan_v1_moe": Case(
        "hunyuan_v1_moe", {**LLAMA, **rope("default"), "num_hidden_layers": 2, "num_experts": 5, "moe_topk": [2, 3]}
    ),
    "glm4_moe": Case(
        "glm4_moe",
        {**LLAMA, **rope("default", partial_rotary_factor=0.6), "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 23,
         "use_qk_norm": True, "attention_bias": True, "routed_scaling_factor": 1.7, "n_group": 3, "topk_group": 2},
    ),
    "minimax_m2": Case(
        "minimax_m2",
        {**LLAMA, **rope("default", partial_rotary_factor=0.6), "num_hidden_layers": 2, "num_local_experts": 5, "num_experts_per_tok": 2},
        "AutoModelForCausalLM",
    ),
    "lfm2": Case(
        "lfm2", {**BARE, **rope("default"), "norm_eps": 1e-3, "layer_types": ["conv", "full_attention", "conv"], "conv_bias": True, "block_multiple_of": 8},
        "AutoModelForCausalLM",
    ),
    "lfm2 without biases": Case("lfm2", {**BARE, "layer_types": ["full_attention", "conv", "conv"], "block_auto_adjust_ff_dim": False, "conv_L_cache": 4}),
    "lfm2_moe": Case(
        "lfm2_moe",
        {**BARE, **rope("default"), "norm_eps": 1e-3, "layer_types": ["conv", "full_attention", "conv"], "num_experts": 5, "num_experts_per_tok": 2,
         "num_dense_layers": 0, "moe_intermediate_size": 23, "routed_scaling_factor": 1.7},
    ),
    "bamba": Case("bamba", {**PLAIN, **MAMBA, "num_attention_heads": 3, "num_key_value_heads": 1, **rope("default"), "attn_layer_indices": [1]}, "AutoModelForCausalLM"),
    "bamba with biases": Case(
        "bamba", {**PLAIN, **MAMBA, "num_attention_heads": 3, "num_key_value_heads": 1, "attn_layer_indices": [0, 2], "mamba_proj_bias": True, "mamba_conv_bias": False, "time_step_limit": [0.2, 0.7]}
    ),
    "granitemoehybrid": Case(
        "granitemoehybrid",
        {**PLAIN, **MAMBA, "layer_types": ["linear_attention", "full_attention", "linear_attention"], "num_local_experts": 5,
         "shared_intermediate_size": 19, "attention_multiplier": 0.31, "residual_multiplier": 0.7, "embedding_multiplier": 1.9, "logits_scaling": 3.0},
        "AutoModelForCausalLM",
    ),
    "granitemoehybrid without experts": Case(
        "granitemoehybrid",
        {**PLAIN, **MAMBA, **rope("default"), "layer_types": ["full_attention", "linear_attention", "full_attention"], "num_local_experts": 0,
         "shared_intermediate_size": 19, "position_embedding_type": "rope", "attention_multiplier": 0.31},
    ),
    "jamba": Case(
        "jamba",
        {**PLAIN, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 5, "mamba_d_state": 7, "mamba_dt_rank": 5, "mamba_proj_bias": True},
        "AutoModelForCausalLM",
    ),
    "jamba without experts": Case("jamba", {**PLAIN, "attn_layer_period": 2, "attn_layer_offset": 0, "num_experts": 1, "mamba_d_state": 7}),
    "falcon_h1": Case(
        "falcon_h1",
        {**LLAMA, **FALCON_H1, **rope("default"), "mamba_rms_norm": True, "mamba_norm_before_gate": False, "attention_bias": True, "mlp_bias": True,
         "mamba_proj_bias": True, "projectors_bias": True, "embedding_multiplier": 1.9, "lm_head_multiplier": 0.3, "key_multiplier": 0.6,
         "attention_in_multiplier": 1.3, "attention_out_multiplier": 0.7, "ssm_in_multiplier": 1.2, "ssm_out_multiplier": 0.8,
         "mlp_multipliers": [0.9, 1.4], "ssm_multipliers": [0.5, 1.1, 1.2, 0.6, 1.3]},
        "AutoModelForCausalLM",
    ),
    "falcon_h1 by silence": Case("falcon_h1", {**PLAIN, **FALCON_H1, "num_hidden_layers": 2, "mamba_conv_bias": False, "ssm_multipliers": [1.0, 2.0, 1.0, 1.0, 1.0]}),
    "kimi_linear": Case(
        "kimi_linear",
        {**KIMI, "layer_types": ["linear_attention", "full_attention", "linear_attention"], "n_group": 2, "topk_group": 1, "linear_conv_kernel_dim": 3},
        "AutoModelForCausalLM",
    ),
    "minimax": Case(
        "minimax",
        {**LLAMA, **rope("default"), "layer_types": ["linear_attention", "full_attention", "linear_attention"], "num_local_experts": 5,
         "num_experts_per_tok": 2, "block_size": 4, "full_attn_alpha_factor": 1.7, "full_attn_beta_factor": 0.6, "linear_attn_alpha_factor": 1.4,
         "linear_attn_beta_factor": 0.8, "mlp_alpha_factor": 1.3, "mlp_beta_factor": 0.9},
        "AutoModelForCausalLM",
    ),
    "nemotron_h": Case(
        "nemotron_h",
        {**NEMOTRON_H, "layers_block_type": ["linear_attention", "full_attention", "moe", "mlp", "full_attention"], "n_group": 2, "topk_group": 1,
         "use_bias": True, "mlp_bias": True, "routed_scaling_factor": 1.7, "time_step_min": 0.3},
        "AutoModelForCausalLM",
    ),
    "nemotron_h with narrow experts": Case(
        "nemotron_h",
        {**NEMOTRON_H, "layers_block_type": ["moe", "full_attention", "linear_attention"], "moe_latent_size": 11, "use_conv_bias": False,
         "norm_topk_prob": False},
    ),
    "qwen3_next": Case(
        "qwen3_next",
        {**LLAMA, **DELTA, **rope("default", partial_rotary_factor=0.6), "layer_types": ["linear_attention", "full_attention", "linear_attention"],
         "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 23, "shared_expert_intermediate_size": 19, "attention_bias": True},
        "AutoModelForCausalLM",
    ),
    "qwen3_5_text": Case(
        "qwen3_5_text",
        {**LLAMA, **DELTA, **rope("default", partial_rotary_factor=0.6), "num_hidden_layers": 4,
         "layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention"]},
    ),
    "qwen3_5_moe_text": Case(
        "qwen3_5_moe_text",
        {**LLAMA, **DELTA, **rope("default", partial_rotary_factor=0.6), "num_hidden_layers": 2,
         "layer_types": ["full_attention", "linear_attention"], "num_experts": 5, "num_experts_per_tok": 2,
         "moe_intermediate_size": 23, "shared_expert_intermediate_size": 19},
    ),
    "gpt_oss": Case(
        "gpt_oss",
        {**LLAMA, **rope("default"), "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 5, "swiglu_limit": 0.9},
        "AutoModelForCausalLM",
    ),
    "gpt_oss by silence": Case(
        "gpt_oss", {**LLAMA, "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 5, "attention_bias": False},
    ),
    "deepseek_v2": Case(
        "deepseek_v2",
        {**LATENT, **rope("yarn", factor=4.0, original_max_position_embeddings=16, mscale=0.7, mscale_all_dim=0.9),
         "num_experts_per_tok": 2, "topk_method": "group_limited_greedy", "n_group": 3, "topk_group": 2, "attention_bias": True,
         "routed_scaling_factor": 1.7, "first_k_dense_replace": 1},
        "AutoModelForCausalLM",
    ),
    "deepseek_v2 with one projection": Case(
        "deepseek_v2", {**LATENT, "q_lora_rank": None, "num_experts_per_tok": 3, "first_k_dense_replace": 2, "mlp_bias": True}
    ),
    "deepseek_v3": Case(
        "deepseek_v3",
        {**LATENT, **rope("yarn", factor=4.0, original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=1.0),
         "num_experts_per_tok": 2, "n_group": 3, "topk_group": 2, "attention_bias": True, "first_k_dense_replace": 1},
        "AutoModelForCausalLM",
    ),
    "deepseek_v3 in halves": Case(
        "deepseek_v3",
        {**LATENT, **rope("default"), "q_lora_rank": None, "rope_interleave": False, "norm_topk_prob": False, "num_experts_per_tok": 3,
         "n_group": 2, "topk_group": 1, "first_k_dense_replace": 0},
    ),
    "llama4_text": Case("llama4_text", LLAMA4, "AutoModelForCausalLM"),
    "llama4_text without norms": Case(
        "llama4_text",
        {**LLAMA4, "use_qk_norm": False, "attention_bias": True, "interleave_moe_layer_step": 2, "num_experts_per_tok": 2,
         "attn_temperature_tuning": False},
    ),
    **TWO_SIDED_CASES,
}  # fmt: skip


MADE: dict[str, dict[str, bytes]] = {}
"""The files of each case that this process has made, by case and seed: making takes longer than
writing.
"""


def make(case: Case, folder: Path, seed: int = 5) -> Path:
    """Write a case's checkpoint into a folder, which is made: config.json and model.safetensors."""
    key = repr((case, seed))
    if key not in MADE:
        with TemporaryDirectory() as first:
            _save(case, Path(first), seed)
            MADE[key] = {path.name: path.read_bytes() for path in Path(first).iterdir()}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in MADE[key].items():
        (folder / name).write_bytes(content)
    return folder


def _save(case: Case, folder: Path, seed: int) -> None:
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    told = (
        {"initializer_range": 0.3, **case.config}
        if case.model_type not in ("t5", "mt5", "umt5")
        else dict(case.config)
    )
    config = transformers.AutoConfig.for_model(case.model_type, **told)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = getattr(transformers, case.saved_by).from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if name.endswith("weight") and (
                    (weight.ndim == 1 and "norm" in name.lower()) or "ln_" in name
                ):
                    weight.copy_(1 + 0.3 * torch.randn(weight.shape))
                elif "embed_positions" not in name or case.model_type not in ("marian", "pegasus"):
                    weight.copy_(0.3 * torch.randn(weight.shape))
            for name, buffer in model.named_buffers():
                if name.endswith(("e_score_correction_bias", "expert_bias")):
                    buffer.copy_(0.3 * torch.randn(buffer.shape))
    model.save_pretrained(folder)
