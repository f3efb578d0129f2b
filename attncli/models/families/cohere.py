"""Cohere Command R: parallel parts under one layer norm without bias, adjacent entries rotated. Source: Cohere,
2024."""

from __future__ import annotations

from attncli.mechanism.spec import Norm, QkNorm, Spec
from attncli.models.config import Config, rope
from attncli.models.families import llama
from attncli.models.family import Family

NAMES = llama.NAMES.with_roles(
    {"attn.q_norm": "self_attn.q_norm", "attn.k_norm": "self_attn.k_norm"}, without=("mlp.in",)
)


def spec(config: Config) -> Spec:
    """The Spec of a Cohere model. Where queries and keys are normed, each head has weights of its own."""
    norm = Norm("layer", config.number("layer_norm_eps", default=1e-5))
    block = llama.block(
        config,
        position=rope(config, llama.head_dim(config), default_theta=500000.0, pairing="adjacent"),
        qk_norm=QkNorm(norm, over="own") if config.flag("use_qk_norm", default=False) else None,
        norms={"attn.in": norm},
        parallel=True,
    )
    scale = config.number("logit_scale", default=0.0625)
    return llama.decoder(config, "cohere", [block] * llama.depth(config), final=norm, tied=True, logit_scale=scale)


FAMILY = Family(spec, NAMES)
