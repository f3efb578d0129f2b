"""BART: post-norm encoder-decoder with learned positions. Source: Lewis et al., 2019."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.mask import Causal
from attncli.mechanism.spec import Attention, Block, Embedding, Head, Mlp, Norm, Place, Spec
from attncli.models.config import ACTIVATIONS, MOST_LAYERS, Config, FixedValue
from attncli.models.family import Family, Names

ENCODER = Names(
    layer="encoder.layers.{layer}.",
    inside={
        "attn.q": "self_attn.q_proj",
        "attn.k": "self_attn.k_proj",
        "attn.v": "self_attn.v_proj",
        "attn.o": "self_attn.out_proj",
        "attn.sum": "self_attn_layer_norm",
        "mlp.up": "fc1",
        "mlp.down": "fc2",
        "mlp.sum": "final_layer_norm",
    },
    outside={
        "tokens": "encoder.embed_tokens|shared|decoder.embed_tokens",
        "positions": "encoder.embed_positions",
        "embed.norm": "encoder.layernorm_embedding",
    },
    prefixes=("model.",),
    ignored=(
        *(
            "shared.weight",
            "encoder.embed_tokens.weight",
            "decoder.embed_tokens.weight",
            "encoder.version",
            "decoder.version",
        ),
        *("final_logits_bias", "lm_head.weight", "classification_head.*", "qa_outputs.*"),
    ),
)

DECODER = replace(
    ENCODER.with_roles(
        {
            "cross.q": "encoder_attn.q_proj",
            "cross.k": "encoder_attn.k_proj",
            "cross.v": "encoder_attn.v_proj",
            "cross.o": "encoder_attn.out_proj",
            "cross.sum": "encoder_attn_layer_norm",
        },
        outside={
            "tokens": "decoder.embed_tokens|shared|encoder.embed_tokens",
            "positions": "decoder.embed_positions",
            "embed.norm": "decoder.layernorm_embedding",
            "head": "lm_head",
            "head.offsets": "final_logits_bias",
        },
    ),
    layer="decoder.layers.{layer}.",
)

FIXED = {
    "is_decoder": FixedValue(False, "the file would hold one side"),
    "is_encoder_decoder": FixedValue(True, "the file would hold one side"),
    "normalize_before": FixedValue(False, "norms would come before each part"),
    "add_final_layer_norm": FixedValue(False, "a norm would follow the last layer"),
    "normalize_embedding": FixedValue(True, "the embedding would have no norm"),
    "extra_pos_embeddings": FixedValue(2, "positions would start at another row"),
    "static_position_embeddings": FixedValue(False, "positions would be sinusoidal"),
    "add_bias_logits": FixedValue(False, "logits would have a bias"),
}


def spec(config: Config) -> Spec:
    """The Spec of a BART: the encoder, with the decoder inside."""
    norm = Norm("layer", 1e-5)
    config.optional("num_hidden_layers")  # repeats encoder_layers
    embedding = Embedding(scale=scale(config), positions="learned", position_offset=2, norm=norm)
    return encoder_decoder(config, "bart", norm, embedding)


def encoder_decoder(
    config: Config,
    family: str,
    norm: Norm,
    embedding: Embedding,
    *,
    start: int = 2,
    activation: str = "gelu",
    positions: int = 1024,
    before: bool = False,
) -> Spec:
    """Both sides around their embedding. start, activation, positions: what the config means by silence. before:
    whether norms come before each part and after the last layer, in place of after each part."""
    width = config.whole("d_model")
    function = config.choice("activation_function", among=ACTIVATIONS, default=activation)
    sum_or_in: tuple[Place, ...] = ("attn.in", "mlp.in") if before else ("attn.sum", "mlp.sum")
    crossing: Place = "cross.in" if before else "cross.sum"

    def attention(side: str) -> Attention:
        heads = config.heads(width, f"{side}_attention_heads")
        return Attention(heads, heads, width // heads, width // heads, scale=(width // heads) ** -0.5)

    def mlp(side: str) -> Mlp:
        return Mlp(config.whole(f"{side}_ffn_dim"), function)

    encoder = Spec(
        family=family,
        d_model=width,
        vocabulary=config.whole("vocab_size"),
        blocks=(Block(attention("encoder"), mlp("encoder"), dict.fromkeys(sum_or_in, norm)),)
        * config.whole("encoder_layers", most=MOST_LAYERS),
        embedding=embedding,
        final_norm=norm if before else None,
        max_positions=config.whole("max_position_embeddings", default=positions),
        biases=("*",),
    )
    block = Block(
        replace(attention("decoder"), mask=Causal()),
        mlp("decoder"),
        dict.fromkeys((*sum_or_in, crossing), norm),
        cross=attention("decoder"),
    )
    layers = config.whole("decoder_layers", most=MOST_LAYERS)
    first = config.whole("decoder_start_token_id", default=start, least=0)
    head = Head(tied=config.flag("tie_word_embeddings", default=True), offsets=True)
    return replace(encoder, decoder=replace(encoder, blocks=(block,) * layers, start=first, head=head))


def scale(config: Config, *, default: bool = False) -> float:
    """What token vectors are multiplied with. default: whether they are scaled where the config is silent."""
    return config.whole("d_model") ** 0.5 if config.flag("scale_embedding", default=default) else 1.0


FAMILY = Family(spec, ENCODER, DECODER, FIXED)
