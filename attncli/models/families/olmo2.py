"""OLMo 2: Llama with norms after each part, and queries and keys normed over their whole width. Source: OLMo Team,
2025."""

from __future__ import annotations

from attncli.mechanism.spec import QkNorm, Spec
from attncli.models.config import Config, rope
from attncli.models.families import llama
from attncli.models.family import Family

NAMES = llama.NAMES.with_roles(
    {
        "attn.out": "post_attention_layernorm",
        "mlp.out": "post_feedforward_layernorm",
        "attn.q_norm": "self_attn.q_norm",
        "attn.k_norm": "self_attn.k_norm",
    },
    without=("attn.in", "mlp.in"),
)


def spec(config: Config) -> Spec:
    """The Spec of an OLMo 2."""
    norm = llama.rms(config, default=1e-5)
    block = llama.block(
        config,
        position=rope(config, llama.head_dim(config)),
        qk_norm=QkNorm(norm, over="width"),
        norms={"attn.out": norm, "mlp.out": norm},
    )
    return llama.decoder(config, "olmo2", [block] * llama.depth(config), final=norm)


FAMILY = Family(spec, NAMES)
