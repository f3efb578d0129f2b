"""Gemma: Llama with norms that multiply by 1 + w and embeddings scaled by √d_model. Source: Gemma Team, 2024."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attncli.mechanism.mask import Everywhere, Mask, Window
from attncli.mechanism.spec import Embedding, Mlp, Norm, Place, QkNorm, Spec
from attncli.models.config import ACTIVATIONS, LOCAL, Config, FixedValue, causal, layer_mask, layer_types, rope
from attncli.models.families import llama
from attncli.models.family import Family

if TYPE_CHECKING:
    from attncli.inputs.gguf_file import Metadata

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


PLACES: tuple[Place, ...] = ("attn.in", "attn.out", "mlp.in", "mlp.out")

GEMMA2_NAMES = llama.NAMES.with_roles(
    {
        "attn.out": "post_attention_layernorm",
        "mlp.in": "pre_feedforward_layernorm",
        "mlp.out": "post_feedforward_layernorm",
    }
)


def gemma2(config: Config) -> Spec:
    """Gemma 2: norms on both sides of each part, soft caps, a window in every other layer. Source: Gemma Team, 2024."""
    dim = llama.head_dim(config, HEAD_DIM)
    norm = llama.rms(config, unit_offset=True)
    position, feed_forward = rope(config, dim), gemma2_mlp(config)
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
        config, "gemma2", blocks, final=norm, embedding=embedding(config), tied=True, logit_cap=logit_cap
    )


def gemma2_mlp(config: Config) -> Mlp:
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


def gguf_keys(metadata: Metadata, largest_depth: int) -> dict[str, object]:
    """What GGUF files leave out: the scale of the scores, of the head's width but in the model of 27 billion weights,
    which has this many layers: there it is the width shared out among the heads. EmbeddingGemma sees both ways."""
    width, heads = metadata.own("embedding_length"), metadata.own("attention.head_count")
    largest = metadata.own("block_count") == largest_depth and isinstance(width, int) and isinstance(heads, int)
    return {
        "query_pre_attn_scalar": width // heads if largest else metadata.own("attention.key_length"),
        "use_bidirectional_attention": metadata.architecture == "gemma-embedding",
    }


GEMMA3_TEXT_NAMES = GEMMA2_NAMES.with_roles({"attn.q_norm": "self_attn.q_norm", "attn.k_norm": "self_attn.k_norm"})

GEMMA3_TEXT_FIXED = {
    "attn_logit_softcapping": FixedValue(None, "scores would be capped, which no model of this family does")
}


def gemma3_text(config: Config) -> Spec:
    """Gemma 3 (text) and EmbeddingGemma: normed queries and keys, five local layers to a global one. Source: Gemma
    Team, 2025.

    Scaling of the rotary embedding is for its global layers only.
    """
    dim = llama.head_dim(config, HEAD_DIM)
    norm, mlp = llama.rms(config, unit_offset=True), gemma2_mlp(config)
    window = config.whole("sliding_window", default=4096)
    every = config.whole("sliding_window_pattern", default=6)
    config.get("_sliding_window_pattern")  # repeats `layer_types`
    both_ways = config.flag("use_bidirectional_attention", default=False)
    blocks = []
    for kind in layer_types(config, llama.depth(config), lambda layer: bool((layer + 1) % every)):
        local = kind == LOCAL
        base, default = ("rope_local_base_freq", 10000.0) if local else ("rope_theta", 1e6)
        blocks.append(
            llama.block(
                config,
                position=rope(config, dim, kind=kind, theta=(base,), default_theta=default, scaled=not local),
                dim=dim,
                mask=_mask(window if local else None, both_ways),
                scale=query_scale(config),
                qk_norm=QkNorm(norm),
                norms=sandwich(norm),
                mlp=mlp,
                kv_heads=4,
            )
        )
    logit_cap = config.cap("final_logit_softcapping", None)
    return llama.decoder(
        config, "gemma3_text", blocks, final=norm, embedding=embedding(config), tied=True, logit_cap=logit_cap
    )


def _mask(window: int | None, both_ways: bool) -> Mask:
    if not both_ways:
        return causal(window)
    return Everywhere() if window is None else Window(window // 2, window // 2)


FAMILIES = {
    "gemma": Family(spec, llama.NAMES, fixed=FIXED),
    "gemma2": Family(gemma2, GEMMA2_NAMES, fixed=FIXED, gguf=lambda metadata: gguf_keys(metadata, 46)),
    "gemma3_text": Family(
        gemma3_text, GEMMA3_TEXT_NAMES, fixed=GEMMA3_TEXT_FIXED, gguf=lambda metadata: gguf_keys(metadata, 62)
    ),
}
