"""Gemma 2: norms on both sides of each part, soft caps, a window in every other layer. Source: Gemma Team, 2024."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attncli.mechanism.spec import Mlp, Norm, Place, Spec
from attncli.models.config import ACTIVATIONS, Config, layer_mask, layer_types, rope
from attncli.models.families import gemma, llama
from attncli.models.family import Family

if TYPE_CHECKING:
    from attncli.inputs.gguf_file import Metadata

LARGEST_DEPTH = 46
"""Layers of the model of 27 billion weights, whose scores are scaled by the width shared out among the heads."""

PLACES: tuple[Place, ...] = ("attn.in", "attn.out", "mlp.in", "mlp.out")

NAMES = llama.NAMES.with_roles(
    {
        "attn.out": "post_attention_layernorm",
        "mlp.in": "pre_feedforward_layernorm",
        "mlp.out": "post_feedforward_layernorm",
    }
)


def spec(config: Config) -> Spec:
    """The Spec of a Gemma 2."""
    dim = llama.head_dim(config, gemma.HEAD_DIM)
    norm = llama.rms(config, unit_offset=True)
    position, feed_forward = rope(config, dim), mlp(config)
    window = config.whole("sliding_window", default=4096)
    cap = config.cap("attn_logit_softcapping", 50.0)
    blocks = [
        llama.block(
            config,
            position=position,
            dim=dim,
            mask=layer_mask(config, kind, window),
            scale=query_scale(config),
            softcap=cap,
            norms=sandwich(norm),
            mlp=feed_forward,
            kv_heads=4,
        )
        for kind in layer_types(config, llama.depth(config), lambda layer: layer % 2 == 0)
    ]
    logit_cap = config.cap("final_logit_softcapping", 30.0)
    return llama.decoder(
        config, "gemma2", blocks, final=norm, embedding=gemma.embedding(config), tied=True, logit_cap=logit_cap
    )


def mlp(config: Config) -> Mlp:
    """The gated feed-forward part."""
    config.get("hidden_act")  # a leftover in files; `hidden_activation` counts
    activation = config.choice("hidden_activation", among=ACTIVATIONS, default="gelu_pytorch_tanh")
    return Mlp(config.whole("intermediate_size"), activation, gated=True)


def query_scale(config: Config) -> float:
    """The scale of the scores, from a number of its own instead of the head's width."""
    return config.number("query_pre_attn_scalar", default=256.0) ** -0.5


def sandwich(norm: Norm) -> dict[Place, Norm]:
    """The norm before and after each part."""
    return dict.fromkeys(PLACES, norm)


def gguf_keys(metadata: Metadata) -> dict[str, object]:
    """What GGUF files leave out: the scale of the scores, of the head's width but in the largest model."""
    width, heads = metadata.own("embedding_length"), metadata.own("attention.head_count")
    largest = metadata.own("block_count") == LARGEST_DEPTH and isinstance(width, int) and isinstance(heads, int)
    return {"query_pre_attn_scalar": width // heads if largest else metadata.own("attention.key_length")}


FAMILY = Family(spec, NAMES, fixed=gemma.FIXED, gguf=gguf_keys)
