"""Granite MoE: Granite with experts, whose gates and inner layers are one tensor. Source: Granite Team, 2024."""

from __future__ import annotations

from attncli.mechanism.spec import Experts, Spec
from attncli.models.config import ACTIVATIONS, Config
from attncli.models.families import granite, llama
from attncli.models.family import Family, PerExpert

NAMES = llama.NAMES.with_roles(
    {
        "experts.router": "block_sparse_moe.router.layer",
        "experts.gate experts.up": PerExpert("block_sparse_moe.input_linear"),
        "experts.down": "block_sparse_moe.output_linear",
    },
    without=("mlp.gate", "mlp.up", "mlp.down"),
)


def spec(config: Config) -> Spec:
    """The Spec of a Granite MoE. The shares of the chosen experts sum to 1."""
    count = config.whole("num_local_experts", default=8, most=2**16)
    experts = Experts(
        count,
        config.whole("num_experts_per_tok", default=2, most=count),
        config.whole("intermediate_size"),
        config.choice("hidden_act", among=ACTIVATIONS, default="silu"),
        renormalise=True,
    )
    return granite.with_multipliers(config, "granitemoe", mlp=experts)


FAMILY = Family(spec, NAMES, permuted=True)
