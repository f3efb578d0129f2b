"""Phi 1 to 2: attention and feed-forward in parallel under one norm, partly rotated heads. Source:
Gunasekar et al.,
2023."""

from __future__ import annotations

from attncli.mechanism.spec import Mlp, Norm, QkNorm, Spec
from attncli.models.config import ACTIVATIONS, Config, causal, rope
from attncli.models.families import llama
from attncli.models.family import Concat, Family

NAMES = llama.NAMES.with_roles(
    {
        "attn.o": "self_attn.dense",
        "attn.q_norm": "self_attn.q_layernorm",
        "attn.k_norm": "self_attn.k_layernorm",
        "mlp.up": "mlp.fc1",
        "mlp.down": "mlp.fc2",
    },
    outside={"final": "final_layernorm"},
    without=("mlp.in", "mlp.gate"),
)


def spec(config: Config) -> Spec:
    """The Spec of a Phi 1 to 2: attention and feed-forward part in parallel under one norm, half of
    each head rotated, biases everywhere."""
    norm = Norm("layer", config.number("layer_norm_eps", default=1e-5))
    block = llama.block(
        config,
        position=rope(config, llama.head_dim(config), default_partial=0.5),
        qk_norm=QkNorm(norm) if config.flag("qk_layernorm", default=False) else None,
        norm=norm,
        places=("attn.in",),
        mlp=Mlp(
            config.integer("intermediate_size"),
            config.choice("hidden_act", among=ACTIVATIONS, default="gelu_new"),
        ),
        parallel=True,
    )
    return llama.decoder(config, block, biases=("*",))


PHI3_NAMES = llama.NAMES.with_roles(
    {
        "attn.q attn.k attn.v": Concat("self_attn.qkv_proj"),
        "mlp.gate mlp.up": Concat("mlp.gate_up_proj"),
    },
    without=("attn.q", "attn.k", "attn.v", "mlp.gate", "mlp.up"),
)


def phi3(config: Config) -> Spec:
    """The Spec of a Phi 3: Llama with a window and LongRoPE. Source: Abdin et al., 2024."""
    # `rope` reads it where positions are scaled; here, so that it never counts as an unknown key
    config.optional("original_max_position_embeddings")
    mask = causal(config.optional("sliding_window"))
    norm = llama.rms(config, default=1e-5)
    block = llama.block(
        config,
        position=rope(config, llama.head_dim(config), default_partial=1.0, default_original=4096),
        mask=mask,
        norm=norm,
    )
    return llama.decoder(config, block)


FAMILIES = {
    "phi": Family(spec, NAMES),
    "phi3": Family(phi3, PHI3_NAMES),
}
