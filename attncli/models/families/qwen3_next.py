"""Qwen3-Next: the gated delta rule in three layers of four, and attention whose heads are gated in
the fourth; experts.
Source: Qwen Team, 2025."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from attncli.mechanism.spec import Block, DeltaRule, Experts, Mlp, Norm, QkNorm, Spec
from attncli.models.config import ACTIVATIONS, GATED, GLOBAL, Config, rope
from attncli.models.families import llama, qwen2
from attncli.models.family import Concat, Family, GroupedTensor, PerExpert, Source

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
    """The Spec of a Qwen3-Next: the gated delta rule in three layers of four, gated attention in the
    fourth, experts in most."""
    normed = config.flag("norm_topk_prob", default=True)
    experts = qwen2.shared_experts(
        config,
        default_count=512,
        default_per_token=10,
        default_width=512,
        default_shared_width=512,
        renormalise=normed,
    )
    mixed = qwen2.has_experts(config)
    return whole_model(
        config, [experts if mixture else llama.gated_mlp(config, default=5632) for mixture in mixed]
    )


def layer_types(config: Config, usual: Callable[[int], bool]) -> list[str]:
    """The type of each layer, "linear_attention" or "full_attention", as the config lists them.

    usual: called with a layer's index where the config lists none; true for linear attention.
    """
    count = llama.depth(config)
    kinds = config.list_of("layer_types", kind=str, count=count)
    if not kinds:
        kinds = [LINEAR if usual(layer) else GLOBAL for layer in range(count)]
    if not set(kinds) <= {LINEAR, GLOBAL}:
        raise config.refuse("layer_types", f"{GLOBAL}, {LINEAR}")
    return kinds


def whole_model(config: Config, parts: Sequence[Mlp | Experts], default_kv_heads: int = 2) -> Spec:
    """The Spec of a Qwen3-Next or Qwen3.5 with these feed-forward parts, one for each layer.

    default_kv_heads: number of key-value heads where the config does not set it.
    """
    every = config.integer("full_attention_interval", default=4)
    kinds = layer_types(config, lambda layer: bool((layer + 1) % every))
    norm = llama.rms(config, unit_offset=True)
    mixer = _delta_rule(config)
    dim = llama.head_dim(config, default=256)
    # the keys of `beside` are about images; in a text all axes of positions are the same
    position = rope(
        config, dim, default_partial=0.25, beside=("mrope_section", "mrope_interleaved")
    )

    blocks: list[Block] = []
    for kind, part in zip(kinds, parts, strict=True):
        block = llama.block(
            config,
            position=position,
            dim=dim,
            qk_norm=QkNorm(norm),
            default_kv_heads=default_kv_heads,
            norm=norm,
            mlp=part,
        )
        # what its heads mix passes a gate
        gated = replace(block, attention=replace(block.attention, gated=True))
        blocks.append(gated if kind == GLOBAL else block.with_mixer(mixer))
    biases = ("attn.[qkvo]", "attn.gate") if config.flag("attention_bias", default=False) else ()
    return llama.decoder(config, blocks, biases=biases)


def _delta_rule(config: Config) -> DeltaRule:
    """The gated delta rule that the config describes."""
    heads = config.integer("linear_num_value_heads", default=32, most=2**16)
    return DeltaRule(
        heads=heads,
        key_heads=config.heads(heads, "linear_num_key_heads", default=16),
        key_dim=config.integer("linear_key_head_dim", default=128, most=2**16),
        v_dim=config.integer("linear_value_head_dim", default=128, most=2**16),
        kernel=config.integer("linear_conv_kernel_dim", default=4, most=2**10),
        activation=config.choice("hidden_act", among=ACTIVATIONS, default="silu"),
        norm=Norm("rms", config.number("rms_norm_eps", default=1e-6)),
    )


QWEN3_5_TEXT_NAMES = replace(
    qwen2.QWEN3_NAMES.with_roles(
        {
            **MIXER,
            "mixer.q mixer.k mixer.v": Concat("linear_attn.in_proj_qkv"),
            "mixer.gate": "linear_attn.in_proj_z",
            "mixer.strength": "linear_attn.in_proj_b",
            "mixer.time": "linear_attn.in_proj_a",
        },
        without=("attn.q",),
    ),
    ignored=NAMES.ignored,
)


def qwen3_5_text(config: Config) -> Spec:
    """The Spec of a Qwen3.5 (text): Qwen3-Next without experts. Source: Qwen Team, 2026."""
    mlp = llama.gated_mlp(config, default=12288)
    return whole_model(config, [mlp] * llama.depth(config), default_kv_heads=4)


QWEN3_5_MOE_TEXT_NAMES = replace(
    QWEN3_5_TEXT_NAMES.with_roles({**qwen2.EXPERTS, **qwen2.SHARED}),
    together={
        "experts.gate experts.up": PerExpert("mlp.experts.gate_up_proj"),
        "experts.down": "mlp.experts.down_proj",
    },
)
"""Experts are in one tensor, or each in its own, as whoever saved the file had them."""


def qwen3_5_moe_text(config: Config) -> Spec:
    """The Spec of a Qwen3.5 (text) with experts in every layer. Source: Qwen Team, 2026."""
    experts = qwen2.shared_experts(
        config,
        default_count=256,
        default_per_token=8,
        default_width=512,
        default_shared_width=512,
        renormalise=True,
    )
    config.get("intermediate_size")  # of layers without experts, which it has none of
    return whole_model(config, [experts] * llama.depth(config))


FAMILIES = {
    "qwen3_next": Family(spec, NAMES, fixed=GATED),
    "qwen3_5_text": Family(qwen3_5_text, QWEN3_5_TEXT_NAMES, fixed=GATED, tiled=True),
    "qwen3_5_moe_text": Family(qwen3_5_moe_text, QWEN3_5_MOE_TEXT_NAMES, fixed=GATED, tiled=True),
}
