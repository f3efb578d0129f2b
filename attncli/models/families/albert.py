"""ALBERT: BERT with a token table of its own width, and the same weights in all layers. Source: Lan et al., 2020."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import Spec
from attncli.models.config import Config, FixedValue
from attncli.models.families import bert
from attncli.models.family import Family, Names, SharedTensor

LAYER = "encoder.albert_layer_groups.0.albert_layers.0."

NAMES = Names(
    layer="",
    inside={
        role: SharedTensor(LAYER + name)
        for role, name in {
            "attn.q": "attention.query",
            "attn.k": "attention.key",
            "attn.v": "attention.value",
            "attn.o": "attention.dense",
            "attn.sum": "attention.LayerNorm",
            "mlp.up": "ffn",
            "mlp.down": "ffn_output",
            "mlp.sum": "full_layer_layer_norm",
        }.items()
    },
    outside={**bert.NAMES.outside, "embed.project": "encoder.embedding_hidden_mapping_in"},
    prefixes=("albert.",),
    ignored=(*bert.TASK_HEADS, "predictions.*", "sop_classifier.*"),
)

FIXED = {
    **bert.FIXED,
    "num_hidden_groups": FixedValue(1, "some layers would have weights of their own"),
    "inner_group_num": FixedValue(1, "each layer would have several parts"),
    "net_structure_type": FixedValue(0, "layers would be put together otherwise"),
    "num_memory_blocks": FixedValue(0, "layers would have memories besides"),
    "gap_size": FixedValue(0, "layers would be left out"),
    "down_scale_factor": FixedValue(1, "layers would be narrower"),
}


def spec(config: Config) -> Spec:
    """The Spec of an ALBERT."""
    base = bert.spec(config, activation="gelu_new")
    width = config.whole("embedding_size", default=128)
    return replace(base, family="albert", embedding=replace(base.embedding, width=width, projection="sum"))


FAMILIES = {"albert": Family(spec, NAMES, fixed=FIXED)}
