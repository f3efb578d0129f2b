"""DeepSeek-V3 and R1: DeepSeek-V2 whose experts are scored one by one, with corrections to their choice. Source:
DeepSeek-AI, 2024."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.spec import Routing, Spec
from attncli.models.config import Config, FixedValue
from attncli.models.families import deepseek_v2
from attncli.models.family import Family

NAMES = replace(deepseek_v2.NAMES, ignored=(*deepseek_v2.NAMES.ignored, "layers.61.*"))
"""The 62nd layer of the published model predicts further tokens."""

FIXED = {
    "moe_layer_freq": FixedValue(1, "layers without experts would stand between those with"),
    "scoring_func": FixedValue("sigmoid", "experts would share a softmax"),
    "topk_method": FixedValue("noaux_tc", "experts would be chosen without corrections"),
}


def spec(config: Config) -> Spec:
    """The Spec of a DeepSeek-V3."""
    routing = Routing(
        "sigmoid",
        factor=config.number("routed_scaling_factor", default=2.5),
        groups=config.whole("n_group", default=8),
        groups_chosen=config.whole("topk_group", default=4),
        group_by=2,
        corrected=True,
    )
    normed = config.flag("norm_topk_prob", default=True)
    part = deepseek_v2.experts(config, routing, count=256, shared_count=1, width=2048, renormalise=normed, per_token=8)
    neighbours = config.flag("rope_interleave", default=True)
    biases = ("attn.[qkvo]",) if config.flag("attention_bias", default=False) else ()
    return deepseek_v2.latent(
        config, "deepseek_v3", part, pairing="adjacent" if neighbours else "half", dense=3, kv_heads=128, biases=biases
    )


FAMILY = Family(spec, NAMES, fixed=FIXED)
