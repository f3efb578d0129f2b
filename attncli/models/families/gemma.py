"""Gemma: Llama with norms that multiply by 1 + w and embeddings scaled by √d_model. Source: Gemma Team, 2024."""

from __future__ import annotations

from attncli.mechanism.spec import Embedding, Mlp, Spec
from attncli.models.config import ACTIVATIONS, Config, FixedValue, rope
from attncli.models.families import llama
from attncli.models.family import Family

HEAD_DIM = 256
"""The width of a head where the config does not say."""

FIXED = {"use_bidirectional_attention": FixedValue(False, "every token would see later ones")}


def spec(config: Config) -> Spec:
    """The Spec of a Gemma."""
    norm, dim = llama.rms(config, unit_offset=True), llama.head_dim(config, HEAD_DIM)
    block = llama.block(
        config,
        position=rope(config, dim),
        dim=dim,
        norms={"attn.in": norm, "mlp.in": norm},
        mlp=mlp(config),
        kv_heads=16,
    )
    return llama.decoder(
        config, "gemma", [block] * llama.depth(config), final=norm, embedding=embedding(config), tied=True
    )


def embedding(config: Config) -> Embedding:
    """Token vectors times √d_model."""
    return Embedding(scale=config.whole("hidden_size") ** 0.5)


def mlp(config: Config) -> Mlp:
    """The gated feed-forward part; the first configs wrote "gelu" for the approximation by tanh."""
    activation = config.choice(
        "hidden_activation", "hidden_act", among={**ACTIVATIONS, "gelu": "gelu_tanh"}, default="gelu_pytorch_tanh"
    )
    return Mlp(config.whole("intermediate_size"), activation, gated=True)


FAMILY = Family(spec, llama.NAMES, fixed=FIXED)
