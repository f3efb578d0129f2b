"""Qwen3-MoE: Qwen3 with experts in all layers but those the config leaves out. Source: Qwen Team, 2025."""

from __future__ import annotations

from attncli.mechanism.spec import Experts, QkNorm, Spec
from attncli.models.config import Config
from attncli.models.config_values import ACTIVATIONS
from attncli.models.families import llama, qwen3
from attncli.models.family import Family, Stacked
from attncli.models.layer_types import causal
from attncli.models.rotary import rope

NAMES = qwen3.NAMES.with_roles(
    {
        "mlp.router": "mlp.gate",
        "mlp.gate": Stacked("mlp.experts.{item}.gate_proj"),
        "mlp.up": Stacked("mlp.experts.{item}.up_proj"),
        "mlp.down": Stacked("mlp.experts.{item}.down_proj"),
    }
)


def spec(config: Config) -> Spec:
    """The Spec of a Qwen3-MoE. Raises UnsupportedError where some layers have no experts."""
    if config.many("mlp_only_layers", kind=int):
        raise config.refuse("mlp_only_layers", "experts in every layer")
    if config.whole("decoder_sparse_step", default=1) != 1:
        raise config.refuse("decoder_sparse_step", "experts in every layer")
    count = config.whole("num_experts", "num_local_experts", default=128, most=2**16)
    experts = Experts(
        count,
        config.whole("num_experts_per_tok", default=8, most=count),
        config.whole("moe_intermediate_size", default=768),
        config.choice("hidden_act", among=ACTIVATIONS, default="silu"),
        renormalise=config.flag("norm_topk_prob", default=False),
    )
    config.optional("intermediate_size")  # of layers without experts
    config.optional("max_window_layers", least=0)
    window = config.optional("sliding_window", default=4096)
    mask = causal(window if config.flag("use_sliding_window", default=False) else None)
    block = llama.block(
        config, position=rope(config, llama.head_dim(config)), mask=mask, qk_norm=QkNorm(llama.rms(config)), mlp=experts
    )
    return llama.decoder(config, "qwen3_moe", [block] * llama.depth(config))


FAMILY = Family("qwen3_moe", spec, NAMES)
