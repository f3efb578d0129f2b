"""Qwen3-Next: the gated delta rule in three layers of four, and attention whose heads are gated in the fourth; experts.
Source: Qwen Team, 2025."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from attncli.mechanism.spec import Block, DeltaRule, Experts, Mlp, Norm, QkNorm, Spec
from attncli.models.config import ACTIVATIONS, GLOBAL, Config, rope
from attncli.models.families import llama, qwen2
from attncli.models.family import Family, GroupedTensor, Source

LINEAR = "linear_attention"

MIXER: Mapping[str, Source] = {
    "mixer.conv": "linear_attn.conv1d",
    "mixer.decay": "linear_attn.A_log",
    "mixer.step": "linear_attn.dt_bias",
    "mixer.norm": "linear_attn.norm",
    "mixer.output": "linear_attn.out_proj",
    "attn.q attn.gate": GroupedTensor("self_attn.q_proj"),
}

NAMES = replace(
    qwen2.QWEN3_NAMES.with_roles(
        {
            **MIXER,
            "mixer.q mixer.k mixer.v mixer.gate": GroupedTensor("linear_attn.in_proj_qkvz"),
            "mixer.strength mixer.time": GroupedTensor("linear_attn.in_proj_ba"),
            **qwen2.EXPERTS,
            **qwen2.SHARED,
        },
        without=("attn.q",),
    ),
    ignored=(*llama.NAMES.ignored, "mtp.*"),
)
"""What stands under `mtp` predicts further tokens."""


def spec(config: Config) -> Spec:
    """The Spec of a Qwen3-Next."""
    normed = config.flag("norm_topk_prob", default=True)
    experts = qwen2.shared_experts(config, count=512, per_token=10, width=512, shared_width=512, renormalise=normed)
    mixed = qwen2.mixtures(config)
    return gated(
        config, "qwen3_next", lambda layer: experts if mixed[layer] else llama.gated_mlp(config, default=5632), 2
    )


def gated(config: Config, family: str, part: Callable[[int], Mlp | Experts], kv_heads: int) -> Spec:
    """The model with these feed-forward parts. kv_heads: how many the config means by silence."""
    layers, every = llama.depth(config), config.whole("full_attention_interval", default=4)
    kinds = config.list_of("layer_types", kind=str, count=layers) or [
        LINEAR if (layer + 1) % every else GLOBAL for layer in range(layers)
    ]
    if not set(kinds) <= {LINEAR, GLOBAL}:
        raise config.refuse("layer_types", f"{GLOBAL}, {LINEAR}")
    norm, mixer, dim = llama.rms(config, unit_offset=True), _delta_rule(config), llama.head_dim(config, 256)
    position = rope(config, dim, default_partial=0.25, beside=("mrope_section", "mrope_interleaved"))
    blocks: list[Block] = []
    for layer, kind in enumerate(kinds):
        block = llama.block(
            config,
            position=position,
            dim=dim,
            qk_norm=QkNorm(norm),
            kv_heads=kv_heads,
            norms={"attn.in": norm, "mlp.in": norm},
            mlp=part(layer),
        )
        attention = replace(block.attention, gated=True)
        blocks.append(replace(block, attention=attention) if kind == GLOBAL else block.mixing(mixer))
    biases = ("attn.[qkvo]", "attn.gate") if config.flag("attention_bias", default=False) else ()
    return llama.decoder(config, family, blocks, final=norm, biases=biases)


def _delta_rule(config: Config) -> DeltaRule:
    heads = config.whole("linear_num_value_heads", default=32, most=2**16)
    return DeltaRule(
        heads,
        config.heads(heads, "linear_num_key_heads", default=16),
        config.whole("linear_key_head_dim", default=128, most=2**16),
        config.whole("linear_value_head_dim", default=128, most=2**16),
        config.whole("linear_conv_kernel_dim", default=4, most=2**10),
        config.choice("hidden_act", among=ACTIVATIONS, default="silu"),
        Norm("rms", config.number("rms_norm_eps", default=1e-6)),
    )


FAMILIES = {"qwen3_next": Family(spec, NAMES)}
