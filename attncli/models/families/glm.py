"""GLM: Llama with biases on queries, keys and values, half of each head rotated by neighbours, a fused gate. Source:
GLM Team, 2024."""

from __future__ import annotations

from attncli.mechanism.spec import Norm, Place, Spec
from attncli.models.config import Config, rope
from attncli.models.families import llama
from attncli.models.family import Concat, Family

NAMES = llama.NAMES.with_roles({"mlp.gate mlp.up": Concat("mlp.gate_up_proj")}, without=("mlp.gate", "mlp.up"))


def spec(config: Config) -> Spec:
    """The Spec of a GLM."""
    return partly_rotated(config, "glm", ("attn.in", "mlp.in"))


def partly_rotated(config: Config, family: str, places: tuple[Place, ...]) -> Spec:
    """The model with its norm at these places."""
    norm: Norm = llama.rms(config, default=1.5625e-7)
    dim = llama.head_dim(config, 128)
    block = llama.block(
        config,
        position=rope(config, dim, default_partial=0.5, pairing="adjacent"),
        dim=dim,
        kv_heads=2,
        norms=dict.fromkeys(places, norm),
    )
    biases = ("attn.[qkv]",) if config.flag("attention_bias", default=True) else ()
    return llama.decoder(config, family, [block] * llama.depth(config), final=norm, biases=biases)


GLM4_NAMES = NAMES.with_roles({"attn.out": "post_self_attn_layernorm", "mlp.out": "post_mlp_layernorm"})


def glm4(config: Config) -> Spec:
    """GLM-4-0414: GLM with norms on both sides of each part. Source: GLM Team, 2025."""
    return partly_rotated(config, "glm4", ("attn.in", "attn.out", "mlp.in", "mlp.out"))


FAMILIES = {
    "glm": Family(spec, NAMES),
    "glm4": Family(glm4, GLM4_NAMES),
}
