"""LED: an encoder with Longformer's windows and global tokens, BART's decoder. Source: Beltagy et al., 2020."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import Embedding, Norm, Spec
from attncli.models.config import Config, FixedValue
from attncli.models.families import bart, longformer
from attncli.models.family import Family

NEAR = "self_attn.longformer_self_attn"

ENCODER = replace(
    bart.ENCODER.with_roles(
        {
            **{f"attn.{role[0]}": f"{NEAR}.{role}" for role in ("query", "key", "value")},
            **{f"attn.global_{role[0]}": f"{NEAR}.{role}_global" for role in ("query", "key", "value")},
            "attn.o": "self_attn.output",
        }
    ),
    prefixes=("led.",),
)

DECODER = replace(bart.DECODER, prefixes=("led.",))

FIXED = {"is_encoder_decoder": FixedValue(True, "the file would hold one side")}


def spec(config: Config) -> Spec:
    """The Spec of an LED: the encoder, with the decoder inside. No token is global unless it is told."""
    norm = Norm("layer", 1e-5)
    config.optional("num_hidden_layers")  # repeats encoder_layers
    both = bart.encoder_decoder(config, "led", norm, Embedding(positions="learned", norm=norm))
    blocks = (
        replace(block, attention=longformer.within(block.attention, reach))
        for block, reach in zip(both.blocks, longformer.reaches(config, len(both.blocks)), strict=True)
    )
    assert both.decoder is not None
    decoder = replace(both.decoder, max_positions=config.whole("max_decoder_position_embeddings", default=1024))
    furthest = config.whole("max_encoder_position_embeddings", default=16384)
    return replace(both, blocks=tuple(blocks), max_positions=furthest, decoder=decoder)


FAMILIES = {"led": Family(spec, ENCODER, DECODER, FIXED)}
