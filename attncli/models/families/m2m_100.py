"""M2M-100 and NLLB: mBART with sinusoidal positions that skip padding. Source: Fan et al., 2020."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import Embedding, Norm, Spec
from attncli.models.config import Config, FixedValue
from attncli.models.families import bart, mbart
from attncli.models.family import Family

IGNORED = ("encoder.embed_positions.weights", "decoder.embed_positions.weights")  # what the sines give anyway

FIXED = {
    **mbart.FIXED,
    "normalize_embedding": FixedValue(False, "the embedding would have a norm"),
    "static_position_embeddings": FixedValue(True, "positions would be learned"),
}


def spec(config: Config) -> Spec:
    """The Spec of an M2M-100: the encoder, with the decoder inside. Positions go on as far as the text does."""
    padding = config.whole("pad_token_id", default=1, least=0)
    config.optional("num_hidden_layers")  # repeats encoder_layers
    embedding = Embedding(
        scale=bart.scale(config, default=True), positions="timescales", position_offset=padding + 1, padding=padding
    )
    both = bart.encoder_decoder(config, "m2m_100", Norm("layer", 1e-5), embedding, activation="relu", before=True)
    decoder = None if both.decoder is None else replace(both.decoder, max_positions=None)
    return replace(both, max_positions=None, decoder=decoder)


FAMILY = Family(
    spec,
    replace(mbart.ENCODER, ignored=(*mbart.ENCODER.ignored, *IGNORED)),
    replace(mbart.DECODER, ignored=(*mbart.DECODER.ignored, *IGNORED)),
    FIXED,
)
