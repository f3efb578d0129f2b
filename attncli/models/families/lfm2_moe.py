"""LFM2 MoE: LFM2 with experts in all layers but the first. Source: Liquid AI, 2025."""

from __future__ import annotations

from attncli.mechanism.spec import Experts, Mlp, Routing, Spec
from attncli.models.config import Config
from attncli.models.families import lfm2, llama
from attncli.models.family import Family, StackedTensor

NAMES = lfm2.NAMES.with_roles(
    {
        "experts.router": "feed_forward.gate",
        "experts.correction": "feed_forward.expert_bias",
        "experts.gate": StackedTensor("feed_forward.experts.{item}.w1"),
        "experts.up": StackedTensor("feed_forward.experts.{item}.w3"),
        "experts.down": StackedTensor("feed_forward.experts.{item}.w2"),
    }
)


def spec(config: Config) -> Spec:
    """The Spec of an LFM2 MoE."""
    dense = Mlp(config.whole("intermediate_size", default=7168), "silu", gated=True)
    count = config.whole("num_experts", default=32, most=2**16)
    experts = Experts(
        count,
        config.whole("num_experts_per_tok", default=4, most=count),
        config.whole("moe_intermediate_size", default=1792),
        "silu",
        renormalise=config.flag("norm_topk_prob", default=True),
        routing=Routing(
            "sigmoid",
            factor=config.number("routed_scaling_factor", default=1.0),
            corrected=config.flag("use_expert_bias", default=True),
            slack=1e-6,
        ),
    )
    first = config.whole("num_dense_layers", default=2, least=0)
    parts = [dense if layer < first else experts for layer in range(llama.depth(config))]
    return llama.decoder(
        config, "lfm2_moe", lfm2.layers(config, parts), final=lfm2.norm(config), tied=lfm2.tied(config),
        biases=lfm2.biases(config),
    )  # fmt: skip


FAMILIES = {"lfm2_moe": Family(spec, NAMES)}
