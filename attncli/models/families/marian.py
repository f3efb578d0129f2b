"""Marian and OPUS-MT: BART with sinusoidal positions and no norm on the embedding. Source: Junczys-Dowmunt et al.,
2018."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import Embedding, Norm, Spec
from attncli.models.config import Config, FixedValue
from attncli.models.families import bart
from attncli.models.family import Family

FIXED = {
    **bart.FIXED,
    "normalize_embedding": FixedValue(False, "the embedding would have a norm"),
    "static_position_embeddings": FixedValue(True, "positions would be learned"),
}


def spec(config: Config) -> Spec:
    """The Spec of a Marian: the encoder, with the decoder inside."""
    config.optional("num_hidden_layers")  # repeats encoder_layers
    embedding = Embedding(scale=bart.scale(config), positions="halves")
    both = bart.encoder_decoder(config, "marian", Norm("layer", 1e-5), embedding, start=58100)
    decoder_vocabulary = config.whole("decoder_vocab_size", default=both.vocabulary)
    if both.decoder is None or config.flag("share_encoder_decoder_embeddings", default=True):
        return both
    return replace(both, decoder=replace(both.decoder, vocabulary=decoder_vocabulary))


FAMILY = Family(spec, bart.ENCODER, bart.DECODER, FIXED)
