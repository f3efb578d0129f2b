"""Granite: Llama with multipliers on embeddings, scores, branches and logits. Source: Granite Team, 2024."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import Embedding, Experts, Spec
from attncli.models.config import ACTIVATIONS, Config, rope
from attncli.models.families import llama
from attncli.models.family import Family, PerExpert


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


GRANITEMOE_NAMES = llama.NAMES.with_roles(
    {
        "experts.router": "block_sparse_moe.router.layer",
        "experts.gate experts.up": PerExpert("block_sparse_moe.input_linear"),
        "experts.down": "block_sparse_moe.output_linear",
    },
    without=("mlp.gate", "mlp.up", "mlp.down"),
)


def granitemoe(config: Config) -> Spec:
    """Granite MoE: Granite with experts, whose gates and inner layers are one tensor. Source: Granite Team, 2024.

    The shares of the chosen experts sum to 1.
    """
    count = config.whole("num_local_experts", default=8, most=2**16)
    experts = Experts(
        count,
        config.whole("num_experts_per_tok", default=2, most=count),
        config.whole("intermediate_size"),
        config.choice("hidden_act", among=ACTIVATIONS, default="silu"),
        renormalise=True,
    )
    return with_multipliers(config, "granitemoe", mlp=experts)


FAMILIES = {
    "granite": Family(spec, llama.NAMES, permuted=True),
    "granitemoe": Family(granitemoe, GRANITEMOE_NAMES, permuted=True),
}
