"""T5Gemma: an encoder and a decoder of Gemma 2's layers, each with a config of its own. Source: Zhang et al., 2025."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.errors import InputError
from attncli.mechanism.mask import Everywhere
from attncli.mechanism.spec import Block, Spec
from attncli.models.config import Config, FixedValue, mirror_mask, settle
from attncli.models.families import gemma
from attncli.models.family import Family

ENCODER = replace(
    gemma.GEMMA2_NAMES.with_roles(
        {"attn.in": "pre_self_attn_layernorm", "attn.out": "post_self_attn_layernorm"},
        outside={"tokens": "encoder.embed_tokens", "final": "encoder.norm"},
    ),
    layer="encoder.layers.{layer}.",
    ignored=("lm_head.*", "score.*"),
)

DECODER = replace(
    ENCODER.with_roles(
        {
            "cross.in": "pre_cross_attn_layernorm",
            "cross.q": "cross_attn.q_proj",
            "cross.k": "cross_attn.k_proj",
            "cross.v": "cross_attn.v_proj",
            "cross.o": "cross_attn.o_proj",
            "cross.out": "post_cross_attn_layernorm",
        },
        outside={"tokens": "decoder.embed_tokens", "final": "decoder.norm", "head": "lm_head.out_proj"},
    ),
    layer="decoder.layers.{layer}.",
)

FIXED = {"is_encoder_decoder": FixedValue(True, "the file would hold one side")}

OF_ITS_PLACE = ("is_decoder", "cross_attention_hidden_size", "is_encoder_decoder", "tie_word_embeddings")
"""Keys of a side that follow from which side it is, or are the whole model's."""


def spec(config: Config) -> Spec:
    """The Spec of a T5Gemma: the encoder, with the decoder inside."""
    config.get("vocab_size")  # repeats the decoder's
    side_config = _under(config, "encoder")
    encoder = gemma.gemma2(side_config)
    encoder = replace(encoder, family="t5gemma", blocks=tuple(map(_both_ways, encoder.blocks)), head=None)
    _settle_side(config, side_config)
    side_config = _under(config, "decoder")
    decoder = gemma.gemma2(side_config)
    start = side_config.whole("bos_token_id", default=2, least=0)
    blocks = tuple(_crossing(block, encoder.d_model) for block in decoder.blocks)
    assert decoder.head is not None
    head = replace(decoder.head, tied=config.flag("tie_word_embeddings", default=True))
    _settle_side(config, side_config)
    biases = (*decoder.biases, *("cross.[qkvo]" for pattern in decoder.biases if pattern == "attn.[qkvo]"))
    decoder = replace(decoder, family="t5gemma", blocks=blocks, start=start, head=head, biases=biases)
    return replace(encoder, decoder=decoder)


def _under(config: Config, side: str) -> Config:
    side_config = config.under(side)
    if side_config is None:
        raise InputError(
            "config.json has no {side}", where=config.where, expected="the config of each side", side=repr(side)
        )
    for key in OF_ITS_PLACE:
        side_config.get(key)
    return side_config


def _settle_side(config: Config, side: Config) -> None:
    for note in settle(side, {}):
        config.note(note)


def _both_ways(block: Block) -> Block:
    mask = mirror_mask(block.attention.mask)
    assert mask is not None
    return replace(block, attention=replace(block.attention, mask=mask))


def _crossing(block: Block, width: int) -> Block:
    """A layer of the decoder, whose cross-attention reads vectors of the encoder's width, wherever they stand."""
    cross = replace(block.attention, mask=Everywhere(), position=None, source_width=width)
    norm = block.norms["attn.in"]
    return replace(block, cross=cross, norms={**block.norms, "cross.in": norm, "cross.out": norm})


FAMILIES = {"t5gemma": Family(spec, ENCODER, DECODER, FIXED)}
