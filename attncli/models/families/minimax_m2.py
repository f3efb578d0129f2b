"""MiniMax-M2: Mixtral whose experts are scored one by one, with queries and keys normed over all heads. Source:
MiniMax, 2025."""

from __future__ import annotations

from attncli.mechanism.spec import Experts, QkNorm, Routing, Spec
from attncli.models.config import ACTIVATIONS, Config, rope
from attncli.models.families import llama, mixtral
from attncli.models.family import Family

NAMES = mixtral.NAMES.with_roles(
    {
        "attn.q_norm": "self_attn.q_norm",
        "attn.k_norm": "self_attn.k_norm",
        "experts.correction": "block_sparse_moe.e_score_correction_bias",
    }
)


def spec(config: Config) -> Spec:
    """The Spec of a MiniMax-M2. The shares of the chosen experts sum to 1."""
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


FAMILY = Family(spec, NAMES)
