"""Granite: Llama with multipliers on embeddings, scores, branches and logits. Source: Granite Team, 2024."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import Embedding, Experts, Spec
from attncli.models.config import Config, rope
from attncli.models.families import llama
from attncli.models.family import Family


def spec(config: Config) -> Spec:
    """The Spec of a Granite."""
    return with_multipliers(config, "granite")


def with_multipliers(config: Config, family: str, *, mlp: Experts | None = None) -> Spec:
    """Llama between its four multipliers, each 1 where the config is silent. mlp: None for the gated one."""
    block = llama.block(
        config,
        position=rope(config, llama.head_dim(config)),
        scale=config.number("attention_multiplier", default=1.0),
        mlp=mlp,
    )
    block = replace(block, branch_scale=config.number("residual_multiplier", default=1.0))
    return llama.decoder(
        config,
        family,
        [block] * llama.depth(config),
        embedding=Embedding(scale=config.number("embedding_multiplier", default=1.0)),
        logit_scale=1.0 / config.number("logits_scaling", default=1.0),
    )


FAMILY = Family(spec, llama.NAMES, permuted=True)
