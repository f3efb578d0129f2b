"""GLM-4.5 to 4.7: part of each head rotated in halves, experts scored one by one with corrections to their choice.
Source: GLM Team, 2025."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from attncli.mechanism.spec import QkNorm, Routing, Spec
from attncli.models.config import Config, rope
from attncli.models.families import deepseek_v2, llama, qwen2
from attncli.models.family import Family

if TYPE_CHECKING:
    from attncli.inputs.gguf_file import Metadata

NAMES = replace(
    qwen2.QWEN3_NAMES.with_roles(deepseek_v2.MIXTURE), ignored=(*llama.NAMES.ignored, "layers.46.*", "layers.92.*")
)
"""The layer after the last of the published models predicts further tokens."""


def spec(config: Config) -> Spec:
    """The Spec of a GLM-4.5."""
    routing = Routing(
        "sigmoid",
        factor=config.number("routed_scaling_factor", default=1.0),
        groups=config.whole("n_group", default=1),
        groups_chosen=config.whole("topk_group", default=1),
        group_by=2,
        corrected=True,
    )
    normed = config.flag("norm_topk_prob", default=True)
    mixture = deepseek_v2.experts(
        config, routing, count=128, shared_count=1, width=1408, renormalise=normed, per_token=8
    )
    norm, dim = llama.rms(config, default=1e-5), llama.head_dim(config)
    position = rope(config, dim, default_partial=0.5)
    dense = config.whole("first_k_dense_replace", default=1, least=0)
    blocks = [
        llama.block(
            config,
            position=position,
            dim=dim,
            qk_norm=QkNorm(norm) if config.flag("use_qk_norm", default=False) else None,
            kv_heads=8,
            norms={"attn.in": norm, "mlp.in": norm},
            mlp=llama.gated_mlp(config) if layer < dense else mixture,
        )
        for layer in range(llama.depth(config))
    ]
    for idle in deepseek_v2.IDLE:
        config.get(idle)
    config.optional("intermediate_size")  # of layers without experts
    biases = ("attn.[qkv]",) if config.flag("attention_bias", default=False) else ()
    return llama.decoder(config, "glm4_moe", blocks, final=norm, biases=biases)


def gguf_keys(metadata: Metadata) -> dict[str, object]:
    """What GGUF files say by silence: that shares need not sum to 1."""
    return {"norm_topk_prob": bool(metadata.own("expert_weights_norm"))}


FAMILIES = {"glm4_moe": Family(spec, NAMES, gguf=gguf_keys)}
