"""Hunyuan: Llama whose queries and keys are normed after they are rotated. Source: Tencent, 2025."""

from __future__ import annotations

from attncli.mechanism.spec import Block, Experts, QkNorm, Spec
from attncli.models.config import Config, rope
from attncli.models.families import llama
from attncli.models.family import Family

NAMES = llama.NAMES.with_roles({"attn.q_norm": "self_attn.query_layernorm", "attn.k_norm": "self_attn.key_layernorm"})


def spec(config: Config) -> Spec:
    """The Spec of a Hunyuan."""
    return around(config, "hunyuan_v1_dense", [block(config)] * llama.depth(config))


def block(config: Config, mlp: Experts | None = None) -> Block:
    """One layer. mlp: None for the gated one."""
    norm = llama.rms(config, default=1e-5)
    return llama.block(
        config,
        position=rope(config, llama.head_dim(config), by_alpha=True),
        qk_norm=QkNorm(norm, after=True),
        norms={"attn.in": norm, "mlp.in": norm},
        mlp=mlp,
    )


def around(config: Config, family: str, blocks: list[Block]) -> Spec:
    """The model around its layers."""
    biases = ("attn.[qkvo]",) if config.flag("attention_bias", default=False) else ()
    config.get("eod_token_id")
    return llama.decoder(config, family, blocks, final=llama.rms(config, default=1e-5), biases=biases)


FAMILY = Family(spec, NAMES)
