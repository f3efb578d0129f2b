"""BlenderBot: mBART with positions from row 0 and no norm on the embedding. Source: Roller et al., 2020."""

from __future__ import annotations

from attncli.mechanism.spec import Embedding, Norm, Spec
from attncli.models.config import Config, FixedValue
from attncli.models.families import bart, mbart
from attncli.models.family import Family

FIXED = {
    **mbart.FIXED,
    "normalize_embedding": FixedValue(False, "the embedding would have a norm"),
    "extra_pos_embeddings": FixedValue(0, "positions would start at another row"),
    "layernorm_variant": FixedValue("prelayernorm", "norms would come after each part"),
}


def spec(config: Config) -> Spec:
    """The Spec of a BlenderBot: the encoder, with the decoder inside."""
    config.optional("num_hidden_layers")  # repeats encoder_layers
    for idle in ("do_blenderbot_90_layernorm", "unk_token_id"):
        config.get(idle)  # of the smaller models, which are a family of their own
    embedding = Embedding(scale=bart.scale(config), positions="learned")
    return bart.encoder_decoder(
        config, "blenderbot", Norm("layer", 1e-5), embedding, start=1, positions=128, before=True
    )


FAMILY = Family(spec, mbart.ENCODER, mbart.DECODER, FIXED)
