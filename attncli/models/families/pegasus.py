"""Pegasus: mBART with sinusoidal positions and no norm on the embedding. Source: Zhang et al., 2020."""

from __future__ import annotations

from attncli.mechanism.spec import Embedding, Norm, Spec
from attncli.models.config import Config, FixedValue
from attncli.models.families import bart, mbart
from attncli.models.family import Family

FIXED = {
    **mbart.FIXED,
    "normalize_embedding": FixedValue(False, "the embedding would have a norm"),
    "static_position_embeddings": FixedValue(True, "positions would be learned"),
    "extra_pos_embeddings": FixedValue(1, "positions would start at another row"),
}


def spec(config: Config) -> Spec:
    """The Spec of a Pegasus: the encoder, with the decoder inside."""
    config.optional("num_hidden_layers")  # repeats encoder_layers
    embedding = Embedding(scale=bart.scale(config), positions="halves")
    return bart.encoder_decoder(config, "pegasus", Norm("layer", 1e-5), embedding, start=0, before=True)


FAMILY = Family(spec, mbart.ENCODER, mbart.DECODER, FIXED)
