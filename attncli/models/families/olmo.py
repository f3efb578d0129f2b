"""OLMo: Llama with layer norms that have no weights, and projections that may be cut off. Source:
Groeneveld et al.,
2024."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.inputs.gguf_file import Metadata
from attncli.mechanism.spec import Norm, QkNorm, Spec
from attncli.models.config import GLOBAL, LOCAL, Config, layer_mask, layer_types, rope
from attncli.models.families import llama
from attncli.models.family import Family


def spec(config: Config) -> Spec:
    """The Spec of an OLMo: Llama with layer norms that have no weights, and queries, keys and values
    that may be cut off at a limit."""
    norm = Norm("layer", 1e-5, affine=False)
    block = llama.block(config, position=rope(config, llama.head_dim(config)), norm=norm)
    clip = config.cap("clip_qkv", default=None)
    block = replace(block, attention=replace(block.attention, clip=clip))
    return llama.decoder(config, block)


OLMO2_NAMES = llama.NAMES.with_roles(
    {
        "attn.out": "post_attention_layernorm",
        "mlp.out": "post_feedforward_layernorm",
        "attn.q_norm": "self_attn.q_norm",
        "attn.k_norm": "self_attn.k_norm",
    },
    without=("attn.in", "mlp.in"),
)


def olmo2(config: Config) -> Spec:
    """The Spec of an OLMo 2: Llama with norms after each part, and queries and keys normed over all
    heads at once. Source: OLMo Team, 2025."""
    norm = llama.rms(config, default=1e-5)
    block = llama.block(
        config,
        position=rope(config, llama.head_dim(config)),
        qk_norm=QkNorm(norm, over="width"),
        norm=norm,
        places=llama.AFTER,
    )
    return llama.decoder(config, block)


THETA = 500000.0


def olmo3(config: Config) -> Spec:
    """The Spec of an OLMo 3: OLMo 2 with a window in three layers of four; only the fourth has
    rotary scaling. Source: OLMo Team, 2025.

    Outside of `rope_parameters`, base and scaling are meant for the layers without a window.
    """
    norm = llama.rms(config, default=1e-5)
    dim = llama.head_dim(config)
    window = config.optional("sliding_window", default=4096)
    # for the layers with a window no key outside `rope_parameters` is read
    positions = {
        GLOBAL: rope(config, dim, kind=GLOBAL, default_theta=THETA),
        LOCAL: rope(config, dim, kind=LOCAL, theta_keys=(), default_theta=THETA, scaled=False),
    }
    blocks = [
        llama.block(
            config,
            position=positions[kind],
            mask=layer_mask(config, kind, window),
            qk_norm=QkNorm(norm, over="width"),
            norm=norm,
            places=llama.AFTER,
        )
        for kind in layer_types(config, llama.depth(config), lambda layer: bool((layer + 1) % 4))
    ]
    return llama.decoder(config, blocks)


def gguf_keys(metadata: Metadata) -> dict[str, object]:
    """The config's `rope_parameters` from GGUF metadata, which do not say that only the layers
    without a window have the scaling.
    """
    base = metadata.architecture_value("rope.freq_base") or THETA
    scaled = {"rope_type": "default", "rope_theta": base}
    if metadata.architecture_value("rope.scaling.type") == "yarn":
        scaled |= {
            "rope_type": "yarn",
            "factor": metadata.architecture_value("rope.scaling.factor"),
            "original_max_position_embeddings": metadata.architecture_value(
                "rope.scaling.original_context_length"
            ),
            "attention_factor": metadata.architecture_value("rope.scaling.attn_factor"),
        }
    local = {
        "rope_type": "default",
        "rope_theta": metadata.architecture_value("rope.freq_base_swa") or base,
    }
    # None takes away the scaling of all layers, which every family gets
    return {"rope_scaling": None, "rope_parameters": {GLOBAL: scaled, LOCAL: local}}


FAMILIES = {
    "olmo": Family(spec, llama.NAMES, permuted=True),
    "olmo2": Family(olmo2, OLMO2_NAMES),
    "olmo3": Family(olmo3, OLMO2_NAMES, gguf=gguf_keys),
}
