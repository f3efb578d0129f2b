"""The sizes of tiny checkpoints: small, unlike each other, so that one taken for another is
noticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field


class Case(Struct, frozen=True):
    """A checkpoint to make: family, config, and the class that saves it ("AutoModel" writes no
    head).
    """

    model_type: str
    config: Mapping[str, Any]
    saved_by: str = "AutoModel"
    changed: Mapping[str, Any] = field(default_factory=dict)


BERT = {
    "vocab_size": 61, "hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 37,
    "max_position_embeddings": 29, "layer_norm_eps": 1e-3,
}  # fmt: skip
XLNET = {
    "vocab_size": 61,
    "d_model": 30,
    "n_layer": 2,
    "n_head": 3,
    "d_inner": 37,
    "layer_norm_eps": 1e-3,
}
DEBERTA = {"relative_attention": True}
LLAMA = {
    "vocab_size": 61, "hidden_size": 36, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
    "intermediate_size": 41, "max_position_embeddings": 64, "rms_norm_eps": 1e-3, "head_dim": 10,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
PLAIN = {key: value for key, value in LLAMA.items() if key != "head_dim"}
LAYER_NORM = {key: value for key, value in PLAIN.items() if key != "rms_norm_eps"} | {
    "layer_norm_eps": 1e-3
}
BARE = {key: value for key, value in PLAIN.items() if key != "rms_norm_eps"}
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]
DELTA = {
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 5,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
MAMBA = {"mamba_n_heads": 6, "mamba_d_state": 7, "mamba_n_groups": 2}
FALCON_H1 = {
    "mamba_d_ssm": 24,
    "mamba_n_heads": 4,
    "mamba_d_head": 6,
    "mamba_d_state": 7,
    "mamba_n_groups": 2,
}
NEMOTRON_H = {
    **{key: value for key, value in LLAMA.items() if key not in ("num_hidden_layers", "rms_norm_eps")}, "layer_norm_epsilon": 1e-3,
    "mamba_num_heads": 6, "mamba_head_dim": 5, "ssm_state_size": 7, "n_groups": 2, "n_routed_experts": 6, "num_experts_per_tok": 2,
    "moe_intermediate_size": 23, "moe_shared_expert_intermediate_size": 19,
}  # fmt: skip
GPT2 = {
    "vocab_size": 61, "n_embd": 30, "n_layer": 3, "n_head": 3, "n_positions": 29, "n_inner": 37, "layer_norm_epsilon": 1e-3,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
BART = {
    "vocab_size": 61, "d_model": 30, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 3, "decoder_attention_heads": 5,
    "encoder_ffn_dim": 37, "decoder_ffn_dim": 31, "max_position_embeddings": 29, "scale_embedding": True, "pad_token_id": 1,
    "decoder_start_token_id": 2,
}  # fmt: skip
LED = {
    **{key: value for key, value in BART.items() if key not in ("max_position_embeddings", "scale_embedding")},
    "max_encoder_position_embeddings": 32, "max_decoder_position_embeddings": 29, "attention_window": [4, 8],
}  # fmt: skip
WHISPER = {
    **{key: value for key, value in BART.items() if key != "max_position_embeddings"}, "encoder_layers": 1, "num_mel_bins": 4,
    "max_source_positions": 11, "max_target_positions": 29, "bos_token_id": 3, "eos_token_id": 4, "begin_suppress_tokens": None,
}  # fmt: skip
T5 = {
    "vocab_size": 61, "d_model": 30, "d_kv": 7, "d_ff": 37, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 3,
    "relative_attention_num_buckets": 10, "relative_attention_max_distance": 11, "layer_norm_epsilon": 1e-3,
}  # fmt: skip


LATENT = {
    **PLAIN, "num_key_value_heads": 6, "moe_intermediate_size": 23,
    "n_routed_experts": 6, "n_shared_experts": 2, "kv_lora_rank": 14, "q_lora_rank": 11, "qk_nope_head_dim": 4, "qk_rope_head_dim": 6,
    "v_head_dim": 7,
}  # fmt: skip
KIMI = {
    **{key: value for key, value in LATENT.items() if key != "n_routed_experts"}, "q_lora_rank": None, "num_local_experts": 6,
    "linear_head_dim": 5, "linear_num_heads": 4, "num_experts_per_tok": 2, "routed_scaling_factor": 1.7,
}  # fmt: skip
LLAMA4 = {
    **LLAMA, "num_hidden_layers": 5, "rope_parameters": {"rope_type": "default", "rope_theta": 97.0}, "intermediate_size_mlp": 29,
    "num_local_experts": 5, "attention_chunk_size": 5, "floor_scale": 3, "attn_scale": 0.8,
}  # fmt: skip


def rope(kind: str, **told: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 97.0, **told}}


GEMMA = {
    **LLAMA, **rope("default"), "sliding_window": 4, "query_pre_attn_scalar": 7, "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 3.0, "bos_token_id": 2,
}  # fmt: skip
