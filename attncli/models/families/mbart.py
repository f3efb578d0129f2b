"""mBART: BART with norms before each part. Source: Liu et al., 2020."""

from __future__ import annotations

from attncli.mechanism.spec import Embedding, Norm, Spec
from attncli.models.config import Config, FixedValue
from attncli.models.families import bart
from attncli.models.family import Family, Names

BEFORE = {"attn.in": "self_attn_layer_norm", "cross.in": "encoder_attn_layer_norm", "mlp.in": "final_layer_norm"}


def before(names: Names, side: str) -> Names:
    """BART's names where norms come before each part and after the last layer."""
    return names.with_roles(
        BEFORE, outside={"final": f"{side}.layer_norm"}, without=("attn.sum", "cross.sum", "mlp.sum")
    )


ENCODER, DECODER = before(bart.ENCODER, "encoder"), before(bart.DECODER, "decoder")

FIXED = {
    **bart.FIXED,
    "normalize_before": FixedValue(True, "norms would come after each part"),
    "add_final_layer_norm": FixedValue(True, "no norm would follow the last layer"),
}


def spec(config: Config) -> Spec:
    """The Spec of an mBART: the encoder, with the decoder inside."""
    norm = Norm("layer", 1e-5)
    config.optional("num_hidden_layers")  # repeats encoder_layers
    embedding = Embedding(scale=bart.scale(config), positions="learned", position_offset=2, norm=norm)
    return bart.encoder_decoder(config, "mbart", norm, embedding, before=True)


FAMILY = Family(spec, ENCODER, DECODER, FIXED)
