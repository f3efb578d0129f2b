"""The cache and the parameters of ten published models, from their config.json alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attncli.features.cost.compute import cost
from attncli.models.description import describe, described_model

DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "vocab_size": 129280,
    "num_attention_heads": 128, "num_key_value_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4,
    "first_k_dense_replace": 3, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128, "routed_scaling_factor": 2.5, "norm_topk_prob": True,
    "max_position_embeddings": 163840, "rms_norm_eps": 1e-6, "rope_theta": 10000, "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
}  # fmt: skip
GEMMA3 = {
    "model_type": "gemma3", "vision_config": {"model_type": "siglip_vision_model"},
    "text_config": {
        "model_type": "gemma3_text", "hidden_size": 5376, "num_hidden_layers": 62, "num_attention_heads": 32,
        "num_key_value_heads": 16, "head_dim": 128, "intermediate_size": 21504, "vocab_size": 262208,
        "query_pre_attn_scalar": 168, "sliding_window": 1024, "sliding_window_pattern": 6,
        "max_position_embeddings": 131072, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    },
}  # fmt: skip


def llama(
    kind: str, width: int, inner: int, layers: int, heads: int, kv: int, words: int, **more: object
) -> dict:
    """A config of Llama's shape."""
    return {
        "model_type": kind, "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv, "vocab_size": words, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 131072, "tie_word_embeddings": False, **more,
    }  # fmt: skip


# per token: DeepSeek-AI, Insights into DeepSeek-V3, 2025, table 1; Gemma Team, Gemma 3, 2025; Jiang
# et al., Mistral 7B, 2023 (the cache of 32k tokens is an eighth of what it was); OpenAI, gpt-oss
# model card, 2025, table 1; the model cards of the others.
PUBLISHED = [
    ("Llama 3.1 405B", llama("llama", 16384, 53248, 126, 128, 8, 128256), 1, 516.096e3, 405.9e9),
    ("Qwen2.5 72B", llama("qwen2", 8192, 29568, 80, 64, 8, 152064), 1, 327.680e3, 72.7e9),
    ("DeepSeek-V3", DEEPSEEK_V3, 1, 70.272e3, 671.0e9),
    ("DeepSeek-V3 at 8192", DEEPSEEK_V3, 8192, 0.5757e9, 671.0e9),
    ("Gemma 3 27B", GEMMA3, 131072, 11.17e9, 25.600e9 + 1.416e9),
    (
        "Mistral 7B v0.1",
        llama("mistral", 4096, 14336, 32, 32, 8, 32000, sliding_window=4096),
        32768,
        32768 * 131072 / 8,
        7.24e9,
    ),
    (
        "Mixtral 8x7B",
        llama("mixtral", 4096, 14336, 32, 32, 8, 32000, num_local_experts=8, num_experts_per_tok=2),
        1,
        131072,
        46.7e9,
    ),
    (
        "gpt-oss 20B",
        llama(
            "gpt_oss", 2880, 2880, 24, 64, 8, 201088, head_dim=64, num_local_experts=32, num_experts_per_tok=4,
            sliding_window=128, rope_theta=150000, attention_bias=True,
            rope_scaling={
                "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
                "rope_type": "yarn", "truncate": False,
            },
        ),
        4096,
        12 * 2 * 8 * 64 * 2 * (4096 + 128),
        20.91e9,
    ),
    ("Llama 3.2 1B", llama("llama", 2048, 8192, 16, 32, 8, 128256, tie_word_embeddings=True), 1, 32768, 1.236e9),
    (
        "Qwen3 30B-A3B",
        llama(
            "qwen3_moe", 2048, 6144, 48, 32, 4, 151936, head_dim=128, num_experts=128, num_experts_per_tok=8,
            moe_intermediate_size=768, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
        ),
        1,
        48 * 4 * 256 * 2,
        30.5e9,
    ),
    (
        "Phi-3 mini",
        llama("phi3", 3072, 8192, 32, 32, 32, 32064, sliding_window=2047),
        4096,
        32 * 2 * 3072 * 2 * 2047,
        3.82e9,
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", PUBLISHED, ids=[str(row[0]) for row in PUBLISHED])
def test_a_config_alone_gives_the_published_figures(row: tuple, tmp_path: Path) -> None:
    _, config, tokens, cache, parameters = row
    (tmp_path / "config.json").write_text(json.dumps(config))
    described = describe(str(tmp_path))
    document = cost(tokens, dtype="bfloat16", model=described_model(described, "bfloat16"))
    assert document.total is not None
    assert document.total.cache_bytes == pytest.approx(cache, rel=1e-3)
    assert described.parameters == pytest.approx(parameters, rel=2e-3)
    assert any("the weights are not here" in note for note in described.notes)


def test_a_text_model_inside_a_config_needs_no_pictures_beside(tmp_path: Path) -> None:
    """A config that holds its text model under text_config is read with and without the rest."""
    alone = {key: value for key, value in GEMMA3.items() if key != "vision_config"}
    (tmp_path / "config.json").write_text(json.dumps(alone))
    assert describe(str(tmp_path / "config.json")).parameters == pytest.approx(27.016e9, rel=2e-3)
