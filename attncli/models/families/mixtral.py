"""Mixtral: Mistral with experts. Source: Jiang et al., 2024."""

from __future__ import annotations

from attncli.mechanism.spec import Experts, Spec
from attncli.models.config import ACTIVATIONS, Config, causal, rope
from attncli.models.families import llama
from attncli.models.family import Family, StackedTensor

NAMES = llama.NAMES.with_roles(
    {
        "experts.router": "block_sparse_moe.gate",
        "experts.gate": StackedTensor("block_sparse_moe.experts.{item}.w1"),
        "experts.up": StackedTensor("block_sparse_moe.experts.{item}.w3"),
        "experts.down": StackedTensor("block_sparse_moe.experts.{item}.w2"),
    }
)


def spec(config: Config) -> Spec:
    """The Spec of a Mixtral."""
    count = config.whole("num_local_experts", default=8, most=2**16)
    experts = Experts(
        count,
        config.whole("num_experts_per_tok", default=2, most=count),
        config.whole("intermediate_size"),
        config.choice("hidden_act", among=ACTIVATIONS, default="silu"),
        renormalise=True,
    )
    mask = causal(config.optional("sliding_window"))
    norm = llama.rms(config, default=1e-5)
    block = llama.block(
        config,
        position=rope(config, llama.head_dim(config), default_theta=1e6),
        mask=mask,
        norms={"attn.in": norm, "mlp.in": norm},
        mlp=experts,
        kv_heads=8,
    )
    return llama.decoder(config, "mixtral", [block] * llama.depth(config), final=norm)


FAMILY = Family(spec, NAMES, permuted=True)
