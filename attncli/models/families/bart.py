"""BART: post-norm encoder-decoder with learned positions. Source: Lewis et al., 2019."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.mask import Causal
from attncli.mechanism.spec import Attention, Block, Embedding, Head, Mlp, Norm, Place, Spec
from attncli.models.config import ACTIVATIONS, MOST_LAYERS, Config, FixedValue
from attncli.models.family import Family, Names, Source, TrainedSizes

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
    embedding = Embedding(
        scale=embedding_scale(config), positions="learned", position_offset=2, norm=norm
    )
    return encoder_decoder(config, norm, embedding)


def encoder_decoder(
    config: Config,
    norm: Norm,
    embedding: Embedding,
    *,
    default_start: int = 2,
    default_activation: str = "gelu",
    default_positions: int = 1024,
    before: bool = False,
) -> Spec:
    """The Spec of an encoder with its decoder inside, for BART and its relatives.

    norm, embedding: of both.
    default_start: the decoder's start token, default_activation: the feed-forward parts',
        default_positions: the longest text; used where the config does not set them.
    before: norms come before each part and after the last layer (pre-norm), else after each part.
    """
    width = config.integer("d_model")
    config.optional("num_hidden_layers")  # repeats encoder_layers
    function = config.choice("activation_function", among=ACTIVATIONS, default=default_activation)
    # where the norms of a layer stand: before each part, or on the sum of it and the stream
    if before:
        places: tuple[Place, ...] = ("attn.in", "mlp.in")
        cross_place: Place = "cross.in"
    else:
        places = ("attn.sum", "mlp.sum")
        cross_place = "cross.sum"

    def attention(side: str) -> Attention:
        """The attention of the "encoder" or the "decoder", each with its own number of heads,
        without a mask."""
        heads = config.heads(width, f"{side}_attention_heads")
        dim = width // heads
        return Attention(heads, kv_heads=heads, head_dim=dim, v_dim=dim, scale=dim**-0.5)

    def mlp(side: str) -> Mlp:
        """The feed-forward part of the "encoder" or the "decoder", each with its own width."""
        return Mlp(config.integer(f"{side}_ffn_dim"), function)

    encoder = Spec(
        d_model=width,
        vocabulary=config.integer("vocab_size"),
        blocks=(Block(attention("encoder"), mlp("encoder"), dict.fromkeys(places, norm)),)
        * config.integer("encoder_layers", most=MOST_LAYERS),
        embedding=embedding,
        final_norm=norm if before else None,
        max_positions=config.integer("max_position_embeddings", default=default_positions),
        biases=("*",),
    )
    block = Block(
        replace(attention("decoder"), mask=Causal()),
        mlp("decoder"),
        dict.fromkeys((*places, cross_place), norm),
        cross=attention("decoder"),
    )
    layers = config.integer("decoder_layers", most=MOST_LAYERS)
    start = config.integer("decoder_start_token_id", default=default_start, least=0)
    # offsets: `final_logits_bias`, a number for each entry of the vocabulary
    head = Head(tied=config.flag("tie_word_embeddings", default=True), offsets=True)
    # what is not said of the decoder is as in the encoder
    decoder = replace(encoder, blocks=(block,) * layers, start=start, head=head)
    return replace(encoder, decoder=decoder)


def embedding_scale(config: Config, *, default: bool = False) -> float:
    """The factor on token vectors: √d_model where the config's `scale_embedding` is true, else 1.

    default: its value where the config lacks it.
    """
    if config.flag("scale_embedding", default=default):
        return config.integer("d_model") ** 0.5
    return 1.0


BEFORE: dict[str, Source] = {
    "attn.in": "self_attn_layer_norm",
    "cross.in": "encoder_attn_layer_norm",
    "mlp.in": "final_layer_norm",
}


def norms_first(names: Names, side: str) -> Names:
    """BART's tensor names for a pre-norm model: norms before each part and after the last layer, and
    not, as in BART, after the sum of each part and the residual ("attn.sum" and its like).

    side: "encoder" or "decoder".
    """
    return names.with_roles(
        BEFORE,
        outside={"final": f"{side}.layer_norm"},
        without=("attn.sum", "cross.sum", "mlp.sum"),
    )


MBART_ENCODER, MBART_DECODER = norms_first(ENCODER, "encoder"), norms_first(DECODER, "decoder")

MBART_FIXED = {
    **FIXED,
    "normalize_before": FixedValue(True, "norms would come after each part"),
    "add_final_layer_norm": FixedValue(True, "no norm would follow the last layer"),
}


def mbart(config: Config) -> Spec:
    """The Spec of an mBART: BART with norms before each part. Source: Liu et al., 2020."""
    norm = Norm("layer", 1e-5)
    embedding = Embedding(
        scale=embedding_scale(config), positions="learned", position_offset=2, norm=norm
    )
    return encoder_decoder(config, norm, embedding, before=True)


def small_mbart(sizes: TrainedSizes) -> tuple[dict[str, object], str]:
    """The config.json of a small mBART with as many layers on each side and an output head of its
    own, and the name of its class in transformers. The decoder's start token is the vocabulary's
    last word before the unknown one."""
    return {
        "encoder_layers": sizes.layers,
        "decoder_layers": sizes.layers,
        "encoder_attention_heads": sizes.heads,
        "decoder_attention_heads": sizes.heads,
        "encoder_ffn_dim": sizes.inner,
        "decoder_ffn_dim": sizes.inner,
        "d_model": sizes.width,
        "vocab_size": sizes.vocabulary,
        "max_position_embeddings": sizes.positions,
        "decoder_start_token_id": sizes.vocabulary - 2,
        "forced_eos_token_id": None,
        "is_encoder_decoder": True,
        "tie_word_embeddings": False,
    }, "MBartForConditionalGeneration"


IGNORED = (
    "encoder.embed_positions.weights",
    "decoder.embed_positions.weights",
)  # what the sines give anyway

M2M_100_FIXED = {
    **MBART_FIXED,
    "normalize_embedding": FixedValue(False, "the embedding would have a norm"),
    "static_position_embeddings": FixedValue(True, "positions would be learned"),
}


def m2m_100(config: Config) -> Spec:
    """The Spec of an M2M-100 or NLLB: mBART with sinusoidal positions that skip padding. Source: Fan
    et al., 2020.

    Sines are computed for a text of any length, so there is no longest text.
    """
    padding = config.integer("pad_token_id", default=1, least=0)
    embedding = Embedding(
        scale=embedding_scale(config, default=True),
        positions="timescales",
        position_offset=padding + 1,
        padding=padding,
    )
    whole = encoder_decoder(
        config, Norm("layer", 1e-5), embedding, default_activation="relu", before=True
    )
    assert whole.decoder is not None  # `encoder_decoder` has made one
    decoder = replace(whole.decoder, max_positions=None)
    return replace(whole, max_positions=None, decoder=decoder)


MARIAN_FIXED = {
    **FIXED,
    "normalize_embedding": FixedValue(False, "the embedding would have a norm"),
    "static_position_embeddings": FixedValue(True, "positions would be learned"),
}


def marian(config: Config) -> Spec:
    """The Spec of a Marian (OPUS-MT): BART with sinusoidal positions and no norm on the embedding.
    Source: Junczys-Dowmunt et al., 2018."""
    embedding = Embedding(scale=embedding_scale(config), positions="halves")
    whole = encoder_decoder(config, Norm("layer", 1e-5), embedding, default_start=58100)
    # the decoder has a vocabulary of its own unless both share their embeddings
    decoder_vocabulary = config.integer("decoder_vocab_size", default=whole.vocabulary)
    if whole.decoder is None or config.flag("share_encoder_decoder_embeddings", default=True):
        return whole
    return replace(whole, decoder=replace(whole.decoder, vocabulary=decoder_vocabulary))


PEGASUS_FIXED = {
    **MBART_FIXED,
    "normalize_embedding": FixedValue(False, "the embedding would have a norm"),
    "static_position_embeddings": FixedValue(True, "positions would be learned"),
    "extra_pos_embeddings": FixedValue(1, "positions would start at another row"),
}


def pegasus(config: Config) -> Spec:
    """The Spec of a Pegasus: mBART with sinusoidal positions and no norm on the embedding. Source:
    Zhang et al., 2020.
    """
    embedding = Embedding(scale=embedding_scale(config), positions="halves")
    return encoder_decoder(config, Norm("layer", 1e-5), embedding, default_start=0, before=True)


BLENDERBOT_FIXED = {
    **MBART_FIXED,
    "normalize_embedding": FixedValue(False, "the embedding would have a norm"),
    "extra_pos_embeddings": FixedValue(0, "positions would start at another row"),
    "layernorm_variant": FixedValue("prelayernorm", "norms would come after each part"),
}


def blenderbot(config: Config) -> Spec:
    """The Spec of a BlenderBot: mBART with positions from row 0 of the table and no norm on the
    embedding. Source: Roller et al., 2020.
    """
    # without effect here: the first is of the small models, which are another family
    config.get("do_blenderbot_90_layernorm", "unk_token_id")
    embedding = Embedding(scale=embedding_scale(config), positions="learned")
    return encoder_decoder(
        config, Norm("layer", 1e-5), embedding, default_start=1, default_positions=128, before=True
    )


WHISPER_NAMES = replace(
    DECODER.with_roles(
        BEFORE,
        outside={"tokens": "decoder.embed_tokens", "final": "decoder.layer_norm"},
        without=("attn.sum", "cross.sum", "mlp.sum"),
    ),
    ignored=("encoder.*", "proj_out.weight", "projector.*", "classifier.*"),
)

WHISPER_FIXED = {"is_encoder_decoder": FixedValue(True, "the decoder would read nothing")}

OF_THE_ENCODER = """
    num_mel_bins encoder_layers encoder_attention_heads encoder_ffn_dim num_hidden_layers max_source_positions
    use_weighted_layer_sum classifier_proj_size apply_spec_augment mask_time_prob mask_time_length mask_time_min_masks
    mask_feature_prob mask_feature_length mask_feature_min_masks median_filter_width alignment_heads lang_to_id
    task_to_id forced_decoder_ids no_timestamps_token_id is_multilingual return_timestamps scale_embedding
"""
"""Keys of the encoder, of training, of the times of words; and a scale that the model never uses.
"""


def whisper(config: Config) -> Spec:
    """The Spec of a Whisper's decoder, which cross-attends to what an encoder computed from sound;
    its encoder, which reads no text, is left out. Source: Radford et al., 2022."""
    # of the encoder, or without effect
    config.get(*OF_THE_ENCODER.split())
    width = config.integer("d_model")
    heads = config.heads(width, "decoder_attention_heads")
    norm = Norm("layer", 1e-5)
    dim = width // heads
    attention = Attention(heads, kv_heads=heads, head_dim=dim, v_dim=dim, scale=dim**-0.5)
    mlp = Mlp(
        config.integer("decoder_ffn_dim"),
        config.choice("activation_function", among=ACTIVATIONS, default="gelu"),
    )
    block = Block(
        replace(attention, mask=Causal()),
        mlp,
        dict.fromkeys(("attn.in", "cross.in", "mlp.in"), norm),
        cross=attention,
    )

    return Spec(
        d_model=width,
        vocabulary=config.integer("vocab_size"),
        blocks=(block,) * config.integer("decoder_layers", most=MOST_LAYERS),
        embedding=Embedding(positions="learned"),
        final_norm=norm,
        max_positions=config.integer("max_target_positions", default=448),
        head=Head(tied=True),
        # Whisper's keys have none
        biases=("attn.[qvo]", "cross.[qvo]", "mlp.*", "attn.in", "cross.in", "final"),
    )


FAMILIES = {
    "bart": Family(spec, ENCODER, DECODER, FIXED),
    "mbart": Family(mbart, MBART_ENCODER, MBART_DECODER, MBART_FIXED, config=small_mbart),
    "m2m_100": Family(
        m2m_100,
        replace(MBART_ENCODER, ignored=(*MBART_ENCODER.ignored, *IGNORED)),
        replace(MBART_DECODER, ignored=(*MBART_DECODER.ignored, *IGNORED)),
        M2M_100_FIXED,
    ),
    "marian": Family(marian, ENCODER, DECODER, MARIAN_FIXED),
    "pegasus": Family(pegasus, MBART_ENCODER, MBART_DECODER, PEGASUS_FIXED),
    "blenderbot": Family(blenderbot, MBART_ENCODER, MBART_DECODER, BLENDERBOT_FIXED),
    "whisper": Family(whisper, WHISPER_NAMES, fixed=WHISPER_FIXED),
}
