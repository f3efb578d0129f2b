"""T5: encoder-decoder with learned biases by distance, unscaled scores, root-mean-square norms.
Source: Raffel et al.,
2020."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.inputs.gguf_file import Metadata
from attncli.mechanism.mask import Causal, Everywhere
from attncli.mechanism.spec import Attention, Block, Head, Mlp, Norm, Place, RelativeBuckets, Spec
from attncli.models.config import ACTIVATIONS, MOST_LAYERS, Config, FixedValue
from attncli.models.family import Family, Names, SharedTensor

BUCKETS = "block.0.layer.0.SelfAttention.relative_attention_bias"

ENCODER = Names(
    layer="encoder.block.{layer}.",
    inside={
        "attn.in": "layer.0.layer_norm",
        "attn.q": "layer.0.SelfAttention.q",
        "attn.k": "layer.0.SelfAttention.k",
        "attn.v": "layer.0.SelfAttention.v",
        "attn.o": "layer.0.SelfAttention.o",
        "attn.buckets": SharedTensor(f"encoder.{BUCKETS}"),
        "mlp.in": "layer.1.layer_norm",
        "mlp.gate": "layer.1.DenseReluDense.wi_0",
        "mlp.up": "layer.1.DenseReluDense.wi_1|layer.1.DenseReluDense.wi",
        "mlp.down": "layer.1.DenseReluDense.wo",
    },
    outside={
        "tokens": "encoder.embed_tokens|shared|decoder.embed_tokens",
        "final": "encoder.final_layer_norm",
    },
    prefixes=("transformer.",),
    ignored=(
        *(
            "shared.weight",
            "encoder.embed_tokens.weight",
            "decoder.embed_tokens.weight",
            "lm_head.weight",
        ),
        *("classification_head.*", "classifier.*", "qa_outputs.*"),
    ),
)

DECODER = replace(
    ENCODER.with_roles(
        {
            "attn.buckets": SharedTensor(f"decoder.{BUCKETS}"),
            "cross.in": "layer.1.layer_norm",
            "cross.q": "layer.1.EncDecAttention.q",
            "cross.k": "layer.1.EncDecAttention.k",
            "cross.v": "layer.1.EncDecAttention.v",
            "cross.o": "layer.1.EncDecAttention.o",
            "mlp.in": "layer.2.layer_norm",
            "mlp.gate": "layer.2.DenseReluDense.wi_0",
            "mlp.up": "layer.2.DenseReluDense.wi_1|layer.2.DenseReluDense.wi",
            "mlp.down": "layer.2.DenseReluDense.wo",
        },
        outside={
            "tokens": "decoder.embed_tokens|shared|encoder.embed_tokens",
            "final": "decoder.final_layer_norm",
            "head": (
                "lm_head|shared|decoder.embed_tokens|encoder.embed_tokens"
            ),  # tied where it is not stored
        },
    ),
    layer="decoder.block.{layer}.",
    # early files hold a bias here that the model never used
    ignored=(
        *ENCODER.ignored,
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
    ),
)

FIXED = {"is_decoder": FixedValue(False, "the file would hold a decoder alone")}


def spec(config: Config, *, default_mlp: str = "relu", scaled: bool | None = None) -> Spec:
    """The Spec of a T5: the encoder, with the decoder inside unless the file holds an encoder
    alone.

    default_mlp: the kind of feed-forward part where the config does not set `feed_forward_proj`.
    scaled: whether the decoder's last vectors are scaled before the output head; None for what the
        config says, or where it is silent for whether the head is tied to the token table.
    """
    config.get("n_positions")  # has no effect: T5's positions have no end
    scales_output = config.flag(
        "scale_decoder_outputs", default=config.flag("tie_word_embeddings", default=True)
    )
    width = config.integer("d_model")
    heads = config.integer("num_heads", most=2**16)
    dim = config.integer("d_kv")
    norm = Norm("rms", config.number("layer_norm_epsilon", default=1e-6))
    mlp = _mlp(config, default_mlp)
    layers = config.integer("num_layers", most=MOST_LAYERS)
    norms: dict[Place, Norm] = {"attn.in": norm, "mlp.in": norm}
    start = config.integer("decoder_start_token_id", "pad_token_id", default=0, least=0)

    count = config.integer("relative_attention_num_buckets", default=32, least=4)
    # a decoder's first half of the buckets is for one distance each; the other half needs at least
    # one distance beyond these
    furthest = config.integer("relative_attention_max_distance", default=128, least=count // 2 + 1)

    # the decoder's cross-attention; self-attention is the same with a mask and positions
    cross = Attention(heads, kv_heads=heads, head_dim=dim, v_dim=dim, scale=1.0)

    def attention(*, is_causal: bool) -> Attention:
        """Self-attention with T5's relative position buckets: the decoder's, which is causal, or the
        encoder's.
        """
        return replace(
            cross,
            mask=Causal() if is_causal else Everywhere(),
            position=RelativeBuckets(count, furthest, bidirectional=not is_causal),
        )

    encoder = Spec(
        d_model=width,
        vocabulary=config.integer("vocab_size"),
        blocks=(Block(attention(is_causal=False), mlp, norms),) * layers,
        final_norm=norm,
    )

    # a file saved by a class of the encoder alone has no decoder, whatever its config says
    encoder_classes = (["T5EncoderModel"], ["MT5EncoderModel"], ["UMT5EncoderModel"])
    has_both = config.flag("is_encoder_decoder", default=True)
    if not has_both or config.get("architectures") in encoder_classes:
        config.optional("num_decoder_layers")  # read, so that it does not count as unknown
        return encoder

    if scaled is None:
        scaled = scales_output
    block = Block(attention(is_causal=True), mlp, {**norms, "cross.in": norm}, cross=cross)
    decoder = replace(
        encoder,
        blocks=(block,) * config.integer("num_decoder_layers", default=layers, most=MOST_LAYERS),
        start=start,
        head=Head(tied=False, scale=width**-0.5 if scaled else 1.0),
    )
    return replace(encoder, decoder=decoder)


def _mlp(config: Config, default: str) -> Mlp:
    """The feed-forward part, from `feed_forward_proj`: the name of an activation ("relu"), or with
    "gated-" before it of a gated part; "gated-gelu" means the approximation by tanh.

    Newer files repeat it as `dense_act_fn` and `is_gated_act`, which count first, as in
    transformers.
    default: used where the config does not set it.
    """
    activation_names = {
        **ACTIVATIONS,
        **{f"gated-{name}": kind for name, kind in ACTIVATIONS.items()},
        "gated-gelu": "gelu_tanh",
    }
    spelling = config.get("feed_forward_proj") or default
    activation = config.choice(
        "dense_act_fn", "feed_forward_proj", among=activation_names, default=default
    )
    return Mlp(
        config.integer("d_ff"),
        activation,
        gated=config.flag("is_gated_act", default=str(spelling).startswith("gated-")),
    )


def mt5(config: Config) -> Spec:
    """The Spec of an mT5: T5 with a gated feed-forward part by default, and no scaling before the
    output head. Source: Xue et al., 2021."""
    return spec(config, default_mlp="gated-gelu", scaled=False)


UMT5_BUCKETS = {"attn.buckets": "layer.0.SelfAttention.relative_attention_bias"}


def umt5(config: Config) -> Spec:
    """The Spec of an umT5: mT5 whose layers each have biases by distance of their own (a matter of
    its tensor names). Source: Chung et al., 2023."""
    return spec(config, default_mlp="gated-gelu")


def gguf_keys(metadata: Metadata) -> dict[str, object]:
    """Config values by key that GGUF files name otherwise or lack: sizes, the largest distance that
    position buckets tell apart (128), and the activation."""
    has_gate = "enc.blk.0.ffn_gate.weight" in metadata.tensors
    has_decoder = "dec.output_norm.weight" in metadata.tensors
    return {
        "d_model": metadata.architecture_value("embedding_length"),
        "d_kv": metadata.architecture_value("attention.key_length"),
        "d_ff": metadata.architecture_value("feed_forward_length"),
        "num_layers": metadata.architecture_value("block_count"),
        "num_decoder_layers": metadata.architecture_value("decoder_block_count")
        or metadata.architecture_value("block_count"),
        "num_heads": metadata.architecture_value("attention.head_count"),
        "relative_attention_num_buckets": metadata.architecture_value(
            "attention.relative_buckets_count"
        ),
        "relative_attention_max_distance": 128,
        "layer_norm_epsilon": metadata.architecture_value("attention.layer_norm_rms_epsilon"),
        "feed_forward_proj": "gated-gelu" if has_gate else "relu",
        "decoder_start_token_id": metadata.architecture_value("decoder_start_token_id"),
        "is_encoder_decoder": has_decoder,
    }


FAMILIES = {
    "t5": Family(spec, ENCODER, DECODER, FIXED, gguf=gguf_keys),
    "mt5": Family(mt5, ENCODER, DECODER, FIXED, gguf=gguf_keys),
    "umt5": Family(
        umt5,
        ENCODER.with_roles(UMT5_BUCKETS),
        DECODER.with_roles(UMT5_BUCKETS),
        FIXED,
        gguf=gguf_keys,
    ),
}
