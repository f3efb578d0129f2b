"""Whisper: the pre-norm decoder that writes down what an encoder made of sound; the encoder, which reads no text, stays
outside. Source: Radford et al., 2022."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.mask import Causal
from attncli.mechanism.spec import Attention, Block, Embedding, Head, Mlp, Norm, Place, Spec
from attncli.models.config import ACTIVATIONS, MOST_LAYERS, Config, FixedValue
from attncli.models.families import bart
from attncli.models.family import Family

NAMES = replace(
    bart.DECODER.with_roles(
        {"attn.in": "self_attn_layer_norm", "cross.in": "encoder_attn_layer_norm", "mlp.in": "final_layer_norm"},
        outside={"tokens": "decoder.embed_tokens", "final": "decoder.layer_norm"},
        without=("attn.sum", "cross.sum", "mlp.sum"),
    ),
    ignored=("encoder.*", "proj_out.weight", "projector.*", "classifier.*"),
)

PLACES: tuple[Place, ...] = ("attn.in", "cross.in", "mlp.in")

FIXED = {"is_encoder_decoder": FixedValue(True, "the decoder would read nothing")}

OF_THE_ENCODER = """
    num_mel_bins encoder_layers encoder_attention_heads encoder_ffn_dim num_hidden_layers max_source_positions
    use_weighted_layer_sum classifier_proj_size apply_spec_augment mask_time_prob mask_time_length mask_time_min_masks
    mask_feature_prob mask_feature_length mask_feature_min_masks median_filter_width alignment_heads lang_to_id
    task_to_id forced_decoder_ids no_timestamps_token_id is_multilingual return_timestamps scale_embedding
"""
"""Keys of the encoder, of training, of the times of words; and a scale that the model never uses."""


def spec(config: Config) -> Spec:
    """The Spec of Whisper's decoder."""
    for idle in OF_THE_ENCODER.split():
        config.get(idle)
    width = config.whole("d_model")
    heads = config.heads(width, "decoder_attention_heads")
    norm = Norm("layer", 1e-5)
    looks = Attention(heads, heads, width // heads, width // heads, scale=(width // heads) ** -0.5)
    mlp = Mlp(config.whole("decoder_ffn_dim"), config.choice("activation_function", among=ACTIVATIONS, default="gelu"))
    block = Block(replace(looks, mask=Causal()), mlp, dict.fromkeys(PLACES, norm), cross=looks)
    return Spec(
        family="whisper",
        d_model=width,
        vocabulary=config.whole("vocab_size"),
        blocks=(block,) * config.whole("decoder_layers", most=MOST_LAYERS),
        embedding=Embedding(positions="learned"),
        final_norm=norm,
        max_positions=config.whole("max_target_positions", default=448),
        head=Head(tied=True),
        biases=("attn.[qvo]", "cross.[qvo]", "mlp.*", "attn.in", "cross.in", "final"),
    )


FAMILIES = {"whisper": Family(spec, NAMES, fixed=FIXED)}
