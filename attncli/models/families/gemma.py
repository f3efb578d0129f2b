"""Gemma: Llama with norms that multiply by 1 + w and embeddings scaled by √d_model. Source: Gemma
Team, 2024.
"""

from __future__ import annotations

from msgspec.structs import replace

from attncli.errors import InputError
from attncli.inputs.gguf_file import Metadata
from attncli.mechanism.mask import Everywhere, Mask, Window
from attncli.mechanism.spec import Block, Embedding, Mlp, Place, QkNorm, Spec
from attncli.models.config import (
    ACTIVATIONS,
    LOCAL,
    Config,
    FixedValue,
    causal,
    layer_mask,
    layer_types,
    mirror_mask,
    rope,
    settle,
)
from attncli.models.families import llama
from attncli.models.family import Family

HEAD_DIM = 256
"""The width of a head where the config does not say."""

FIXED = {"use_bidirectional_attention": FixedValue(False, "every token would see later ones")}


def spec(config: Config) -> Spec:
    """The Spec of a Gemma: Llama's layers with norms that multiply by 1 + w."""
    norm = llama.rms(config, unit_offset=True)
    dim = llama.head_dim(config, default=HEAD_DIM)
    position = rope(config, dim)
    block = llama.block(
        config, position=position, dim=dim, norm=norm, mlp=mlp(config), default_kv_heads=16
    )
    return llama.decoder(config, block, embedding=embedding(config), default_tied=True)


def embedding(config: Config) -> Embedding:
    """A Gemma's embedding: token vectors times √d_model."""
    return Embedding(scale=config.integer("hidden_size") ** 0.5)


def mlp(config: Config) -> Mlp:
    """A Gemma's gated feed-forward part; its first configs wrote "gelu" for the approximation by
    tanh."""
    activation = config.choice(
        "hidden_activation",
        "hidden_act",
        among={**ACTIVATIONS, "gelu": "gelu_tanh"},
        default="gelu_pytorch_tanh",
    )
    return Mlp(config.integer("intermediate_size"), activation, gated=True)


PLACES: tuple[Place, ...] = ("attn.in", "attn.out", "mlp.in", "mlp.out")

GEMMA2_NAMES = llama.NAMES.with_roles(
    {
        "attn.out": "post_attention_layernorm",
        "mlp.in": "pre_feedforward_layernorm",
        "mlp.out": "post_feedforward_layernorm",
    }
)


def gemma2(config: Config) -> Spec:
    """The Spec of a Gemma 2: norms on both sides of each part, soft caps, a window in every other
    layer. Source: Gemma Team, 2024.
    """
    dim = llama.head_dim(config, default=HEAD_DIM)
    norm = llama.rms(config, unit_offset=True)
    position = rope(config, dim)
    feed_forward = gemma2_mlp(config)
    # every other layer has the window
    window = config.integer("sliding_window", default=4096)
    cap = config.cap("attn_logit_softcapping", default=50.0)

    blocks = [
        llama.block(
            config,
            position=position,
            dim=dim,
            mask=layer_mask(config, kind, window),
            scale=query_scale(config),
            softcap=cap,
            norm=norm,
            places=PLACES,
            mlp=feed_forward,
            default_kv_heads=4,
        )
        for kind in layer_types(config, llama.depth(config), lambda layer: layer % 2 == 0)
    ]
    logit_cap = config.cap("final_logit_softcapping", default=30.0)
    return llama.decoder(
        config, blocks, embedding=embedding(config), default_tied=True, logit_cap=logit_cap
    )


def gemma2_mlp(config: Config) -> Mlp:
    """The gated feed-forward part of Gemma 2 and 3, with the activation of `hidden_activation`;
    `hidden_act` does not count."""
    config.get("hidden_act")  # a leftover in files; `hidden_activation` counts
    activation = config.choice("hidden_activation", among=ACTIVATIONS, default="gelu_pytorch_tanh")
    return Mlp(config.integer("intermediate_size"), activation, gated=True)


def query_scale(config: Config) -> float:
    """The factor on the scores, `query_pre_attn_scalar`^−½."""
    return config.number("query_pre_attn_scalar", default=256.0) ** -0.5


def gguf_keys(metadata: Metadata, largest_depth: int) -> dict[str, object]:
    """Config values by key that GGUF files lack: `query_pre_attn_scalar`, which is the head's
    width, but width / heads in the 27B model; and whether queries see later tokens, as in
    EmbeddingGemma.

    largest_depth: the layers of the 27B model, by which it is recognised.
    """
    width = metadata.architecture_value("embedding_length")
    heads = metadata.architecture_value("attention.head_count")
    query_scalar = metadata.architecture_value("attention.key_length")
    is_largest = metadata.architecture_value("block_count") == largest_depth
    if is_largest and isinstance(width, int) and isinstance(heads, int):
        query_scalar = width // heads
    return {
        "query_pre_attn_scalar": query_scalar,
        "use_bidirectional_attention": metadata.architecture == "gemma-embedding",
    }


GEMMA3_TEXT_NAMES = GEMMA2_NAMES.with_roles(
    {"attn.q_norm": "self_attn.q_norm", "attn.k_norm": "self_attn.k_norm"}
)

GEMMA3_TEXT_FIXED = {
    "attn_logit_softcapping": FixedValue(
        None, "scores would be capped, which no model of this family does"
    )
}


def gemma3_text(config: Config) -> Spec:
    """The Spec of a Gemma 3 (text) or EmbeddingGemma: normed queries and keys, five local layers to
    a global one. Source: Gemma Team, 2025.

    Local layers have a rotary base of their own; scaling of the rotary embedding is for the global
    layers only.
    """
    dim = llama.head_dim(config, default=HEAD_DIM)
    norm = llama.rms(config, unit_offset=True)

    mlp = gemma2_mlp(config)
    window = config.integer("sliding_window", default=4096)
    every = config.integer("sliding_window_pattern", default=6)
    config.get("_sliding_window_pattern")  # repeats `layer_types`
    both_ways = config.flag("use_bidirectional_attention", default=False)
    blocks = []
    # every sixth layer is global
    for kind in layer_types(config, llama.depth(config), lambda layer: bool((layer + 1) % every)):
        is_local = kind == LOCAL
        if is_local:
            theta_key = "rope_local_base_freq"
            default_theta = 10000.0
        else:
            theta_key = "rope_theta"
            default_theta = 1e6
        position = rope(
            config,
            dim,
            kind=kind,
            theta_keys=(theta_key,),
            default_theta=default_theta,
            scaled=not is_local,
        )
        blocks.append(
            llama.block(
                config,
                position=position,
                dim=dim,
                mask=_window_mask(window if is_local else None, both_ways=both_ways),
                scale=query_scale(config),
                qk_norm=QkNorm(norm),
                norm=norm,
                places=PLACES,
                mlp=mlp,
                default_kv_heads=4,
            )
        )
    logit_cap = config.cap("final_logit_softcapping", default=None)
    return llama.decoder(
        config, blocks, embedding=embedding(config), default_tied=True, logit_cap=logit_cap
    )


def _window_mask(window: int | None, *, both_ways: bool) -> Mask:
    """The mask of a layer: causal within `window` keys, the query's own included, or, if
    `both_ways`, half as many on either side. window: None for no window."""
    if not both_ways:
        return causal(window)
    if window is None:
        return Everywhere()
    return Window(left=window // 2, right=window // 2)


T5GEMMA_ENCODER = replace(
    GEMMA2_NAMES.with_roles(
        {"attn.in": "pre_self_attn_layernorm", "attn.out": "post_self_attn_layernorm"},
        outside={"tokens": "encoder.embed_tokens", "final": "encoder.norm"},
    ),
    layer="encoder.layers.{layer}.",
    ignored=("lm_head.*", "score.*"),
)

T5GEMMA_DECODER = replace(
    T5GEMMA_ENCODER.with_roles(
        {
            "cross.in": "pre_cross_attn_layernorm",
            "cross.q": "cross_attn.q_proj",
            "cross.k": "cross_attn.k_proj",
            "cross.v": "cross_attn.v_proj",
            "cross.o": "cross_attn.o_proj",
            "cross.out": "post_cross_attn_layernorm",
        },
        outside={
            "tokens": "decoder.embed_tokens",
            "final": "decoder.norm",
            "head": "lm_head.out_proj",
        },
    ),
    layer="decoder.layers.{layer}.",
)

T5GEMMA_FIXED = {"is_encoder_decoder": FixedValue(True, "the file would hold one side")}

OF_ITS_PLACE = (
    "is_decoder",
    "cross_attention_hidden_size",
    "is_encoder_decoder",
    "tie_word_embeddings",
)
"""Keys of a side that follow from which side it is, or are the whole model's."""


def t5gemma(config: Config) -> Spec:
    """The Spec of a T5Gemma: an encoder and a decoder of Gemma 2's layers, each with a config of its
    own; the decoder is inside the encoder's Spec. Source: Zhang et al., 2025."""
    config.get("vocab_size")  # repeats the decoder's

    # the encoder: Gemma 2 with masks that let queries see later tokens, and no output head
    encoder_config = _side_config(config, "encoder")
    encoder = gemma2(encoder_config)
    encoder = replace(encoder, blocks=tuple(map(_both_ways, encoder.blocks)), head=None)
    _settle_side(config, encoder_config)  # keys that nothing has read become notes

    # the decoder: Gemma 2 with cross-attention in each layer
    decoder_config = _side_config(config, "decoder")
    decoder = gemma2(decoder_config)
    start = decoder_config.integer("bos_token_id", default=2, least=0)
    blocks = tuple(_with_cross_attention(block, encoder.d_model) for block in decoder.blocks)
    assert decoder.head is not None  # a Gemma 2 has one
    head = replace(decoder.head, tied=config.flag("tie_word_embeddings", default=True))
    _settle_side(config, decoder_config)
    biases = decoder.biases
    if "attn.[qkvo]" in biases:
        biases += ("cross.[qkvo]",)
    decoder = replace(decoder, blocks=blocks, start=start, head=head, biases=biases)
    return replace(encoder, decoder=decoder)


def _side_config(config: Config, side: str) -> Config:
    """The config of the "encoder" or the "decoder", nested in the whole model's config under that
    key. Raises InputError if there is none."""
    side_config = config.section(side)
    if side_config is None:
        raise InputError(
            "config.json has no {side}",
            where=config.where,
            expected="the config of each side",
            side=repr(side),
        )
    # known from its place: read, so that they do not count as unknown keys
    side_config.get(*OF_ITS_PLACE)
    return side_config


def _settle_side(config: Config, side: Config) -> None:
    """Check the keys that no reader has used in the config of an encoder or decoder, `side`; notes
    on them are added to the whole model's config.
    """
    for note in settle(side, {}):
        config.note(note)


def _both_ways(block: Block) -> Block:
    """The layer with its mask made symmetric: queries see as many tokens after them as before."""
    mask = mirror_mask(block.attention.mask)
    assert mask is not None  # Gemma 2's masks, causal with a window or without, have such a form
    return replace(block, attention=replace(block.attention, mask=mask))


def _with_cross_attention(block: Block, width: int) -> Block:
    """The decoder layer with cross-attention added, of the sizes of its self-attention, without mask
    or positions.

    width: of the encoder's vectors.
    """
    cross = replace(block.attention, mask=Everywhere(), position=None, source_width=width)
    norm = block.norms["attn.in"]  # all norms of a layer are alike
    return replace(block, cross=cross, norms={**block.norms, "cross.in": norm, "cross.out": norm})


FAMILIES = {
    "gemma": Family(spec, llama.NAMES, fixed=FIXED),
    "gemma2": Family(
        gemma2, GEMMA2_NAMES, fixed=FIXED, gguf=lambda metadata: gguf_keys(metadata, 46)
    ),
    "gemma3_text": Family(
        gemma3_text,
        GEMMA3_TEXT_NAMES,
        fixed=GEMMA3_TEXT_FIXED,
        gguf=lambda metadata: gguf_keys(metadata, 62),
    ),
    "t5gemma": Family(t5gemma, T5GEMMA_ENCODER, T5GEMMA_DECODER, T5GEMMA_FIXED),
}
