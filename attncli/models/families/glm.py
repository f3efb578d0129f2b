"""GLM: Llama with biases on queries, keys and values, half of each head rotated by neighbours, a
fused gate. Source: GLM Team, 2024."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.inputs.gguf_file import Metadata
from attncli.mechanism.spec import Place, QkNorm, Spec
from attncli.models.config import Config, rope
from attncli.models.families import deepseek_v2, llama, qwen2
from attncli.models.family import Concat, Family

NAMES = llama.NAMES.with_roles(
    {"mlp.gate mlp.up": Concat("mlp.gate_up_proj")}, without=("mlp.gate", "mlp.up")
)


def spec(config: Config) -> Spec:
    """The Spec of a GLM: half of each head rotated, norms before each part."""
    return half_rotated_decoder(config, llama.BEFORE)


def half_rotated_decoder(config: Config, places: tuple[Place, ...]) -> Spec:
    """The Spec of a GLM, whose heads rotate half of their entries (partial rotary factor ½).

    places: where each layer has norms.
    """
    norm = llama.rms(config, default=1.5625e-7)  # as in transformers' GLM
    dim = llama.head_dim(config, default=128)
    position = rope(config, dim, default_partial=0.5, pairing="adjacent")
    block = llama.block(
        config, position=position, dim=dim, default_kv_heads=2, norm=norm, places=places
    )
    biases = ("attn.[qkv]",) if config.flag("attention_bias", default=True) else ()
    return llama.decoder(config, block, biases=biases)


GLM4_NAMES = NAMES.with_roles(
    {"attn.out": "post_self_attn_layernorm", "mlp.out": "post_mlp_layernorm"}
)


def glm4(config: Config) -> Spec:
    """The Spec of a GLM-4-0414: GLM with norms on both sides of each part. Source: GLM Team, 2025."""
    return half_rotated_decoder(config, ("attn.in", "attn.out", "mlp.in", "mlp.out"))


GLM4_MOE_NAMES = replace(
    qwen2.QWEN3_NAMES.with_roles(deepseek_v2.MIXTURE),
    ignored=(*llama.NAMES.ignored, "layers.46.*", "layers.92.*"),
)
"""The layer after the last of the published models predicts further tokens."""


def glm4_moe(config: Config) -> Spec:
    """The Spec of a GLM-4.5 to 4.7: a part of each head rotated, experts scored by a sigmoid each
    with corrections to their choice. Source: GLM Team, 2025."""
    routing = deepseek_v2.corrected_routing(
        config, default_factor=1.0, default_groups=1, default_groups_chosen=1
    )
    normed = config.flag("norm_topk_prob", default=True)
    mixture = deepseek_v2.experts(
        config,
        routing,
        default_count=128,
        default_shared_count=1,
        default_width=1408,
        renormalise=normed,
        default_per_token=8,
    )

    norm = llama.rms(config, default=1e-5)
    dim = llama.head_dim(config)
    position = rope(config, dim, default_partial=0.5)
    dense_count = config.integer("first_k_dense_replace", default=1, least=0)
    if config.flag("use_qk_norm", default=False):
        qk_norm = QkNorm(norm)
    else:
        qk_norm = None

    # the first layers have no experts
    parts = [
        llama.gated_mlp(config) if layer < dense_count else mixture
        for layer in range(llama.depth(config))
    ]
    blocks = [
        llama.block(
            config,
            position=position,
            dim=dim,
            qk_norm=qk_norm,
            default_kv_heads=8,
            norm=norm,
            mlp=part,
        )
        for part in parts
    ]
    # without effect: read, so that they do not count as unknown keys
    config.get(*deepseek_v2.IDLE)
    config.optional("intermediate_size")  # of layers without experts, which there may be none of
    biases = ("attn.[qkv]",) if config.flag("attention_bias", default=False) else ()
    return llama.decoder(config, blocks, biases=biases)


def gguf_keys(metadata: Metadata) -> dict[str, object]:
    """Config values by key that GGUF files lack: whether the weights of the chosen experts are made
    to sum to 1 (`norm_topk_prob`), false where the file does not say."""
    return {"norm_topk_prob": bool(metadata.architecture_value("expert_weights_norm"))}


FAMILIES = {
    "glm": Family(spec, NAMES),
    "glm4": Family(glm4, GLM4_NAMES),
    "glm4_moe": Family(glm4_moe, GLM4_MOE_NAMES, gguf=gguf_keys),
}
