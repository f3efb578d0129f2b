"""Mixtral: Mistral with experts. Source: Jiang et al., 2024."""

from __future__ import annotations

from attncli.mechanism.spec import Experts, QkNorm, Routing, Spec
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


MINIMAX_M2_NAMES = NAMES.with_roles(
    {
        "attn.q_norm": "self_attn.q_norm",
        "attn.k_norm": "self_attn.k_norm",
        "experts.correction": "block_sparse_moe.e_score_correction_bias",
    }
)


def minimax_m2(config: Config) -> Spec:
    """MiniMax-M2: Mixtral whose experts are scored one by one, with queries and keys normed over all heads. Source:
    MiniMax, 2025.

    The shares of the chosen experts sum to 1.
    """
    count = config.whole("num_local_experts", "num_experts", default=256, most=2**16)
    experts = Experts(
        count,
        config.whole("num_experts_per_tok", default=8, most=count),
        config.whole("intermediate_size", default=1536),
        config.choice("hidden_act", among=ACTIVATIONS, default="silu"),
        renormalise=True,
        routing=Routing("sigmoid", corrected=True),
    )
    dim = llama.head_dim(config, 128)
    share = config.whole("rotary_dim", default=dim) / dim
    block = llama.block(
        config,
        position=rope(config, dim, default_theta=5e6, default_partial=share),
        dim=dim,
        qk_norm=QkNorm(llama.rms(config), over="width"),
        kv_heads=8,
        mlp=experts,
    )
    return llama.decoder(config, "minimax_m2", [block] * llama.depth(config), biases=())


FAMILIES = {
    "mixtral": Family(spec, NAMES, permuted=True),
    "minimax_m2": Family(minimax_m2, MINIMAX_M2_NAMES),
}
